"""Records of one partition that are sent together: collected, encoded, in flight, done.

A batch keeps its records in columns: values and, once a record has one, keys, headers and times. While it is open they
belong to the thread that owns the batch, or to the accumulator's lock if nobody does. After that the batch belongs to
the loop, except for its end: `when_done` and its result can be used by any thread.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.errors import WrongLoopError
from ottla.client.produce.delivery import NO_OFFSET, Delivery, RecordMetadata
from ottla.client.produce.record import RECORD_OVERHEAD_BYTES
from ottla.client.transactions.identity import Identity
from ottla.records.layout import HEADER_SIZE, MAX_INT64

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.client.produce.queues import PartitionQueue

NO_APPEND_TIME: Final = -1
BUSY: Final = -1
"""The owner of a batch while a record is being appended: no thread."""
NOT_COUNTED: Final = -1
_SAMPLES: Final = 8
_WORTH_COUNTING: Final = 0.9
"""How full of the estimate a batch may be and still be counted exactly: the rest is left unused."""


class Outcome(NamedTuple):
    """The result of a batch: an offset, or an error."""

    base_offset: int = NO_OFFSET
    append_time_ms: int = NO_APPEND_TIME
    error: Exception | None = None


class Batch:
    """Created open, with room for that many bytes."""

    __slots__ = (
        "_callbacks",
        "_counted",
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
        """Its place among the batches of the partition; parts of a split batch have one more digit."""
        self.left = room_bytes
        """The number of bytes that still fit, before compression, while the batch is open."""
        self.reserved_bytes = room_bytes
        self.ripe_at_s = ripe_at_s
        self.deadline_s = deadline_s
        self.values: list[bytes | None] = []
        self.stamps: list[tuple[int, int]] = []
        """When records were created: the index of a record, and the milliseconds of it and those after it."""
        self.until_s = 0.0
        """Records created before this time, of the monotonic clock, have the last stamp."""
        self.owner = 0
        """The thread that may append without the lock; 0 if none may; `BUSY` while one appends."""
        self.is_closed = False
        self.value_bytes = -1
        self.room_until = 0
        """While there are only values, the owner may append until the batch has this many, if none of them is longer
        than `value_bytes`. They are counted later, as if all were that long. -1 and 0 if each record is counted."""
        self._counted = 0
        """The number of records that `left` accounts for, if not all."""
        self.keys: list[bytes | None] | None = None
        self.header_sections: list[bytes | None] | None = None
        self.times_ms: list[int] | None = None
        """Columns that are None as long as no record needs them: most never do. Times are for records with their own
        timestamps; the stamps are then ignored."""
        self.count = NOT_COUNTED
        """The number of records, once the batch is closed."""
        self.encoded: bytearray | memoryview | None = None
        self.is_encoding = False
        self.identity: Identity | None = None
        self.sequence: int | None = None
        """The sequence number of the first record under the current identity: kept as long as a broker may know it."""
        self.is_refused = False
        """Whether the last response was that the sequence number does not fit, and nothing has changed since."""
        self.attempts = 0
        self.last_error: Exception | None = None
        self.outcome: Outcome | None = None
        self.parts: tuple[list[int], list[Batch]] | None = None
        """Where each part begins, and the parts, if the batch was too large for the broker."""
        self.is_watched = False
        """Whether anybody asked for its result."""
        self._waiting: deque[tuple[int, Callable[[], object]]] = deque()
        self._callbacks: list[Any] = []
        """Indexes, deliveries and functions to be called with them, one after the other: a tuple for each three would
        be another object for the garbage collector to scan, and there may be hundreds of thousands."""

    @property
    def partition(self) -> TopicPartition:
        return self.queue.partition

    # Collecting.

    def append(
        self, value: bytes | None, key: bytes | None, headers: bytes | None, time_ms: int | None, size: int
    ) -> Delivery | None:
        """Takes a record of that size; returns None if it cannot: there is no room, or no column for one of its parts,
        or the batch only takes values for now. By the owner, or under the lock, while the batch is `BUSY`.

        `accumulator` explains how this works with a concurrent `close`, or a `send` in a signal handler. Ctrl-C is
        noticed after a call: what it leaves of a record whose value is not in yet is removed.
        """
        values, stamps = self.values, self.stamps
        keys, sections, times_ms = self.keys, self.header_sections, self.times_ms
        left = self.left - size
        if (
            left < 0
            or self.is_closed  # must be read after all lists
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
            values.append(value)  # last: a record that is not in this column is not in the batch
        except BaseException:
            for column in (keys, sections, times_ms):
                if column is not None:
                    del column[len(values) :]
            raise
        if self.is_closed and not self.queue.has_taken(delivery):
            return None
        return delivery

    def stamp(self, stamps: list[tuple[int, int]], index: int) -> None:
        """Sets the time of the record at that index, and of those after it in the same millisecond."""
        now_s = time()
        stamp_ms = int(now_s * 1000)
        self.until_s = monotonic() + (stamp_ms + 1) / 1000 - now_s
        stamps.append((index, stamp_ms))

    def add_columns(self, key: bytes | None, headers: bytes | None, time_ms: int | None) -> None:
        """Creates the columns that a record with these parts needs; under the lock, and by the owner if there is
        one."""
        if key is None and headers is None and time_ms is None:
            return
        if self.value_bytes >= 0:
            self.count_exactly()
        keys, sections, times_ms = self.keys, self.header_sections, self.times_ms
        count = len(self.values)
        if key is not None and keys is None:
            keys = [None] * count
        if headers is not None and sections is None:
            sections = [None] * count
        if time_ms is not None and times_ms is None:
            times_ms = self.timestamps_ms()
        # No call from here on: the batch may have been closed until now.
        if not self.is_closed:
            self.keys, self.header_sections, self.times_ms = keys, sections, times_ms
            self.value_bytes = -1

    @property
    def is_bare(self) -> bool:
        """Whether it contains only values."""
        return self.keys is None and self.header_sections is None and self.times_ms is None

    # Room, if the owner does not count it value by value; by the owner, under the lock.

    def make_room(self, size: int) -> None:
        """Lets the owner continue, after a record of that size, as long as similar ones fit."""
        counted = len(self.values)
        value_bytes = max(self.value_bytes, size - RECORD_OVERHEAD_BYTES)
        room_until = counted + max(self.left, 0) // (value_bytes + RECORD_OVERHEAD_BYTES)
        # No call from here on: the batch may have been closed until now.
        if not self.is_closed:
            self._counted, self.value_bytes, self.room_until = counted, value_bytes, room_until

    def count_out(self) -> None:
        """Subtracts from `left` what the owner has appended, or a little more."""
        uncounted = len(self.values) - self._counted
        self._counted += uncounted
        self.left -= uncounted * (self.value_bytes + RECORD_OVERHEAD_BYTES)

    def count_room(self, size: int) -> None:
        """The same, but exactly if that may leave enough for a record of that size. Until `make_room` each record is
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
        """Counts a batch of only values."""
        values = self.values
        used = sum(map(len, filter(None, values))) + RECORD_OVERHEAD_BYTES * len(values)
        self._counted = len(values)
        self.left = self.reserved_bytes - HEADER_SIZE - used

    def close(self) -> None:
        """Closes the batch; under the lock. Idempotent.

        The owner may be appending a record to the existing lists at this moment: so those are not changed, but left to
        the owner. The count tells whether that record is in. Values are counted first, so that each has all its parts.
        """
        self.is_closed = True
        self.room_until = 0
        values, keys, sections = self.values, self.keys, self.header_sections
        times_ms, left = self.times_ms, self.left
        count = len(values)
        values, stamps = values[:count], self.stamps[:]
        if keys is not None:
            keys = keys[:count]
        if sections is not None:
            sections = sections[:count]
        if times_ms is not None:
            times_ms = times_ms[:count]
        if self.value_bytes >= 0:
            left -= (count - self._counted) * (self.value_bytes + RECORD_OVERHEAD_BYTES)
        # No call from here on: another may have closed it until now, and its records may be encoded and dropped.
        if self.count == NOT_COUNTED:
            self.values, self.keys, self.header_sections = values, keys, sections
            self.times_ms, self.stamps, self.left, self.count = times_ms, stamps, left, count

    @property
    def has_times(self) -> bool:
        """Whether the times of its records are known: not for a batch that came encoded."""
        return bool(self.stamps or self.times_ms)

    def timestamps_ms(self) -> list[int]:
        """The timestamps of all records."""
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
        """Called once they are encoded. Their times stay, because deliveries report them."""
        self.values, self.keys, self.header_sections = [], None, None

    def hurry(self) -> None:
        """Called when a caller waits for it: it need not linger."""
        self.queue.hurry(self)

    # The result.

    def when_done(self, index: int, call: Callable[[], object]) -> None:
        """Calls the function when the result of the record is known: at once, or in the loop. It must not raise."""
        entry = index, call
        self._waiting.append(entry)
        if self.outcome is None and self.parts is None:
            return  # whoever sets one of them checks the list after that
        try:
            self._waiting.remove(entry)
        except ValueError:
            return  # it was seen there
        batch, place = self.place_of(index)
        if batch is not self:
            batch.when_done(place, call)
        else:
            call()

    def call_when_done(self, index: int, delivery: Delivery, function: Callable[[Delivery], object]) -> None:
        """Calls the user's function with the delivery of one of the records, when `when_done` would call."""
        entry = index, delivery, function
        self._callbacks += entry
        if self.outcome is None and self.parts is None:
            return  # whoever sets one of them checks the list after that
        self._call_back()

    def _call_back(self) -> None:
        """Calls the waiting functions, each once, in any thread."""
        nothing: list[Any] = []
        callbacks, self._callbacks = self._callbacks, nothing
        call = self.queue.callbacks.call
        for index, delivery, function in zip(callbacks[::3], callbacks[1::3], callbacks[2::3], strict=True):
            batch, place = self.place_of(index)
            if batch is self:
                call(function, delivery)
            else:
                batch.call_when_done(place, delivery, function)

    def settle(self, outcome: Outcome) -> None:
        """Sets the result and notifies everybody who waits; in the loop."""
        self.outcome = outcome
        if self._callbacks:
            self._call_back()
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            try:
                index, call = waiting.popleft()
            except IndexError:  # a late one removed itself
                return
            batch, place = self.place_of(index)
            if batch is self:
                call()
            else:
                batch.when_done(place, call)

    def settle_by_parts(self, parts: list[Batch]) -> None:
        """Leaves the result to other batches, which share its records, in order."""
        starts, start = [], 0
        for part in parts:
            starts.append(start)
            start += part.count
        for part in parts:
            part.is_watched = self.is_watched
        self.parts = starts, parts
        self._call_back()
        self._tell_waiting()

    def place_of(self, index: int) -> tuple[Batch, int]:
        """Where the record is: the batch, after any splitting, and the index in it."""
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
        """The loop that delivers the batch must not wait for it."""
        if asyncio._get_running_loop() is self.queue.loop:
            raise WrongLoopError(
                "this would wait for ever, because the producer works in this very thread: await the delivery instead"
            )
        self.check_loop()

    def check_loop(self) -> None:
        """Called if the batch is not done: if the loop that would deliver it is closed, it never will be."""
        if self.queue.loop is not None and self.queue.loop.is_closed():
            raise WrongLoopError(
                f"the record to {self.partition} was not acknowledged before the producer's event loop was closed, "
                "and will not be: close the producer in its loop"
            )
