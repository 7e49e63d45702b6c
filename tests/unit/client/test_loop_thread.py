"""The loop of a blocking client: work from many threads, callbacks in the thread that waits, and every way to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from itertools import count

import pytest

from ottla.client import loop_thread
from ottla.client.errors import ClosedError
from ottla.client.loop_thread import LoopThread
from ottla.net.client_connection import Address, ClientConnection
from support.clients.scripted_broker import ScriptedBroker
from unit.client.interruptions import Interruption

BOUND_S = 30


@pytest.fixture(params=["uvloop", "asyncio"])
def thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    if request.param == "asyncio":
        monkeypatch.setattr(loop_thread, "_new_loop", asyncio.new_event_loop)
    thread = LoopThread("a client")
    yield thread
    thread.close()


async def forever() -> None:
    await asyncio.Event().wait()


async def give(value: object) -> object:
    await asyncio.sleep(0)
    return value


def test_work_runs_in_the_loop_and_gives_its_result(thread: LoopThread) -> None:
    async def where() -> str:
        assert asyncio.get_running_loop() is thread.loop
        return threading.current_thread().name

    assert thread.run(where()) == "a client"


def test_what_work_raises_is_raised(thread: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("this")

    with pytest.raises(KeyError, match="this"):
        thread.run(fail())


def test_many_threads_wait_at_once(thread: LoopThread) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda number: thread.run(give(number)), range(1000))) == list(range(1000))


def test_the_callers_context_reaches_the_work(thread: LoopThread) -> None:
    variable = ContextVar("variable", default="none")
    variable.set("the caller's")

    async def look() -> str:
        return variable.get()

    assert thread.run(look()) == "the caller's"


def test_a_callback_runs_in_the_thread_that_waits(thread: LoopThread) -> None:
    async def work() -> tuple[int, int]:
        return await thread.in_caller(lambda extra: (threading.get_ident(), extra), 5)

    assert thread.run(work()) == (threading.get_ident(), 5)
    with ThreadPoolExecutor(4) as pool:

        def one(_: int) -> bool:
            return thread.run(work())[0] == threading.get_ident()

        assert all(pool.map(one, range(100)))


def test_a_callback_may_itself_wait_for_the_loop(thread: LoopThread) -> None:
    async def work() -> object:
        return await thread.in_caller(lambda: thread.run(give("inner")))

    assert thread.run(work()) == "inner"


@pytest.mark.parametrize(
    ("raised", "seen"), [(KeyError("x"), KeyError), (StopIteration(), RuntimeError)], ids=["KeyError", "StopIteration"]
)
def test_what_a_callback_raises_is_the_works_to_handle(
    thread: LoopThread, raised: Exception, seen: type[Exception]
) -> None:
    def callback() -> None:
        raise raised

    async def work() -> str:
        try:
            await thread.in_caller(callback)
        except seen:
            return "handled"
        return "not raised"

    assert thread.run(work()) == "handled"


def test_a_callback_that_wants_to_end_the_program_ends_the_wait(thread: LoopThread) -> None:
    cancelled = threading.Event()

    def callback() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        try:
            await thread.in_caller(callback)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        thread.run(work())
    assert cancelled.wait(BOUND_S)


def test_without_a_thread_that_waits_there_is_nobody_to_call(thread: LoopThread) -> None:
    failures: list[BaseException | None] = []
    told = threading.Event()
    may_go_on = threading.Event()

    async def later() -> None:
        while not may_go_on.is_set():
            await asyncio.sleep(0.001)
        await thread.in_caller(print)

    def note(task: asyncio.Task[None]) -> None:
        failures.append(task.exception())
        told.set()

    async def work() -> None:
        asyncio.create_task(later()).add_done_callback(note)

    thread.run(work())
    may_go_on.set()
    assert told.wait(BOUND_S)
    assert "no thread is waiting" in str(failures[0])


def test_a_timeout_cancels_the_work(thread: LoopThread) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(TimeoutError, match=r"a client: the call did not finish within 0\.05 s"):
        thread.run(work(), timeout_s=0.05)
    assert ended == ["cancelled"]


def test_what_comes_just_in_time_is_not_lost(thread: LoopThread) -> None:
    async def work() -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            return "after all"
        return "never"

    assert thread.run(work(), timeout_s=0.05) == "after all"


def test_a_loop_cannot_wait_for_itself(thread: LoopThread) -> None:
    async def work() -> None:
        thread.run(give(1))

    with pytest.raises(RuntimeError, match="a callback of a client must not wait for"):
        thread.run(work())


def test_functions_are_called_in_the_loop(thread: LoopThread) -> None:
    called: list[object] = []
    done = threading.Event()

    def function(value: object) -> None:
        called.append((value, threading.current_thread().name))
        done.set()

    thread.call_soon(function, 3)
    assert done.wait(BOUND_S)
    assert called == [(3, "a client")]


def test_after_close_all_use_is_refused(thread: LoopThread) -> None:
    assert thread.is_open
    thread.close()
    thread.close()
    assert not thread.is_open
    assert thread.loop.is_closed()
    uses: list[Callable[[], object]] = [
        thread.check,
        lambda: thread.run(give(1)),
        lambda: thread.call_soon(print),
    ]
    for use in uses:
        with pytest.raises(ClosedError, match="a client is closed"):
            use()


def test_closing_ends_what_others_wait_for(thread: LoopThread) -> None:
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        await forever()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: thread.run(work()))
        assert begun.wait(BOUND_S)
        thread.close()
        with pytest.raises(ClosedError):
            waiting.result(BOUND_S)


def test_background_tasks_end_with_the_loop(thread: LoopThread) -> None:
    ended: list[str] = []
    tasks: set[asyncio.Task[None]] = set()

    async def background() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0.01)  # longer than the loop would turn by itself
            ended.append("tidied up")

    async def start() -> None:
        tasks.add(asyncio.create_task(background()))
        await asyncio.sleep(0)

    thread.run(start())
    thread.close()
    assert ended == ["tidied up"]


def test_tasks_that_are_started_at_the_end_end_too(thread: LoopThread) -> None:
    ended: list[int] = []
    tasks: list[asyncio.Task[None]] = []

    def another(left: int) -> None:
        tasks.append(asyncio.create_task(background(left)))

    async def background(left: int) -> None:
        try:
            await forever()
        finally:
            ended.append(left)
            if left:
                asyncio.get_running_loop().call_soon(another, left - 1)

    async def start() -> None:
        another(3)
        await asyncio.sleep(0)

    thread.run(start())
    thread.close()
    assert ended == [3, 2, 1, 0]
    assert all(task.cancelled() for task in tasks)


def test_connections_that_nobody_closed_end_with_the_loop() -> None:
    """In both loops: uvloop refuses to be closed, in its thread, as long as a socket is open."""

    async def connect(port: int) -> ClientConnection:
        return await ClientConnection.open(Address("127.0.0.1", port))

    async def serve() -> None:
        async with ScriptedBroker() as broker:
            for make in (loop_thread._new_loop, asyncio.new_event_loop):
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(loop_thread, "_new_loop", make)
                    thread = LoopThread("a client")
                connection = await asyncio.to_thread(thread.run, connect(broker.address.port))
                await asyncio.to_thread(thread.close)
                assert not connection.is_open
                assert thread.loop.is_closed()

    asyncio.run(serve())


def test_closing_between_the_look_and_the_use(thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    check = thread.check

    def check_and_be_overtaken() -> None:
        check()
        monkeypatch.undo()
        thread.close()

    monkeypatch.setattr(thread, "check", check_and_be_overtaken)
    with pytest.raises(ClosedError):
        thread.run(give(1))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("hasty_threads")
def test_closing_races_with_use() -> None:
    """Whatever is handed over is either done or refused: nobody waits for ever."""
    for _ in range(20):
        outcomes: list[str] = []
        thread = LoopThread("a client")

        def use(thread: LoopThread = thread, outcomes: list[str] = outcomes) -> None:
            try:
                while True:
                    thread.run(give(1))
            except Exception as error:
                outcomes.append(str(error))

        users = [threading.Thread(target=use, daemon=True) for _ in range(8)]
        for user in users:
            user.start()
        thread.close()
        for user in users:
            user.join(BOUND_S)
        assert outcomes == ["a client is closed"] * 8


# In processes of their own.

PRELUDE = """
    import asyncio, os, signal, sys, threading
    from ottla.client.errors import ForkedError
    from ottla.client.loop_thread import LoopThread
    # A test run in the background hands on that Ctrl-C is to be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    thread = LoopThread("a client")

    async def give(value):
        await asyncio.sleep(0)
        return value

    async def say(text):
        print(text, flush=True)
        await asyncio.Event().wait()
"""


IGNORE_FORKS = "ignore:This process:DeprecationWarning"
"""Python 3.12 warns of every fork in a process with threads. Whether to fork is for the user to decide."""


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", IGNORE_FORKS, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=BOUND_S)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, out, err


@pytest.mark.parametrize(
    "wait",
    [
        "thread.run(say('waiting'))",
        "thread.run(say('waiting'), timeout_s=1000)",
        "thread.run(thread.in_caller(lambda: thread.run(say('waiting'))))",
    ],
    ids=["endless", "with a timeout", "in a callback"],
)
def test_ctrl_c_ends_a_wait_at_once(wait: str) -> None:
    process = start(
        f"""
        try:
            {wait}
        except KeyboardInterrupt:
            # The client goes on: what is needed to close it still works.
            print("interrupted,", thread.run(give("still there")))
            thread.close()
        """
    )
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], BOUND_S)
    assert readable
    assert process.stdout.readline() == "waiting\n"
    os.kill(process.pid, signal.SIGINT)
    assert outcome(process) == (0, "interrupted, still there\n", "")


def test_the_interpreter_ends_without_a_word_when_a_client_is_left_open() -> None:
    program = """
        tasks = []

        async def background():
            try:
                await say("at work")
            finally:
                await asyncio.sleep(0)
                print("tidied up")

        async def start():
            tasks.append(asyncio.create_task(background()))
            await asyncio.sleep(0.01)

        thread.run(start())
        waiting = threading.Thread(target=lambda: thread.run(asyncio.Event().wait()), daemon=True)
        sys.excepthook = threading.excepthook = lambda *_: None
        waiting.start()
        """
    assert outcome(start(program)) == (0, "at work\ntidied up\n", "")


def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    program = """
        child = os.fork()
        if child == 0:
            uses = (lambda: thread.run(give(1)), lambda: thread.call_soon(print), thread.check)
            for use in uses:
                try:
                    use()
                except ForkedError as error:
                    print(error, flush=True)
            assert not thread.is_open
            thread.close()
            sys.exit(7)  # with all that an interpreter does at its end
        _, status = os.waitpid(child, 0)
        print("child", os.waitstatus_to_exitcode(status), thread.run(give("parent")))
        thread.close()
        """
    refusal = "a client was created before os.fork and cannot be used in the child process: create a new one\n"
    assert outcome(start(program)) == (0, refusal * 3 + "child 7 parent\n", "")


def test_a_fork_in_a_callback_leaves_the_child_waiting_for_nothing() -> None:
    program = """
        def callback():
            return os.fork()

        try:
            child = thread.run(thread.in_caller(callback))
        except ForkedError:
            os._exit(7)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        """
    assert outcome(start(program)) == (0, "7\n", "")


def test_a_child_may_have_a_client_of_its_own() -> None:
    program = """
        child = os.fork()
        if child == 0:
            own = LoopThread("another client")
            print(own.run(give("child")), flush=True)
            own.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(thread.run(give("parent")))
        """
    assert outcome(start(program)) == (0, "child\nparent\n", "")


def test_work_is_run_or_dropped_however_its_caller_is_interrupted(thread: LoopThread) -> None:
    running = 0

    async def work() -> int:
        nonlocal running
        running += 1
        try:
            await asyncio.sleep(0)
            return 5
        finally:
            running -= 1

    async def others() -> int:
        return len(asyncio.all_tasks(thread.loop)) - 1

    for number in count():
        interruption = Interruption(number)
        coroutine = work()
        try:
            with interruption:
                assert thread.run(coroutine) == 5
        except KeyboardInterrupt:
            coroutine.close()  # where not even `run` was entered
        assert not thread._submitting._is_owned(), interruption.where  # type: ignore[attr-defined]
        assert thread.run(give(number)) == number, interruption.where
        while thread.run(others()):
            pass
        assert not running, interruption.where
        if not interruption.happened:
            return


def test_a_signal_handler_can_close_it_in_the_middle_of_a_call() -> None:
    """It must not wait for what the interrupted thread has locked."""
    for number in count():
        thread = LoopThread("a client")
        closing = Interruption(number, thread.close)
        coroutine = give(5)
        with closing, contextlib.suppress(ClosedError):
            assert thread.run(coroutine) == 5
        coroutine.close()
        thread.close()
        assert not thread._thread.is_alive(), closing.where
        if not closing.happened:
            return


def test_an_interrupted_close_is_finished_by_the_next() -> None:
    for number in count():
        thread, interruption = LoopThread("a client"), Interruption(number)
        try:
            with interruption:
                thread.close()
        except KeyboardInterrupt:
            thread.close()
        assert not thread._thread.is_alive(), interruption.where
        assert thread not in loop_thread._living, interruption.where
        if not interruption.happened:
            return
