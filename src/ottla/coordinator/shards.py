"""A shard is the state machine of one partition of a coordinator's topic. This is what the runtime and a shard know of
each other.

A write looks at the shard and returns a `WriteOutcome`; it changes no hard state. `Shard.replay` is the only function
that does. Soft state (members that wait to join, timers) belongs to the shard and is lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ottla.base.clock import Clock
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.key_values import KeyValue, Record, TransactionProducer
from ottla.coordinator.pending import PendingAnswer
from ottla.coordinator.seams import Timer, Timers

R = TypeVar("R")


@dataclass(slots=True)
class WriteOutcome(Generic[R]):
    """What a write decided: records to append, and the response to send when they are committed. Without records the
    response still waits for what was written before it."""

    response: R | PendingAnswer[R]
    records: Sequence[KeyValue] = ()
    on_appended: Callable[[], None] | None = None
    """Called once the records are appended and replayed, before the response: for soft state that goes with them."""
    producer: TransactionProducer | None = None
    """The producer whose transaction the records are part of."""
    on_failed: Callable[[CoordinatorError], None] | None = None
    """Called if the records could not be appended, for others that wait for them. The caller gets the error anyway."""


class Shard(Protocol):
    """The state machine of one partition."""

    def replay(self, records: Collection[Record], offsets: Sequence[int], producer_id: int, /) -> None:
        """Applies records, each with its offset; the producer id is -1 outside of transactions. The same bytes always
        make the same change, whether they were just appended or are read from the log."""
        ...

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Applies a transaction marker."""
        ...

    def loaded(self) -> None:
        """Called when the whole log is replayed; requests follow."""
        ...

    def unload(self) -> None:
        """Called when the shard goes away: answers everyone who waits, and stops timers."""
        ...


@dataclass(slots=True)
class ShardContext:
    """What a shard may use: time, and writes that it starts itself."""

    index: int
    clock: Clock
    _write: Callable[[ShardContext, Callable[[], WriteOutcome[None]]], None]
    _timers: Timers
    _is_committed: Callable[[ShardContext], bool]
    _when_committed: Callable[[ShardContext, Callable[[], None]], None]
    leader_epoch: int
    """Rises while the shard stays loaded if this broker remains the leader."""
    _scheduled: dict[str, Timer] = field(default_factory=dict)

    def schedule(self, name: str, delay_s: float, operation: Callable[[], WriteOutcome[None]]) -> None:
        """Runs a write of the shard's own after the delay, instead of one scheduled earlier under the same name. Does
        nothing if the shard is unloaded by then."""
        self.cancel(name)
        self._scheduled[name] = self._timers.call_later(max(delay_s, 0.0), lambda: self._due(name, operation))

    def cancel(self, name: str) -> None:
        timer = self._scheduled.pop(name, None)
        if timer is not None:
            timer.cancel()

    def is_scheduled(self, name: str) -> bool:
        return name in self._scheduled

    def cancel_all(self) -> None:
        for timer in self._scheduled.values():
            timer.cancel()
        self._scheduled.clear()

    def write(self, operation: Callable[[], WriteOutcome[None]]) -> None:
        """Runs a write of the shard's own now, unless it is unloaded; errors are logged."""
        self._write(self, operation)

    def is_committed(self) -> bool:
        """Whether every record that was appended to the shard so far is committed. False while it is loading."""
        return self._is_committed(self)

    def when_committed(self, tell: Callable[[], None]) -> None:
        """Calls `tell` once every record that was appended to the shard so far is committed, never before this returns.
        Waits as long as it takes. Does not call it any more if the shard is unloaded."""
        self._when_committed(self, tell)

    def _due(self, name: str, operation: Callable[[], WriteOutcome[None]]) -> None:
        self._scheduled.pop(name, None)
        self._write(self, operation)
