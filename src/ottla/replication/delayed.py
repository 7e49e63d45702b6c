"""Operations that wait: for records to fetch, for replicas to have records, for the disk.

An operation waits under keys (partitions). Whoever changes something about a key says so, and the operations under it
look whether that was what they waited for. Nobody polls: an operation that nothing happens to costs one timer.

Changes are looked at when the loop has done what it is at, or the requests that came together are handled: many appends
of one moment wake a waiting fetch once.
Owned by the loop.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

_logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class DelayedOperation(ABC, Generic[K]):
    """What waits. `complete` is called once: when `is_ready` said so, or when its time was over."""

    __slots__ = ("done", "keys", "timer")

    def __init__(self) -> None:
        self.done = False
        self.keys: tuple[K, ...] = ()
        self.timer: TimerHandle | None = None

    @abstractmethod
    def is_ready(self, key: K) -> bool:
        """Whether it need not wait any longer, now that something about the key changed."""

    @abstractmethod
    def complete(self) -> None:
        """Answers whoever waits, if need be with an error. What it raises is logged, and the others go on; but then
        nobody is left to give its answer."""


class Purgatory(Generic[K]):
    """The operations of one kind that wait."""

    def __init__(self, name: str, loop: AbstractEventLoop) -> None:
        self.name = name
        self.expired_count = 0
        self._loop = loop
        self._waiting: dict[K, dict[DelayedOperation[K], None]] = {}
        self._changed: dict[K, None] = {}
        self._is_scheduled = False
        self._count = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return self._count

    def wait(self, operation: DelayedOperation[K], keys: Iterable[K], timeout_s: float) -> None:
        """The caller has looked, and the operation is not ready."""
        operation.keys = tuple(keys)
        for key in operation.keys:
            self._waiting.setdefault(key, {})[operation] = None
        self._count += 1
        operation.timer = self._loop.call_later(timeout_s, self._expire, operation)

    def changed(self, key: K) -> None:
        """Something about the key is new; those who wait for it look soon."""
        if key in self._waiting:
            self._changed[key] = None
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._look_as_scheduled)

    def look_now(self) -> None:
        """For who knows that this moment's changes are over."""
        if self._changed:
            self._look()

    def cancel(self, operation: DelayedOperation[K]) -> None:
        """Nobody is left to be answered."""
        if not operation.done:
            self._take_out(operation)

    def close(self) -> None:
        """Ends every operation as if its time were over: the broker stops."""
        for operation in list({operation: None for waiting in self._waiting.values() for operation in waiting}):
            self._expire(operation)

    def _look_as_scheduled(self) -> None:
        self._is_scheduled = False
        self._look()

    def _look(self) -> None:
        changed, self._changed = self._changed, {}
        for key in changed:
            for operation in list(self._waiting.get(key, ())):
                if not operation.done and self._is_ready(operation, key):
                    self._finish(operation)

    def _is_ready(self, operation: DelayedOperation[K], key: K) -> bool:
        try:
            return operation.is_ready(key)
        except Exception:  # completing reads again, and answers the error; the others must not wait for it
            _logger.exception("a delayed %s could not look at %s", self.name, key)
            return True

    def _expire(self, operation: DelayedOperation[K]) -> None:
        if operation.done:
            return
        self.expired_count += 1
        self._finish(operation)

    def _finish(self, operation: DelayedOperation[K]) -> None:
        """Whoever made the change is not to blame for what goes wrong here: it must get its own answer."""
        self._take_out(operation)
        try:
            operation.complete()
        except Exception:
            _logger.exception("a delayed %s could not be completed", self.name)

    def _take_out(self, operation: DelayedOperation[K]) -> None:
        operation.done = True
        self._count -= 1
        if operation.timer is not None:
            operation.timer.cancel()
            operation.timer = None
        for key in operation.keys:
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._waiting[key]
