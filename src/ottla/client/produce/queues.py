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
from ottla.client.produce.batch import Batch
from ottla.client.produce.identity import Sequences

if TYPE_CHECKING:
    from ottla.client.produce.accumulator import Accumulator


class PartitionQueue:
    """Batches in the order in which they have to arrive."""

    __slots__ = (
        "_accumulator",
        "_next_number",
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
        self._next_number = 0
        self.partition = partition
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.leader_id: int | None = None
        """Of the broker that those in flight went to."""
        self.not_before_s = 0.0
        """When the next attempt may be made, after one that failed."""
        self.sequences = Sequences()

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

    def due_at_s(self, in_hurry: bool, in_flight_max: int) -> float:
        """From when on the first batch can be taken; never, as long as something else has to happen first."""
        first = self.ready[0] if self.ready else self.open
        if first is None or first.is_encoding:
            return inf
        if self.in_flight:
            # Behind a failure they go one by one: what was in flight together would fail together again.
            is_after_failure = first.attempts or self.in_flight[0].attempts > 1 or self.sequences.is_broken
            if is_after_failure or len(self.in_flight) >= in_flight_max:
                return inf
        at_s = 0.0 if self.ready or in_hurry else first.ripe_at_s
        return max(at_s, self.not_before_s)

    def put_back(self, batch: Batch) -> None:
        """Into its place among those that wait, for another attempt."""
        self.in_flight.remove(batch)
        self.ready.append(batch)
        if len(self.ready) > 1:
            self.ready = deque(sorted(self.ready, key=_number))


def _number(batch: Batch) -> tuple[int, ...]:
    return batch.number
