"""Errors in the upkeep of logs, for metrics and for the log. Written by the loop; any thread may read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ottla.base.clock import Clock
from ottla.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

_TELL_EVERY_S: Final = 60.0


class UpkeepStats:
    """Reports a log that cannot be maintained once, until it works again or fails for another reason; unexpected errors
    of a task once a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}
        self.failures: Counter[str] = Counter()
        """Rounds that ended with an unexpected error, by task."""
        self.uncleanable: Callable[[], Iterable[Path]] = tuple
        """Returns the folders of logs that are no longer compacted."""
        self._not_retained: dict[Path, str] = {}

    @property
    def not_retained(self) -> list[Path]:
        """Folders of logs whose last retention check failed."""
        return list(self._not_retained.copy())

    def task_failed(self, task: str) -> None:
        """Called in the handler of the exception."""
        self.failures[task] += 1
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s.get(task, -_TELL_EVERY_S) >= _TELL_EVERY_S:
            self._told_s[task] = now_s
            _logger.exception("upkeep of logs failed (%s); it will be retried", task)

    def retention_failed(self, log: PartitionLog, error: Exception) -> None:
        """Called in the handler of the exception."""
        self.failures["retention"] += 1
        reason = f"{type(error).__name__}: {error}"
        if self._not_retained.get(log.directory) != reason:
            self._not_retained[log.directory] = reason
            _logger.error("%s: old records cannot be deleted; other logs are not affected: %s", log.partition, reason)

    def retained(self, log: PartitionLog) -> None:
        if self._not_retained and self._not_retained.pop(log.directory, None) is not None:
            _logger.info("%s: old records are deleted again", log.partition)

    def forget(self, folder: Path) -> None:
        """The log in this folder is gone."""
        self._not_retained.pop(folder, None)
