"""A part of a partition's log: the file of batches `<base offset>.log`, and its indexes.

The last segment of a log is the active one, the only one that grows. The file has no gaps between batches, offsets
increase, and none is further than 2^31 from the base offset. The contents of the indexes are a function of the log
file: appending and recovering create the same entries, one for the first batch that begins more than an index interval
after the last indexed one; and closing adds the newest timestamp to the time index if it is missing there.

Nothing is opened or read before it is needed: opening a segment of existing files only needs the size of the log.

A segment belongs to the thread that owns its log. Others may read from it and call `flush` while the owner appends or
rolls, but not while it truncates, recovers, renames or deletes. A failed append is truncated again; after any other
`OSError` only `abandon` may be called.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ottla.base.clock import Clock
from ottla.base.disk import Buffer, Disk, File
from ottla.base.file_slice import FileSlice
from ottla.log import segment_scan
from ottla.log.damages import Damages
from ottla.log.errors import CorruptIndexError, CorruptRecordsError, FileError, LogError
from ottla.log.offset_index import OffsetIndex
from ottla.log.segment_files import SegmentFiles
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import TransactionIndex
from ottla.records.batch import BatchHeader
from ottla.records.errors import RecordError
from ottla.records.layout import (
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    MAX_INT32,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
)
from ottla.records.legacy import MessageView
from ottla.records.plain import decode_batch

_LENGTH = struct.Struct(">i")
_PLACE_AND_TIME = struct.Struct(">qi11xi8xq")
"""Fields of a batch header: base offset, length, last offset delta, newest timestamp."""
_REPAIR_INTERVAL_MS: Final = 60_000
_HELD_BYTES_MAX: Final = 8 * 1024
"""Of a read: more is not kept in memory, even if it was read to find where it begins."""


class SegmentOverflowError(LogError):
    """Too far from the segment's base offset for its indexes: the log must roll, or an old segment must be split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """The part of the log's config that a segment uses."""

    index_interval_bytes: int
    max_index_bytes: int
    clock: Clock
    damages: Damages = field(default_factory=Damages)
    """Where damage to its files is reported."""


class SegmentRead(NamedTuple):
    """The result of a read: the bytes from the batch with this base offset, at this position, on."""

    slice: FileSlice
    base_offset: int
    position: int
    first_batch_size: int


class Segment:
    """See the module docstring. `open` creates one, from existing files or new ones."""

    __slots__ = (
        "_clock",
        "_damages",
        "_entry_due",
        "_files",
        "_first_batch_timestamp_ms",
        "_index_interval_bytes",
        "_is_newest_proven",
        "_is_torn",
        "_newest",
        "_next_repair_ms",
        "_proven",
        "_size",
        "_unproven_end",
        "base_offset",
        "created_ms",
    )

    def __init__(self, files: SegmentFiles, options: SegmentOptions, size: int) -> None:
        self._files = files
        self._clock = options.clock
        self._damages = options.damages
        self._index_interval_bytes = options.index_interval_bytes
        self._size = size
        if self._size > MAX_INT32:
            raise FileError(files.path, f"{self._size} bytes are more than a segment can have, 2^31 - 1")
        self._is_torn = False
        """An append failed, and so did truncating it: the file has more than the log."""
        self._entry_due: int | None = None
        """No index entry is due before the log is larger than this. None if the index must be asked."""
        self._newest: tuple[int, int] | None = None
        self._is_newest_proven = not size
        """Whether the newest timestamp was verified, and not only taken from the time index."""
        self._first_batch_timestamp_ms: int | None = None
        self._unproven_end = size
        """Bytes after it were appended or recovered by this object; bytes before it already existed."""
        self._proven = (0, 0)
        """The range in which existing batches are known to lead to each other."""
        self._next_repair_ms = 0
        """When a wrong index may be rebuilt: not on every read of a log that is damaged itself."""
        self.base_offset = files.base_offset
        self.created_ms = options.clock.now_ms()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: Path,
        base_offset: int,
        config: SegmentOptions,
        *,
        suffix: str = "",
        is_new: bool = False,
    ) -> Segment:
        """Opens existing files, or creates new ones if there is no log file; with `is_new` that is not checked."""
        files = SegmentFiles(disk, directory, base_offset, config.max_index_bytes, suffix)
        if is_new:
            files.create()
        return cls(files, config, 0 if is_new else files.find_size())

    def __repr__(self) -> str:
        return f"Segment({str(self.path)!r}, size={self._size})"

    # State.

    @property
    def path(self) -> Path:
        """The path of the log."""
        return self._files.path

    @property
    def suffix(self) -> str:
        return self._files.suffix

    @property
    def size(self) -> int:
        """The size of the log in bytes."""
        return self._size

    @property
    def log(self) -> File:
        """The file of batches, opened on first use."""
        return self._files.log

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._files.offset_index
        if not index.is_loaded:
            index.drop_beyond(self._size)
        return index

    @property
    def time_index(self) -> TimeIndex:
        return self._files.time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        return self._files.transaction_index

    @property
    def max_timestamp_ms(self) -> int:
        """The newest timestamp, -1 if there is none. After opening, it comes from the last entry of the time index."""
        return self._newest_batch()[0]

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has it."""
        return self._newest_batch()[1]

    def _newest_batch(self) -> tuple[int, int]:
        if self._newest is None:
            self._newest = self.time_index.last_entry
        return self._newest

    def prove_newest(self) -> None:
        """Compares the newest timestamp with the batch that should have it, unless that was done before; rebuilds a
        wrong time index. To be called before the segment is deleted or skipped because of its timestamp."""
        if self._is_newest_proven:
            return
        self._is_newest_proven = True
        is_log_in_use = self._files.is_log_open
        try:
            newest = self._newest_batch()
            # An index that lost its end is right about an older batch; the last interval has a newer one then.
            is_true = self._is_time_true(*newest) and all(
                header.max_timestamp_ms <= newest[0] for _, header in self.iter_headers(self.offset_index.last_position)
            )
            if not is_true:
                self._rebuild_time_index()
        except (CorruptRecordsError, CorruptIndexError):  # already reported
            pass
        finally:
            if not is_log_in_use:
                self.release_log()

    def _is_time_true(self, timestamp_ms: int, offset: int) -> bool:
        """Whether the batch that contains the offset has that newest timestamp, as an entry of the time index says."""
        if timestamp_ms == NO_TIMESTAMP:
            return offset == self.base_offset  # the values used if there is no entry
        found = self._find(offset, 0)
        if found is None or found[2] > offset:
            return False
        header = next(self.iter_headers(found[0], chunk_bytes=1024))[1]
        return header.max_timestamp_ms == timestamp_ms

    def _rebuild_time_index(self) -> None:
        """Reads the headers of all batches. Raises `CorruptRecordsError` if they do not lead to each other."""
        newest, entries, entry_at = (NO_TIMESTAMP, self.base_offset), list[tuple[int, int]](), 0
        for position, header in self.iter_headers():
            if position - entry_at > self._index_interval_bytes:
                entries.append(newest)
                entry_at = position
            if header.max_timestamp_ms > newest[0]:
                newest = header.max_timestamp_ms, header.last_offset
        index = self.time_index
        index.clear()
        for entry in entries[: index.max_entries - 1]:
            index.maybe_append(*entry)
        index.maybe_append(*newest, even_if_full=True)
        index.write()
        self._newest, self._entry_due = newest, None
        self._damages.repaired(index.path, "the time index does not agree with the batches of its log; it was rebuilt")

    @property
    def largest_timestamp_ms(self) -> int:
        """The time for retention: that of the newest record, or of the last write if records have none."""
        newest_ms = self.max_timestamp_ms
        return newest_ms if newest_ms >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        return self._files.modified_ms

    @property
    def first_batch_timestamp_ms(self) -> int | None:
        """The newest timestamp of the first batch; None without a batch, or if it has none."""
        if self._first_batch_timestamp_ms is None and self._size:
            try:
                for _, header in self.iter_headers(chunk_bytes=1024):
                    self._first_batch_timestamp_ms = header.max_timestamp_ms
                    break
            except CorruptRecordsError:  # already reported, and no reason to refuse appends
                self._first_batch_timestamp_ms = NO_TIMESTAMP
        found_ms = self._first_batch_timestamp_ms
        return None if found_ms is None or found_ms < 0 else found_ms

    def first_epoch(self) -> int | None:
        """The leader epoch of the first batch; None without one that can be read."""
        try:
            for _, header in self.iter_headers(chunk_bytes=1024):
                return header.leader_epoch
        except CorruptRecordsError:
            pass
        return None

    def should_roll(
        self,
        *,
        batch_size: int,
        last_offset: int,
        max_timestamp_ms: int,
        now_ms: int,
        segment_bytes: int,
        segment_ms: int,
        jitter_ms: int,
    ) -> bool:
        """Whether batches of that size, offset and time belong into the next segment.

        The time is the difference between timestamps, from the first batch on; if the first batch has none, the time
        since the segment was created.
        """
        size = self._size
        if size > segment_bytes - batch_size:
            return True
        if size:
            first_ms = self._first_batch_timestamp_ms
            if first_ms is None or first_ms < 0:
                first_ms = self.first_batch_timestamp_ms
            waited_ms = now_ms - self.created_ms if first_ms is None else max_timestamp_ms - first_ms
            if waited_ms > segment_ms - jitter_ms:
                return True
        if not 0 <= last_offset - self.base_offset <= MAX_INT32:
            return True
        return self.offset_index.is_full or self._files.time_index.is_full

    def no_roll_below(self, segment_bytes: int, segment_ms: int) -> tuple[int, int, int]:
        """Size, last offset and timestamp up to which `should_roll` returns False, whatever is appended until then. -1
        if that is not known, because the first batch has no timestamp."""
        first_ms = self.first_batch_timestamp_ms
        if first_ms is None:
            return -1, -1, -1
        # An entry comes at least an index interval after the last one, except for the first entry.
        entries_left = min(self.offset_index.entries_left, self._files.time_index.entries_left) - 2
        size = min(segment_bytes, MAX_INT32, self._size + entries_left * self._index_interval_bytes)
        return size, self.base_offset + MAX_INT32, first_ms + segment_ms

    def _refuse_offset(self, offset: int) -> SegmentOverflowError:
        return SegmentOverflowError(f"{self.path}: offset {offset} is not within 2^31 of the base offset")

    # Appending.

    def append(self, data: Buffer, *, last_offset: int, max_timestamp_ms: int, offset_of_max_timestamp: int) -> None:
        """Appends complete valid batches, whose offsets come after all others, in one write."""
        size = len(data)
        if not size:
            return
        position = self._size
        end = position + size
        if not 0 <= last_offset - self.base_offset <= MAX_INT32:
            raise self._refuse_offset(last_offset)
        if end > MAX_INT32:
            raise SegmentOverflowError(f"{self.path}: {size} bytes more than its {position} do not fit in 2^31")
        # Before anything is written: these may have to open a file.
        entry_due = self._entry_due
        if entry_due is None:
            entry_due = self._entry_due = self.offset_index.last_position + self._index_interval_bytes
        newest = self._newest or self._newest_batch()
        files = self._files
        log = files.log
        try:
            if self._is_torn:
                log.truncate(position)
                self._is_torn = False
            log.append(data)
        except OSError:
            self._cut_torn()
            raise
        files.change_count += 1
        self._size = end
        if end <= entry_due:  # no entry is due for any of them
            if max_timestamp_ms > newest[0]:
                self._newest = (max_timestamp_ms, offset_of_max_timestamp)
        elif _LENGTH.unpack_from(data, LENGTH_AT)[0] == size - LENGTH_PREFIX_SIZE:
            self._note(position, last_offset, max_timestamp_ms, offset_of_max_timestamp)
        else:
            self._note_each(data, position)

    def append_one(self, data: Buffer, size: int, last_offset: int, newest_ms: int) -> None:
        """The same for one batch that is known to fit (`no_roll_below`), with its newest timestamp."""
        end, entry_due, newest = self._size + size, self._entry_due, self._newest
        if entry_due is None or end > entry_due or newest is None or self._is_torn:
            self.append(data, last_offset=last_offset, max_timestamp_ms=newest_ms, offset_of_max_timestamp=last_offset)
            return
        files = self._files
        try:
            files.log.append(data)
        except OSError:
            self._cut_torn()
            raise
        files.change_count += 1
        self._size = end
        if newest_ms > newest[0]:
            self._newest = (newest_ms, last_offset)

    def _cut_torn(self) -> None:
        """Called when an append failed: some of it may be in the file."""
        self._is_torn = True
        with suppress(OSError):
            self._files.log.truncate(self._size)
            self._is_torn = False

    def _note_each(self, data: Buffer, position: int) -> None:
        """Calls `_note` for each batch for which an entry may be due."""
        newest = self._newest or self._newest_batch()
        interval, entry_at = self._index_interval_bytes, self.offset_index.last_position
        at, size = 0, len(data)
        while at < size:
            if size - at >= HEADER_SIZE and data[at + MAGIC_AT] == MAGIC_V2:
                base_offset, length, last_delta, newest_ms = _PLACE_AND_TIME.unpack_from(data, at)
                last_offset = base_offset + last_delta
            else:
                header = segment_scan.header_at(data, at, size - at, position + at)
                length, last_offset, newest_ms = header.length, header.last_offset, header.max_timestamp_ms
            if newest_ms > newest[0]:
                self._newest = newest = (newest_ms, last_offset)
            if position + at - entry_at > interval:
                self._note(position + at, last_offset, newest_ms, last_offset)
                entry_at = self.offset_index.last_position
            at += length + LENGTH_PREFIX_SIZE

    def _note(self, position: int, last_offset: int, max_timestamp_ms: int, offset_of_max_timestamp: int) -> None:
        """Remembers the newest timestamp, and adds index entries if the last ones are an interval away."""
        newest = self._newest or self._newest_batch()
        if max_timestamp_ms > newest[0]:
            self._newest = newest = (max_timestamp_ms, offset_of_max_timestamp)
        offset_index, time_index = self._files.offset_index, self._files.time_index
        if position - offset_index.last_position <= self._index_interval_bytes:
            return
        if offset_index.is_full or time_index.is_full:
            return  # in the middle of an append: the next one rolls
        # Very old logs may have decreasing offsets: those are found by the entry before.
        if last_offset > offset_index.last_offset:
            offset_index.append(last_offset, position)
            self._entry_due = None
            last = time_index.last_entry
            if newest[0] > last[0] and newest[1] >= last[1]:
                time_index.maybe_append(newest[0], newest[1])

    def become_active(self) -> None:
        """Prepares the last segment of a reopened log to grow: preallocated indexes get their real size."""
        self.offset_index.trim()
        self.time_index.trim()

    def become_inactive(self) -> None:
        """Completes the indexes of a segment that will not grow any more, and releases them. Nothing is synced."""
        self._add_last_time_entry()
        self._entry_due = None
        self._files.release_indexes()

    def complete_time_index(self) -> None:
        """Restores the last entry of a closed segment's time index if a crash removed or damaged it: the entry is added
        after the last record, so a sync of all records does not cover it. Reads at most two index intervals."""
        time_index = self.time_index
        while time_index.entry_count and not self._has_batch(*time_index.last_entry):
            time_index.drop_last()
        newest = time_index.last_entry
        for _, header in self.iter_headers(self.offset_index.last_position):
            if header.max_timestamp_ms > newest[0]:
                newest = header.max_timestamp_ms, header.last_offset
        self._newest = newest
        self._add_last_time_entry()

    def _has_batch(self, newest_ms: int, last_offset: int) -> bool:
        for _, header in self.iter_headers(self.offset_index.lookup(last_offset)[1]):
            if header.last_offset >= last_offset:
                return header.last_offset == last_offset and header.max_timestamp_ms == newest_ms
        return False

    def _add_last_time_entry(self) -> None:
        newest = self._newest
        if newest is None:
            return  # it would be taken from there
        last_ms, last_offset = self.time_index.last_entry
        if newest[0] > last_ms and newest[1] >= last_offset:
            self.time_index.maybe_append(*newest, even_if_full=True)

    # Reading.

    def read(
        self, offset: int, max_bytes: int, *, max_position: int | None = None, min_one: bool = True
    ) -> SegmentRead | None:
        """Returns the bytes from the batch that contains the offset, or is the next after it; None if there is no such
        batch.

        At most `max_bytes`, which may end in the middle of a batch, and never beyond `max_position`; with `min_one` the
        whole first batch, however large.
        """
        found = self._find(offset, 0)
        if found is None:
            return None
        position, batch_size, base_offset, window, at = found
        end = self._size
        if max_position is not None and max_position < end:
            end = max_position
        size = batch_size if min_one and batch_size > max_bytes else max_bytes
        if size > end - position:
            size = end - position if end > position else 0
        # The few bytes that a reader at the end asks for were read with the header.
        held = window[at : at + size] if size <= _HELD_BYTES_MAX and size <= len(window) - at else None
        return SegmentRead(FileSlice(self._files.log, position, size, held), base_offset, position, batch_size)

    def position_of(self, offset: int, start_position: int = 0) -> tuple[int, int] | None:
        """Position and size of the first batch whose last offset is at least this one.

        `start_position` is the start of a batch that is known not to come after it.
        """
        found = self._find(offset, start_position)
        return None if found is None else found[:2]

    def _find(self, offset: int, start_position: int) -> segment_scan.FoundBatch | None:
        size = self._size
        if not size:
            return None
        # There is no entry for the first interval: the index of a small segment need not be asked.
        is_small = size <= self._index_interval_bytes
        indexed_offset, indexed = (0, 0) if is_small else self.offset_index.lookup(offset)
        start = max(start_position, indexed)
        try:
            found = segment_scan.find_offset(self._files.log, start, size, offset)
        except RecordError as error:
            if indexed and self._mend_entry(indexed_offset, indexed):
                return self._find(offset, start_position)
            raise self._refuse(error) from error
        # A batch after the offset, or none at all: perhaps because the entry skips it.
        if indexed and (found is None or found[2] > offset) and self._mend_entry(indexed_offset, indexed):
            return self._find(offset, start_position)
        return found

    def _mend_entry(self, offset: int, position: int) -> bool:
        """Rebuilds the offset index if that entry is wrong; returns whether it was."""
        if self._is_entry_true(offset, position):
            return False
        if self.repair_offset_index():
            return True
        reason = f"offset {offset} is not at byte {position} of the log"
        raise CorruptIndexError(self._files.offset_index.path, f"{reason}, and the log is damaged as well")

    def _is_entry_true(self, offset: int, position: int) -> bool:
        """Whether a batch begins there whose offsets come after the previous entry, up to the offset of this one."""
        former_offset, former = self.offset_index.lookup(offset - 1)
        first = former_offset + 1 if former else self.base_offset
        return segment_scan.has_batch_of(self.log, position, self._size, first, offset)

    def repair_offset_index(self) -> bool:
        """Rebuilds the offset index from the log. Returns whether it has changed: otherwise the log is at fault. After
        a damaged batch it continues at the next entry that leads to a complete one."""
        now_ms = self._clock.now_ms()
        if now_ms < self._next_repair_ms:
            return False
        self._next_repair_ms = now_ms + _REPAIR_INTERVAL_MS
        index = self._files.offset_index
        old = index.entries()
        new: list[tuple[int, int]] = []
        last_offset, last_position, position = self.base_offset - 1, 0, 0
        while True:
            try:
                for at, header in segment_scan.iter_headers(self.log, position, self._size):
                    position = at
                    is_far = not self.base_offset <= header.last_offset <= self.base_offset + MAX_INT32
                    if is_far or (not last_offset < header.base_offset and header.magic == MAGIC_V2):
                        raise segment_scan.OffsetOrderError("offsets do not rise", position=position)
                    last_offset = header.last_offset
                    if position - last_position > self._index_interval_bytes:
                        new.append((last_offset, position))
                        last_position = position
                break
            except RecordError as error:
                failed = position if error.position is None else max(error.position, position)
            behind = (entry for entry in old if entry[1] > failed and entry[0] > last_offset)
            sound = (
                (offset, at)
                for offset, at in behind
                if segment_scan.has_batch_of(self.log, at, self._size, last_offset + 1, offset)
            )
            entry = next(sound, None)
            if entry is None:
                break
            position = last_position = entry[1]
            new.append(entry)
            last_offset = self._last_offset_before(position, last_offset)
        new = [entry for at, entry in enumerate(new) if not at or entry[0] > new[at - 1][0]][: index.max_entries]
        if new == old:
            return False
        self._entry_due = None
        index.replace_all(new)
        self._damages.repaired(index.path, "the offset index does not lead to the batches of its log; it was rebuilt")
        return True

    def _last_offset_before(self, position: int, otherwise: int) -> int:
        """One less than the base offset of the batch at the position."""
        for _, header in segment_scan.iter_headers(self.log, position, self._size, chunk_bytes=1024):
            return header.base_offset - 1
        return otherwise

    def _refuse(self, error: RecordError) -> CorruptRecordsError:
        self._damages.tell(self.path, error.position or 0, error.reason)
        return CorruptRecordsError(f"{self.path}: {error}", position=error.position)

    def is_proven(self, position: int, end: int) -> bool:
        """Whether the batches between are known to lead to each other."""
        return position >= self._unproven_end or (self._proven[0] <= position and end <= self._proven[1])

    def prove(self, position: int, end: int, *, end_offset: int, compacted: bool) -> int:
        """Follows the batches from the one at `position` up to `end`, unless that was done before. Returns how far they
        are valid: `end`, or the start of a damaged batch, which is reported. All offsets must be below `end_offset`.

        No CRC covers base offset and length, and a client would jump to wherever they lead. Later damage, under a
        running broker, is found by the scrub.
        """
        until = min(end + 1, self._unproven_end)  # with the header after it, if it ends with a batch
        low, reach = self._proven
        if not low <= position <= reach:
            low = reach = position
        if reach >= until:
            return end
        last, reach, damage = self._follow(reach, until, end_offset=end_offset, compacted=compacted)
        # Without the last one, unless it is the last of all: it is not known yet where it leads.
        self._proven = (low, reach if reach == self._unproven_end and damage is None else max(last, low))
        return end if damage is None else min(max(damage, position), end)

    def check_gap(self, offset: int, position: int, *, end_offset: int, compacted: bool) -> None:
        """Called if a reader asks for the offset and would get the batch at the position, after it. Raises
        `CorruptRecordsError` if the batches around it show damage."""
        if position >= self._unproven_end:
            return
        index = self.offset_index
        start = index.lookup(index.lookup(offset)[0] - 1)[1]
        _, _, damage = self._follow(start, position + 1, end_offset=end_offset, compacted=compacted)
        if damage is not None:
            reason = f"offset {offset} is missing, and the batch at position {damage} is corrupt"
            raise CorruptRecordsError(f"{self.path}: {reason}", position=damage)

    def _follow(self, start: int, until: int, *, end_offset: int, compacted: bool) -> tuple[int, int, int | None]:
        """Like `check_chain`; reports damage, and returns its position."""
        last, reach, error = segment_scan.check_chain(
            self.log,
            start,
            until,
            self._size,
            first_offset=self.base_offset,
            end_offset=end_offset,
            compacted=compacted,
        )
        if error is None:
            return last, reach, None
        self._refuse(error)
        return last, reach, start if error.position is None else error.position

    def offset_behind(self, position: int, size: int) -> int | None:
        """An offset that is certainly not within that many bytes from the position; None if the index has none."""
        return self.offset_index.offset_behind(position + size)

    def offset_for_timestamp(self, timestamp_ms: int, starting_offset: int) -> tuple[int, int] | None:
        """Timestamp and offset of the first record at or after that time, and not before the starting offset."""
        entry = self.time_index.lookup(timestamp_ms)
        if not self._is_time_true(*entry):
            self._rebuild_time_index()
            entry = self.time_index.lookup(timestamp_ms)
        indexed_offset = entry[1]
        position = self.offset_index.lookup(max(indexed_offset, starting_offset))[1]
        for found, header in self.iter_headers(position):
            if header.max_timestamp_ms < timestamp_ms:
                continue
            data = self.log.read_at(found, header.size_in_bytes)
            try:
                records = decode_batch(data) if header.magic == MAGIC_V2 else MessageView(data).records()
            except RecordError as error:
                raise self._refuse(error.located(position=found, base_offset=header.base_offset)) from error
            for record in records:
                if record.timestamp_ms >= timestamp_ms and record.offset >= starting_offset:
                    return record.timestamp_ms, record.offset
        return None

    def read_next_offset(self) -> int:
        """The offset after the last record, or the base offset. Reads the headers after the last index entry; raises
        `CorruptRecordsError` if they do not lead to the end of the file."""
        return self.read_end()[0]

    def read_end(self) -> tuple[int, int]:
        """The offset after the last record, and the leader epoch of the last batch; -1 without one."""
        if not self._size:
            return self.base_offset, NO_LEADER_EPOCH
        index = self.offset_index
        if index.last_position and not self._is_entry_true(index.last_offset, index.last_position):
            self.repair_offset_index()
        previous, epoch = self.base_offset - 1, NO_LEADER_EPOCH
        for position, header in self.iter_headers(index.last_position):
            if header.magic == MAGIC_V2:
                if not previous < header.base_offset <= header.last_offset <= self.base_offset + MAX_INT32:
                    reason = f"its offsets {header.base_offset} to {header.last_offset} do not come after {previous}"
                    raise self._refuse(segment_scan.OffsetOrderError(reason, position=position))
                epoch = header.leader_epoch
            previous = header.last_offset
        if index.last_offset > previous and index.entry_count:
            self.repair_offset_index()
        return previous + 1, epoch

    def iter_headers(
        self, position: int = 0, *, chunk_bytes: int = segment_scan.CHUNK_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each complete batch, from a position at which one begins.

        `segment_scan` describes the headers of old messages.
        """
        try:
            yield from segment_scan.iter_headers(self.log, position, self._size, chunk_bytes=chunk_bytes)
        except RecordError as error:
            raise self._refuse(error) from error

    # Recovery and truncation.

    def recover(
        self,
        on_batch: Callable[[BatchHeader, memoryview], None] | None = None,
        *,
        end_offset: int | None = None,
    ) -> int:
        """Reads the whole log, truncates it before the first batch that is not complete and valid or reaches
        `end_offset`, and rebuilds the indexes. Returns the number of bytes removed.

        `on_batch` gets header and bytes of each batch of magic 2; it has to fill the transaction index, which is
        emptied first. Without it that index keeps its entries about the remaining records.
        """
        self._entry_due = None
        self._files.offset_index.clear()
        self.time_index.clear()
        if on_batch:
            self.transaction_index.clear()
        self._newest = (NO_TIMESTAMP, self.base_offset)
        self._is_newest_proven = True
        self._first_batch_timestamp_ms = None
        end, next_offset, base_offset = 0, self.base_offset, self.base_offset
        newest_ms, entry_due = NO_TIMESTAMP, self._index_interval_bytes
        for position, header, data in segment_scan.iter_in_order(self.log, self._size, base_offset):
            last_offset = header[0] + header[6]
            if end_offset is not None and last_offset >= end_offset:
                break
            if not 0 <= last_offset - base_offset <= MAX_INT32:
                raise self._refuse_offset(last_offset)
            if position > entry_due or header[8] > newest_ms:
                self._note(position, last_offset, header[8], last_offset)
                newest_ms = self._newest[0]
                entry_due = self._files.offset_index.last_position + self._index_interval_bytes
            end, next_offset = position + len(data), last_offset + 1
            if on_batch and header[3] >= MAGIC_V2:
                on_batch(header, data)
        self._files.mark_doubtful()
        self._unproven_end = 0
        cut = self._size - end
        if cut:
            self.log.truncate(end)
            self._size = end
        self.transaction_index.truncate_to(next_offset)
        self._add_last_time_entry()
        self.offset_index.write()
        self.time_index.write()
        return cut

    def check_indexes(self) -> None:
        """Raises `CorruptIndexError` if the first or last entries of indexes contradict each other or the log."""
        index = self._files.offset_index
        index.check()
        self.time_index.check()
        self.transaction_index.check()
        if index.entry_count and not self._is_entry_true(index.last_offset, index.last_position):
            reason = f"offset {index.last_offset} is not at byte {index.last_position} of the log"
            raise CorruptIndexError(index.path, reason)

    def truncate_to(self, offset: int) -> int:
        """Removes the batch that contains the offset and all after it. Returns the number of bytes removed."""
        found = self._find(offset, 0)
        return self._cut(self._size if found is None else found[0], offset)

    def _cut(self, size: int, next_offset: int) -> int:
        self._entry_due = None
        # The indexes first: a crash then leaves too few entries, never wrong ones.
        self.offset_index.truncate_to(next_offset)
        self.time_index.truncate_to(next_offset)
        self.transaction_index.truncate_to(next_offset)
        self.offset_index.write()
        self.time_index.write()
        cut = self._size - size
        if cut:
            self._files.mark_unsynced()
            self.log.truncate(size)
            self._size = size
            self._unproven_end = min(self._unproven_end, size)
            self._proven = (0, 0)
        if not size:
            self.created_ms = self._clock.now_ms()
            self._first_batch_timestamp_ms = None
        self._newest = self._find_newest()
        return cut

    def _find_newest(self) -> tuple[int, int]:
        newest = self.time_index.last_entry
        for _, header in self.iter_headers(self.offset_index.lookup(newest[1])[1]):
            if header.max_timestamp_ms > newest[0]:
                newest = header.max_timestamp_ms, header.last_offset
        return newest

    # Flushing and closing.

    def flush(self) -> None:
        """Makes everything survive a power cut. Thread-safe; may leave out what is appended meanwhile."""
        self._files.sync()

    def release_indexes(self) -> None:
        """Releases their maps and memory; they are loaded again when they are needed."""
        self._files.release_indexes()

    def release_log(self) -> None:
        """Closes its descriptor until it is needed again. Nobody else may be using it."""
        self._files.close_log()

    def close(self) -> None:
        """Completes the indexes, syncs what was not synced, and closes all files."""
        self._add_last_time_entry()
        self._files.close()

    def abandon(self) -> None:
        """Closes all files without writing: for a disk that failed."""
        self._files.abandon()

    def rename_suffix(self, old: str, new: str) -> None:
        """Changes the suffix of all files. Open files stay open; the folder is not synced."""
        self._files.rename_suffix(old, new)

    def relocate(self, directory: Path) -> None:
        """Called when the folder was renamed, with everything in it."""
        self._files.relocate(directory)

    def delete(self) -> None:
        """Removes all files."""
        self._files.delete()
