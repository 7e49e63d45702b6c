"""How far each partition of a log directory was compacted: `cleaner-offset-checkpoint`. Thread-safe.

A checkpoint that cannot be read is ignored: its logs are compacted from their start again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log.checkpoints import OffsetCheckpoint
from ottla.log.errors import CorruptCheckpointError
from ottla.log.names import CLEANER_OFFSETS

_logger = logging.getLogger(__name__)


class CleanedOffsets:
    """The checkpoint of one log directory, read once. Every change is written, except removals, which are left to
    `write_down`: many partitions are removed at once, and it syncs. A change does not wait for a write."""

    __slots__ = ("_changes", "_checkpoint", "_guard", "_offsets", "_writing", "_written")

    def __init__(self, disk: Disk, log_directory: Path) -> None:
        self._checkpoint = OffsetCheckpoint(disk, log_directory / CLEANER_OFFSETS)
        self._guard = threading.Lock()
        """Held to read or change what is in memory."""
        self._writing = threading.Lock()
        self._offsets: dict[TopicPartition, int] | None = None
        self._changes = 0
        self._written = 0
        """The number of changes that are in the file."""

    def _read(self) -> dict[TopicPartition, int]:
        if self._offsets is None:
            try:
                self._offsets = self._checkpoint.read()
            except CorruptCheckpointError as error:
                _logger.warning("%s; the logs of this directory are compacted from their start once more", error)
                self._offsets = {}
        return self._offsets

    def get(self, partition: TopicPartition) -> int | None:
        """Below it, an earlier pass has seen everything; None if there was none."""
        with self._guard:
            return self._read().get(partition)

    def set(self, partition: TopicPartition, offset: int, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Returns whether it was set: not if `unless` returns True. If a partition is removed at the same time, either
        `unless` sees that or the removal comes afterwards: the partition does not come back."""
        with self._guard:
            if unless():
                return False
            self._read()[partition] = offset
            self._changes += 1
        self.write_down()
        return True

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Called when the log was truncated there: what replaces it was not compacted."""
        with self._guard:
            if self._read().get(partition, 0) <= offset:
                return
            self._read()[partition] = offset
            self._changes += 1
        self.write_down()

    def remove(self, partition: TopicPartition) -> bool:
        """Called when the partition left the directory. Returns whether there is anything to write."""
        with self._guard:
            if self._read().pop(partition, None) is not None:
                self._changes += 1
            return self._changes > self._written

    def keep_only(self, partitions: Collection[TopicPartition]) -> bool:
        """Removes all others, which were deleted while nothing ran. Returns whether there is anything to write."""
        with self._guard:
            offsets = self._read()
            for gone in offsets.keys() - set(partitions):
                del offsets[gone]
                self._changes += 1
            return self._changes > self._written

    def write_down(self) -> None:
        """Writes and syncs the file, unless it already has all changes."""
        with self._writing:
            with self._guard:
                offsets, changes = dict(self._read()), self._changes
            if changes > self._written:
                self._checkpoint.write(offsets)
                self._written = changes
