"""One pass of compaction over one log: planned and applied by the thread that owns the log, run by another.

    owner                              worker
    Compaction(cleanable, …)
                                       clean_next ─▶ a group of closed segments, rewritten as one `.cleaned` segment
    apply(group)                       …and so on, until it returns None
    CleanedOffsets.set(end_offset)

A group is swapped in before the next one is cleaned, so no more than one segment is on disk twice. The order of groups
matters: a later group may drop a tombstone, for example, because earlier groups no longer contain its key.

The swap survives a crash at every step. `.cleaned` files are worthless. They are synced, then renamed to `.swap`: once
all of them have that name, the new segment counts, and the loader completes the rest: old segments are renamed to
`.deleted`, the new one loses its suffix. If the new one ends before the last old one did, a crash may bring the last
old ones back: they contain only records that newer ones have replaced.

The worker reads files that it opened itself, so the owner may close, truncate or delete segments at the same time: then
the group is not applied, and the pass is over. `cancel` ends it sooner. A file that is gone because the owner removed
its segment from the log is not a failure of the disk: `was_overtaken` distinguishes the two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ottla.base.disk import File
from ottla.log.compaction.engine import BatchRewriter, Engine, EngineChunk, KeyMap, LastRecords
from ottla.log.compaction.options import CleanerOptions
from ottla.log.compaction.selection import Cleanable
from ottla.log.compaction.throttle import Throttle
from ottla.log.compaction.transactions import TransactionTracker
from ottla.log.errors import LogError
from ottla.log.names import CLEANED, OFFSET_INDEX, SEGMENT_SUFFIXES, SWAP, TIME_INDEX, segment_name
from ottla.log.segment import Segment, SegmentOptions
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.layout import MAX_INT32


class CompactionCancelledError(LogError):
    """The pass was ended: its log has changed, or the broker stops."""


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A closed segment as it was when the pass was planned."""

    segment: Segment
    base_offset: int
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """Old segments, and the one that replaces them."""

    old: tuple[SourceSegment, ...]
    new: Segment


@dataclass(slots=True)
class CompactionStatistics:
    """The progress of a pass."""

    map_utilization: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0
    mapping_s: float = 0.0
    copying_s: float = 0.0


class Compaction:
    """See the module docstring. The constructor makes the plan: it copies everything that the worker needs from the
    log. The worker requests `engine`, which may have to be loaded."""

    def __init__(
        self, cleanable: Cleanable, options: CleanerOptions, throttle: Throttle, engine: Callable[[], Engine]
    ) -> None:
        log = cleanable.log
        self.log = log
        self.partition = log.partition
        self.first_dirty_offset = cleanable.first_dirty_offset
        self.statistics = CompactionStatistics()
        self._until_offset = cleanable.first_uncleanable_offset
        self._options = options
        self._throttle = throttle
        self._cancelled = threading.Event()
        self._disk = log.disk
        self._clock = log.clock
        self.directory = log.directory
        """The folder of the log when the pass was planned. It is renamed when the log is deleted or moved."""
        self._config = log.config
        self._log_start_offset = log.log_start_offset
        self._now_ms = log.clock.now_ms()
        self._segments = log.segments
        self._sources = [
            SourceSegment(segment, segment.base_offset, segment.path, segment.size)
            for segment in self._segments[:-1]
            if segment.base_offset < self._until_offset
        ]
        entries = log.producers.entries.values()
        self._last_offsets = tuple(entry.last_offset for entry in entries if entry.last_offset >= 0)
        self._marker_epochs = {entry.producer_id: entry.producer_epoch for entry in entries if entry.last_offset < 0}
        self._pending = {id(source.segment): source.segment for source in self._sources}
        """Segments that the pass has not replaced yet."""
        self._load_engine = engine
        self._engine: Engine
        self._offsets: KeyMap | None = None
        self._rewriter: BatchRewriter | None = None
        self._groups: Iterator[tuple[SourceSegment, ...]] = iter(())
        self._unsettled = False

    @property
    def end_offset(self) -> int:
        """Below it, once every group is applied, no key occurs twice."""
        return self.first_dirty_offset if self._offsets is None else self._offsets.until_offset

    def cancel(self) -> None:
        """Makes the worker end soon, with `CompactionCancelledError`. Thread-safe."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def was_overtaken(self) -> bool:
        """Whether the owner has closed, moved or deleted what the pass works on. For the owner's thread."""
        if self.is_cancelled or self.log.directory != self.directory:
            return True
        present = {id(segment) for segment in self.log.segments}
        return not self._pending.keys() <= present

    def _check(self) -> None:
        if self.is_cancelled:
            raise CompactionCancelledError(f"{self.partition}: compaction was cancelled")

    # For the worker.

    def clean_next(self) -> CleanedGroup | None:
        """Rewrites the next group; the owner must apply it before this is called again. None after the last one.

        If it raises, it leaves no files that a restart would not remove.
        """
        self._check()
        if self._unsettled:
            self._disk.sync_directory(self.directory)
            self._unsettled = False
        rewriter = self._rewriter if self._rewriter is not None else self._begin()
        group = next(self._groups, None)
        if group is None:
            return None
        started_s = self._clock.monotonic_s()
        new = self._write_group(group, rewriter)
        totals, statistics = rewriter.totals, self.statistics
        statistics.copying_s += self._clock.monotonic_s() - started_s
        statistics.bytes_read, statistics.bytes_written = totals.bytes_read, totals.bytes_written
        statistics.records_read, statistics.records_kept = totals.records_read, totals.records_kept
        statistics.keyless_records = totals.keyless_records
        return CleanedGroup(group, new)

    def _begin(self) -> BatchRewriter:
        self._engine = self._load_engine()
        started_s = self._clock.monotonic_s()
        offsets = self._map_keys()
        self.statistics.mapping_s = self._clock.monotonic_s() - started_s
        self.statistics.map_utilization = offsets.utilization
        self._offsets = offsets
        sources = [source for source in self._sources if source.base_offset < offsets.until_offset]
        self._groups = iter(self._grouped(sources))
        self._rewriter = self._engine.new_rewriter(
            offsets,
            TransactionTracker(self._aborted(0)),
            LastRecords(self._last_offsets, self._marker_epochs),
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
        )
        return self._rewriter

    def _map_keys(self) -> KeyMap:
        engine, options = self._engine, self._options
        offsets = engine.new_map(options.dedupe_buffer_bytes, options.load_factor, self.first_dirty_offset)
        ends = [source.base_offset for source in self._sources[1:]] + [self._until_offset]
        first = 0
        while first < len(ends) and ends[first] <= self.first_dirty_offset:
            first += 1
        transactions = TransactionTracker(self._aborted(first))
        for source, end in zip(self._sources[first:], ends[first:], strict=True):
            for chunk in self._chunks(source):
                if not engine.map_chunk(chunk, offsets, transactions, self.first_dirty_offset):
                    return offsets
            offsets.pass_over(end)
        return offsets

    def _aborted(self, first: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap the sources from that one on. Their markers may come after the
        sources."""
        found: list[AbortedTransaction] = []
        for segment in self._segments[first:]:
            some, complete = segment.transaction_index.collect(self._log_start_offset, self._until_offset)
            found += some
            if complete:
                break
        return found

    def _chunks(self, source: SourceSegment) -> Iterator[EngineChunk]:
        file: File = self._disk.open(source.path)
        try:
            for chunk in self._engine.read_chunks(file, source.size, self._options.io_buffer_bytes):
                self._check()
                self._throttle.spend(chunk.size, self._cancelled.is_set)
                yield chunk
        finally:
            file.close()

    def _grouped(self, sources: list[SourceSegment]) -> Iterator[tuple[SourceSegment, ...]]:
        """Groups adjacent segments up to the size of one segment, so that segments do not shrink forever."""
        ends = [source.base_offset for source in self._sources[1:]] + [self._until_offset]
        limits = (self._config.segment_bytes, self._config.segment_index_bytes, self._config.segment_index_bytes)
        group: list[SourceSegment] = []
        sizes = [0, 0, 0]
        for source, end in zip(sources, ends, strict=False):
            added = [source.size, self._index_size(source, OFFSET_INDEX), self._index_size(source, TIME_INDEX)]
            together = [size + more for size, more in zip(sizes, added, strict=True)]
            fits = all(size <= limit for size, limit in zip(together, limits, strict=True))
            if group and not (fits and (source.size == 0 or end - 1 - group[0].base_offset <= MAX_INT32)):
                yield tuple(group)
                group, together = [], added
            group.append(source)
            sizes = together
        if group:
            yield tuple(group)

    def _index_size(self, source: SourceSegment, suffix: str) -> int:
        path = self.directory / segment_name(source.base_offset, suffix)
        return self._disk.size(path) if self._disk.exists(path) else 0

    def _write_group(self, group: tuple[SourceSegment, ...], rewriter: BatchRewriter) -> Segment:
        base_offset = group[0].base_offset
        self._remove_cleaned(base_offset)
        options = SegmentOptions(
            index_interval_bytes=self._config.index_interval_bytes,
            max_index_bytes=self._config.segment_index_bytes,
            clock=self._clock,
            damages=self.log.damages,
        )
        try:
            new = Segment.open(self._disk, self.directory, base_offset, options, suffix=CLEANED)
            for source in group:
                for chunk in self._chunks(source):
                    self._throttle.spend(rewriter.copy(chunk, new), self._cancelled.is_set)
            new.become_inactive()
            new.flush()
            # The file time also tells the age of a segment: that of its newest part.
            self._disk.set_modified_ms(new.path, self._disk.modified_ms(group[-1].path))
            self._check()
        except BaseException:
            with suppress(OSError):
                self._remove_cleaned(base_offset)
            raise
        return new

    def _remove_cleaned(self, base_offset: int) -> None:
        for suffix in reversed(SEGMENT_SUFFIXES):
            self._disk.remove(self.directory / (segment_name(base_offset, suffix) + CLEANED))

    # For the owner.

    def apply(self, group: CleanedGroup) -> None:
        """Replaces the old segments with the new one; `CompactionCancelledError` if they are no longer there."""
        log, new = self.log, group.new
        present = {id(segment) for segment in log.segments}
        changed = [
            source.base_offset
            for source in group.old
            if id(source.segment) not in present or source.segment.size != source.size
        ]
        if changed or self.is_cancelled or log.directory != self.directory:
            self.cancel()
            new.delete()
            what = f"segment {changed[0]} was changed" if changed else "the log was deleted or moved"
            raise CompactionCancelledError(f"{self.partition}: {what} while it was compacted")
        new.rename_suffix(CLEANED, SWAP)
        self._disk.sync_directory(self.directory)
        log.replace_segments([new], [source.segment for source in group.old])
        for source in group.old:
            self._pending.pop(id(source.segment), None)
        new.rename_suffix(SWAP, "")
        self._unsettled = True
