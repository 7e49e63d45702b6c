"""Chooses which log to compact, and remembers how far each one was compacted.

Called by the owner's thread; `finish`, which writes and syncs a checkpoint, may be left to the worker:

    compaction = cleaner.choose(logs)                                  owner
    while (group := compaction.clean_next()) is not None:              worker
        compaction.apply(group)                                        owner
    cleaner.finish(compaction), or cleaner.fail(compaction, error)     worker, owner

A log that failed because of its content is not tried again until the broker restarts; the caller handles a failed log
directory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ottla.base.clock import Clock
from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log.compaction.cleaned_offsets import CleanedOffsets
from ottla.log.compaction.compaction import Compaction, CompactionCancelledError
from ottla.log.compaction.engine import Engine
from ottla.log.compaction.engine_choice import load_engine
from ottla.log.compaction.options import CleanerOptions
from ottla.log.compaction.selection import filthiest, find_cleanable
from ottla.log.compaction.throttle import Throttle
from ottla.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)


class Cleaner:
    """See the module docstring. `wait` is how a throttled worker sleeps; `engine` loads the engine."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        options: CleanerOptions,
        wait: Callable[[float], object] | None = None,
        engine: Callable[[], Engine] = load_engine,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._options = options
        self._throttle = Throttle(options.max_io_bytes_per_second, clock, wait or time.sleep)
        self._engine = _LoadedOnce(engine)
        self._offsets: dict[Path, CleanedOffsets] = {}
        self._running: dict[Path, Compaction] = {}
        self._leaving: dict[Path, Compaction] = {}
        """Passes over removed partitions whose workers have not ended. They still write into folders of these names."""
        self._uncleanable: dict[Path, str] = {}

    def change_options(self, options: CleanerOptions) -> None:
        """The rate applies at once, everything else from the next pass on."""
        self._options = options
        self._throttle.change_rate(options.max_io_bytes_per_second)

    def cleaned_offsets(self, log_directory: Path) -> CleanedOffsets:
        """The checkpoint of a log directory."""
        if log_directory not in self._offsets:
            self._offsets[log_directory] = CleanedOffsets(self._disk, log_directory)
        return self._offsets[log_directory]

    @property
    def uncleanable(self) -> frozenset[Path]:
        """Folders of logs that are not tried again. Thread-safe."""
        return frozenset(self._uncleanable.copy())

    def is_compacting(self, log: PartitionLog) -> bool:
        """Whether a pass over the log is in progress: nobody else may remove its segments."""
        running = self._running.get(log.directory)
        return running is not None and running.log is log

    def choose(
        self, logs: Iterable[PartitionLog], on_disk_error: Callable[[PartitionLog, OSError], None] | None = None
    ) -> Compaction | None:
        """Returns a pass over the dirtiest log that is due; None if there is none. End it with `finish` or `fail`.

        A log that cannot be read does not prevent the others from being compacted: if its content is at fault, it is
        skipped from then on; an `OSError` is reported if there is a callback.
        """
        now_ms = self._clock.now_ms()
        candidates = []
        for log in logs:
            folder = log.directory
            if not log.config.compacts or folder in self._running or folder in self._leaving:
                continue
            if folder in self._uncleanable:
                continue
            try:
                cleaned_offset = self.cleaned_offsets(log.directory.parent).get(log.partition)
                candidates.append(find_cleanable(log, cleaned_offset, now_ms))
            except OSError as error:
                if on_disk_error is None:
                    raise
                on_disk_error(log, error)
            except Exception as error:
                self._give_up(log.directory, log.partition, error)
        chosen = filthiest(candidates)
        if chosen is None:
            return None
        compaction = Compaction(chosen, self._options.for_one_thread, self._throttle, self._engine)
        self._running[compaction.directory] = compaction
        return compaction

    def _is_running(self, compaction: Compaction) -> bool:
        return self._running.get(compaction.directory) is compaction

    def _end(self, compaction: Compaction) -> None:
        if self._is_running(compaction):
            del self._running[compaction.directory]
        if self._leaving.get(compaction.directory) is compaction:
            del self._leaving[compaction.directory]

    def finish(self, compaction: Compaction) -> None:
        """Called when every group was applied: what was dirty is clean. A partition that was deleted in the meantime is
        not recorded: another with the same name may come, with other records."""
        try:
            offsets = self.cleaned_offsets(compaction.directory.parent)
            offsets.set(compaction.partition, compaction.end_offset, unless=lambda: not self._is_running(compaction))
        finally:
            self._end(compaction)
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
        """Called when the pass ended early. What was applied stays; the log is skipped if its content is at fault."""
        was_running = self._is_running(compaction)
        self._end(compaction)
        if was_running and not isinstance(error, (CompactionCancelledError, OSError)):
            self._give_up(compaction.directory, compaction.partition, error)

    def _give_up(self, directory: Path, partition: TopicPartition, error: Exception) -> None:
        self._uncleanable[directory] = str(error)
        _logger.error("%s: is not compacted any more until a restart: %s", partition, error)

    def truncated(self, log: PartitionLog) -> None:
        """Called when the log was truncated: a pass over it ends, and what follows its new end was not compacted."""
        self.cancel(log)
        self.cleaned_offsets(log.directory.parent).truncate(log.partition, log.next_offset)

    def cancel(self, log: PartitionLog) -> None:
        """Makes a pass over the log, if there is one, end soon."""
        if self.is_compacting(log):
            self._running[log.directory].cancel()

    def forget(self, log_directory: Path, partition: TopicPartition) -> bool:
        """Called when the partition left the directory. Returns whether `write_down` must be called, in a thread."""
        folder = log_directory / str(partition)
        if (running := self._running.pop(folder, None)) is not None:
            running.cancel()
            self._leaving[folder] = running
        self._uncleanable.pop(folder, None)
        return self.cleaned_offsets(log_directory).remove(partition)

    def write_down(self, log_directory: Path) -> None:
        """Writes and syncs what was forgotten."""
        self.cleaned_offsets(log_directory).write_down()

    def cancel_all(self) -> None:
        """Called when the broker stops: passes end soon."""
        for running in list(self._running.values()):
            running.cancel()

    def run(self, compaction: Compaction) -> None:
        """Runs a whole pass in one thread: for tools and tests."""
        try:
            while (group := compaction.clean_next()) is not None:
                compaction.apply(group)
        except Exception as error:
            self.fail(compaction, error)
            raise
        self.finish(compaction)


class _LoadedOnce:
    """An engine that is loaded by the first worker that needs it."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._guard = threading.Lock()
        self._engine: Engine | None = None

    def __call__(self) -> Engine:
        with self._guard:
            if self._engine is None:
                self._engine = self._load()
            return self._engine
