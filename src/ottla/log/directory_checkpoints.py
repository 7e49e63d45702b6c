"""What a log directory keeps about its logs between runs: recovery points, start offsets and high watermarks.

The owner takes a snapshot, any thread writes it. Snapshots are written in the order in which they were taken: one that
is overtaken by a newer one is dropped. If the newer one could not be written, it is tried again in its place.

A partition that was deleted is still named in the files until the next snapshot is written. That does no harm, unless a
partition of the same name is created before: a crash would then make its records count as flushed as far as the old
ones were. `names_former` tells when a snapshot has to be written first. So deleting a partition writes nothing.
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
"""Names of checkpoints, and the offsets for each."""


class DirectoryCheckpoints:
    """The files of one directory."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._count = 0
        """Snapshots taken. Each has its number."""
        self._writing = threading.Lock()
        self._begun = 0
        """The newest snapshot that somebody began to write; guarded by `_writing`."""
        self._unwritten: _Files = ()
        """What is in it, until it is on the disk; guarded by `_writing`."""
        self._written = 0
        """The newest snapshot that is on the disk."""
        self._former: dict[TopicPartition, int] = {}
        """Partitions that left, each with the newest snapshot that may still name it."""

    def read(self, name: str) -> dict[TopicPartition, int]:
        """A file that cannot be read costs time, not records: it is logged and counts as empty."""
        try:
            return OffsetCheckpoint(self._disk, self._path / name).read()
        except CorruptCheckpointError as error:
            _logger.warning("%s", error)
            return {}

    def forget(self, partition: TopicPartition) -> None:
        """The partition left the directory; the next snapshot does not name it."""
        self._former[partition] = self._count

    def names_former(self, partition: TopicPartition) -> bool:
        """Whether the files still name a partition that left."""
        return self._former.get(partition, -1) >= self._written

    def snapshot(self, logs: Mapping[TopicPartition, PartitionLog]) -> Callable[[], None]:
        """What is to be written now; the returned function writes it, or what is newer, in any thread. It raises
        `OSError`; if it does not, the files name no partition that left before the snapshot."""
        starts = {
            partition: log.log_start_offset
            for partition, log in logs.items()
            if log.log_start_offset > log.segments[0].base_offset  # else the first segment's name says it
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
