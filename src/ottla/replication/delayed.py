"""Operations that wait: for records to fetch, for replicas to have records, for the disk.

An operation waits under keys (partitions). Code that changes something about a key reports it, and the operations under
that key check whether they are ready. Nothing polls: an idle operation costs one timer.

Changes are checked at the end of a loop iteration, or when all requests that arrived together are handled: many appends
at once wake a waiting fetch once.
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
    """An operation that waits. `complete` is called once: when `is_ready` returned True, or on timeout."""

    __slots__ = ("done", "keys", "timer")

    def __init__(self) -> None:
        self.done = False
        self.keys: tuple[K, ...] = ()
        self.timer: TimerHandle | None = None

    @abstractmethod
    def is_ready(self, key: K) -> bool:
        """Whether the wait is over, now that something about the key changed."""

    @abstractmethod
    def complete(self) -> None:
        """Answers the request, with an error if necessary. An exception is logged and does not affect other operations,
        but the request then stays unanswered."""


class Purgatory(Generic[K]):
    """The waiting operations of one kind."""

    def __init__(self, name: str, loop: AbstractEventLoop) -> None:
        self.name = name
        self.expired_count = 0
        self._loop = loop
        self._waiting: dict[K, dict[DelayedOperation[K], None]] = {}
        self._changed: dict[K, None] = {}
        self._is_scheduled = False
        self._count = 0

    def __len__(self) -> int:
        """The number of waiting operations."""
        return self._count

    def wait(self, operation: DelayedOperation[K], keys: Iterable[K], timeout_s: float) -> None:
        """Adds an operation that the caller found not ready."""
        operation.keys = tuple(keys)
        for key in operation.keys:
            self._waiting.setdefault(key, {})[operation] = None
        self._count += 1
        operation.timer = self._loop.call_later(timeout_s, self._expire, operation)

    def hasten(self, operation: DelayedOperation[K], timeout_s: float) -> None:
        """Completes the operation after that time at the latest."""
        timer = operation.timer
        if timer is not None and timer.when() > self._loop.time() + timeout_s:
            timer.cancel()
            operation.timer = self._loop.call_later(timeout_s, self._expire, operation)

    def changed(self, key: K) -> None:
        """Something about the key changed: operations under it are checked soon."""
        if key in self._waiting:
            self._changed[key] = None
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._look_as_scheduled)

    def look_now(self) -> None:
        """Checks all changed keys now, for a caller that knows no more changes are coming."""
        if self._changed:
            self._look()

    def cancel(self, operation: DelayedOperation[K]) -> None:
        """Drops an operation whose client is gone."""
        if not operation.done:
            self._take_out(operation)

    def close(self) -> None:
        """Completes every operation as if it had timed out: the broker stops."""
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
        except Exception:  # `complete` reads again and answers with the error; other operations go on
            _logger.exception("a delayed %s could not check %s", self.name, key)
            return True

    def _expire(self, operation: DelayedOperation[K]) -> None:
        if operation.done:
            return
        self.expired_count += 1
        self._finish(operation)

    def _finish(self, operation: DelayedOperation[K]) -> None:
        """Never raises: the request that made the change must get its own answer."""
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
