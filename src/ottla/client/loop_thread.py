"""The event loop of a blocking client, in a daemon thread, so that it keeps running while the user's code blocks.

`run` submits a coroutine to the loop and waits for it in the calling thread. A signal can interrupt the wait: Ctrl-C
ends it immediately and cancels the coroutine. While it waits, the calling thread also runs the user's callbacks
(`in_caller`), because they would block the loop.

Thread-safe. A forked child has neither the thread nor may it use the sockets: every use raises an error. When the
interpreter exits, open loops are closed without waiting, except for `on_exit`, which gets a few seconds.
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
"""How long a thread that must notice Ctrl-C may sleep at a time. Usually a signal wakes it at once, but one that
arrives just before it falls asleep is only noticed when it wakes up."""
_ROUNDS: Final = 5
_EXIT_S: Final = 3.0
"""Time limit for all clients together when the interpreter exits."""
_PATIENCE_S: Final = 5.0
"""How long to wait for a blocked loop to stop, or for cancelled work to end."""


class _Call(NamedTuple):
    """A call for the waiting thread to make."""

    function: Callable[..., Any]
    args: tuple[object, ...]
    answer: asyncio.Future[Any]


class _WaitingCall:
    """A thread that waits in `run`, and what it waits for."""

    __slots__ = ("is_served", "mailbox", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.work = [work]
        """Set until it is taken: by the loop to run it, or by the thread to drop it if it was interrupted before."""
        self.mailbox: SimpleQueue[_Call | None] = SimpleQueue()
        """Calls to make; None when the task is done."""
        self.task: asyncio.Task[Any] | None = None
        self.is_served = True
        """Whether a thread still reads the mailbox."""

    def finish(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # seen, so that nobody reports it when the caller is gone
        self.mailbox.put(None)


_waiting: ContextVar[_WaitingCall | None] = ContextVar("ottla_waiting_thread", default=None)


class LoopThread:
    """Runs from the start until `close`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = _new_loop()
        self.is_open = True
        """False after `close` and in a forked child: a cheap check for paths that are too hot for `check`."""
        self.on_exit: Callable[[], Coroutine[Any, Any, object]] | None = None
        """What to do if the interpreter exits without `close`."""
        self._is_forked = False
        self._is_stopping = False
        self._submitting = threading.RLock()
        """Held while work is submitted to the loop, so that nothing is submitted after its end. Reentrant, because a
        signal handler may close the client meanwhile."""
        self._thread = threading.Thread(target=_serve, args=(self.loop,), name=name, daemon=True)
        self._thread.start()
        _living.add(self)
        tell_of_forks(self)

    def check(self) -> None:
        """Raises an error if the loop cannot be used."""
        if self._is_forked:
            raise ForkedError(
                f"{self.name} was created before os.fork and cannot be used in the child process: create a new one"
            )
        if not self.is_open:
            raise ClosedError(f"{self.name} is closed")

    # Work.

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Returns or raises what the work does. After `timeout_s` it is cancelled, and TimeoutError is raised."""
        waiting = _WaitingCall(work)
        try:
            if threading.current_thread() is self._thread:
                raise WrongLoopError(
                    f"a callback of {self.name} must not wait for {self.name}, because that would never end: "
                    "wait in another thread"
                )
            self.call_soon(self._begin, waiting)
            result: T = self._wait(waiting, timeout_s)
            return result
        finally:
            waiting.is_served = False
            self._cancel(waiting)

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the last work, and closes. Raises an error, without closing, if called by a callback inside the loop."""
        if threading.current_thread() is self._thread:
            return self.run(work)
        try:
            return self.run(work)
        finally:
            self.close()

    async def in_caller(self, function: Callable[..., T], *args: object) -> T:
        """For work under `run`: calls the function in the waiting thread, and returns or raises what it does."""
        waiting = _waiting.get()
        if waiting is None or not waiting.is_served:
            raise RuntimeError(f"no thread is waiting for this work, so {function!r} cannot be called")
        answer: asyncio.Future[T] = self.loop.create_future()
        waiting.mailbox.put(_Call(function, args, answer))
        return await answer

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Calls the function in the loop and wakes its thread."""
        self.check()  # before the lock, which another thread may have held at the fork
        if threading.get_ident() == self._thread.ident:
            # Without the lock: a thread may hold it while a signal handler of its own waits for this one.
            self.loop.call_soon(function, *args)
            return
        with self._submitting:
            self.check()
            try:
                self.loop.call_soon_threadsafe(function, *args)
            except RuntimeError:
                self.check()  # a signal handler closed it
                raise

    def close(self) -> None:
        """Cancels running work and ends the thread; threads that wait in `run` get an error. Idempotent: closing again
        finishes a close that was interrupted."""
        if self._is_forked:
            return
        with self._submitting:
            self.is_open = False
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._stop)
        _living.discard(self)
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE_S)

    # In the loop.

    def _stop(self) -> None:
        """Once: what runs after the end must not be stopped."""
        if not self._is_stopping:
            self._is_stopping = True
            self.loop.stop()

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
            raise ClosedError(f"{self.name} was closed during the call")

    def _too_late(self, timeout_s: float | None) -> CallTimeoutError:
        return CallTimeoutError(f"{self.name}: the call did not finish within {timeout_s:g} s")

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


def wait_for(lock: threading.Lock, timeout_s: float | None) -> bool:
    """Whether the lock was released within that time. Waits in slices, so that Ctrl-C always works: between two of
    them, CPython looks for signals. So this must not be in a module that may be compiled."""
    until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while not lock.acquire(timeout=max(0.0, min(until_s - time.monotonic(), SIGNALS_SEEN_WITHIN_S))):
        if time.monotonic() >= until_s:
            return False
    return True


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
    """Ending tasks may start new ones to clean up, so this repeats, but not forever."""
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
"""All open loops, even if nothing else references them: their threads are running."""


def _close_all() -> None:
    until_s = time.monotonic() + _EXIT_S
    for one in list(_living):
        if one.on_exit is not None and one.is_open:
            with contextlib.suppress(Exception):  # There is nobody left to tell.
                one.run(one.on_exit(), max(0.0, until_s - time.monotonic()))
        one.close()


atexit.register(_close_all)
