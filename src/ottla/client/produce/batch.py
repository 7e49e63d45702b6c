"""Records of one partition that travel together: gathered, encoded, on their way, done.

A batch keeps its records in columns: values, and once a record has one, keys, headers and times. While it is open
they belong to the thread that owns the batch, or to the accumulator's lock if nobody does. After that the batch belongs
to the loop, except for its end: `when_done` and what it tells can be asked for by any thread.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.errors import WrongLoopError
from ottla.client.produce.delivery import NO_OFFSET, Delivery, RecordMetadata
from ottla.client.produce.identity import Identity
from ottla.client.produce.record import RECORD_OVERHEAD_BYTES
from ottla.records.layout import HEADER_SIZE, MAX_INT64

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.client.produce.queues import PartitionQueue

NO_APPEND_TIME: Final = -1
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
        "_callbacks",
        "_counted",
        "_settling",
        "_waiting",
        "attempts",
        "count",
        "deadline_s",
        "encoded",
        "header_sections",
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
        "times_ms",
        "until_s",
        "value_bytes",
        "values",
    )

    def __init__(self, queue: PartitionQueue, room_bytes: int, ripe_at_s: float, deadline_s: float) -> None:
        self.queue = queue
        self.number: tuple[int, ...] = queue.next_number()
        """Its place among the batches of the partition; parts of one that was split have one more digit."""
        self.left = room_bytes
        """Bytes that still fit, before compression; as long as the batch is open."""
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
        self.is_closed = False
        self.value_bytes = -1
        self.room_until = 0
        """As long as there are only values, the owner may append until the batch has so many, if none of them is longer
        than that. They are counted later, as if all were that long. -1 and 0 if each record is counted."""
        self._counted = 0
        """Records that `left` knows of, if not of all."""
        self.keys: list[bytes | None] | None = None
        self.header_sections: list[bytes | None] | None = None
        self.times_ms: list[int] | None = None
        """Columns that are None as long as no record needs them: most never do. Times are for records that come with
        their own; the stamps are then of no account."""
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
        self._callbacks: list[Any] = []
        """Places, deliveries and functions to be called with them, one after the other: a tuple for each three would be
        another object for the garbage collector to look at, and there may be hundreds of thousands."""

    @property
    def partition(self) -> TopicPartition:
        return self.queue.partition

    # Gathering.

    def append(
        self, value: bytes | None, key: bytes | None, headers: bytes | None, time_ms: int | None, size: int
    ) -> Delivery | None:
        """Takes a record of that size; None if it cannot: there is no room, or no column for one of its parts, or the
        batch takes nothing but values for now. By the owner, or under the lock.

        How this works beside a `close` in another thread is told in `accumulator`. Ctrl-C is noticed after a call: what
        it leaves of a record whose value is not in yet is taken back.
        """
        values, stamps = self.values, self.stamps
        keys, sections, times_ms = self.keys, self.header_sections, self.times_ms
        left = self.left - size
        if (
            left < 0
            or self.is_closed  # to be asked after all lists were taken
            or self.room_until  # what the owner appended is not counted yet
            or (keys is None and key is not None)
            or (sections is None and headers is not None)
            or (times_ms is None and time_ms is not None)
        ):
            return None
        index = len(values)
        if time_ms is None and monotonic() >= self.until_s:
            self.stamp(stamps, index)
        delivery = Delivery()
        delivery.batch = self
        delivery.index = index
        try:
            if keys is not None:
                keys.append(key)
            if sections is not None:
                sections.append(headers)
            if times_ms is not None:
                times_ms.append(stamps[-1][1] if time_ms is None else time_ms)
            self.left = left
            values.append(value)  # last: what is not in this column is not in the batch
        except BaseException:
            for column in (keys, sections, times_ms):
                if column is not None:
                    del column[len(values) :]
            raise
        if self.is_closed and not self.queue.has_taken(delivery):
            return None
        return delivery

    def stamp(self, stamps: list[tuple[int, int]], index: int) -> None:
        """The time of the record at that index, and of those after it in the same millisecond."""
        now_s = time()
        stamp_ms = int(now_s * 1000)
        self.until_s = monotonic() + (stamp_ms + 1) / 1000 - now_s
        stamps.append((index, stamp_ms))

    def add_columns(self, key: bytes | None, headers: bytes | None, time_ms: int | None) -> None:
        """Makes those that a record of these parts needs; under the lock, and by the owner if there is one."""
        count = len(self.values)
        if self.value_bytes >= 0 and not (key is None and headers is None and time_ms is None):
            self.count_exactly()
            self.value_bytes = -1
        if key is not None and self.keys is None:
            self.keys = [None] * count
        if headers is not None and self.header_sections is None:
            self.header_sections = [None] * count
        if time_ms is not None and self.times_ms is None:
            self.times_ms = self.timestamps_ms()

    @property
    def is_bare(self) -> bool:
        """Whether there is nothing in it but values."""
        return self.keys is None and self.header_sections is None and self.times_ms is None

    # Room, where the owner does not count it value by value; by the owner, under the lock.

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
        """The same, and exactly if that may leave enough for a record of that size. Until `make_room` each record is
        counted."""
        self.room_until = 0
        self.count_out()
        values = self.values
        if self.left >= size:
            return
        some = values[:: max(1, len(values) // _SAMPLES)]
        if sum(len(value or b"") for value in some) < _WORTH_COUNTING * self.value_bytes * len(some):
            self.count_exactly()

    def count_exactly(self) -> None:
        """Of a batch of values alone."""
        values = self.values
        used = sum(map(len, filter(None, values))) + RECORD_OVERHEAD_BYTES * len(values)
        self._counted = len(values)
        self.left = self.reserved_bytes - HEADER_SIZE - used

    def close(self) -> None:
        """No more records; under the lock.

        The owner may be appending one just now, to the lists that were there: so those are not touched, but left to
        him. Whether his record is in is told by the count. Values are copied first, so that each has all its parts.
        """
        self.is_closed = True
        self.room_until = 0
        self.values = values = self.values[:]
        self.count = count = len(values)
        if self.keys is not None:
            self.keys = self.keys[:count]
        if self.header_sections is not None:
            self.header_sections = self.header_sections[:count]
        if self.times_ms is not None:
            self.times_ms = self.times_ms[:count]
        if self.value_bytes >= 0:
            self.count_out()
        self.stamps = self.stamps[:]

    @property
    def has_times(self) -> bool:
        """Whether it is known when its records were made: of a batch that came encoded, it is not."""
        return bool(self.stamps or self.times_ms)

    def timestamps_ms(self) -> list[int]:
        """Of all records."""
        if self.times_ms is not None:
            return self.times_ms
        starts = [start for start, _ in self.stamps]
        ends = [*starts[1:], len(self.values)][: len(starts)]
        return [stamp_ms for (start, stamp_ms), end in zip(self.stamps, ends, strict=True) for _ in range(end - start)]

    def time_ms_of(self, index: int) -> int:
        if self.times_ms is not None:
            return self.times_ms[index]
        return self.stamps[bisect_right(self.stamps, (index, MAX_INT64)) - 1][1]

    def drop_records(self) -> None:
        """Once they are encoded. Their times stay: deliveries tell them."""
        self.values, self.keys, self.header_sections = [], None, None

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

    def call_when_done(self, index: int, delivery: Delivery, function: Callable[[Delivery], object]) -> None:
        """Calls a function of the user with the delivery of one of the records, when `when_done` would call."""
        with self._settling:
            if self.outcome is None and self.parts is None:
                self._callbacks += (index, delivery, function)
                return
        batch, place = self.place_of(index)
        if batch is not self:
            batch.call_when_done(place, delivery, function)
        else:
            self.queue.callbacks.call(function, delivery)

    def settle(self, outcome: Outcome) -> None:
        """Tells everybody who waits; in the loop."""
        with self._settling:
            self.outcome = outcome
            waiting, self._waiting = self._waiting, []
            callbacks, self._callbacks = self._callbacks, []
        call_back = self.queue.callbacks.call
        for delivery, function in zip(callbacks[1::3], callbacks[2::3], strict=True):
            call_back(function, delivery)
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
            callbacks, self._callbacks = self._callbacks, []
        for part in parts:
            part.is_watched = self.is_watched
        for index, delivery, function in zip(callbacks[::3], callbacks[1::3], callbacks[2::3], strict=True):
            batch, place = self.place_of(index)
            batch.call_when_done(place, delivery, function)
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
            stamp_ms = self.time_ms_of(index)
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
