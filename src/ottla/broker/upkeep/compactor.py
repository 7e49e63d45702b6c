"""Runs the compactions of a broker: up to `log.cleaner.threads` at a time, each in a thread.

The loop chooses logs and swaps segments; see `ottla.log.compaction`. While a log is compacted, nothing else may delete
its segments: retention checks `is_compacting`, and `on_ended` reports the end of a pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from ottla.broker.configs.store import ConfigStore
from ottla.broker.observability.upkeep_stats import UpkeepStats
from ottla.log.compaction.cleaner import Cleaner
from ottla.log.compaction.compaction import Compaction, CompactionCancelledError
from ottla.log.compaction.engine_choice import missing_packages
from ottla.log.compaction.options import CleanerOptions
from ottla.log.directories import LogDirectories
from ottla.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

_MOST_THREADS: Final = 256
"""The maximum size of the pool, which starts only the threads it needs: `log.cleaner.threads` can change."""


class Compactor:
    """Owned by the loop."""

    def __init__(self, directories: LogDirectories, configs: ConfigStore, stats: UpkeepStats) -> None:
        self.on_ended: Callable[[PartitionLog], None] = lambda _: None
        """Called when a pass over a log ends for any reason."""
        self._directories = directories
        self._configs = configs
        self._stats = stats
        self._cleaner = Cleaner(directories.disk, directories.clock, self._options())
        self._pool = ThreadPoolExecutor(_MOST_THREADS, "ottla-compaction")
        self._passes: set[asyncio.Task[None]] = set()
        self._skipped: set[Path] = set()
        """Logs whose pass failed in this round: they are retried in the next one."""
        self._unwritten: set[Path] = set()
        """Log directories whose checkpoint must be written because partitions were removed."""
        self._writing: asyncio.Task[None] | None = None
        self._is_stopping = False
        stats.uncleanable = lambda: self._cleaner.uncleanable

    def start(self) -> None:
        """Warns if compaction will be slow, and drops the offsets of partitions that are gone."""
        missing = missing_packages()
        if missing:
            _logger.info(
                "%s: not installed, so the compiled fast paths are missing and compaction is slower; "
                "`pip install 'ottla[columns]'` adds them",
                ", ".join(missing),
            )
        for directory in self._directories.online():
            try:
                if self._cleaner.cleaned_offsets(directory.path).keep_only(directory.logs):
                    self._write_soon(directory.path)
            except OSError as error:
                _logger.error("%s: %s", directory.path, self._directories.failed(directory, error))

    async def stop(self) -> None:
        """Cancels running passes; segments that they have already replaced stay."""
        self._is_stopping = True
        self._cleaner.cancel_all()
        for task in self._passes:
            task.cancel()
        if self._passes:
            await asyncio.wait(self._passes)
        if self._writing is not None:
            await self._writing
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _options(self) -> CleanerOptions:
        return CleanerOptions.from_properties(self._configs.effective.given)

    def config_changed(self) -> None:
        """The rate applies immediately, also to running passes; other options from the next pass on."""
        self._cleaner.change_options(self._options())

    # --- what others need to know -------------------------------------------------------------------------------------

    def is_compacting(self, log: PartitionLog) -> bool:
        return self._cleaner.is_compacting(log)

    def cancel(self, log: PartitionLog) -> None:
        """Cancels a pass over the log."""
        self._cleaner.cancel(log)

    def forget(self, log: PartitionLog) -> None:
        """The log is about to be deleted or moved. Its offset is removed from every directory: it may have been in
        another one before, and a new partition with that name may be placed there."""
        for directory in self._directories.online():
            try:
                if self._cleaner.forget(directory.path, log.partition):
                    self._write_soon(directory.path)
            except OSError as error:
                _logger.error("%s: %s", directory.path, self._directories.failed(directory, error))

    def _write_soon(self, path: Path) -> None:
        """Writes in a thread, because it syncs; once for all logs of the same iteration of the loop."""
        self._unwritten.add(path)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_forgotten(), name="forget cleaned logs")

    async def _write_forgotten(self) -> None:
        while self._unwritten:
            path = self._unwritten.pop()
            try:
                await asyncio.to_thread(self._cleaner.write_down, path)
            except OSError as error:
                directory = next((each for each in self._directories.online() if each.path == path), None)
                if directory is not None:
                    _logger.error("%s: %s", path, self._directories.failed(directory, error))
            except Exception:
                self._stats.task_failed("compaction")

    # --- passes -------------------------------------------------------------------------------------------------------

    async def compact(self) -> None:
        """Starts a pass over every log that is due, the dirtiest first, and waits while all threads are busy. Returns
        when no more logs are due; passes may still be running then."""
        self._skipped.clear()
        while not self._is_stopping and self._configs.current("log.cleaner.enable"):
            if len(self._passes) >= self._configs.current("log.cleaner.threads"):
                await asyncio.wait(self._passes, return_when=asyncio.FIRST_COMPLETED)
                continue
            compaction = self._cleaner.choose(self._candidates(), self._disk_failed)
            if compaction is None:
                return
            task = asyncio.get_running_loop().create_task(self._run(compaction), name=f"compact {compaction.partition}")
            self._passes.add(task)
            task.add_done_callback(self._passes.discard)

    def _candidates(self) -> Iterator[PartitionLog]:
        return (log for log in self._directories.logs() if log.directory not in self._skipped)

    async def _run(self, compaction: Compaction) -> None:
        try:
            while (group := await self._in_thread(compaction.clean_next)) is not None:
                compaction.apply(group)
            await self._in_thread(lambda: self._cleaner.finish(compaction))
        except asyncio.CancelledError:
            self._cleaner.fail(compaction, CompactionCancelledError(f"{compaction.partition}: the broker stops"))
            raise
        except Exception as error:
            self._failed(compaction, error)
        try:
            self.on_ended(compaction.log)
        except Exception:
            self._stats.task_failed("compaction")

    def _failed(self, compaction: Compaction, error: Exception) -> None:
        self._skipped.add(compaction.directory)
        # A file that is gone because its segment or its log was deleted is not a disk failure.
        if isinstance(error, FileNotFoundError) and compaction.was_overtaken:
            error = CompactionCancelledError(f"{compaction.partition}: {error}")
        self._cleaner.fail(compaction, error)
        if isinstance(error, OSError) and self._directories.get(compaction.partition) is compaction.log:
            self._disk_failed(compaction.log, error)

    def _disk_failed(self, log: PartitionLog, error: OSError) -> None:
        directory = self._directories.directory_of(log.partition)
        if directory is not None:
            _logger.error("%s: %s", directory.path, self._directories.failed(directory, error))

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
