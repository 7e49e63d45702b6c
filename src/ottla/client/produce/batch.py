"""Records of one partition that travel together: gathered, encoded, on their way, done.

The columns belong to the accumulator's lock while the batch is open. After that the batch belongs to the loop, except
for its end: `when_done` and what it tells can be asked for by any thread.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.errors import WrongLoopError
from ottla.client.produce.delivery import NO_OFFSET, Delivery, RecordMetadata
from ottla.client.produce.identity import Identity
from ottla.records import Header
from ottla.records.layout import HEADER_SIZE, MAX_INT64

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.client.produce.queues import PartitionQueue

NO_APPEND_TIME: Final = -1
RECORD_OVERHEAD_BYTES: Final = 14
"""What a record without headers takes at most beside its key and value, in a batch of less than some megabytes."""
_SAMPLES: Final = 8
_WORTH_COUNTING: Final = 0.9
"""How full of what was reckoned a batch may be and still be counted: less than that is left unused."""


class Outcome(NamedTuple):
    """What became of a batch: an offset, or an error."""

    base_offset: int = NO_OFFSET
    append_time_ms: int = NO_APPEND_TIME
    error: Exception | None = None


class Batch:
    """Made open, with room for so many bytes."""

    __slots__ = (
        "_counted",
        "_settling",
        "_waiting",
        "attempts",
        "count",
        "deadline_s",
        "encoded",
        "headers",
        "identity",
        "is_closed",
        "is_encoding",
        "is_refused",
        "is_watched",
        "keys",
        "last_error",
        "left",
        "number",
        "outcome",
        "owner",
        "parts",
        "queue",
        "reserved_bytes",
        "ripe_at_s",
        "room_until",
        "sequence",
        "stamps",
        "until_s",
        "value_bytes",
        "values",
    )

    def __init__(self, queue: PartitionQueue, room_bytes: int, ripe_at_s: float, deadline_s: float) -> None:
        self.queue = queue
        self.number: tuple[int, ...] = queue.next_number()
        """Its place among the batches of the partition; parts of one that was split have one more digit."""
        self.left = room_bytes
        """Bytes that still fit, before compression."""
        self.reserved_bytes = room_bytes
        self.ripe_at_s = ripe_at_s
        self.deadline_s = deadline_s
        self.values: list[bytes | None] = []
        self.stamps: list[tuple[int, int]] = []
        """When records were made: the first record, and the milliseconds of it and those after it."""
        self.until_s = 0.0
        """Records that are made before this time, of the clock that only goes forward, have the last stamp."""
        self.owner = 0
        """The thread that may append without the lock; 0 if none may."""
        self.value_bytes = -1
        self.room_until = 0
        """The owner may append until the batch has so many records, if none of them is larger than that. What he does
        is counted later, as if all were that large."""
        self._counted = 0
        """Records that `left` knows of."""
        self.is_closed = False
        self.keys: list[bytes | None] | None = None
        self.headers: list[Sequence[Header]] | None = None
        """None as long as no record has one: most never do."""
        self.count = 0
        """Of records, once the batch is closed."""
        self.encoded: bytearray | memoryview | None = None
        self.is_encoding = False
        self.identity: Identity | None = None
        self.sequence: int | None = None
        """Of the first record, in the partition and as this identity: kept for as long as a broker might know it."""
        self.is_refused = False
        """Whether the last answer was that the sequence does not fit, and nothing has changed since."""
        self.attempts = 0
        self.last_error: Exception | None = None
        self.outcome: Outcome | None = None
        self.parts: tuple[list[int], list[Batch]] | None = None
        """Where each part begins, and the parts, if the batch was too large for the broker."""
        self.is_watched = False
        """Whether anybody asked what became of it."""
        self._settling = threading.Lock()
        self._waiting: list[tuple[int, Callable[[], object]]] = []

    @property
    def partition(self) -> TopicPartition:
        return self.queue.partition

    # Gathering.

    def append(
        self, value: bytes | None, key: bytes | None, headers: Sequence[Header], stamp_ms: int | None
    ) -> Delivery:
        """Takes the record, whether or not there is room; under the accumulator's lock."""
        delivery = Delivery()
        delivery.batch = self
        delivery.index = index = len(self.values)
        if stamp_ms is None:
            if monotonic() >= self.until_s:
                self.stamp()
        else:
            self.until_s = 0.0
            self.stamps.append((index, stamp_ms))
        if self.keys is not None:
            self.keys.append(key)
        elif key is not None:
            self.keys = [None] * index
            self.keys.append(key)
        if self.headers is not None:
            self.headers.append(headers)
        elif headers:
            self.headers = [()] * index
            self.headers.append(headers)
        self.values.append(value)  # last: what `trim` goes by
        return delivery

    def trim(self) -> None:
        """Takes back what an interruption left of a record whose value is not in."""
        if self.keys is not None:
            del self.keys[len(self.values) :]
        if self.headers is not None:
            del self.headers[len(self.values) :]

    def stamp(self) -> None:
        """The time of the next record, and of those after it in the same millisecond; by who may append."""
        values, stamps = self.values, self.stamps
        if self.is_closed:
            return
        now_s = time()
        stamp_ms = int(now_s * 1000)
        self.until_s = monotonic() + (stamp_ms + 1) / 1000 - now_s
        stamps.append((len(values), stamp_ms))

    # Room, where an owner does not count it record by record; under the lock.

    def make_room(self, size: int) -> None:
        """Lets the owner go on, after a record of that size, for as long as its like fit in."""
        self._counted = len(self.values)
        self.value_bytes = max(self.value_bytes, size - RECORD_OVERHEAD_BYTES)
        self.room_until = self._counted + max(self.left, 0) // (self.value_bytes + RECORD_OVERHEAD_BYTES)

    def count_out(self) -> None:
        """Takes from what is left what the owner has appended, or a little more."""
        uncounted = len(self.values) - self._counted
        self._counted += uncounted
        self.left -= uncounted * (self.value_bytes + RECORD_OVERHEAD_BYTES)

    def count_room(self, size: int) -> None:
        """The same, and exactly if that may leave enough for a record of that size."""
        self.count_out()
        values = self.values
        if self.left >= size:
            return
        some = values[:: max(1, len(values) // _SAMPLES)]
        if sum(len(value or b"") for value in some) < _WORTH_COUNTING * self.value_bytes * len(some):
            used = sum(map(len, filter(None, values))) + RECORD_OVERHEAD_BYTES * len(values)
            self.left = self.reserved_bytes - HEADER_SIZE - used

    def close(self) -> None:
        """No more records; under the lock.

        The owner may be appending one just now, to the lists that were there: so those are not touched, but left to
        him. Whether his record is in is told by the count. Values are copied before stamps, so that all have one.
        """
        self.is_closed = True
        self.room_until = 0
        self.values = self.values[:]
        self.stamps = self.stamps[:]
        self.count = len(self.values)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing in it but values."""
        return self.keys is None and self.headers is None

    def timestamps_ms(self) -> list[int]:
        """Of all records."""
        starts = [start for start, _ in self.stamps]
        ends = [*starts[1:], self.count]
        return [stamp_ms for (start, stamp_ms), end in zip(self.stamps, ends, strict=True) for _ in range(end - start)]

    def drop_records(self) -> None:
        """Once they are encoded. Their times stay: deliveries tell them."""
        self.values, self.keys, self.headers = [], None, None

    def hurry(self) -> None:
        """Somebody waits for it: it need not linger."""
        self.queue.hurry(self)

    # The end.

    def when_done(self, index: int, call: Callable[[], object]) -> None:
        """Calls it when it is known what became of the record: at once, or in the loop. It must not raise."""
        with self._settling:
            if self.outcome is None and self.parts is None:
                self._waiting.append((index, call))
                return
        batch, place = self.place_of(index)
        if batch is not self:
            batch.when_done(place, call)
        else:
            call()

    def settle(self, outcome: Outcome) -> None:
        """Tells everybody who waits; in the loop."""
        with self._settling:
            self.outcome = outcome
            waiting, self._waiting = self._waiting, []
        for _, call in waiting:
            call()

    def settle_by_parts(self, parts: list[Batch]) -> None:
        """Leaves it to others, which have its records between them, in order."""
        starts, start = [], 0
        for part in parts:
            starts.append(start)
            start += part.count
        with self._settling:
            self.parts = starts, parts
            waiting, self._waiting = self._waiting, []
        for part in parts:
            part.is_watched = self.is_watched
        for index, call in waiting:
            batch, place = self.place_of(index)
            batch.when_done(place, call)

    def place_of(self, index: int) -> tuple[Batch, int]:
        """Where the record is: the batch, after any splitting, and the place in it."""
        batch = self
        while batch.parts is not None:
            starts, parts = batch.parts
            number = bisect_right(starts, index) - 1
            batch, index = parts[number], index - starts[number]
        return batch, index

    def leaves(self) -> Iterator[Batch]:
        """Itself, or the parts that it was split into."""
        if self.parts is None:
            yield self
        else:
            for part in self.parts[1]:
                yield from part.leaves()

    def offset_of(self, index: int, outcome: Outcome | None = None) -> int:
        outcome = outcome or self.outcome
        return outcome.base_offset + index if outcome is not None and outcome.base_offset >= 0 else NO_OFFSET

    def metadata_of(self, index: int, outcome: Outcome | None = None) -> RecordMetadata:
        outcome = outcome or self.outcome
        topic, partition = self.queue.partition
        stamp_ms = outcome.append_time_ms if outcome is not None else NO_APPEND_TIME
        if stamp_ms < 0:
            stamp_ms = self.stamps[bisect_right(self.stamps, (index, MAX_INT64)) - 1][1]
        return RecordMetadata(topic, partition, self.offset_of(index, outcome), stamp_ms)

    def check_waiting_thread(self) -> None:
        """The loop that delivers the batch cannot wait for it."""
        if asyncio._get_running_loop() is self.queue.loop:
            raise WrongLoopError(
                "this would wait for ever, because the producer works in this very thread: await the delivery instead"
            )
        self.check_loop()

    def check_loop(self) -> None:
        """The batch is not done: if the loop that would deliver it is closed, it never will be."""
        if self.queue.loop is not None and self.queue.loop.is_closed():
            raise WrongLoopError(
                f"the record to {self.partition} was not acknowledged before the producer's event loop was closed, "
                "and will not be: close the producer in its loop"
            )
