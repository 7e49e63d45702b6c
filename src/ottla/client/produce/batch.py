"""Records of one partition that are sent together: collected, encoded, in flight, done.

Any thread may append to an open batch, without a lock. After it was closed, the batch belongs to the loop, except for
its end: `when_done` and its result can be used by any thread.

**How records are appended without a lock.** CPython runs other code, of another thread, a signal handler or a
`__del__`, only at certain places: after a call, when a loop jumps back, and when an object that the garbage collector
tracks is allocated. Code without a call, a loop and such an allocation is therefore executed as a whole. An append is
such code: it looks whether the batch has room, counts the record, and adds all its cells to one list. It stands on one
line, because a debugger may let other threads run between lines:

    if (index := batch.count) < batch.bare_until: batch.count = index + 1; batch.cells += row

Whoever closes the batch, counts its room or changes its width sets the limit to 0 first. So a record is in the batch
with all its parts or not at all, and a record that is not in it takes the general path, under the accumulator's lock.

This module and others can be compiled with mypyc. Compiled code holds the GIL except in what it calls, and looks for
signals only there, so it can be interrupted at fewer places than the same code in CPython. But it may allocate objects
later than the source says: a tuple of fixed length is made only where something needs an object. So rows are declared
as `tuple[Any, ...]`, which is made where it is written.

A batch starts with only values in its list of cells. Once a record has a key, headers or a timestamp of its own, the
batch is wide: each record has `WIDTH` cells. There is one limit for each of the two widths, and one of them is 0.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ottla.client.errors import WrongLoopError
from ottla.client.produce.delivery import NO_OFFSET, Delivery, RecordMetadata
from ottla.client.produce.record import RECORD_OVERHEAD_BYTES
from ottla.client.transactions.identity import Identity
from ottla.records.layout import HEADER_SIZE, MAX_INT64
from ottla.records.plain_columns import runs_of

if TYPE_CHECKING:
    from ottla.base.ids import TopicPartition
    from ottla.client.produce.queues import PartitionQueue

NO_APPEND_TIME: Final = -1
WIDTH: Final = 4
"""The cells of a record in a wide batch: value, key, encoded headers, timestamp."""
_SAMPLES: Final = 8
_WORTH_COUNTING: Final = 0.9
"""How full of the estimate a batch may be and still be counted exactly: the rest is left unused."""


class Outcome(NamedTuple):
    """The result of a batch: an offset, or an error."""

    base_offset: int = NO_OFFSET
    append_time_ms: int = NO_APPEND_TIME
    error: Exception | None = None


def _with(delivery: Delivery, function: Callable[[Delivery], object]) -> Callable[[Delivery], object]:
    """Calls the function with this delivery instead: that of the record before its batch was split."""
    return lambda _: function(delivery)


class Batch:
    """Created open, with room for that many bytes."""

    __slots__ = (
        "_counted",
        "attempts",
        "bare_until",
        "callbacks",
        "cells",
        "count",
        "deadline_s",
        "encoded",
        "has_headers",
        "has_keys",
        "has_own_times",
        "identity",
        "is_busy",
        "is_closed",
        "is_encoding",
        "is_refused",
        "is_watched",
        "is_wide",
        "last_error",
        "left",
        "number",
        "outcome",
        "parts",
        "queue",
        "record_bytes",
        "reserved_bytes",
        "ripe_at_s",
        "sequence",
        "stamps",
        "times_ms",
        "until_s",
        "waiting",
        "wide_until",
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
        self.cells: list[Any] = []
        """Values, or `WIDTH` cells for each record if the batch is wide."""
        self.count = 0
        """The number of records."""
        self.is_wide = False
        self.has_keys = False
        self.has_headers = False
        self.has_own_times = False
        """Whether a wide batch has records with these parts; if not, a whole column need not be looked at."""
        self.bare_until = 0
        self.wide_until = 0
        """Records are appended without the lock until the batch has this many, if none of them is longer than
        `record_bytes`. They are counted later, as if all were that long. 0 for a width that the batch does not have."""
        self.record_bytes = -1
        """The longest record so far: its value, key and headers."""
        self._counted = 0
        """The number of records that `left` accounts for."""
        self.is_closed = False
        self.is_busy = False
        """Whether it is being appended to under the lock: see `accumulator`."""
        self.stamps: list[list[int]] = []
        """When records were created: the index of a record, and the milliseconds of it and those after it."""
        self.until_s = 0.0
        """Records created before this time, of the monotonic clock, have the last stamp."""
        self.times_ms: list[int] | None = None
        """The timestamps of all records, if some came with their own, once the records are dropped."""
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
        self.waiting: deque[tuple[int, Callable[[], object]]] = deque()
        """What to call when the result of a record, with that index, is known."""
        self.callbacks: list[Any] = []
        """Indexes of records and functions to be called with their deliveries, one after the other. Tuples, or the
        deliveries themselves, would be hundreds of thousands of objects for the garbage collector to scan."""

    @property
    def partition(self) -> TopicPartition:
        return self.queue.partition

    # Collecting.

    def append(
        self, value: bytes | None, key: bytes | None, headers: bytes | None, time_ms: int | None, size: int
    ) -> Delivery | None:
        """Takes a record of that size, under the lock; returns None if it cannot: there is no room, or the batch was
        closed meanwhile. It must be wide for a record that is more than a value. `SendPath` contains the same, without
        the lock."""
        delivery = Delivery()
        delivery.batch = self
        row: tuple[Any, ...] = (value, key, headers, time_ms) if self.is_wide else (value,)
        if time_ms is None and monotonic() >= self.until_s:
            self.stamp()
        # No call from here on.
        left = self.left - size
        if left < 0 or self.is_closed:
            return None
        self.has_keys = self.has_keys or key is not None
        self.has_headers = self.has_headers or headers is not None
        self.has_own_times = self.has_own_times or time_ms is not None
        self.left = left
        self._counted += 1
        delivery.index = self.count
        self.count += 1
        self.cells += row
        return delivery

    def stamp(self) -> None:
        """Sets the time of the records that are appended from now on, in this millisecond."""
        now_s = time()
        stamp_ms = int(now_s * 1000)
        until_s = monotonic() + (stamp_ms + 1) / 1000 - now_s
        stamp = [0, stamp_ms]
        stamps: tuple[Any, ...] = (stamp,)
        if not self.is_closed: stamp[0] = self.count; self.stamps += stamps; self.until_s = until_s  # noqa: E701, E702  # fmt: skip

    def widen(self) -> None:
        """Makes room for keys, headers and times; under the lock, while nobody appends."""
        if self.is_wide:
            return
        values = self.cells
        cells: list[Any] = [None] * (WIDTH * len(values))
        cells[::WIDTH] = values
        # No call from here on: the batch may have been closed until now.
        if not self.is_closed:
            self.cells, self.is_wide = cells, True

    # Room; under the lock.

    def make_room(self, size: int) -> None:
        """Lets threads append without the lock, after a record of that size, as long as similar ones fit."""
        record_bytes = max(self.record_bytes, size - RECORD_OVERHEAD_BYTES)
        until = self.count + max(self.left, 0) // (record_bytes + RECORD_OVERHEAD_BYTES)
        # No call from here on: the batch may have been closed until now.
        if not self.is_closed:
            self.record_bytes = record_bytes
            if self.is_wide:
                self.wide_until = until
            else:
                self.bare_until = until

    def count_room(self, size: int) -> None:
        """Takes no more records without the lock until `make_room`. Subtracts from `left` what was appended, or a
        little more; exactly that, if this may leave enough for a record of that size."""
        self.bare_until = self.wide_until = 0
        self._count_out()
        if self.left >= size or not self.count:
            return
        step = max(1, self.count // _SAMPLES)
        some_bytes, some = sum(map(len, filter(None, self._contents(step)))), (self.count + step - 1) // step
        if some_bytes < _WORTH_COUNTING * self.record_bytes * some:
            used = sum(map(len, filter(None, self._contents()))) + RECORD_OVERHEAD_BYTES * self.count
            self.left = self.reserved_bytes - HEADER_SIZE - used

    def _count_out(self) -> None:
        uncounted = self.count - self._counted
        self._counted += uncounted
        self.left -= uncounted * (self.record_bytes + RECORD_OVERHEAD_BYTES)

    def _contents(self, step: int = 1) -> list[Any]:
        """The values, keys and headers of every so many records."""
        cells = self.cells
        if not self.is_wide:
            return cells[::step]
        step *= WIDTH
        return cells[::step] + cells[1::step] + cells[2::step]

    def close(self) -> None:
        """Closes the batch; under the lock. Idempotent. No call in here: an interruption finds all of it done, or
        nothing."""
        self.is_closed = True
        self.bare_until = self.wide_until = 0
        uncounted = self.count - self._counted
        self._counted += uncounted
        self.left -= uncounted * (self.record_bytes + RECORD_OVERHEAD_BYTES)

    # Its records, as columns.

    @property
    def values(self) -> list[bytes | None]:
        return self.cells[::WIDTH] if self.is_wide else self.cells

    @property
    def keys(self) -> list[bytes | None] | None:
        """None if no record has a key."""
        return self.cells[1::WIDTH] if self.is_wide and self.has_keys else None

    @property
    def header_sections(self) -> list[bytes | None] | None:
        """None if no record has headers."""
        return self.cells[2::WIDTH] if self.is_wide and self.has_headers else None

    @property
    def own_times_ms(self) -> list[int | None] | None:
        """The timestamps that records came with; None if none did."""
        return self.cells[3::WIDTH] if self.is_wide and self.has_own_times else None

    def fill(self, rows: Sequence[tuple[bytes | None, bytes | None, bytes | None, int]]) -> None:
        """Sets all records of a batch that nobody else knows yet: values, keys, encoded headers and timestamps."""
        self.cells = [cell for row in rows for cell in row]
        self.count = len(rows)
        self.is_wide = self.has_keys = self.has_headers = self.has_own_times = True

    @property
    def has_times(self) -> bool:
        """Whether the times of its records are known: not for a batch that came encoded."""
        return bool(self.stamps or self.times_ms or self.has_own_times)

    def timestamps_ms(self) -> list[int]:
        """The timestamps of all records."""
        if self.times_ms is not None:
            return self.times_ms
        own = self.own_times_ms
        if own is not None and None not in own:
            return cast("list[int]", own)
        starts = [start for start, _ in self.stamps]
        stamped = [0] * (starts[0] if starts else self.count)
        for (start, stamp_ms), end in zip(self.stamps, [*starts[1:], self.count][: len(starts)], strict=True):
            stamped += [stamp_ms] * (end - start)
        if own is None:
            return stamped
        return [stamp_ms if time_ms is None else time_ms for time_ms, stamp_ms in zip(own, stamped, strict=True)]

    def time_runs(self) -> list[tuple[int, int]]:
        """The same as runs: a number of records, and the timestamp of each of them."""
        if self.has_own_times:
            return runs_of(self.timestamps_ms())
        ends = [start for start, _ in self.stamps[1:]]
        ends.append(self.count)
        runs = ((end - start, stamp_ms) for (start, stamp_ms), end in zip(self.stamps, ends, strict=True))
        return [run for run in runs if run[0]]

    def time_ms_of(self, index: int) -> int:
        if self.times_ms is not None:
            return self.times_ms[index]
        own: int | None = self.cells[WIDTH * index + 3] if self.is_wide and self.has_own_times else None
        return self.stamps[bisect_right(self.stamps, [index, MAX_INT64]) - 1][1] if own is None else own

    def drop_records(self) -> None:
        """Called once they are encoded. Their times stay, because deliveries report them."""
        times_ms = self.timestamps_ms() if self.is_wide and self.has_own_times else None
        nothing: list[Any] = []
        # No call from here on.
        self.times_ms, self.is_wide, self.cells = times_ms, False, nothing

    def hurry(self) -> None:
        """Called when a caller waits for it: it need not linger."""
        self.queue.hurry(self)

    # The result.

    def when_done(self, index: int, call: Callable[[], object]) -> None:
        """Calls the function when the result of the record is known: at once, or in the loop. It must not raise."""
        entry = index, call
        self.waiting.append(entry)
        if self.outcome is None and self.parts is None:
            return  # whoever sets one of them checks the list after that
        try:
            self.waiting.remove(entry)
        except ValueError:
            return  # it was seen there
        batch, place = self.place_of(index)
        if batch is not self:
            batch.when_done(place, call)
        else:
            call()

    def call_back(self) -> None:
        """Calls the functions that wait for results (`Delivery.add_done_callback`), each once, in any thread."""
        nothing: list[Any] = []
        waiting, self.callbacks = self.callbacks, nothing
        callbacks = self.queue.callbacks
        is_split = self.parts is not None
        for index, function in zip(waiting[::2], waiting[1::2], strict=True):
            delivery = Delivery()
            delivery.batch = self
            delivery.index = index
            if is_split:
                part = Delivery()
                part.batch, part.index = self.place_of(index)
                part.add_done_callback(_with(delivery, function))
                continue
            try:
                result = function(delivery)
            except BaseException as error:
                callbacks.failed(function, error)
            else:
                if result is not None:
                    callbacks.returned(function, result)

    def settle(self, outcome: Outcome) -> None:
        """Sets the result and notifies everybody who waits; in the loop."""
        self.outcome = outcome
        if self.callbacks:
            self.call_back()
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        waiting = self.waiting
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
        self.call_back()
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
