"""The controller's events, one after the other, each to its end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_logger = logging.getLogger(__name__)


def is_cancelled() -> bool:
    """Whether the running task itself was cancelled, and not something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class EventQueue:
    """Belongs to one event loop. An event that was put is processed even if nobody waits for it any more."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = deque()
        self._names: set[str] = set()
        self._is_wanted = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.processed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def put(self, name: str, event: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Events are told apart by name in the log only."""
        if self._is_closed:
            return
        self._waiting.append((name, event))
        self._is_idle.clear()
        self._is_wanted.set()

    def put_once(self, name: str, event: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The same, unless an event of that name waits already: for events that say only that something changed."""
        if name not in self._names:
            self._names.add(name)
            self.put(name, event)

    async def call(self, name: str, event: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Puts an event and waits for its result."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def answered() -> None:
            try:
                result = await event()
            except asyncio.CancelledError:
                answer.cancel()
                raise
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        if self._is_closed:
            raise asyncio.CancelledError
        self.put(name, answered)
        return await answer

    @property
    def is_idle(self) -> bool:
        """Whether no event waits or is being processed."""
        return self._is_idle.is_set()

    async def close(self) -> None:
        """Processes what was put before, and nothing afterwards. If this is cancelled, so is what is left."""
        self._is_closed = True
        if self._task is not None:
            try:
                await self._is_idle.wait()
            finally:
                self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._is_wanted.wait()
            while self._waiting:
                name, event = self._waiting.popleft()
                self._names.discard(name)
                try:
                    await event()
                except asyncio.CancelledError as error:
                    # Only `close` ends this task. If what an event waited for was cancelled, the next events must
                    # still be processed.
                    if self._is_closed or is_cancelled():
                        raise
                    _logger.error("the controller failed to process an event: %s", name, exc_info=error)
                except Exception:
                    _logger.exception("the controller failed to process an event: %s", name)
                self.processed += 1
            self._is_wanted.clear()
            self._is_idle.set()
