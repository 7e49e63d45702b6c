"""What a log directory stores about its logs between runs: recovery points, start offsets and high watermarks.

The owner takes a snapshot, any thread writes it. Snapshots are written in the order in which they were taken: one that
is older than the last written one is dropped. If a newer one could not be written, it is written in place of the older.

The files still contain a deleted partition until the next snapshot is written. That is harmless, unless a partition of
the same name is created first: after a crash its records would count as flushed up to the old recovery point.
`names_former` says when a snapshot has to be written first. So deleting a partition writes nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log import names
from ottla.log.checkpoints import OffsetCheckpoint
from ottla.log.errors import CorruptCheckpointError
from ottla.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

_Files = tuple[tuple[str, Mapping[TopicPartition, int]], ...]
"""Names of checkpoints, and their offsets."""


class DirectoryCheckpoints:
    """The files of one directory."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._count = 0
        """The number of snapshots taken. Each has a number."""
        self._writing = threading.Lock()
        self._begun = 0
        """The newest snapshot whose writing has begun; guarded by `_writing`."""
        self._unwritten: _Files = ()
        """Its content, until it is on the disk; guarded by `_writing`."""
        self._written = 0
        """The newest snapshot on the disk."""
        self._former: dict[TopicPartition, int] = {}
        """Removed partitions, with the newest snapshot that may still contain them."""

    def read(self, name: str) -> dict[TopicPartition, int]:
        """A file that cannot be read costs time, not records: it is logged and treated as empty."""
        try:
            return OffsetCheckpoint(self._disk, self._path / name).read()
        except CorruptCheckpointError as error:
            _logger.warning("%s", error)
            return {}

    def forget(self, partition: TopicPartition) -> None:
        """Called when the partition left the directory; the next snapshot does not contain it."""
        self._former[partition] = self._count

    def names_former(self, partition: TopicPartition) -> bool:
        """Whether the files still contain a partition that left."""
        return self._former.get(partition, -1) >= self._written

    def snapshot(self, logs: Mapping[TopicPartition, PartitionLog]) -> Callable[[], None]:
        """Takes a snapshot; the returned function writes it, or a newer one, in any thread. It raises `OSError`;
        otherwise the files no longer contain partitions that left before the snapshot."""
        starts = {
            partition: log.log_start_offset
            for partition, log in logs.items()
            if log.log_start_offset > log.segments[0].base_offset  # otherwise the first segment's name is enough
        }
        ends = {partition: log.recovery_point for partition, log in logs.items()}
        marks = {partition: log.high_watermark for partition, log in logs.items()}
        self._former = {partition: last for partition, last in self._former.items() if last >= self._written}
        self._count += 1
        number = self._count
        files: _Files = (
            (names.RECOVERY_POINTS, ends),
            (names.LOG_START_OFFSETS, starts),
            (names.HIGH_WATERMARKS, marks),
        )

        def write() -> None:
            with self._writing:
                if self._written >= number:
                    return
                if number > self._begun:
                    self._begun, self._unwritten = number, files
                for name, offsets in self._unwritten:
                    OffsetCheckpoint(self._disk, self._path / name).write(offsets)
                self._written, self._unwritten = self._begun, ()

        return write
