"""The background scrub of a broker: rereads closed segments, one after the other, in a thread, at a limited rate.

`ottla.log.scrub.bytes.per.second` limits the rate, and `ottla.log.scrub.interval.ms` sets how often a segment is read.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final

from ottla.log.compaction.throttle import Throttle
from ottla.log.directories import LogDirectories
from ottla.log.errors import LogError
from ottla.log.partition_log import PartitionLog
from ottla.log.scrub import Scrubber, ScrubTask, repair, scrub_segment

_logger = logging.getLogger(__name__)

_LOGS_AT_A_TIME: Final = 64


class ScrubStoppedError(Exception):
    """The broker stops."""


class Scrubbing:
    """Run by `Upkeep`, stopped once. Runs on the loop, except for the reading."""

    def __init__(self, directories: LogDirectories, config: Callable[[str], Any]) -> None:
        self._directories = directories
        self._config = config
        self._scrubber = Scrubber()
        self._stopping = threading.Event()
        self._thread = ThreadPoolExecutor(1, "ottla-scrub")

    async def run(self) -> None:
        """Checks every segment that is due."""
        rate = self._config("ottla.log.scrub.bytes.per.second")
        if not rate:
            return
        clock, interval_ms = self._directories.clock, self._config("ottla.log.scrub.interval.ms")
        throttle = Throttle(rate, clock, self._stopping.wait)
        self._scrubber.forget_gone(self._directories.logs())
        logs: Iterator[PartitionLog] = self._directories.logs()
        while some := list(islice(logs, _LOGS_AT_A_TIME)):
            for task in self._scrubber.due(some, clock.now_ms(), interval_ms):
                if task.is_present:
                    await self._look(task, throttle)
                    self._scrubber.done(task, clock.now_ms())
            await asyncio.sleep(0)

    async def _look(self, task: ScrubTask, throttle: Throttle) -> None:
        def spend(size: int) -> None:
            throttle.spend(size, self._stopping.is_set)
            if self._stopping.is_set():
                raise ScrubStoppedError

        look = partial(scrub_segment, task.log, task.segment, task.end_offset, spend)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, look)
            if task.is_present:
                repair(task.segment, found)
        except ScrubStoppedError:
            return
        except (OSError, LogError) as error:
            # Removed meanwhile; or the disk fails, which code that needs the file will notice.
            if task.is_present:
                _logger.warning("%s could not be checked for damage: %s", task.segment.path, error)

    def stop(self) -> None:
        """Stops soon: the reading ends at the next batch."""
        self._stopping.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
