"""One partition's log: segments in a row, with what is known of its producers, epochs and transactions.

    log start ──▶ … closed segments … │ active segment ──▶ log end
                        ▲ last stable offset ≤ high watermark ▲

Promises: records keep the order and the offsets they were given; an append is all there or not at all; a read begins
with the batch that holds the offset. The high watermark is told to the log by replication; the log needs it to know
what may be deleted and which transactions are decided.

Owned by one thread, which appends, truncates, rolls and deletes. Reads and `flush` may run in others: they only touch
files, which stay open until they are removed. An `OSError` is left to the caller, who takes the directory offline.
"""

from __future__ import annotations

import errno
import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, NoReturn
from zlib import crc32

from ottla.base.clock import Clock
from ottla.base.disk import Buffer, Disk, SyncFailedError, is_full
from ottla.base.file_slice import FileSlice
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.damages import Damages
from ottla.log.errors import (
    CorruptRecordsError,
    FileError,
    InvalidReadSizeError,
    InvalidRecordsError,
    LogOffsetOutOfRangeError,
    RecordListTooLargeError,
    UnexpectedOffsetError,
)
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.names import DELETED, LOG, OFFSET_INDEX, TIME_INDEX, segment_name
from ottla.log.partition_metadata import PartitionMetadata
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment, SegmentOptions, SegmentRead
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.validation import AppendInfo, PreparedBatches, analyse, assign, prepare, validate_and_assign
from ottla.records import BatchHeader
from ottla.records.layout import MAX_INT32
from ottla.records.new_batch import NewBatch

_logger = logging.getLogger(__name__)

MAX_GAP: Final = 2**30
"""Segments follow each other without a gap, unless it is wider: a follower's, whose leader was compacted."""


class LogRead(NamedTuple):
    """What a read found. `slice` is None where there is nothing between the offset and the bound."""

    slice: FileSlice | None
    aborted_transactions: list[AbortedTransaction] | None = None


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """A record's place, found by its time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


class PartitionLog:
    """See the module. Made by `loader.load`, which brings a folder into order first."""

    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        directory: Path,
        partition: TopicPartition,
        config: LogConfig,
        segments: list[Segment],
        log_start_offset: int,
        next_offset: int,
        recovery_point: int,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        metadata: PartitionMetadata,
        damages: Damages | None = None,
        compacted_below: int = 0,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.directory = directory
        self.partition = partition
        self.config = config
        self.log_start_offset = log_start_offset
        self.next_offset = next_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.producers = producers
        self.epochs = epochs
        self.metadata = metadata
        self.damages = Damages() if damages is None else damages
        self.compacted_below = compacted_below
        """Below it offsets may be missing, whatever the topic's policy is now."""
        self.on_roll: Callable[[PartitionLog], None] = _nothing
        """Called when a segment was closed: the place to have it flushed in a thread."""
        self.on_flush_due: Callable[[PartitionLog], None] = PartitionLog.flush
        """Called when `flush.messages` records wait for the disk: flushes at once, unless a thread is to do it."""
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._last_flush_ms = clock.now_ms()
        self._removable: list[tuple[int, Segment]] = []
        self._bound_position: tuple[Segment, int, int, int] | None = None
        self._flushing = threading.Lock()
        """Held to move the recovery point, which flushes in other threads do."""
        self._failed_sync: SyncFailedError | None = None
        """What it should have made safe may be lost: no later flush succeeds."""
        self._no_roll_below: tuple[Segment, LogConfig, int, int, int] | None = None
        """As far as the segment is known not to be full, nor too old, under that config: size, offset, timestamp."""
        self._shortenings = 0
        """Counts up when segments or records begin to be taken away, and when they are."""

    # --- what there is ----------------------------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def segment_ends(self) -> list[tuple[Segment, int]]:
        """Each segment, and the offset behind all that may be in it."""
        return list(zip(self._segments, (*self._bases[1:], self.next_offset), strict=True))

    def may_lack_offsets_below(self, end: int) -> bool:
        """Whether compaction explains that offsets below that one are missing."""
        return self.config.compacts or end <= self.compacted_below

    @property
    def size(self) -> int:
        """Bytes of records."""
        return sum(segment.size for segment in self._segments)

    @property
    def topic_id(self) -> Uuid | None:
        return self.metadata.topic_id

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or decided above the high watermark; its first records may
        be deleted."""
        unstable = self.producers.first_unstable_offset
        return None if unstable is None else max(unstable, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Below it, every transaction is decided: as far as a consumer of committed records may read."""
        unstable = self.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def set_high_watermark(self, offset: int) -> None:
        """Told by replication, within the log's bounds."""
        if not self.log_start_offset <= offset <= self.next_offset:
            offset = min(max(offset, self.log_start_offset), self.next_offset)
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)

    # --- append -----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: Buffer | PreparedBatches,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        bounded: bool = False,
    ) -> AppendInfo:
        """Checks batches, gives them their offsets and the leader's epoch, and writes them. A producer's duplicate is
        not written again: its first append is answered. With `bounded`, what takes long to check is left untouched and
        raises `LargeBatchError`: then it comes again, prepared."""
        if not len(data):
            return AppendInfo((), 0)
        now_ms = self.clock.now_ms()
        if isinstance(data, PreparedBatches):
            if data.config is not self.config:  # changed meanwhile
                data = prepare(data.data, now_ms=now_ms, config=self.config, origin=origin)
            data, info = assign(data, next_offset=self.next_offset, now_ms=now_ms, leader_epoch=leader_epoch)
        else:
            data, info = validate_and_assign(data, self.next_offset, now_ms, self.config, leader_epoch, origin, bounded)
        if len(data) > self.config.segment_bytes:  # before their sequence, as in Kafka
            self._refuse_size(len(data))
        duplicate = self.producers.check(info.headers, data, origin)
        if duplicate is not None:
            return info.of_duplicate(duplicate, self.log_start_offset)
        return self._append(data, info, now_ms)

    def _refuse_size(self, size: int) -> NoReturn:
        raise RecordListTooLargeError(
            f"{self.partition}: {size} bytes of batches do not fit a segment of {self.config.segment_bytes}"
        )

    def append_own(self, batch: NewBatch, leader_epoch: int) -> int:
        """Appends a batch that this broker has just made itself; the offset behind it. Nothing in it need be looked at,
        unless it is part of a transaction: coordinators make one for each commit."""
        config, size, offset = self.config, batch.size, self.next_offset
        end = offset + batch.record_count
        segment = self._segments[-1]
        if (
            batch.is_transactional
            or not config.takes_as_sent
            or size > config.max_message_bytes
            or leader_epoch != self.epochs.latest_epoch
            or not self._is_room_known(segment, size, end - 1, batch.timestamp_ms)
        ):
            data = memoryview(bytearray(batch.placed(0, leader_epoch)))
            return self.append_as_leader(data, leader_epoch, origin=AppendOrigin.COORDINATOR).last_offset + 1
        segment.append(
            batch.placed(offset, leader_epoch),
            last_offset=end - 1,
            max_timestamp_ms=batch.timestamp_ms,
            offset_of_max_timestamp=end - 1,
        )
        self._ends_at(end)
        return end

    def append_as_follower(self, data: Buffer, *, max_epoch: int = MAX_INT32) -> AppendInfo:
        """Writes batches as the leader sent them. A piece of a batch at their end is left out, and so are batches of an
        epoch above `max_epoch`: the leader lost its leadership while it sent them."""
        info = analyse(data, AppendOrigin.REPLICATION)
        if info.headers and info.headers[-1].leader_epoch > max_epoch:
            headers = tuple(header for header in info.headers if header.leader_epoch <= max_epoch)
            info = AppendInfo.of(headers, sum(header.size_in_bytes for header in headers))
        if not info.headers:
            return info
        first, last = info.first_offset, info.last_offset
        if not info.offsets_monotonic or first < self.next_offset:
            if info.offsets_monotonic:
                reason = f"the leader's batches begin at {first}, but the log ends at {self.next_offset}"
            else:
                reason = "the leader's batches are not in order of their offsets"
            raise UnexpectedOffsetError(f"{self.partition}: {reason}", first_offset=first, last_offset=last)
        whole = memoryview(data)[: info.valid_bytes]
        self.producers.check(info.headers, whole, AppendOrigin.REPLICATION)
        now_ms = self.clock.now_ms()
        if info.valid_bytes <= self.config.segment_bytes and last - first <= MAX_INT32:
            return self._append(whole, info, now_ms)
        at = 0
        for headers in _per_segment(info.headers, self.config.segment_bytes):
            part = AppendInfo.of(headers, sum(header.size_in_bytes for header in headers))
            self._append(whole[at : at + part.valid_bytes], part, now_ms)
            at += part.valid_bytes
        info.log_start_offset = self.log_start_offset
        return info

    def _append(self, data: Buffer, info: AppendInfo, now_ms: int) -> AppendInfo:
        size, last_offset, config = len(data), info.last_offset, self.config
        # In memory only: until the next flush, which writes epochs before it moves the recovery point, recovery reads
        # them from the records themselves.
        latest = self.epochs.latest_epoch
        for header in info.headers:
            epoch = header[2]
            if epoch != latest and epoch >= 0:
                self.epochs.assign(epoch, header.base_offset, write=False)
                latest = epoch
        segment = self._segments[-1]
        is_room_known = self._is_room_known(segment, size, last_offset, info.max_timestamp_ms)
        if not is_room_known and segment.should_roll(
            batch_size=size,
            last_offset=last_offset,
            max_timestamp_ms=info.max_timestamp_ms,
            now_ms=now_ms,
            segment_bytes=config.segment_bytes,
            segment_ms=config.roll_ms,
            jitter_ms=self._jitter_ms(segment) if config.segment_jitter_ms else 0,
        ):
            # Compaction on the leader may have left a gap that no segment can span: then the new one begins behind it.
            far = last_offset - self.next_offset > MAX_GAP
            segment = self.roll(info.first_offset if far else None)
        segment.append(
            data,
            last_offset=last_offset,
            max_timestamp_ms=info.max_timestamp_ms,
            offset_of_max_timestamp=info.offset_of_max_timestamp,
        )
        if not is_room_known and not config.segment_jitter_ms:
            self._no_roll_below = segment, config, *segment.no_roll_below(config.segment_bytes, config.roll_ms)
        info.log_start_offset = self.log_start_offset
        self.next_offset = last_offset + 1
        for aborted in self.producers.update(info.headers, data):
            segment.transaction_index.append(aborted)
        self._ends_at(last_offset + 1)
        return info

    def _is_room_known(self, segment: Segment, size: int, last_offset: int, newest_ms: int) -> bool:
        """Whether batches of that size, offset and time fit into the segment for sure; else it must be asked."""
        bound = self._no_roll_below
        return (
            bound is not None
            and bound[0] is segment
            and bound[1] is self.config
            and segment.size + size <= bound[2]
            and last_offset <= bound[3]
            and newest_ms <= bound[4]
        )

    def _ends_at(self, offset: int) -> None:
        """Batches were appended, up to the offset."""
        self.next_offset = self.producers.map_end_offset = offset
        if offset - self.recovery_point >= self.config.flush_messages:
            self.on_flush_due(self)

    def _jitter_ms(self, segment: Segment) -> int:
        """Spreads the rolls of many partitions. Drawn from the segment's name, so that a restart does not change it."""
        limit_ms = min(self.config.segment_jitter_ms, self.config.roll_ms)
        return crc32(f"{self.partition}@{segment.base_offset}".encode()) % limit_ms

    def roll(self, base_offset: int | None = None) -> Segment:
        """Closes the active segment and begins a new one where it ends, or at the given offset behind that."""
        active = self._segments[-1]
        # Not at `next_offset`, which is further if a batch was cut in its middle: recovery takes a gap for a loss.
        offset = self._end_of_active() if base_offset is None else base_offset
        if active.base_offset == offset and active.size == 0:
            return active
        if offset <= active.base_offset or (offset < self.next_offset and base_offset is not None):
            reason = f"a segment cannot begin at {offset}: the active one begins at {active.base_offset}"
            raise CorruptRecordsError(f"{active.path}: {reason}, and the log ends at {self.next_offset}")
        if base_offset is not None:
            self.compacted_below = max(self.compacted_below, offset)  # what is between was never here
        active.become_inactive()
        self.producers.map_end_offset = offset
        self.producers.take_snapshot(offset)
        segment = self._new_segment(offset)
        self.on_roll(self)
        return segment

    def _end_of_active(self) -> int:
        """The offset behind the last whole batch of the active segment; where its file is damaged, the log's end, which
        was counted and not read."""
        if not self.active.size:
            return self.active.base_offset
        try:
            offset = self.active.read_next_offset()
        except CorruptRecordsError:  # which is told
            return self.next_offset
        return offset if self.active.base_offset < offset <= self.next_offset else self.next_offset

    def _new_segment(self, base_offset: int) -> Segment:
        try:
            segment = Segment.open(self.disk, self.directory, base_offset, self._segment_options())
        except OSError as error:
            if is_full(error):
                self._remove_half_made(base_offset)
            raise
        if segment.size:
            raise FileError(segment.path, "a new segment would begin in a file that has records; move it away")
        self._segments.append(segment)
        self._bases.append(base_offset)
        return segment

    def _remove_half_made(self, base_offset: int) -> None:
        """The disk was full when some files of a new segment were made. They go for good before the log goes on in the
        old segment: the next start would take them for its end. An `OSError` of this takes the directory offline."""
        try:
            for kind in (LOG, OFFSET_INDEX, TIME_INDEX):
                path = self.directory / segment_name(base_offset, kind)
                if self.disk.exists(path) and not self.disk.size(path):
                    self.disk.remove(path)
            self.disk.sync_directory(self.directory)
        except OSError as error:
            raise OSError(errno.EIO, f"an incomplete segment cannot be deleted ({error})", error.filename) from error

    def _segment_options(self) -> SegmentOptions:
        return SegmentOptions(
            index_interval_bytes=self.config.index_interval_bytes,
            max_index_bytes=self.config.segment_index_bytes,
            clock=self.clock,
            damages=self.damages,
        )

    # --- read -------------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        bound: int | None = None,
        min_one: bool = True,
        with_aborted: bool = False,
    ) -> LogRead:
        """Batches from the one that holds the offset up to `bound` (the log's end, if none), at most `max_bytes` of
        them. The last batch may be cut off, the first never: one that does not fit is read whole with `min_one`, and
        not at all without (KIP-74)."""
        end = self.next_offset
        if not self.log_start_offset <= offset <= end:
            raise LogOffsetOutOfRangeError(
                f"{self.partition}: offset {offset} is out of range, the log has {self.log_start_offset} to {end}"
            )
        if bound is None or bound > end:
            bound = end
        if max_bytes <= 0:
            if max_bytes < 0 and offset < bound:
                raise InvalidReadSizeError(f"{self.partition}: cannot read {max_bytes} bytes at offset {offset}")
            if not min_one:
                return LogRead(None, [] if with_aborted else None)
        index = bisect_right(self._bases, offset) - 1
        while offset < bound and index < len(self._segments):
            segment = self._segments[index]
            position = self._position_of_bound(index, segment, bound)
            found = segment.read(offset, max_bytes, max_position=position, min_one=min_one)
            if found is None or found.base_offset > offset:
                self._check_gap(index, offset, found)
            if found is not None:
                if not found.first_batch_is_whole:  # it is beyond the limit, or the bound is within it
                    return LogRead(None, None)  # even with aborted transactions asked for, as in Kafka
                piece = self._sound_part(index, found.slice)
                aborted = self._aborted(index, offset, piece, bound) if with_aborted else None
                return LogRead(piece, aborted)
            index += 1  # compaction left nothing at or behind the offset in this segment
        return LogRead(None, [] if with_aborted else None)

    def bytes_before(self, bound: int, offset: int) -> int | None:
        """How many bytes a reader at the offset has before the bound, in the segment of both. None if the bound is in a
        later segment than the reader: then nobody counts, the reader has fallen behind."""
        last = max(bisect_left(self._bases, bound) - 1, 0)
        for index in range(max(bisect_right(self._bases, offset) - 1, 0), last + 1):
            segment = self._segments[index]
            found = segment.position_of(offset)
            if found is not None:
                if index < last:
                    return None
                return max(self._position_of_bound(index, segment, bound) - found[0], 0)
        return 0

    def _check_gap(self, index: int, offset: int, found: SegmentRead | None) -> None:
        """The segment has no batch with the offset, but perhaps one behind it: an error unless compaction, or a leader
        that was compacted, explains it."""
        segment = self._segments[index]
        following = self._bases[index + 1] if index + 1 < len(self._bases) else None
        end = self.next_offset if following is None else following
        if found is not None:
            segment.check_gap(
                offset, found.position, end_offset=end, compacted=self.may_lack_offsets_below(found.base_offset)
            )
        elif following is not None and not self.may_lack_offsets_below(following) and following - offset <= MAX_GAP:
            reason = f"the segment ends before offset {offset}, and the next one begins at {following}"
            self.damages.tell(segment.path, segment.size, reason)
            raise CorruptRecordsError(f"{segment.path}: {reason}", position=segment.size)

    def _sound_part(self, index: int, found: FileSlice) -> FileSlice:
        """As much of it as leads from batch to batch. It is followed once, when it is first read after a start."""
        segment = self._segments[index]
        end = found.position + found.size
        if segment.is_proven(found.position, end):
            return found
        end_offset = self._bases[index + 1] if index + 1 < len(self._bases) else self.next_offset
        compacted = self.may_lack_offsets_below(end_offset)
        sound_end = segment.prove(found.position, end, end_offset=end_offset, compacted=compacted)
        if sound_end >= end:
            return found
        if sound_end <= found.position:
            raise CorruptRecordsError(f"{segment.path}: the batch at byte {sound_end} is damaged", position=sound_end)
        return FileSlice(found.file, found.position, sound_end - found.position)

    def _position_of_bound(self, index: int, segment: Segment, bound: int) -> int:
        """Where in the segment reading must stop: at the first batch that reaches to the bound or beyond."""
        if bound >= self.next_offset or (index + 1 < len(self._bases) and bound >= self._bases[index + 1]):
            return segment.size
        known = self._bound_position  # consumers at the tail all ask with the same high watermark
        if known is not None and known[0] is segment and known[1] == bound and known[2] == segment.size:
            return known[3]
        found = segment.position_of(bound)
        position = segment.size if found is None else found[0]
        self._bound_position = (segment, bound, segment.size, position)
        return position

    def _aborted(self, index: int, offset: int, found: FileSlice, bound: int) -> list[AbortedTransaction]:
        """The aborted transactions that reach into what was read."""
        upper = self._segments[index].offset_behind(found.position, found.size)
        if upper is None:
            upper = self._bases[index + 1] if index + 1 < len(self._bases) else bound
        aborted: list[AbortedTransaction] = []
        for segment in self._segments[index:]:
            some, complete = segment.transaction_index.collect(offset, upper)
            aborted += some
            if complete:
                break
        return aborted

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """The first record at or after that time."""
        for segment in self._segments:
            if segment.max_timestamp_ms < timestamp_ms:
                segment.prove_newest()
            if segment.max_timestamp_ms >= timestamp_ms:
                found = segment.offset_for_timestamp(timestamp_ms, self.log_start_offset)
                if found is not None:
                    return TimestampedOffset(*found, self.epochs.epoch_for_offset(found[1]))
        return None

    def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """The record with the highest timestamp, the first of them. As in Kafka it may lie before the log's start, as
        long as its segment is there."""
        for segment in self._segments:
            segment.prove_newest()
        newest = max(self._segments, key=lambda segment: segment.max_timestamp_ms)
        if newest.max_timestamp_ms < 0:
            return None
        found = newest.offset_for_timestamp(newest.max_timestamp_ms, newest.base_offset)
        if found is None:
            return None
        epoch = self.epochs.epoch_for_offset(found[1])
        if epoch is None:  # deleted, but still there: only its batch knows
            headers = newest.iter_headers(newest.offset_index.lookup(found[1])[1])
            epoch = next((header.leader_epoch for _, header in headers if header.last_offset >= found[1]), None)
        return TimestampedOffset(*found, epoch)

    # --- shorten ----------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Forgets all records at and behind the offset: what a follower does that had more than its leader."""
        if offset < 0:
            raise ValueError(f"cannot truncate {self.partition} to offset {offset}")
        if offset >= self.next_offset:
            self.epochs.truncate_from_end(self.next_offset)
            return
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        keep = bisect_right(self._bases, offset)
        self._begin_shortening()
        self._remove_from(keep)
        self.active.become_active()
        self._no_roll_below = None
        self.active.truncate_to(offset)
        # For good, before new records get these offsets: else a power cut could bring old ones back among them.
        self.active.flush()
        self._end_at(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forgets everything, and goes on at the offset: the leader no longer has what would come before."""
        self._begin_shortening()
        self._remove_from(0)
        self._new_segment(offset)
        # Without its name in the folder the log would start at 0 again after a power cut.
        self.disk.sync_directory(self.directory)
        self.log_start_offset = offset
        self.epochs.clear()
        self.producers.truncate_fully_and_start_at(offset)
        self._end_at(offset)

    def _remove_from(self, index: int) -> None:
        """The highest segment first: a crash in between leaves no gap."""
        doomed = self._segments[index:]
        del self._segments[index:], self._bases[index:]
        for segment in reversed(doomed):
            segment.delete()
        if doomed:
            self.disk.sync_directory(self.directory)

    def _begin_shortening(self) -> None:
        with self._flushing:
            self._shortenings += 1

    def _end_at(self, offset: int) -> None:
        with self._flushing:
            self._shortenings += 1
            self.next_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._bound_position = None
        self.epochs.truncate_from_end(offset)
        rebuild_producers(self, offset)
        self.set_high_watermark(min(self.high_watermark, offset))

    def advance_log_start(self, offset: int) -> None:
        """Forgets what is before the offset (delete-records, or a leader that did): nobody reads it again, and whole
        segments below it go with the next retention."""
        if offset > self.high_watermark:
            raise LogOffsetOutOfRangeError(
                f"{self.partition}: the log cannot start at {offset}: the high watermark is {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            # Not written: a start cuts them again, and on a full disk this must not need room.
            self.epochs.truncate_from_start(offset, write=False)
            self.producers.on_log_start_advanced(offset)

    def delete_segments(self, doomed: list[Segment]) -> None:
        """Takes the oldest segments out of the log; their files are renamed now and removed later."""
        if doomed != self._segments[: len(doomed)] or len(doomed) >= len(self._segments):
            raise ValueError(f"{self.partition}: only the oldest segments can be deleted, and never the active one")
        if not doomed:
            return
        self.replace_segments([], doomed)
        self.advance_log_start(min(self._bases[0], self.high_watermark))
        self.producers.delete_snapshots_before(self._bases[0])

    def replace_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Puts segments where others were; the others' files are renamed now and removed later."""
        self._begin_shortening()
        kept = [segment for segment in self._segments if segment not in old]
        self._segments = sorted([*kept, *new], key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self._bound_position = None
        due_ms = self.clock.now_ms() + self.config.file_delete_delay_ms
        for segment in old:
            segment.rename_suffix("", DELETED)
            self._removable.append((due_ms, segment))

    def remove_due(self) -> int:
        """Removes the files of segments deleted `file.delete.delay.ms` ago; how many."""
        due = self.take_removable()
        for segment in due:
            segment.delete()
        return len(due)

    def take_removable(self) -> list[Segment]:
        """The segments deleted `file.delete.delay.ms` ago, closed. Any thread may remove their files."""
        if not self._removable:
            return []
        now_ms = self.clock.now_ms()
        due = [segment for due_ms, segment in self._removable if due_ms <= now_ms]
        self._removable = [pair for pair in self._removable if pair[0] > now_ms]
        for segment in due:
            segment.abandon()
        return due

    # --- keep -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes everything appended so far survive a power cut. Any thread may call it. After a sync that failed every
        call does: the system may have dropped the data and report success the next time."""
        while not self._flush_once():
            pass

    def _flush_once(self) -> bool:
        """Whether it counts: not if the log was shortened meanwhile, for then other records may have these offsets."""
        failed = self._failed_sync
        if failed is not None:
            raise SyncFailedError(failed.errno, failed.strerror, failed.filename) from failed
        shortenings, end, segments = self._shortenings, self.next_offset, list(self._segments)
        # Also the segment that ends at the recovery point: its indexes were completed when it was closed.
        first = max(bisect_left(segments, self.recovery_point, key=_base_offset) - 1, 0)
        try:
            if end > self.recovery_point:
                self.metadata.flush()
            self.epochs.flush(end)
            for segment in segments[first:]:
                segment.flush()
        except OSError as error:
            if shortenings != self._shortenings:
                return False  # the file was removed
            if isinstance(error, SyncFailedError):
                self._failed_sync = error
            raise
        with self._flushing:
            if shortenings != self._shortenings:
                return False
            self.recovery_point = max(self.recovery_point, end)
            self._last_flush_ms = self.clock.now_ms()
        return True

    def is_flush_due(self) -> bool:
        """Whether `flush.ms` have passed since the last flush, with something to flush."""
        waited_ms = self.clock.now_ms() - self._last_flush_ms
        return self.next_offset > self.recovery_point and waited_ms >= self.config.flush_ms

    def update_config(self, config: LogConfig) -> None:
        """Takes effect with the next append, roll or cleaning."""
        if self.config.compacts and not config.compacts:
            self.compacted_below = self.next_offset
        self.config = config

    def close(self) -> None:
        """Writes what a clean start needs, and closes the files. The caller flushes before, if it wants that."""
        self.epochs.flush(self.next_offset)
        try:
            self.producers.take_snapshot(self.next_offset, sync=True)
        except OSError as error:
            if not is_full(error):
                raise  # else the next start reads what is behind the newest one there is
        for segment in self._segments:
            segment.close()
        for _, segment in self._removable:
            segment.abandon()

    def abandon(self) -> None:
        """Closes the files of a log that goes away, without writing."""
        for segment in self._segments:
            segment.abandon()
        for _, segment in self._removable:
            segment.abandon()


def rebuild_producers(log: PartitionLog, end_offset: int) -> None:
    """Brings the producers' state to that of a log that ends there: the newest snapshot, and the batches behind it."""
    producers = log.producers
    producers.truncate_and_reload(log.log_start_offset, end_offset, log.clock.now_ms())
    start = max(producers.map_end_offset, log.log_start_offset)
    if start < end_offset:
        replay_producers(log.segments, producers, start, end_offset)
    producers.map_end_offset = end_offset


def replay_producers(segments: Sequence[Segment], producers: ProducerStates, start: int, end: int) -> None:
    """Lets the producers' state see the batches between two offsets."""
    bases = [segment.base_offset for segment in segments]
    for segment in segments[max(bisect_right(bases, start) - 1, 0) :]:
        if segment.base_offset >= end:
            break
        try:
            found = segment.position_of(start)
            if found is None:
                continue
            for position, header in segment.iter_headers(found[0]):
                if header.base_offset >= end:
                    break
                if header.producer_id >= 0:
                    producers.replay(header, partial(segment.log.read_at, position, header.size_in_bytes))
        except (CorruptRecordsError, InvalidRecordsError) as error:
            _logger.warning("%s; the producer state after that is not known", error)


def _per_segment(headers: Sequence[BatchHeader], segment_bytes: int) -> Iterator[tuple[BatchHeader, ...]]:
    """Groups that fit a segment by size and offsets. A batch that is too large for any is alone: the leader's topic had
    larger segments."""
    group: list[BatchHeader] = []
    size = 0
    for header in headers:
        size += header.size_in_bytes
        if group and (size > segment_bytes or header.last_offset - group[0].base_offset > MAX_INT32):
            yield tuple(group)
            group, size = [], header.size_in_bytes
        group.append(header)
    yield tuple(group)


_base_offset = attrgetter("base_offset")


def _nothing(_: PartitionLog) -> None:
    return None
