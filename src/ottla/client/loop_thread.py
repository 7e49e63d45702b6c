"""The loop of a blocking client: a daemon thread of its own, so that its work goes on while the user's code blocks.

`run` hands a coroutine to the loop and waits for it in the calling thread, in a way that a signal can interrupt: Ctrl-C
ends the wait at once, and the work is cancelled. While it waits, the calling thread serves the work: `in_caller` runs
callbacks of the user there, and not in the loop, which they would hold up.

Thread-safe. A fork takes neither the thread nor the use of the sockets along: in the child everything is refused. What
is still open when the interpreter ends is closed then, without waiting for what it does, except for `on_exit`, which is
given a few seconds.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client.errors import CallTimeoutError, ClosedError, ForkedError, WrongLoopError
from ottla.client.forks import tell_of_forks
from ottla.net.client_connection import close_all_in_loop

T = TypeVar("T")

SIGNALS_SEEN_WITHIN_S: Final = 0.25
"""How long a thread may sleep in one go that is to hear Ctrl-C. Mostly a signal wakes it at once; but one that comes in
the moment before it falls asleep would not be seen until it wakes up by itself."""
_ROUNDS: Final = 5
_EXIT_S: Final = 3.0
"""For what is to be done at the end of the interpreter, by all clients together."""
_PATIENCE_S: Final = 5.0
"""For a loop that is held up: how long its end, or the end of cancelled work, is waited for."""


class _Call(NamedTuple):
    """What the thread that waits is to call."""

    function: Callable[..., Any]
    args: tuple[object, ...]
    answer: asyncio.Future[Any]


class _WaitingCall:
    """A thread that waits in `run`, and what it waits for."""

    __slots__ = ("is_served", "mailbox", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.work = [work]
        """Until somebody takes it: the loop, to run it, or the thread, to drop it if it was interrupted before."""
        self.mailbox: SimpleQueue[_Call | None] = SimpleQueue()
        """Calls to make; None when the task is done."""
        self.task: asyncio.Task[Any] | None = None
        self.is_served = True
        """Whether anybody still looks into the mailbox."""

    def finish(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # seen, so that nobody reports it when the caller is gone
        self.mailbox.put(None)


_waiting: ContextVar[_WaitingCall | None] = ContextVar("ottla_waiting_thread", default=None)


class LoopThread:
    """Runs from the start to `close`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = _new_loop()
        self.is_open = True
        """False after `close` and in a forked child: one look, for paths that are too hot for `check`."""
        self.on_exit: Callable[[], Coroutine[Any, Any, object]] | None = None
        """What is to be done if the interpreter ends and nobody called `close`."""
        self._is_forked = False
        self._submitting = threading.Lock()
        """Held while the loop is given something, so that nothing comes behind its end."""
        self._thread = threading.Thread(target=_serve, args=(self.loop,), name=name, daemon=True)
        self._thread.start()
        _living.add(self)
        tell_of_forks(self)

    def check(self) -> None:
        """Raises what keeps this from being used."""
        if self._is_forked:
            raise ForkedError(
                f"{self.name} was made before os.fork and cannot be used in the child: make another there"
            )
        if not self.is_open:
            raise ClosedError(f"{self.name} is closed")

    # Work.

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """What the work gives or raises. After `timeout_s` it is cancelled, and TimeoutError raised."""
        waiting = _WaitingCall(work)
        try:
            if threading.current_thread() is self._thread:
                raise WrongLoopError(
                    f"a callback that runs inside {self.name} waits for it, which would never end: "
                    "leave that to another thread"
                )
            self.call_soon(self._begin, waiting)
            result: T = self._wait(waiting, timeout_s)
            return result
        finally:
            waiting.is_served = False
            self._cancel(waiting)

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the last work, and closes. A callback inside the loop is refused, and nothing is closed."""
        if threading.current_thread() is self._thread:
            return self.run(work)
        try:
            return self.run(work)
        finally:
            self.close()

    async def in_caller(self, function: Callable[..., T], *args: object) -> T:
        """For work under `run`: what the function gives or raises, called in the thread that waits there."""
        waiting = _waiting.get()
        if waiting is None or not waiting.is_served:
            raise RuntimeError(f"no thread waits for this work that could call {function!r}")
        answer: asyncio.Future[T] = self.loop.create_future()
        waiting.mailbox.put(_Call(function, args, answer))
        return await answer

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Calls it in the loop, whose thread is woken."""
        self.check()  # before the lock, which another thread may have held at the fork
        with self._submitting:
            self.check()
            self.loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Cancels what runs and ends the thread; those who wait in `run` are told. Again is no harm."""
        if self._is_forked:
            return
        with self._submitting:
            if self.is_open:
                self.is_open = False
                self.loop.call_soon_threadsafe(self.loop.stop)
        _living.discard(self)
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE_S)

    # In the loop.

    def _begin(self, waiting: _WaitingCall) -> None:
        try:
            work = waiting.work.pop()
        except IndexError:
            return
        if not waiting.is_served:
            work.close()
            return
        # Set in the context of this callback, a copy of the caller's, which the task inherits.
        _waiting.set(waiting)
        waiting.task = self.loop.create_task(work)
        waiting.task.add_done_callback(waiting.finish)

    # In the calling thread.

    def _wait(self, waiting: _WaitingCall, timeout_s: float | None) -> Any:
        deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        is_late = False
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            try:
                message = waiting.mailbox.get(timeout=min(left_s, SIGNALS_SEEN_WITHIN_S))
            except Empty:
                if time.monotonic() < deadline_s:
                    continue
                if is_late:
                    raise self._too_late(timeout_s) from None
                # Cancelled work ends at once unless the loop is held up; what came just in time is not lost.
                is_late, deadline_s = True, time.monotonic() + _PATIENCE_S
                self._cancel(waiting)
                continue
            if message is not None:
                self._answer(message)
                continue
            if waiting.task is not None and not waiting.task.cancelled():
                return waiting.task.result()
            if is_late:
                raise self._too_late(timeout_s)
            self.check()
            raise ClosedError(f"{self.name} was closed meanwhile")

    def _too_late(self, timeout_s: float | None) -> CallTimeoutError:
        return CallTimeoutError(f"{self.name} was not done within {timeout_s:g} s")

    def _answer(self, call: _Call) -> None:
        result: object = None
        failure: Exception | None = None
        try:
            result = call.function(*call.args)
        except StopIteration as error:
            # No coroutine can raise it.
            failure = RuntimeError(f"{call.function!r} raised StopIteration")
            failure.__cause__ = error
        except Exception as error:
            failure = error
        with contextlib.suppress(ClosedError):  # but not ForkedError, if the function forked: nobody will answer here
            self.call_soon(_settle, call.answer, result, failure)

    def _cancel(self, waiting: _WaitingCall) -> None:
        if waiting.task is not None and waiting.task.done():
            return
        with contextlib.suppress(IndexError):
            waiting.work.pop().close()  # it was not begun, and will not be
            return
        with contextlib.suppress(ClosedError, ForkedError):
            self.call_soon(lambda: waiting.task and waiting.task.cancel())

    def after_fork(self) -> None:
        self._is_forked = True
        self.is_open = False


def _settle(answer: asyncio.Future[Any], result: object, failure: Exception | None) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(result)
    else:
        answer.set_exception(failure)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end_tasks(loop))
        loop.run_until_complete(close_all_in_loop())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Tasks that end may have others started, to make good what failed: so again, but not for ever."""
    for _ in range(_ROUNDS):
        tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE_S / _ROUNDS)
        await asyncio.sleep(0)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


_living: Final[set[LoopThread]] = set()
"""Those that are open, whether or not anybody else still knows them: their threads run on all the same."""


def _close_all() -> None:
    until_s = time.monotonic() + _EXIT_S
    for one in list(_living):
        if one.on_exit is not None and one.is_open:
            with contextlib.suppress(Exception):  # There is nobody left to tell.
                one.run(one.on_exit(), max(0.0, until_s - time.monotonic()))
        one.close()


atexit.register(_close_all)
