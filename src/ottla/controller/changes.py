"""How changes are made: one after the other, and each to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.controller.errors import ControllerError
from ottla.zookeeper.tree_file import TreeFileError

P = ParamSpec("P")
T = TypeVar("T")

_logger = logging.getLogger(__name__)


class ChangeQueue:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the change returns. One whose asker is gone, and cancelled, is finished all the same: half of it may be
        written already."""

        async def in_turn() -> T:
            async with self.lock:
                return await change()

        task = asyncio.ensure_future(in_turn())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Waits for those that were begun."""
        if self._running:
            await asyncio.wait(self._running)


class Changeable(Protocol):
    changes: ChangeQueue


C = TypeVar("C", bound=Changeable)


def change(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[C, P], Coroutine[Any, Any, T]]:
    """A method that changes something, in its turn. What the tree cannot do becomes a `ControllerError`."""

    @wraps(method)
    async def in_turn(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self.changes.run(lambda: method(self, *args, **kwargs))
        except (CoordinationError, TreeFileError) as error:
            _logger.error("%s failed: %s", method.__name__, error)
            reason = f"What the cluster agrees on could not be read or changed: {error}"
            raise ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error

    return in_turn
