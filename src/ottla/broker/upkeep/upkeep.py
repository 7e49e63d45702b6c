"""Periodic work on a broker's logs: checkpoints, flushes, retention, compaction.

Runs on the loop, a few logs at a time; syncs and long operations run in threads. An error in one log or directory does
not affect the others, and no error ends a task for good: it is logged and counted, and the task runs again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from ottla.broker.configs.store import ConfigStore
from ottla.broker.observability.logging_setup import ThrottledLog
from ottla.broker.observability.upkeep_stats import UpkeepStats
from ottla.broker.upkeep.compactor import Compactor
from ottla.broker.upkeep.scrubbing import Scrubbing
from ottla.log.directories import LogDirectories
from ottla.log.errors import LogDirectoryError
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import apply_retention
from ottla.replication.replicas import Replicas

_logger = logging.getLogger(__name__)

_LOGS_AT_A_TIME: Final = 64
_REMOVAL_S: Final = 30.0
_SCRUB_S: Final = 60.0
_WEEK_S: Final = 604_800.0
_LEAST_INTERVAL_S: Final = 0.01
_LONGEST_SLEEP_S: Final = 86_400.0


class Upkeep:
    """Can be started once and stopped once."""

    def __init__(
        self,
        directories: LogDirectories,
        replicas: Replicas,
        configs: ConfigStore,
    ) -> None:
        self.stats = UpkeepStats(directories.clock)
        self._directories = directories
        self._replicas = replicas
        self._config = configs.current
        self._tasks: list[asyncio.Task[None]] = []
        self._compactor = Compactor(directories, configs, self.stats)
        self._compactor.on_ended = self._compaction_ended
        self._held_back: set[PartitionLog] = set()
        """Logs that retention skipped because they were being compacted."""
        self._scrubbing = Scrubbing(directories, self._config)
        self._complaints = ThrottledLog(_logger, directories.clock, interval_s=60)
        self._config_changed = asyncio.Event()
        replicas.on_delete = self._forget

    def start(self) -> None:
        self._compactor.start()
        delay_s = self._config("log.initial.task.delay.ms") / 1000
        every = self._every
        marks = "replica.high.watermark.checkpoint.interval.ms"
        self._tasks = [
            every("checkpoint", lambda: self._config(marks) / 1000, 0, self._checkpoint),
            every("flush", lambda: self._flush_interval_s(), 0, self._flush),
            every(
                "retention",
                lambda: self._config("log.retention.check.interval.ms") / 1000,
                delay_s,
                self._retain,
            ),
            every("removal", lambda: _REMOVAL_S, 0, self._remove),
            every("compaction", lambda: self._config("log.cleaner.backoff.ms") / 1000, 0, self._compactor.compact),
            every("scrub", lambda: self._scrub_interval_s(), delay_s, self._scrubbing.run),
        ]

    async def stop(self) -> None:
        self._scrubbing.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._compactor.stop()

    def config_changed(self, keys: frozenset[str]) -> None:
        """Some of the broker's configs changed."""
        if "producer.id.expiration.ms" in keys:
            self._directories.change_producer_id_expiration(self._config("producer.id.expiration.ms"))
        self._compactor.config_changed()
        self._config_changed.set()  # sleeping tasks check their interval again
        self._config_changed = asyncio.Event()

    def _every(
        self, name: str, interval_s: Callable[[], float], delay_s: float, work: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        async def run() -> None:
            await asyncio.sleep(delay_s)
            while True:
                await self._sleep(interval_s)
                try:
                    await work()
                except Exception:
                    self.stats.task_failed(name)

        return asyncio.get_running_loop().create_task(run(), name=f"upkeep: {name}")

    async def _sleep(self, interval_s: Callable[[], float]) -> None:
        """Sleeps for the interval, which may change meanwhile."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        while True:
            changed = self._config_changed
            left_s = started_s + max(interval_s(), _LEAST_INTERVAL_S) - loop.time()
            if left_s <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LONGEST_SLEEP_S)):
                    await changed.wait()

    async def _logs(self) -> AsyncIterator[PartitionLog]:
        """All logs, some at a time, with other work in between."""
        logs: Iterator[PartitionLog] = self._directories.logs()
        while some := list(islice(logs, _LOGS_AT_A_TIME)):
            for log in some:
                yield log
            await asyncio.sleep(0)

    # --- the tasks ----------------------------------------------------------------------------------------------------

    async def _checkpoint(self) -> None:
        for directory, write in self._directories.checkpoint_later():
            try:
                await asyncio.to_thread(write)
            except OSError as error:
                self._complaints.warning(
                    directory.path,
                    "%s: offsets were not checkpointed: %s",
                    directory.path,
                    self._directories.failed(directory, error),
                )
            except Exception:
                self.stats.task_failed("checkpoint")

    def _flush_interval_s(self) -> float:
        """The configured interval; every second if only topics have one."""
        interval_s: float = self._config("log.flush.scheduler.interval.ms") / 1000
        return interval_s if interval_s < _WEEK_S else 1.0

    def _scrub_interval_s(self) -> float:
        """How often to check which segments are due."""
        interval_s: float = self._config("ottla.log.scrub.interval.ms") / 1000
        return min(interval_s, _SCRUB_S)

    async def _flush(self) -> None:
        async for log in self._logs():
            if log.is_flush_due():
                self._replicas.flush_soon(log)

    async def _retain(self) -> None:
        async for log in self._logs():
            if not self._compactor.is_compacting(log):
                self._retain_log(log)
                continue
            self._held_back.add(log)
            if not log.config.compacts:  # the config changed: the rest of the pass is useless
                self._compactor.cancel(log)

    def _compaction_ended(self, log: PartitionLog) -> None:
        if log in self._held_back:
            self._held_back.discard(log)
            self._retain_log(log)

    def _retain_log(self, log: PartitionLog) -> None:
        directory = self._directories.directory_of(log.partition)
        if directory is None or directory.failure is not None or directory.logs.get(log.partition) is not log:
            return
        try:
            start = log.log_start_offset
            with self._directories.guard(directory):
                log.producers.remove_expired(self._directories.clock.now_ms())
                apply_retention(log)
            if log.log_start_offset != start:
                self._replicas.log_start_moved(log.partition)
        except LogDirectoryError as error:
            _logger.error("%s", error)
        except Exception as error:
            self.stats.retention_failed(log, error)
        else:
            self.stats.retained(log)

    async def _remove(self) -> None:
        for directory, remove in self._directories.remove_later():
            try:
                await asyncio.to_thread(remove)
            except OSError as error:
                _logger.error("%s: %s", directory.path, self._directories.failed(directory, error))
            except Exception:
                self.stats.task_failed("removal")

    def _forget(self, log: PartitionLog) -> None:
        """The log is about to be deleted or moved."""
        self._held_back.discard(log)
        self.stats.forget(log.directory)
        self._compactor.forget(log)
