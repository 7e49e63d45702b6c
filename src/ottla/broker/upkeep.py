"""What a broker does from time to time for its logs: write offsets down, flush, delete, compact.

On the loop, a few logs at a time; whatever syncs or takes long runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.config_store import ConfigStore
from ottla.broker.logging_setup import ThrottledLog
from ottla.log.directories import LogDirectories
from ottla.log.errors import LogDirectoryError
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import apply_retention
from ottla.replication.replicas import Replicas

if TYPE_CHECKING:
    from ottla.log.compaction.cleaner import Cleaner
    from ottla.log.compaction.compaction import Compaction

_logger = logging.getLogger(__name__)

_LOGS_AT_A_TIME: Final = 64
_REMOVAL_S: Final = 30.0
_WEEK_S: Final = 604_800.0


class Upkeep:
    """Started once, stopped once. A setting that changes is heard of when its task comes round."""

    def __init__(
        self,
        directories: LogDirectories,
        replicas: Replicas,
        configs: ConfigStore,
    ) -> None:
        self._directories = directories
        self._replicas = replicas
        self._configs = configs
        self._config = configs.current
        self._tasks: list[asyncio.Task[None]] = []
        self._cleaner: Cleaner | None = None
        self._compacting = ThreadPoolExecutor(1, "ottla-compaction")
        self._stopping = asyncio.Event()
        self._complaints = ThrottledLog(_logger, directories.clock, interval_s=60)
        replicas.on_delete = self._forget

    def start(self) -> None:
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
            every("compaction", lambda: self._config("log.cleaner.backoff.ms") / 1000, 0, self._compact),
        ]

    async def stop(self) -> None:
        self._stopping.set()
        if self._cleaner is not None:
            self._cleaner.cancel_all()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._compacting.shutdown(wait=True, cancel_futures=True)

    def _every(
        self, name: str, interval_s: Callable[[], float], delay_s: float, work: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        async def run() -> None:
            await asyncio.sleep(delay_s)
            while True:
                # A day at most, so that a new interval is heard of.
                await asyncio.sleep(min(max(interval_s(), 0.01), 86_400))
                try:
                    await work()
                except Exception:
                    _logger.exception("upkeep of logs failed (%s); it is tried again", name)

        return asyncio.get_running_loop().create_task(run(), name=f"upkeep: {name}")

    async def _logs(self) -> Any:
        """Every log, some at a time, with other work in between."""
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
                    "%s: offsets were not written down: %s",
                    directory.path,
                    self._directories.failed(directory, error),
                )

    def _flush_interval_s(self) -> float:
        """As often as it is set; where only a topic asks for it, every second."""
        interval_s: float = self._config("log.flush.scheduler.interval.ms") / 1000
        return interval_s if interval_s < _WEEK_S else 1.0

    async def _flush(self) -> None:
        async for log in self._logs():
            if log.is_flush_due():
                self._replicas.flush_soon(log)

    async def _retain(self) -> None:
        now_ms = self._directories.clock.now_ms()
        async for log in self._logs():
            directory = self._directories.directory_of(log.partition)
            if directory is None or directory.failure is not None:
                continue
            try:
                with self._directories.guard(directory):
                    apply_retention(log)
                    log.producers.remove_expired(now_ms)
            except LogDirectoryError as error:
                _logger.error("%s", error)

    async def _remove(self) -> None:
        for directory, remove in self._directories.remove_later():
            try:
                await asyncio.to_thread(remove)
            except OSError as error:
                _logger.error("%s: %s", directory.path, self._directories.failed(directory, error))

    # --- compaction ---------------------------------------------------------------------------------------------------

    def _forget(self, log: PartitionLog) -> None:
        if self._cleaner is not None:
            self._cleaner.forget(log.directory.parent, log.partition)

    async def _compact(self) -> None:
        """Every log that is due, one after the other. The kernels are loaded with the first topic that needs them."""
        if not self._config("log.cleaner.enable"):
            return
        while not self._stopping.is_set():
            if self._cleaner is None:
                if not any(log.config.compacts and log.size for log in self._directories.logs()):
                    return
                self._cleaner = await self._in_thread(self._load_cleaner)
            compaction = self._cleaner.choose(self._directories.logs())
            if compaction is None:
                return
            if not await self._run(self._cleaner, compaction):
                return  # what failed is tried again the next time, not at once

    async def _run(self, cleaner: Cleaner, compaction: Compaction) -> bool:
        """Whether the pass came to its end."""
        try:
            while (group := await self._in_thread(compaction.clean_next)) is not None:
                compaction.apply(group)
        except Exception as error:
            cleaner.fail(compaction, error)
            directory = self._directories.directory_of(compaction.partition)
            # A log that was deleted or moved meanwhile has lost its files, and says nothing of where its name is now.
            is_present = self._directories.get(compaction.partition) is compaction.log
            if isinstance(error, OSError) and directory is not None and is_present:
                _logger.error("%s: %s", directory.path, self._directories.failed(directory, error))
            return False
        await self._in_thread(lambda: cleaner.finish(compaction))
        return True

    def _load_cleaner(self) -> Cleaner:
        from ottla.log.compaction.cleaner import Cleaner
        from ottla.log.compaction.options import CleanerOptions

        options = CleanerOptions.from_properties(self._configs.effective.given)
        return Cleaner(self._directories.disk, self._directories.clock, options)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._compacting, work)
