"""Chooses which log to compact, and remembers how far each one is.

The owner's thread calls it; `finish`, which writes and syncs a checkpoint, may be left to the worker:

    compaction = cleaner.choose(logs)                                  owner
    while (group := compaction.clean_next()) is not None:              worker
        compaction.apply(group)                                        owner
    cleaner.finish(compaction), or cleaner.fail(compaction, error)     worker, owner

A log that failed for its content is not tried again until the broker restarts; a log directory that failed is the
caller's affair.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from ottla.base.clock import Clock
from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log.compaction.cleaned_offsets import CleanedOffsets
from ottla.log.compaction.compaction import Compaction, CompactionCancelledError
from ottla.log.compaction.options import CleanerOptions
from ottla.log.compaction.selection import filthiest, find_cleanable
from ottla.log.compaction.throttle import Throttle
from ottla.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)


class Cleaner:
    """See the module. `wait` is how a worker sleeps when it is throttled."""

    def __init__(
        self, disk: Disk, clock: Clock, options: CleanerOptions, wait: Callable[[float], object] | None = None
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._options = options
        self._throttle = Throttle(options.max_io_bytes_per_second, clock, wait or threading.Event().wait)
        self._offsets: dict[Path, CleanedOffsets] = {}
        self._running: dict[Path, Compaction] = {}
        self._uncleanable: set[Path] = set()

    def cleaned_offsets(self, log_directory: Path) -> CleanedOffsets:
        """The checkpoint of a log directory."""
        if log_directory not in self._offsets:
            self._offsets[log_directory] = CleanedOffsets(self._disk, log_directory)
        return self._offsets[log_directory]

    @property
    def uncleanable(self) -> frozenset[Path]:
        """Folders of logs that are not tried again."""
        return frozenset(self._uncleanable)

    def choose(self, logs: Iterable[PartitionLog]) -> Compaction | None:
        """A pass over the dirtiest log that is due; None if none is. It must be ended by `finish` or `fail`."""
        now_ms = self._clock.now_ms()
        candidates = []
        for log in logs:
            if not log.config.compacts or log.directory in self._running or log.directory in self._uncleanable:
                continue
            cleaned_offset = self.cleaned_offsets(log.directory.parent).get(log.partition)
            candidates.append(find_cleanable(log, cleaned_offset, now_ms))
        chosen = filthiest(candidates)
        if chosen is None:
            return None
        compaction = Compaction(chosen, self._options, self._throttle)
        self._running[chosen.log.directory] = compaction
        return compaction

    def finish(self, compaction: Compaction) -> None:
        """Every group was applied: what was dirty is clean."""
        self._running.pop(compaction.log.directory, None)
        self.cleaned_offsets(compaction.log.directory.parent).set(compaction.partition, compaction.end_offset)
        done = compaction.statistics
        _logger.info(
            "%s: compacted up to offset %d, %d bytes to %d, %d records to %d, in %.1f s; map of keys %.1f%% full",
            compaction.partition,
            compaction.end_offset,
            done.bytes_read,
            done.bytes_written,
            done.records_read,
            done.records_kept,
            done.mapping_s + done.copying_s,
            100 * done.map_utilization,
        )
        if done.keyless_records:
            _logger.warning("%s: dropped %d records without a key", compaction.partition, done.keyless_records)

    def fail(self, compaction: Compaction, error: Exception) -> None:
        """The pass ended early. What was applied stays; the log is left alone if its content is to blame."""
        self._running.pop(compaction.log.directory, None)
        if isinstance(error, (CompactionCancelledError, OSError)):
            return
        self._uncleanable.add(compaction.log.directory)
        _logger.error("%s: is not compacted any more until a restart: %s", compaction.partition, error)

    def truncated(self, log: PartitionLog) -> None:
        """The log was cut: a pass over it ends, and what follows its new end was not compacted."""
        if (running := self._running.get(log.directory)) is not None:
            running.cancel()
        self.cleaned_offsets(log.directory.parent).truncate(log.partition, log.next_offset)

    def forget(self, log_directory: Path, partition: TopicPartition) -> None:
        """The partition left the directory."""
        folder = log_directory / str(partition)
        if (running := self._running.pop(folder, None)) is not None:
            running.cancel()
        self._uncleanable.discard(folder)
        self.cleaned_offsets(log_directory).remove(partition)

    def cancel_all(self) -> None:
        """The broker stops: passes end soon."""
        for running in self._running.values():
            running.cancel()

    def run(self, compaction: Compaction) -> None:
        """A whole pass in one thread: for tools and tests."""
        try:
            while (group := compaction.clean_next()) is not None:
                compaction.apply(group)
        except Exception as error:
            self.fail(compaction, error)
            raise
        self.finish(compaction)
