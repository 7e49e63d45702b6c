"""The batches of a partition: one that collects records, some that wait, some in flight. And the partitions of a topic.

    open ──full, ripe or hurried──▶ ready ──taken──▶ in flight ──response──▶ done
                                      ▲                  │
                                      └──retriable error─┘

They are ordered by number. `open` and `ready` belong to the accumulator's lock, the rest to the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.base.ids import TopicPartition
from ottla.client.callbacks import Callbacks
from ottla.client.metadata import TopicInfo
from ottla.client.produce import compiled
from ottla.client.produce.batch import Batch
from ottla.client.produce.identity import Sequences
from ottla.client.produce.partitioners import KeyHash, TopicPartitioner
from ottla.client.transactions.identity import Identity

if TYPE_CHECKING:
    from ottla.client.produce.accumulator import Accumulator
    from ottla.client.produce.fast_wait import FastWait

_HASHES: Final = 1024
_HASH_S: Final = 2e-6
"""The cost of a key until kernels are loaded, counted by the thousand."""
_PLACES_MAX: Final = 16_384
_MISSES_MAX: Final = 16 * _PLACES_MAX

T = TypeVar("T")


class PartitionQueue:
    """Batches in the order in which they have to arrive."""

    __slots__ = (
        "_accumulator",
        "callbacks",
        "has_refused",
        "in_flight",
        "last_arrived",
        "last_number",
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
        """Calls functions of the user."""
        self.last_number = 0
        """The number of the last batch that was created."""
        self.last_arrived: tuple[Identity | None, tuple[int, ...]] = None, ()
        """The identity and the number of the last batch that arrived."""
        self.partition = partition
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.leader_id: int | None = None
        """The broker to which the batches in flight were sent."""
        self.not_before_s = 0.0
        """When the next attempt may be made after a failure."""
        self.sequences: Sequences = accumulator.new_sequences()
        self.has_refused = False
        """Whether there are batches whose sequence number was refused."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._accumulator.loop

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send; some may be in flight."""
        return self.open is None and not self.ready

    @property
    def waiting(self) -> int:
        """The number of batches ahead of the next record."""
        return len(self.ready) + len(self.in_flight)

    def next_number(self) -> tuple[int, ...]:
        number = self.last_number + 1
        self.last_number = number
        return (number,)

    def hurry(self, batch: Batch) -> None:
        self._accumulator.hurry(batch)

    def wait(self, waiting: Callable[[], T]) -> T:
        """Waits for the loop, which needs the accumulator's lock."""
        return self._accumulator.wait(waiting)

    def due_at_s(self, in_hurry: bool, in_flight_max: int) -> float:
        """When the first batch can be taken; never, if something else has to happen first."""
        first = self.first
        if first is None or first.is_encoding:
            return inf
        if self.in_flight:
            # After a failure they are sent one by one: batches in flight together would fail together again.
            is_after_failure = first.attempts or self.in_flight[0].attempts > 1 or self.sequences.is_broken
            if is_after_failure or self.has_refused or len(self.in_flight) >= in_flight_max or self._is_unknown:
                return inf
        at_s = 0.0 if self.ready or in_hurry else first.ripe_at_s
        return max(at_s, self.not_before_s)

    def is_quiet_for(self, producer: Identity | None) -> bool:
        """Whether there is no batch but the open one, nothing failed, and the partition's leader knows the producer."""
        known = self.sequences.identity
        if producer is None or known is None or known.producer_id != producer.producer_id or self._is_unknown:
            return False
        is_sound = not self.sequences.is_broken and not self.has_refused and self.not_before_s == 0.0
        return is_sound and not self.ready and not self.in_flight

    @property
    def fast_wait(self) -> FastWait | None:
        return self._accumulator.fast_wait

    @property
    def _is_unknown(self) -> bool:
        """Whether the partition's leader may not know this producer yet. From an unknown one it accepts any sequence
        number: if it refuses the first batch for a transient reason and accepts the second, the first is lost. So the
        first is sent alone."""
        identity = self.sequences.identity
        return identity is not None and identity != self.last_arrived[0]

    @property
    def first(self) -> Batch | None:
        """The next one to send. Batches whose sequence number was refused are decided later."""
        if not self.has_refused:
            return self.ready[0] if self.ready else self.open
        return next((batch for batch in list(self.ready) if not batch.is_refused), None)

    def refuse(self, batch: Batch) -> bool:
        """Called if the broker refuses its sequence number: an earlier batch is missing, or it has the batch and forgot
        it. Returns whether the batch is known to be there anyway."""
        if self._is_before_arrived(batch):
            return True
        batch.is_refused = self.has_refused = True
        return False

    def take_arrival(self, arrived: Batch) -> list[Batch]:
        """Called when a batch arrived. A broker accepts sequence numbers without a gap, so refused batches before it
        are there; those after it can be sent again. Returns those that are there."""
        if not self._is_before_arrived(arrived):
            self.last_arrived = arrived.identity, arrived.number
        if not self.has_refused:
            return []
        self.has_refused = False
        ready = list(self.ready)  # senders append to it meanwhile
        there = [batch for batch in ready if batch.is_refused and self._is_before_arrived(batch)]
        for batch in ready:
            batch.is_refused = False
        return there

    def _is_before_arrived(self, batch: Batch) -> bool:
        identity, number = self.last_arrived
        return identity is not None and batch.identity == identity and batch.number < number

    @property
    def is_all_refused(self) -> bool:
        """Whether everything that was ever sent is refused, so that none of it is there. As long as one was not sent
        again, its response may still show that the others are there."""
        if self.in_flight:
            return False
        return not any(one.sequence is not None and not one.is_refused for one in list(self.ready))

    def number_anew(self) -> None:
        """Called if nothing that was sent is there: it gets new sequence numbers."""
        self.has_refused = False
        self.sequences.is_broken = True
        for batch in list(self.ready):
            if batch.is_refused:
                batch.is_refused, batch.sequence = False, None

    def put_back(self, batch: Batch) -> None:
        """Puts the batch back into its place among those that wait, for another attempt."""
        self.in_flight.remove(batch)
        place = 0
        for other in list(self.ready):
            if other.number > batch.number:
                break
            place += 1
        self.ready.insert(place, batch)  # whatever was appended meanwhile comes after it


class TopicQueues:
    """The current partitions of a topic, and how one of them is chosen."""

    __slots__ = (
        "goes_by_key",
        "hashed",
        "info",
        "is_usual",
        "misses",
        "partition_count",
        "partitioner",
        "places",
        "queues",
        "sticky",
    )

    def __init__(self, info: TopicInfo, partitioner: TopicPartitioner) -> None:
        self.info = info
        self.partitioner = partitioner
        self.queues: list[PartitionQueue] = []
        self.partition_count = 0
        self.sticky: Batch | None = None
        """The open batch of the partition that records without a key stick to."""
        self.is_usual = partitioner.is_usual
        self.goes_by_key = partitioner.is_usual and not partitioner.ignores_keys
        self.places: dict[bytes, int] = {}
        """Cached partitions of keys: a look-up takes a fifth of the time of hashing."""
        self.misses = 0
        self.hashed = 0

    def place(self, key: bytes) -> int:
        """Returns the partition of a key that is not cached."""
        places = self.places  # before hashing: it is replaced when the number of partitions changes
        partition = KeyHash.function(key, self.partitioner.partition_count)
        self.hashed += 1
        if self.hashed % _HASHES == 0 and compiled.columns() is None:
            compiled.spend(_HASHES * _HASH_S)
        if len(places) < _PLACES_MAX:
            places[key] = partition
        else:
            # Keys that are all different are not worth caching. Try again later: that may change.
            self.misses += 1
            if self.misses > _MISSES_MAX:
                self.places, self.misses = {}, 0
        return partition
