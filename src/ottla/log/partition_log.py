"""One partition's log: consecutive segments, with the state of its producers, epochs and transactions.

    log start ──▶ … closed segments … │ active segment ──▶ log end
                        ▲ last stable offset ≤ high watermark ▲

Guarantees: records keep their order and their offsets; an append is complete or does not happen; a read begins with the
batch that contains the offset. Replication sets the high watermark; the log needs it to know what may be deleted and
which transactions are decided.

Owned by one thread, which appends, truncates, rolls and deletes. Reads and `flush` may run in others: they only touch
files, which stay open until they are removed. The caller handles an `OSError`, and takes the directory offline.
"""

from __future__ import annotations

import errno
import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, NoReturn
from zlib import crc32

from ottla.base.clock import Clock, passed_ms
from ottla.base.disk import Buffer, Disk, SyncFailedError, is_full
from ottla.base.file_slice import FileSlice
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.damages import Damages
from ottla.log.earlier_batches import earlier_batches
from ottla.log.errors import (
    CorruptRecordsError,
    FileError,
    InvalidReadSizeError,
    LogOffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    UnexpectedOffsetError,
)
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.names import DELETED, LOG, OFFSET_INDEX, TIME_INDEX, segment_name
from ottla.log.partition_metadata import PartitionMetadata
from ottla.log.producer_replay import rebuild_producers
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment, SegmentOptions, SegmentRead
from ottla.log.sent_batch import header_of_sent, place_batch
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.validation import AppendInfo, PreparedBatches, analyse, assign, prepare, validate_and_assign
from ottla.records import BatchHeader, TimestampType, TransactionMarker, read_header
from ottla.records.control import marker_batch
from ottla.records.layout import ATTRIBUTES_AT, MAX_INT32
from ottla.records.new_batch import NewBatch

_logger = logging.getLogger(__name__)

MAX_GAP: Final = 2**30
"""There is no gap between segments, unless it is wider than this: in a follower whose leader was compacted."""


class LogRead(NamedTuple):
    """The result of a read. `slice` is None if there is nothing between the offset and the bound."""

    slice: FileSlice | None
    aborted_transactions: list[AbortedTransaction] | None = None


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int | None


class PartitionLog:
    """See the module docstring. Created by `loader.load`, which brings a folder into order first."""

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
        """Called when a segment was closed: to flush it in a thread."""
        self.on_flush_due: Callable[[PartitionLog], None] = PartitionLog.flush
        """Called when `flush.messages` records wait for the disk: flushes at once, unless a thread should do it."""
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._flushed_ms = passed_ms(clock)
        self._removable: list[tuple[int, Segment]] = []
        self._bound_position: tuple[Segment, int, int, int] | None = None
        self._flushing = threading.Lock()
        """Held to move the recovery point, which flushes in other threads do."""
        self._failed_sync: SyncFailedError | None = None
        """What the sync should have made durable may be lost: no later flush succeeds."""
        self._no_roll_below: tuple[Segment, LogConfig, int, int, int] | None = None
        """Size, offset and timestamp up to which the segment is neither full nor too old under that config."""
        self._shortenings = 0
        """Incremented when segments or records begin to be removed, and when that is done."""

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def segment_ends(self) -> list[tuple[Segment, int]]:
        """Each segment, and the first offset that cannot be in it."""
        return list(zip(self._segments, (*self._bases[1:], self.next_offset), strict=True))

    def may_lack_offsets_below(self, end: int) -> bool:
        """Whether compaction explains missing offsets below that one."""
        return self.config.compacts or end <= self.compacted_below

    @property
    def size(self) -> int:
        """The size of all records in bytes."""
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
        """Below it, every transaction is decided: consumers with read_committed may read up to it."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    def set_high_watermark(self, offset: int) -> None:
        """Set by replication, within the log's bounds."""
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
        """Checks batches, assigns offsets and the leader epoch, and writes them. A producer's duplicate is not written
        again: the result of its first append is returned. With `bounded`, batches that take long to check are left
        unchanged and raise `LargeBatchError`: the caller prepares them first."""
        if not len(data):
            return AppendInfo((), 0)
        now_ms = self.clock.now_ms()
        if isinstance(data, PreparedBatches):
            if data.config is not self.config:  # changed in the meantime
                data = prepare(data.data, now_ms=now_ms, config=self.config, origin=origin)
            data, info = assign(data, next_offset=self.next_offset, now_ms=now_ms, leader_epoch=leader_epoch)
        else:
            data, info = validate_and_assign(data, self.next_offset, now_ms, self.config, leader_epoch, origin, bounded)
        if len(data) > self.config.segment_bytes:  # checked before sequence numbers, as in Kafka
            self._refuse_size(len(data))
        try:
            duplicate = self.producers.check(info.headers, data, origin)
        except OutOfOrderSequenceError:
            if not self._recall_batches(info.headers):
                raise
            duplicate = self.producers.check(info.headers, data, origin)
        if duplicate is not None:
            return info.of_duplicate(duplicate, self.log_start_offset)
        return self._append(data, info, now_ms)

    def append_sent(self, data: Buffer, leader_epoch: int, attributes: int = 0) -> int:
        """The fast path of `append_as_leader` for a client's batch as most are: returns its base offset, or -1, with
        nothing done, if only `append_as_leader` can tell what to do. `attributes`: TRANSACTIONAL_BIT if its transaction
        is verified, or open here."""
        bound, config, segment, size = self._no_roll_below, self.config, self._segments[-1], len(data)
        if (
            bound is None
            or bound[0] is not segment
            or bound[1] is not config
            or not config.takes_any_plain
            or segment.size + size > bound[2]
            or leader_epoch != self.epochs.latest_epoch
        ):
            return -1
        header = header_of_sent(data, config.max_message_bytes, attributes)
        if header is None:
            return -1
        offset, producers = self.next_offset, self.producers
        last_offset, newest_ms = offset + header[6], header[8]
        if last_offset > bound[3] or newest_ms > bound[4]:
            return -1
        placed = (tuple.__new__(BatchHeader, (offset, header[1], leader_epoch, *header[3:])),) if header[9] >= 0 else ()
        if placed and not producers.accepts(placed[0]):
            return -1
        place_batch(data, 0, offset, header[1], leader_epoch)
        segment.append_one(data, size, last_offset, newest_ms)
        if placed:
            producers.update(placed, data)
        self.next_offset = producers.map_end_offset = last_offset + 1
        return offset

    def _recall_batches(self, headers: Sequence[BatchHeader]) -> bool:
        """Searches the log for batches of these producers that their snapshot left out; returns whether it found
        any."""
        is_found = False
        for header in headers:
            entry = self.producers.entries.get(header.producer_id)
            if entry is not None and entry.may_lack(header):
                earlier = earlier_batches(self._segments, entry, self.log_start_offset)
                entry.recall(earlier)
                is_found = is_found or bool(earlier)
        return is_found

    def _refuse_size(self, size: int) -> NoReturn:
        raise RecordListTooLargeError(
            f"{self.partition}: {size} bytes of batches do not fit a segment of {self.config.segment_bytes}"
        )

    def append_own(self, batch: NewBatch, leader_epoch: int) -> int:
        """Appends a batch that this broker has just created; returns the next offset. Nothing in it has to be checked,
        unless it is part of a transaction: coordinators create one for each commit."""
        bound, config, segment, offset = self._no_roll_below, self.config, self._segments[-1], self.next_offset
        body, count, newest_ms, is_transactional = batch
        size, end = ATTRIBUTES_AT + len(body), offset + count
        if (
            is_transactional
            or not config.takes_plain_as_sent
            or size > config.max_message_bytes
            or leader_epoch != self.epochs.latest_epoch
            # `_is_room_known`, without a call: a coordinator appends to many partitions in one turn.
            or bound is None
            or bound[0] is not segment
            or bound[1] is not config
            or segment.size + size > bound[2]
            or end - 1 > bound[3]
            or newest_ms > bound[4]
        ):
            data = memoryview(bytearray(batch.placed(0, leader_epoch)))
            return self.append_as_leader(data, leader_epoch, origin=AppendOrigin.COORDINATOR).last_offset + 1
        segment.append_one(batch.placed(offset, leader_epoch), size, end - 1, newest_ms)
        self.next_offset = self.producers.map_end_offset = end
        if end - self.recovery_point >= config.flush_messages:
            self.on_flush_due(self)
        return end

    def append_marker(
        self,
        leader_epoch: int,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> int:
        """Ends a producer's transaction; returns the offset after the marker."""
        config, now_ms, offset = self.config, self.clock.now_ms(), self.next_offset
        marker = TransactionMarker(offset, now_ms, producer_id, producer_epoch, committed, coordinator_epoch)
        batch = marker_batch(marker, is_log_append_time=config.timestamp_type is TimestampType.LOG_APPEND_TIME)
        data = batch.placed(offset, leader_epoch)
        header = read_header(data)
        self.producers.check_marker(header, marker, transaction_version)
        self._append(data, AppendInfo.of((header,), len(data)), now_ms, marker)
        return offset + 1

    def append_as_follower(self, data: Buffer, *, max_epoch: int = MAX_INT32) -> AppendInfo:
        """Writes batches as the leader sent them. Skips an incomplete batch at their end, and batches of an epoch above
        `max_epoch`: the leader lost its leadership while it sent them."""
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

    def _append(
        self, data: Buffer, info: AppendInfo, now_ms: int, marker: TransactionMarker | None = None
    ) -> AppendInfo:
        """`marker`: the one that is the only batch, if the caller knows it."""
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
            # Compaction on the leader may have left a gap that no segment can span: the new segment begins after it.
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
        if marker is None:
            for aborted in self.producers.update(info.headers, data):
                segment.transaction_index.append(aborted)
        elif (ended := self.producers.update_marker(info.headers[0], marker)) is not None:
            segment.transaction_index.append(ended)
        self._ends_at(last_offset + 1)
        return info

    def _is_room_known(self, segment: Segment, size: int, last_offset: int, newest_ms: int) -> bool:
        """Whether batches of that size, offset and time certainly fit; otherwise the segment must be asked."""
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
        """Called after batches were appended, up to the offset."""
        self.next_offset = self.producers.map_end_offset = offset
        if offset - self.recovery_point >= self.config.flush_messages:
            self.on_flush_due(self)

    def _jitter_ms(self, segment: Segment) -> int:
        """Spreads the rolls of many partitions. Derived from the segment's name, so that a restart does not change
        it."""
        limit_ms = min(self.config.segment_jitter_ms, self.config.roll_ms)
        return crc32(f"{self.partition}@{segment.base_offset}".encode()) % limit_ms

    def roll(self, base_offset: int | None = None) -> Segment:
        """Closes the active segment and begins a new one at its end, or at a later given offset."""
        active = self._segments[-1]
        # Not at `next_offset`, which is further if a batch was cut in the middle: recovery takes a gap for a loss.
        offset = self._end_of_active() if base_offset is None else base_offset
        if active.base_offset == offset and active.size == 0:
            return active
        if offset <= active.base_offset or (offset < self.next_offset and base_offset is not None):
            reason = f"a segment cannot begin at {offset}: the active one begins at {active.base_offset}"
            raise CorruptRecordsError(f"{active.path}: {reason}, and the log ends at {self.next_offset}")
        if base_offset is not None:
            self.compacted_below = max(self.compacted_below, offset)  # the offsets between were never here
        active.become_inactive()
        self.producers.map_end_offset = offset
        self.producers.take_snapshot(offset)
        segment = self._new_segment(offset)
        self.on_roll(self)
        return segment

    def _end_of_active(self) -> int:
        """The offset after the last complete batch of the active segment; if its file is damaged, the log's end, which
        was counted and not read."""
        if not self.active.size:
            return self.active.base_offset
        try:
            offset = self.active.read_next_offset()
        except CorruptRecordsError:  # already reported
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
        """Called if the disk was full when some files of a new segment were created. They are removed durably before
        the log continues in the old segment: the next start would take them for its end. An `OSError` here takes the
        directory offline."""
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
        """Returns batches from the one that contains the offset up to `bound` (default: the log's end), at most
        `max_bytes`. The last batch may be cut off, the first never: one that does not fit is returned completely with
        `min_one`, and not at all without (KIP-74)."""
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
        segments = self._segments
        index = bisect_right(self._bases, offset) - 1 if len(segments) > 1 else 0
        while offset < bound and index < len(segments):
            segment = segments[index]
            position = None if bound == end else self._position_of_bound(index, segment, bound)
            found = segment.read(offset, max_bytes, max_position=position, min_one=min_one)
            if found is None or found.base_offset > offset:
                self._check_gap(index, offset, found)
            if found is not None:
                piece = found.slice
                if piece.size < found.first_batch_size:  # it is beyond the limit, or the bound is within it
                    return LogRead(None, None)  # even if aborted transactions were requested, as in Kafka
                if not segment.is_proven(piece.position, piece.position + piece.size):
                    piece = self._valid_part(index, piece)
                aborted = self._aborted(index, offset, piece, bound) if with_aborted else None
                return LogRead(piece, aborted)
            index += 1  # compaction left nothing at or after the offset in this segment
        return LogRead(None, [] if with_aborted else None)

    def bytes_before(self, bound: int, offset: int) -> int | None:
        """The number of bytes between the offset and the bound, if both are in the same segment. None if the bound is
        in a later segment: then the reader is far behind, and nobody counts."""
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
        """Called if the segment has no batch with the offset, but perhaps one after it: an error unless compaction,
        here or on the leader, explains it."""
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

    def _valid_part(self, index: int, found: FileSlice) -> FileSlice:
        """The part in which each batch leads to the next. Checked once, on the first read after a start."""
        segment = self._segments[index]
        end = found.position + found.size
        end_offset = self._bases[index + 1] if index + 1 < len(self._bases) else self.next_offset
        compacted = self.may_lack_offsets_below(end_offset)
        sound_end = segment.prove(found.position, end, end_offset=end_offset, compacted=compacted)
        if sound_end >= end:
            return found
        if sound_end <= found.position:
            raise CorruptRecordsError(f"{segment.path}: the batch at byte {sound_end} is damaged", position=sound_end)
        return FileSlice(found.file, found.position, sound_end - found.position)

    def _position_of_bound(self, index: int, segment: Segment, bound: int) -> int:
        """Where in the segment reading must stop: at the first batch that reaches the bound."""
        if bound >= self.next_offset or (index + 1 < len(self._bases) and bound >= self._bases[index + 1]):
            return segment.size
        known = self._bound_position  # consumers at the tail all use the same high watermark
        if known is not None and known[0] is segment and known[1] == bound and known[2] == segment.size:
            return known[3]
        found = segment.position_of(bound)
        position = segment.size if found is None else found[0]
        self._bound_position = (segment, bound, segment.size, position)
        return position

    def _aborted(self, index: int, offset: int, found: FileSlice, bound: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap what was read."""
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
        """The first record with the highest timestamp. As in Kafka it may be before the log start, as long as its
        segment exists."""
        for segment in self._segments:
            segment.prove_newest()
        newest = max(self._segments, key=lambda segment: segment.max_timestamp_ms)
        if newest.max_timestamp_ms < 0:
            return None
        found = newest.offset_for_timestamp(newest.max_timestamp_ms, newest.base_offset)
        if found is None:
            return None
        epoch = self.epochs.epoch_for_offset(found[1])
        if epoch is None:  # deleted, but its segment exists: only its batch knows
            headers = newest.iter_headers(newest.offset_index.lookup(found[1])[1])
            epoch = next((header.leader_epoch for _, header in headers if header.last_offset >= found[1]), None)
        return TimestampedOffset(*found, epoch)

    # --- truncate and delete ----------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Removes all records at and after the offset: for a follower that had more than its leader."""
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
        # Durably, before new records get these offsets: otherwise a power cut could bring old ones back among them.
        self.active.flush()
        self._end_at(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything, and continues at the offset: the leader no longer has what would come before."""
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
        rebuild_producers(self.producers, self.segments, self.log_start_offset, offset, self.clock.now_ms())
        self.set_high_watermark(min(self.high_watermark, offset))

    def advance_log_start(self, offset: int) -> None:
        """Hides everything before the offset (DeleteRecords, or a leader that did so): it cannot be read any more, and
        the next retention run removes complete segments below it."""
        if offset > self.high_watermark:
            raise LogOffsetOutOfRangeError(
                f"{self.partition}: the log cannot start at {offset}: the high watermark is {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            # Not written: a start removes them again, and on a full disk this must not need space.
            self.epochs.truncate_from_start(offset, write=False)
            self.producers.on_log_start_advanced(offset)

    def delete_segments(self, doomed: list[Segment]) -> None:
        """Removes the oldest segments from the log; their files are renamed now and removed later."""
        if doomed != self._segments[: len(doomed)] or len(doomed) >= len(self._segments):
            raise ValueError(f"{self.partition}: only the oldest segments can be deleted, and never the active one")
        if not doomed:
            return
        self.replace_segments([], doomed)
        self.advance_log_start(min(self._bases[0], self.high_watermark))
        self.producers.delete_snapshots_before(self._bases[0])

    def replace_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Replaces segments with others; the files of the old ones are renamed now and removed later."""
        self._begin_shortening()
        kept = [segment for segment in self._segments if segment not in old]
        self._segments = sorted([*kept, *new], key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self._bound_position = None
        due_ms = passed_ms(self.clock) + self.config.file_delete_delay_ms
        for segment in old:
            segment.rename_suffix("", DELETED)
            self._removable.append((due_ms, segment))

    def remove_due(self) -> int:
        """Removes the files of segments deleted `file.delete.delay.ms` ago; returns their number."""
        due = self.take_removable()
        for segment in due:
            segment.delete()
        return len(due)

    def take_removable(self) -> list[Segment]:
        """The segments deleted `file.delete.delay.ms` ago, closed. Any thread may remove their files."""
        if not self._removable:
            return []
        now_ms = passed_ms(self.clock)
        due = [segment for due_ms, segment in self._removable if due_ms <= now_ms]
        self._removable = [pair for pair in self._removable if pair[0] > now_ms]
        for segment in due:
            segment.abandon()
        return due

    # --- flush, config and close ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes everything appended so far survive a power cut. Thread-safe. After a failed sync every call fails: the
        system may have dropped the data and report success the next time."""
        while not self._flush_once():
            pass

    def _flush_once(self) -> bool:
        """Whether it counts: not if the log was shortened meanwhile, because other records may have these offsets."""
        failed = self._failed_sync
        if failed is not None:
            raise SyncFailedError(failed.errno, failed.strerror, failed.filename) from failed
        shortenings, end, segments = self._shortenings, self.next_offset, list(self._segments)
        # Includes the segment that ends at the recovery point: its indexes were completed when it was closed.
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
            self._flushed_ms = passed_ms(self.clock)
        return True

    def is_flush_due(self) -> bool:
        """Whether `flush.ms` have passed since the last flush, with something to flush."""
        waited_ms = passed_ms(self.clock) - self._flushed_ms
        return self.next_offset > self.recovery_point and waited_ms >= self.config.flush_ms

    def update_config(self, config: LogConfig) -> None:
        """Takes effect with the next append, roll or cleaning."""
        if self.config.compacts and not config.compacts:
            self.compacted_below = self.next_offset
        self.config = config

    def close(self) -> None:
        """Writes what a clean start needs, and closes the files. The caller flushes first, if necessary."""
        self.epochs.flush(self.next_offset)
        try:
            self.producers.take_snapshot(self.next_offset, sync=True)
        except OSError as error:
            if not is_full(error):
                raise  # otherwise the next start reads everything after the newest existing one
        for segment in self._segments:
            segment.close()
        for _, segment in self._removable:
            segment.abandon()

    def abandon(self) -> None:
        """Closes the files of a log that is removed, without writing."""
        for segment in self._segments:
            segment.abandon()
        for _, segment in self._removable:
            segment.abandon()


def _per_segment(headers: Sequence[BatchHeader], segment_bytes: int) -> Iterator[tuple[BatchHeader, ...]]:
    """Yields groups that fit into a segment by size and offsets. A batch that is too large for any is alone: the
    leader's topic had larger segments."""
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
