"""A queue that makes changes one after the other, each to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.controller.errors import ControllerError
from ottla.zookeeper.tree_file import TreeFileError

P = ParamSpec("P")
T = TypeVar("T")

_logger = logging.getLogger(__name__)

_TURNS_TO_ANSWER: Final = 4
"""Iterations of the loop in which an answer gets from a change to its client."""


class ChangeQueue:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, change: Callable[[], Coroutine[Any, Any, T]], name: str = "a change") -> T:
        """Makes a change and returns its result. It is finished even if the caller is cancelled, because half of it may
        be written already. Failures of the coordination tree become a `ControllerError`."""
        return await asyncio.shield(self._begin(change, name))

    async def run_behind(
        self, change: Callable[[asyncio.Future[T]], Coroutine[Any, Any, T]], name: str = "a change"
    ) -> T:
        """The same for a change that may call `answer_early`: the caller does not wait for the rest, but the next
        change does. Errors in the rest are logged."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = self._begin(lambda: change(answer), name)
        await asyncio.wait((answer, task), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            return await task
        task.add_done_callback(lambda done: _log_failure(done, name))
        return answer.result()

    def _begin(self, change: Callable[[], Coroutine[Any, Any, T]], name: str) -> asyncio.Task[T]:
        async def in_turn() -> T:
            async with self.lock:
                try:
                    return await change()
                except (CoordinationError, TreeFileError) as error:
                    _logger.error("%s failed: %s", name, error)
                    reason = f"The coordination tree could not be read or changed: {error}"
                    raise ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error

        task = asyncio.ensure_future(in_turn())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def drain(self) -> None:
        """Waits for changes that have begun."""
        if self._running:
            await asyncio.wait(self._running)


async def answer_early(answer: asyncio.Future[T], result: T) -> None:
    """Answers, and returns when the response is on its way: the rest of a change may block the loop for a while."""
    answer.set_result(result)
    for _ in range(_TURNS_TO_ANSWER):
        await asyncio.sleep(0)


def _log_failure(task: asyncio.Task[Any], name: str) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ControllerError):  # those are logged already
        _logger.error("%s was answered but could not be finished", name, exc_info=error)


class Changeable(Protocol):
    changes: ChangeQueue


C = TypeVar("C", bound=Changeable)


def change(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[C, P], Coroutine[Any, Any, T]]:
    """Decorates a method so that it runs in the queue of changes."""

    @wraps(method)
    async def in_turn(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.changes.run(lambda: method(self, *args, **kwargs), method.__name__)

    return in_turn
