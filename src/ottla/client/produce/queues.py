"""The batches of one partition: one that gathers, some that wait, some in flight.

    open ──full, ripe or hurried──▶ ready ──taken──▶ in flight ──answered──▶ done
                                      ▲                  │
                                      └──failed for now──┘

Order is that of their numbers. `open` and `ready` belong to the accumulator's lock, the rest to the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from ottla.base.ids import TopicPartition
from ottla.client.callbacks import Callbacks
from ottla.client.produce.batch import Batch
from ottla.client.produce.delivery import Delivery
from ottla.client.produce.identity import Identity, Sequences

if TYPE_CHECKING:
    from ottla.client.produce.accumulator import Accumulator


class PartitionQueue:
    """Batches in the order in which they have to arrive."""

    __slots__ = (
        "_accumulator",
        "_last_arrived",
        "_next_number",
        "callbacks",
        "has_refused",
        "in_flight",
        "leader_id",
        "not_before_s",
        "open",
        "partition",
        "ready",
        "sequences",
    )

    def __init__(self, accumulator: Accumulator, partition: TopicPartition) -> None:
        self._accumulator = accumulator
        self.callbacks: Callbacks = accumulator.callbacks
        """What calls functions of the user's."""
        self._next_number = 0
        self._last_arrived: tuple[Identity | None, tuple[int, ...]] = None, ()
        self.partition = partition
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.leader_id: int | None = None
        """Of the broker that those in flight went to."""
        self.not_before_s = 0.0
        """When the next attempt may be made, after one that failed."""
        self.sequences = Sequences()
        self.has_refused = False
        """Whether there are batches whose sequence was refused."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._accumulator.loop

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be sent; some may be in flight."""
        return self.open is None and not self.ready

    @property
    def waiting(self) -> int:
        """How many batches are ahead of the next record."""
        return len(self.ready) + len(self.in_flight)

    def next_number(self) -> tuple[int, ...]:
        self._next_number += 1
        return (self._next_number,)

    def hurry(self, batch: Batch) -> None:
        self._accumulator.hurry(batch)

    def has_taken(self, delivery: Delivery) -> bool:
        """Whether a record that a batch's owner appended while the batch was closed is in it."""
        with self._accumulator.lock:
            return delivery.index < delivery.batch.count

    def due_at_s(self, in_hurry: bool, in_flight_max: int) -> float:
        """From when on the first batch can be taken; never, as long as something else has to happen first."""
        first = self.first
        if first is None or first.is_encoding:
            return inf
        if self.in_flight:
            # Behind a failure they go one by one: what was in flight together would fail together again.
            is_after_failure = first.attempts or self.in_flight[0].attempts > 1 or self.sequences.is_broken
            if is_after_failure or self.has_refused or len(self.in_flight) >= in_flight_max or self._is_unknown:
                return inf
        at_s = 0.0 if self.ready or in_hurry else first.ripe_at_s
        return max(at_s, self.not_before_s)

    @property
    def _is_unknown(self) -> bool:
        """Whether the partition's leader may not know this producer yet. From one that it does not know it takes any
        sequence: if it refuses the first batch for a passing reason and takes the second, the first is lost. So the
        first goes alone."""
        identity = self.sequences.identity
        return identity is not None and identity != self._last_arrived[0]

    @property
    def first(self) -> Batch | None:
        """The one to be sent next: of those whose sequence was refused, it is decided later what they are."""
        if not self.has_refused:
            return self.ready[0] if self.ready else self.open
        return next((batch for batch in self.ready if not batch.is_refused), None)

    def refuse(self, batch: Batch) -> bool:
        """The broker does not take its sequence: because it misses one before, or has the batch and forgot. Whether
        it is known to be there all the same."""
        if self._is_before_arrived(batch):
            return True
        batch.is_refused = self.has_refused = True
        return False

    def take_arrival(self, arrived: Batch) -> list[Batch]:
        """A broker takes sequences without a gap: those before one that arrived are there, though they were refused.
        Those behind it can be sent again. Tells which are there."""
        if not self._is_before_arrived(arrived):
            self._last_arrived = arrived.identity, arrived.number
        if not self.has_refused:
            return []
        self.has_refused = False
        there = [batch for batch in self.ready if batch.is_refused and self._is_before_arrived(batch)]
        for batch in self.ready:
            batch.is_refused = False
        return there

    def _is_before_arrived(self, batch: Batch) -> bool:
        identity, number = self._last_arrived
        return identity is not None and batch.identity == identity and batch.number < number

    def decide(self) -> None:
        """If all that was ever sent is refused, none of it is there: it is numbered anew. As long as one was not asked
        for again, its answer may still tell that the others are there."""
        if self.in_flight or any(batch.sequence is not None and not batch.is_refused for batch in self.ready):
            return
        self.has_refused = False
        self.sequences.is_broken = True
        for batch in self.ready:
            if batch.is_refused:
                batch.is_refused, batch.sequence = False, None

    def put_back(self, batch: Batch) -> None:
        """Into its place among those that wait, for another attempt."""
        self.in_flight.remove(batch)
        self.ready.append(batch)
        if len(self.ready) > 1:
            self.ready = deque(sorted(self.ready, key=_number))


def _number(batch: Batch) -> tuple[int, ...]:
    return batch.number
