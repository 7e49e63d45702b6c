"""Brings a partition's folder into order and opens its log.

After a clean stop only names, sizes, the end of the last segment and the newest producer snapshot are read. The last
segment must end with a complete batch, at the offset at which the log was closed: the recovery point contains it, and
so does the name of the snapshot that was taken then. Otherwise something happened to the file in between, and that
segment is recovered as after an unclean stop. After an unclean stop, in this order, where each step can be interrupted
and repeated:

1. Files that compaction left: `.cleaned` files are worthless and are removed; a `.swap` file was finished, so it takes
   its place, and the segments that it replaces are removed. `.deleted` files are removed.
2. Indexes without a segment are removed. An index that is missing or contradicts itself is rebuilt from its segment.
3. Segments after the recovery point are read again: every batch is checked, and indexes are rebuilt. The log ends at
the
   first batch that is not complete and valid: the rest of that segment and later segments are removed.
4. Producer state is restored from the newest snapshot and the batches after it; epochs beyond the end are removed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from ottla.base.clock import Clock
from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.damages import Damages
from ottla.log.errors import CorruptCheckpointError, CorruptIndexError, CorruptRecordsError
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
from ottla.log.partition_log import MAX_GAP, PartitionLog
from ottla.log.partition_metadata import PartitionMetadata
from ottla.log.producer_replay import rebuild_producers, replay_producers
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment, SegmentOptions
from ottla.log.transaction_index import AbortedTransaction
from ottla.records import BatchHeader

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What is known about a log from outside its folder."""

    clean: bool = False
    """Whether the directory was closed cleanly."""
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    """Below it the log was compacted, whatever the topic's policy is now: missing offsets are not lost records."""
    producer_id_expiration_ms: int = 86_400_000


def load(
    disk: Disk, clock: Clock, directory: Path, partition: TopicPartition, config: LogConfig, options: LoadOptions
) -> PartitionLog:
    """Opens the log in the folder, which is created if it does not exist."""
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
        self.damages = Damages()
        self.must_find_epochs = False
        self.recovered_producers: ProducerStates | None = None
        """The state at the log's end, if the last segment was recovered: its batches need not be read a second time."""
        self.epochs = self.read_epochs(is_new=LEADER_EPOCHS not in listed)
        self.metadata = self.read_metadata(is_new=PARTITION_METADATA not in listed)
        self.listed: list[tuple[str, SegmentFile]] | None = _segment_files(listed)
        self.swapped: set[int] = set()
        self.segment_options = SegmentOptions(
            index_interval_bytes=config.index_interval_bytes,
            max_index_bytes=config.segment_index_bytes,
            clock=clock,
            damages=self.damages,
        )

    def read_epochs(self, *, is_new: bool) -> LeaderEpochs:
        try:
            return LeaderEpochs(self.disk, self.directory, is_new=is_new)
        except CorruptCheckpointError as error:
            self.damages.repaired(error.path, f"{error.problem}. The epochs are read from the batches instead")
            self.must_find_epochs = True
            return LeaderEpochs(self.disk, self.directory, is_new=True)

    def read_metadata(self, *, is_new: bool) -> PartitionMetadata:
        # Whoever flushed records has synced the folder before; only then is there a recovery point.
        was_flushed = self.options.recovery_point > 0
        if not is_new:
            try:
                return PartitionMetadata.load(self.disk, self.directory, was_flushed=was_flushed)
            except CorruptCheckpointError as error:
                self.damages.repaired(error.path, f"{error.problem}. The topic id is written again")
        return PartitionMetadata(self.disk, self.directory, is_synced=was_flushed)

    def load(self) -> PartitionLog:
        self.finish_swaps()
        self.remove_leftovers()
        segments = self.open_segments()
        is_recovered = not self.options.clean
        if not self.options.clean:
            segments = self.recover(segments)
        elif segments:
            is_recovered = self.check_end(segments)
        if not segments:
            segments = [self.open(self.options.log_start_offset, is_new=True)]
        next_offset, last_epoch = segments[-1].read_end()
        if self.must_find_epochs or self.is_epoch_wrong(last_epoch, next_offset):
            self.find_epochs(segments)
        log_start = max(self.options.log_start_offset, segments[0].base_offset)
        if log_start > next_offset and self.options.clean and segments[-1].size:
            # A clean stop cannot leave that: the log start is wrong, not the records.
            self.damages.repaired(
                self.directory,
                f"the log start offset {log_start} that was written down lies behind the log's end, {next_offset}, and "
                f"is not used: the log starts at {segments[0].base_offset}",
            )
            log_start = segments[0].base_offset
        if log_start > next_offset:
            # The log lost records that were already deleted for readers: continue at the log start.
            _logger.warning(
                "%s: the log ends at offset %d, before its start offset %d; what is left of it is deleted",
                *(self.directory, next_offset, log_start),
            )
            for segment in segments:
                segment.delete()
            segments = [self.open(log_start, is_new=True)]
            next_offset = log_start
            self.epochs.clear()
            self.recovered_producers = None
        elif is_recovered and self.lacks_first_epochs(segments, log_start):
            self.find_epochs(segments)
        recovery_point = next_offset
        if is_recovered:
            recovery_point = min(self.options.recovery_point, segments[-1].base_offset)
        self.epochs.truncate_from_end(next_offset)
        self.epochs.truncate_from_start(log_start)
        producers = self.recovered_producers or ProducerStates(
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
            damages=self.damages,
            compacted_below=self.options.cleaned_offset,
        )
        rebuild_producers(log.producers, log.segments, log.log_start_offset, next_offset, log.clock.now_ms())
        for segment in segments:
            segment.release_log()  # most partitions are not used for a long time
        return log

    def open(self, base_offset: int, *, is_new: bool = False) -> Segment:
        return Segment.open(self.disk, self.directory, base_offset, self.segment_options, is_new=is_new)

    def segment_files(self) -> list[tuple[str, SegmentFile]]:
        """The files of the folder, by name: cached until something changes, because there may be thousands."""
        if self.listed is None:
            self.listed = _segment_files(self.disk.list(self.directory))
        return self.listed

    def snapshot_offsets(self) -> list[int]:
        return [form.base_offset for _, form in self.segment_files() if form[1:] == (PRODUCER_SNAPSHOT, "")]

    def remove(self, name: str) -> None:
        self.disk.remove(self.directory / name)
        self.listed = None

    # 1. Files left by compaction and deletion.

    def finish_swaps(self) -> None:
        """A crash may have come between any two renames. A `.swap` log takes its place, unless a `.cleaned` file shows
        that the renames to `.swap` were not complete: then the old segments are still complete, and stay."""
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
        for suffix in reversed(SEGMENT_SUFFIXES):  # the log last: until then the swap can be repeated
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
        """Opens all segments. Leaves the indexes of those that `recover` will read to it."""
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
                        segment.complete_time_index()  # it may have been closed after the last sync
                except CorruptIndexError as error:
                    reason = str(error)
            if reason:
                _logger.warning("%s: rebuilding its indexes: %s", segment.path, reason)
                cut = self.recover_segment(segments, end_offset=following)
                segment.flush()  # it will not be checked again, whatever happens in this run
                if cut:
                    _logger.error("%s: %d bytes were not whole valid batches and are cut off", segment.path, cut)
        return segments

    def is_suspect(self, following: int | None) -> bool:
        """Whether the segment before that one has records that may not have reached the disk."""
        return not self.options.clean and (following is None or following > self.options.recovery_point)

    # After a clean stop.

    def check_end(self, segments: list[Segment]) -> bool:
        """Whether the last segment had to be recovered, because it is not as the clean stop left it."""
        last, closed_at = segments[-1], self.options.recovery_point
        is_sure = closed_at == max(self.snapshot_offsets(), default=-1)
        try:
            end = last.read_next_offset()
        except CorruptRecordsError as error:
            reason = str(error)
        else:
            if end == closed_at or closed_at <= 0 or (end > closed_at and not is_sure):
                return False
            reason = f"it ends at offset {end}, and the log was closed at {closed_at}"
        cut = self.recover_segment(segments, is_last=True, end_offset=closed_at if is_sure else None)
        last.flush()
        self.damages.repaired(
            last.path,
            f"it is not as the clean stop left it, and was recovered: {reason}. {cut} bytes were cut off, and the log "
            f"ends at offset {last.read_next_offset()}",
        )
        return True

    def is_epoch_wrong(self, last_epoch: int, next_offset: int) -> bool:
        """Whether the epoch of the last batch contradicts the file. An epoch that began at the log's end, or a file
        that was not written yet, is no contradiction."""
        known = self.epochs.epoch_for_offset(next_offset - 1)
        if last_epoch < 0 or known is None or known == last_epoch:
            return False
        self.damages.repaired(
            self.directory / LEADER_EPOCHS,
            f"it says epoch {known} for the last batch, which has {last_epoch}. The epochs are read from the batches",
        )
        return True

    def lacks_first_epochs(self, segments: list[Segment], log_start: int) -> bool:
        """Whether deleted records are back, because a crash came before the new log start was written, but their
        epochs are not. Followers would get wrong ends of those epochs."""
        earliest = self.epochs.earliest_entry
        if earliest is None or earliest.start_offset <= log_start:
            return False
        try:
            for segment in segments:
                for _, header in segment.iter_headers(chunk_bytes=1024):
                    return header.base_offset < earliest.start_offset and header.leader_epoch >= 0
        except CorruptRecordsError:
            pass
        return False

    def find_epochs(self, segments: list[Segment]) -> None:
        """Reads the epochs from the batches. They never decrease, so a segment that begins with the same epoch as the
        next one has no other."""
        self.epochs.clear(write=False)
        firsts = [segment.first_epoch() for segment in segments]
        for segment, first, following in zip(segments, firsts, (*firsts[1:], None), strict=True):
            latest = self.epochs.latest_epoch
            if first is not None and first == following and first == latest:
                continue
            try:
                for _, header in segment.iter_headers():
                    latest = self.epochs.latest_epoch
                    if header.leader_epoch > (-1 if latest is None else latest):
                        self.epochs.assign(header.leader_epoch, header.base_offset, write=False)
            except CorruptRecordsError as error:
                _logger.warning("%s; leader epochs that start after that are not known", error)
        self.epochs.flush()

    # 3. Records that may not have reached the disk.

    def recover(self, segments: list[Segment]) -> list[Segment]:
        """Reads the segments after the recovery point; the log ends at the first batch that is not complete and
        valid."""
        for index, segment in enumerate(segments):
            following = segments[index + 1].base_offset if index + 1 < len(segments) else None
            if not self.is_suspect(following):
                continue
            cut = self.recover_segment(segments[: index + 1], is_last=following is None, end_offset=following)
            end = segment.read_next_offset()
            if cut:
                _logger.warning(
                    "%s: truncating %d bytes after offset %d, which are not complete valid batches",
                    segment.path,
                    cut,
                    end,
                )
            elif following is None or self.is_gap_rightful(end, following):
                continue
            for later in reversed(segments[index + 1 :]):
                _logger.warning("%s: deleted, because it starts after the lost records", later.path)
                later.delete()
                self.disk.remove(self.directory / segment_name(later.base_offset, PRODUCER_SNAPSHOT))
            # Otherwise a power cut could bring them back after new records.
            self.disk.sync_directory(self.directory)
            return segments[: index + 1]
        return segments

    def is_gap_rightful(self, end: int, following: int) -> bool:
        """Files lose their ends independently. Only compaction, here or on the leader, leaves a legitimate gap."""
        compacted = self.config.compacts or following <= self.options.cleaned_offset
        return following == end or following - end > MAX_GAP or compacted

    def recover_segment(self, segments: list[Segment], *, is_last: bool = False, end_offset: int | None = None) -> int:
        """Reads the last of the segments again and rebuilds its indexes; returns the number of bytes removed. If
        `end_offset` is given, no record at or after it was ever written."""
        segment = segments[-1]
        producers = ProducerStates(self.disk, self.directory, expiration_ms=self.options.producer_id_expiration_ms)
        start = max(self.options.log_start_offset, segments[0].base_offset)
        producers.truncate_and_reload(start, segment.base_offset, self.clock.now_ms())
        replay_producers(segments[:-1], producers, max(producers.map_end_offset, start), segment.base_offset)
        aborted: list[AbortedTransaction] = []
        latest = -1 if self.epochs.latest_epoch is None else self.epochs.latest_epoch

        def replay(header: BatchHeader, batch: memoryview) -> None:
            nonlocal latest
            epoch = header[2]  # by its index, which is faster: there may be millions of batches
            # A crash may have come between a batch of a new leader and the write of its epoch.
            if epoch > latest:
                self.epochs.assign(epoch, header.base_offset)
                latest = epoch
            if header[9] >= 0:  # the producer's id
                transaction = producers.replay(header, lambda: batch)
                if transaction is not None:
                    aborted.append(transaction)

        cut = segment.recover(replay, end_offset=end_offset)
        for transaction in aborted:
            segment.transaction_index.append(transaction)
        # So that the recovery of the next segment begins here, and not at the log's start. After the last segment it
        # would do harm: a snapshot keeps one batch per producer, and clients may retry several whose responses were
        # lost in the crash.
        if is_last:
            producers.map_end_offset = segment.read_next_offset()
            self.recovered_producers = producers
        else:
            producers.take_snapshot(segment.read_next_offset())
        self.listed = None
        return cut


def _segment_files(names: list[str]) -> list[tuple[str, SegmentFile]]:
    return [(name, form) for name in names if (form := parse_segment_file(name))]
