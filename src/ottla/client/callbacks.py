"""Calls the user's callbacks in the client's loop: whatever one does, the client and other callbacks continue.

An exception in a callback is logged. `KeyboardInterrupt` and `SystemExit` end the user's event loop, as from any other
callback, but only after all other callbacks were called; the loop of a blocking client continues. In the user's event
loop a callback can also be a coroutine function: it runs as a task of the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

from ottla.client.errors import ArgumentTypeError

_logger = logging.getLogger(__name__)


class Callbacks:
    """The callbacks of one client."""

    def __init__(self, *, takes_coroutines: bool) -> None:
        """`takes_coroutines` is true if the loop is the user's; otherwise it is a thread of the client."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The client's loop, once it is known."""
        self.last_checked: object = None
        """The last function that was checked: most programs have one callback for all records."""
        self._takes_coroutines = takes_coroutines
        self._is_ending = False
        self._tasks: set[asyncio.Future[Any]] = set()

    def check(self, function: object, parameter: str) -> None:
        """Raises TypeError if the object cannot be used as a callback."""
        if not callable(function):
            raise ArgumentTypeError(f"{parameter} must be callable, not {type(function).__name__}")
        if not self._takes_coroutines and inspect.iscoroutinefunction(function):
            raise ArgumentTypeError(
                f"{parameter} must not be a coroutine function ({function!r}): a blocking client calls it in a "
                "background thread and does not await it. Use the asyncio client, or a plain function"
            )
        self.last_checked = function

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Calls the callback, in the loop or in a thread of the user, where interruptions are visible."""
        try:
            result = function(*args)
        except BaseException as error:
            self.failed(function, error)
        else:
            if result is not None:
                self.returned(function, result)

    def failed(self, function: Callable[..., object], error: BaseException) -> None:
        """Called in place of `call` by code that calls the function itself: the function raised that error."""
        if not isinstance(error, Exception) and (self.loop is None or asyncio._get_running_loop() is not self.loop):
            raise error
        _logger.error("the callback %r failed", function, exc_info=error)
        if self.loop is not None and self._takes_coroutines and isinstance(error, KeyboardInterrupt | SystemExit):
            self._end_loop(self.loop, error)

    def returned(self, function: Callable[..., object], result: object) -> None:
        """The same: the function returned that."""
        if inspect.isawaitable(result):
            self._await(function, result)

    def _end_loop(self, loop: asyncio.AbstractEventLoop, error: BaseException) -> None:
        """Raises one error, however many callbacks raise it, so that the loop ends its tasks in an orderly way."""
        if not self._is_ending:
            self._is_ending = True
            loop.call_soon(_raise, error)

    def _await(self, function: Callable[..., object], result: Awaitable[object]) -> None:
        if self.loop is None or not self._takes_coroutines:
            if isinstance(result, Coroutine):
                result.close()
            _logger.error("the callback %r returned %r, which a blocking client does not await", function, result)
        elif asyncio._get_running_loop() is self.loop:
            self._begin(function, result)
        else:
            self.loop.call_soon_threadsafe(self._begin, function, result)

    def _begin(self, function: Callable[..., object], result: Awaitable[object]) -> None:
        task = asyncio.ensure_future(result)
        self._tasks.add(task)

        def done(task: asyncio.Future[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                _logger.error("the callback %r failed", function, exc_info=task.exception())

        task.add_done_callback(done)

    @property
    def is_calling(self) -> bool:
        """Whether the caller is a callback that `finish` waits for."""
        return asyncio.current_task() in self._tasks

    async def finish(self) -> None:
        """Waits for running callbacks, except the one that calls this."""
        while others := self._tasks - {asyncio.current_task()}:
            await asyncio.wait(others)


def _raise(error: BaseException) -> NoReturn:
    raise error
