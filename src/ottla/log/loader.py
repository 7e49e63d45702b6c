"""Brings a partition's folder into order and opens its log.

After a clean stop nothing is read but names, sizes, the end of the last segment and the newest producer snapshot. After
an unclean one, in this order, each step safe to be interrupted and begun again:

1. What compaction left: `.cleaned` files are worthless and go; a `.swap` file was finished, so it takes its place, and
   the segments it replaces go. What was renamed to `.deleted` goes.
2. Indexes without a segment go. An index that is missing or contradicts itself is rebuilt from its segment.
3. Segments behind the recovery point are read again: every batch is checked, indexes are rebuilt, and at the first
   batch that is not whole and valid the log ends: the rest of that segment is cut off, later segments go.
4. Producers are brought up from the newest snapshot and the batches behind it; epochs beyond the end go.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from ottla.base.clock import Clock
from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.errors import CorruptIndexError
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.names import (
    CLEANED,
    DELETED,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    SWAP,
    TIME_INDEX,
    SegmentFile,
    parse_segment_file,
    segment_name,
)
from ottla.log.partition_log import MAX_GAP, PartitionLog, rebuild_producers, replay_producers
from ottla.log.partition_metadata import PartitionMetadata
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment, SegmentOptions
from ottla.log.transaction_index import AbortedTransaction
from ottla.records import BatchHeader

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What is known of a log from outside its folder."""

    clean: bool = False
    """Whether the directory was closed cleanly."""
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    """Below it the log was compacted, whatever the topic's policy is now: what is missing there is not lost."""
    producer_id_expiration_ms: int = 86_400_000


def load(
    disk: Disk, clock: Clock, directory: Path, partition: TopicPartition, config: LogConfig, options: LoadOptions
) -> PartitionLog:
    """The log in the folder, which is made if it is not there."""
    try:
        listed = disk.list(directory)
    except FileNotFoundError:
        disk.make_directory(directory)
        listed = []
    loader = _Loader(disk, clock, directory, partition, config, options, listed)
    return loader.load()


class _Loader:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directory: Path,
        partition: TopicPartition,
        config: LogConfig,
        options: LoadOptions,
        listed: list[str],
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.directory = directory
        self.partition = partition
        self.config = config
        self.options = options
        self.epochs = LeaderEpochs(disk, directory, is_new=LEADER_EPOCHS not in listed)
        # Whoever flushed records has synced the folder before; only then is there a recovery point.
        was_flushed = options.recovery_point > 0
        self.metadata = (
            PartitionMetadata.load(disk, directory, was_flushed=was_flushed)
            if PARTITION_METADATA in listed
            else PartitionMetadata(disk, directory, is_synced=was_flushed)
        )
        self.listed: list[tuple[str, SegmentFile]] | None = _segment_files(listed)
        self.swapped: set[int] = set()
        self.segment_options = SegmentOptions(
            index_interval_bytes=config.index_interval_bytes, max_index_bytes=config.segment_index_bytes, clock=clock
        )

    def load(self) -> PartitionLog:
        self.finish_swaps()
        self.remove_leftovers()
        segments = self.open_segments()
        if not self.options.clean:
            segments = self.recover(segments)
        if not segments:
            segments = [self.open(self.options.log_start_offset, is_new=True)]
        next_offset = segments[-1].read_next_offset()
        log_start = max(self.options.log_start_offset, segments[0].base_offset)
        if log_start > next_offset:
            # The log lost records that were already deleted for readers: go on where the start says.
            for segment in segments:
                segment.delete()
            segments = [self.open(log_start, is_new=True)]
            next_offset = log_start
            self.epochs.clear()
        recovery_point = next_offset
        if not self.options.clean:
            recovery_point = min(self.options.recovery_point, segments[-1].base_offset)
        self.epochs.truncate_from_end(next_offset)
        self.epochs.truncate_from_start(log_start)
        producers = ProducerStates(
            self.disk,
            self.directory,
            expiration_ms=self.options.producer_id_expiration_ms,
            snapshot_offsets=self.snapshot_offsets(),
        )
        producers.remove_stray_snapshots({segment.base_offset for segment in segments})
        log = PartitionLog(
            disk=self.disk,
            clock=self.clock,
            directory=self.directory,
            partition=self.partition,
            config=self.config,
            segments=segments,
            log_start_offset=log_start,
            next_offset=next_offset,
            recovery_point=recovery_point,
            producers=producers,
            epochs=self.epochs,
            metadata=self.metadata,
        )
        rebuild_producers(log, next_offset)
        for segment in segments:
            segment.release_log()  # most partitions wait long for their first use
        return log

    def open(self, base_offset: int, *, is_new: bool = False) -> Segment:
        return Segment.open(self.disk, self.directory, base_offset, self.segment_options, is_new=is_new)

    def segment_files(self) -> list[tuple[str, SegmentFile]]:
        """What the folder holds, by name: listed once for as long as nothing changes, for there may be thousands."""
        if self.listed is None:
            self.listed = _segment_files(self.disk.list(self.directory))
        return self.listed

    def snapshot_offsets(self) -> list[int]:
        return [form.base_offset for _, form in self.segment_files() if form[1:] == (PRODUCER_SNAPSHOT, "")]

    def remove(self, name: str) -> None:
        self.disk.remove(self.directory / name)
        self.listed = None

    # 1. What compaction and deletion left.

    def finish_swaps(self) -> None:
        """A crash may have come between any two renames. What has a `.swap` log takes its place, unless a `.cleaned`
        file shows that the renames to `.swap` were not done: then the old segments are still whole, and stay."""
        forms = self.segment_files()
        unfinished = min((form.base_offset for _, form in forms if form.state == CLEANED), default=None)
        swaps = []
        for name, form in forms:
            undone = form.state == SWAP and unfinished is not None and form.base_offset >= unfinished
            if form.state == CLEANED or undone:
                self.remove(name)
            elif form.state == SWAP and form.suffix == LOG:
                swaps.append(form.base_offset)
        for base_offset in swaps:
            self.replace_by_swap(base_offset)

    def replace_by_swap(self, base_offset: int) -> None:
        swap = Segment.open(self.disk, self.directory, base_offset, self.segment_options, suffix=SWAP)
        end = swap.read_next_offset()
        swap.close()
        for name, form in self.segment_files():
            if not form.state and form.suffix in SEGMENT_SUFFIXES and base_offset < form.base_offset < end:
                self.remove(name)
        for suffix in reversed(SEGMENT_SUFFIXES):  # the log last: until then the swap can be finished again
            source = self.directory / (segment_name(base_offset, suffix) + SWAP)
            if self.disk.exists(source):
                self.disk.replace(source, self.directory / segment_name(base_offset, suffix))
        self.disk.sync_directory(self.directory)
        self.listed = None
        self.swapped.add(base_offset)

    def remove_leftovers(self) -> None:
        logs = {form.base_offset for _, form in self.segment_files() if form[1:] == (LOG, "")}
        for name, form in self.segment_files():
            orphan = form.suffix in SEGMENT_SUFFIXES and form.base_offset not in logs
            if form.state or orphan or name.endswith(DELETED):
                self.remove(name)

    # 2. Segments and their indexes.

    def open_segments(self) -> list[Segment]:
        """All of them. Indexes of those that `recover` will read anyway are left to it."""
        names = {name for name, _ in self.segment_files()}
        bases = sorted(form.base_offset for _, form in self.segment_files() if form.suffix == LOG)
        segments: list[Segment] = []
        for base_offset, following in zip(bases, (*bases[1:], None), strict=False):
            segment = self.open(base_offset)
            segments.append(segment)
            if self.is_suspect(following):
                continue
            missing = [s for s in (OFFSET_INDEX, TIME_INDEX) if segment_name(segment.base_offset, s) not in names]
            reason = f"{', '.join(missing)} missing" if missing else ""
            if base_offset in self.swapped:
                reason = "a crash came while it took its place, and an index may be that of the segment before it"
            if not reason and not self.options.clean:
                try:
                    segment.check_indexes()
                    if following == self.options.recovery_point:
                        segment.complete_time_index()  # perhaps it was closed after the last sync
                except CorruptIndexError as error:
                    reason = str(error)
            if reason:
                _logger.warning("%s: its indexes are made anew: %s", segment.path, reason)
                cut = self.recover_segment(segments)
                segment.flush()  # nobody will look at it again, whatever becomes of this run
                if cut:
                    _logger.error("%s: %d bytes were not whole valid batches and are cut off", segment.path, cut)
        return segments

    def is_suspect(self, following: int | None) -> bool:
        """Whether the segment before that one has records that may not have reached the disk."""
        return not self.options.clean and (following is None or following > self.options.recovery_point)

    # 3. What may not have reached the disk.

    def recover(self, segments: list[Segment]) -> list[Segment]:
        """Reads the segments behind the recovery point; the log ends at the first batch that is not whole and valid."""
        for index, segment in enumerate(segments):
            following = segments[index + 1].base_offset if index + 1 < len(segments) else None
            if not self.is_suspect(following):
                continue
            cut = self.recover_segment(segments[: index + 1], is_last=following is None)
            end = segment.read_next_offset()
            if cut:
                _logger.warning(
                    "%s: %d bytes behind offset %d are not whole valid batches and are cut off", segment.path, cut, end
                )
            elif following is None or self.is_gap_rightful(end, following):
                continue
            for later in reversed(segments[index + 1 :]):
                _logger.warning("%s: it begins behind what was lost, and goes", later.path)
                later.delete()
                self.disk.remove(self.directory / segment_name(later.base_offset, PRODUCER_SNAPSHOT))
            # Else a power cut could bring them back behind new records.
            self.disk.sync_directory(self.directory)
            return segments[: index + 1]
        return segments

    def is_gap_rightful(self, end: int, following: int) -> bool:
        """Files lose their ends independently. Only compaction, here or on the leader, leaves a gap that is no loss."""
        compacted = self.config.compacts or following <= self.options.cleaned_offset
        return following == end or following - end > MAX_GAP or compacted

    def recover_segment(self, segments: list[Segment], *, is_last: bool = False) -> int:
        """Reads the last of the segments again and rebuilds its indexes; the bytes that had to be cut off."""
        segment = segments[-1]
        producers = ProducerStates(self.disk, self.directory, expiration_ms=self.options.producer_id_expiration_ms)
        start = max(self.options.log_start_offset, segments[0].base_offset)
        producers.truncate_and_reload(start, segment.base_offset, self.clock.now_ms())
        replay_producers(segments[:-1], producers, max(producers.map_end_offset, start), segment.base_offset)
        aborted: list[AbortedTransaction] = []

        def replay(header: BatchHeader, batch: memoryview) -> None:
            # A crash may have come between a batch of a new leader and the writing down of its epoch.
            latest = self.epochs.latest_epoch
            if header.leader_epoch > (-1 if latest is None else latest):
                self.epochs.assign(header.leader_epoch, header.base_offset)
            transaction = producers.replay(header, lambda: batch)
            if transaction is not None:
                aborted.append(transaction)

        cut = segment.recover(replay)
        for transaction in aborted:
            segment.transaction_index.append(transaction)
        # So that the next segment's recovery begins here, and not at the log's start. Behind the last one it would do
        # harm: a snapshot keeps one batch of a producer, and of those that a crash left unanswered several may come
        # again.
        if not is_last:
            producers.take_snapshot(segment.read_next_offset())
        self.listed = None
        return cut


def _segment_files(names: list[str]) -> list[tuple[str, SegmentFile]]:
    return [(name, form) for name in names if (form := parse_segment_file(name))]
