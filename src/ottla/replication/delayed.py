"""Operations that wait: for records to fetch, for replicas to have records, for the disk.

An operation waits under keys (partitions). Code that changes something about a key reports it, and the operations under
that key check whether they are ready. Nothing polls.

Nearly all operations end before their time, so they have no timers of their own: each purgatory keeps their deadlines
in a heap, and has one timer for the first. Deadlines of operations that ended are dropped when they are due, or when
they are the majority.

Changes are checked at the end of a loop iteration, or when all requests that arrived together are handled: many appends
at once wake a waiting fetch once.
Owned by the loop.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

_logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_KEPT_DEADLINES: Final = 64
"""So many of ended operations are kept in any case."""
_NEVER_S: Final = float("inf")


class DelayedOperation(ABC, Generic[K]):
    """An operation that waits. `complete` is called once: when `is_ready` returned True, or on timeout."""

    __slots__ = ("deadline_s", "done", "keys", "number")

    def __init__(self) -> None:
        self.done = False
        self.keys: tuple[K, ...] = ()
        self.number = 0
        """Identifies its deadline in the purgatory."""
        self.deadline_s = _NEVER_S

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
        self._operations: dict[int, DelayedOperation[K]] = {}
        """All that wait, by number."""
        self._last_number = 0
        self._deadlines: list[tuple[float, int]] = []
        """A heap of times and numbers, also of operations that ended or have an earlier deadline by now."""
        self._timer: TimerHandle | None = None
        self._timer_s = _NEVER_S
        """When the timer fires; not later than the first deadline."""

    def __len__(self) -> int:
        """The number of waiting operations."""
        return len(self._operations)

    def wait(self, operation: DelayedOperation[K], keys: Iterable[K], timeout_s: float) -> None:
        """Adds an operation that the caller found not ready."""
        operation.keys = tuple(keys)
        for key in operation.keys:
            self._waiting.setdefault(key, {})[operation] = None
        self._set_deadline(operation, self._loop.time() + timeout_s)

    def hasten(self, operation: DelayedOperation[K], timeout_s: float) -> None:
        """Completes the operation after that time at the latest."""
        deadline_s = self._loop.time() + timeout_s
        if not operation.done and operation.deadline_s > deadline_s:
            del self._operations[operation.number]
            self._set_deadline(operation, deadline_s)

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
        for operation in list(self._operations.values()):
            self._expire(operation)
        if self._timer is not None and not self._operations:
            self._timer.cancel()
            self._timer, self._timer_s = None, _NEVER_S

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

    def _set_deadline(self, operation: DelayedOperation[K], deadline_s: float) -> None:
        number = self._last_number = self._last_number + 1
        operation.number, operation.deadline_s = number, deadline_s
        operations, deadlines = self._operations, self._deadlines
        operations[number] = operation
        if len(deadlines) >= _KEPT_DEADLINES + 2 * len(operations):
            deadlines[:] = [each for each in deadlines if each[1] in operations]
            heapify(deadlines)
        heappush(deadlines, (deadline_s, number))
        if deadline_s < self._timer_s:
            self._set_timer(deadline_s)

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._expire_due)

    def _expire_due(self) -> None:
        # uvloop's clock has whole milliseconds: when the timer fires, its time may not be quite there. Waiting for the
        # rest would keep the loop busy, because a timer for less than half a millisecond fires in its next turn.
        deadlines, due_s = self._deadlines, max(self._loop.time(), self._timer_s)
        self._timer, self._timer_s = None, _NEVER_S
        while deadlines and (deadlines[0][0] <= due_s or deadlines[0][1] not in self._operations):
            operation = self._operations.get(heappop(deadlines)[1])
            if operation is not None:
                self._expire(operation)
        if deadlines and deadlines[0][0] < self._timer_s:
            self._set_timer(deadlines[0][0])

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
        del self._operations[operation.number]
        for key in operation.keys:
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._waiting[key]
