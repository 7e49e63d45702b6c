"""How far each partition of a log directory was compacted: `cleaner-offset-checkpoint`. Any thread may call."""

from __future__ import annotations

import threading
from pathlib import Path

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log.checkpoints import OffsetCheckpoint
from ottla.log.names import CLEANER_OFFSETS


class CleanedOffsets:
    """The checkpoint of one log directory, read once and written at each change."""

    __slots__ = ("_checkpoint", "_guard", "_offsets")

    def __init__(self, disk: Disk, log_directory: Path) -> None:
        self._checkpoint = OffsetCheckpoint(disk, log_directory / CLEANER_OFFSETS)
        self._guard = threading.Lock()
        self._offsets: dict[TopicPartition, int] | None = None

    def _read(self) -> dict[TopicPartition, int]:
        if self._offsets is None:
            self._offsets = self._checkpoint.read()
        return self._offsets

    def get(self, partition: TopicPartition) -> int | None:
        """Below it, an earlier pass has seen everything; None if there was none."""
        with self._guard:
            return self._read().get(partition)

    def set(self, partition: TopicPartition, offset: int) -> None:
        with self._guard:
            self._write({**self._read(), partition: offset})

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """The log was cut there: what comes in its place was not compacted."""
        with self._guard:
            offsets = self._read()
            if offsets.get(partition, 0) > offset:
                self._write({**offsets, partition: offset})

    def remove(self, partition: TopicPartition) -> None:
        """The partition left the directory."""
        with self._guard:
            offsets = self._read()
            if partition in offsets:
                self._write({known: offset for known, offset in offsets.items() if known != partition})

    def _write(self, offsets: dict[TopicPartition, int]) -> None:
        self._checkpoint.write(offsets)
        self._offsets = offsets
