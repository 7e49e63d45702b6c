"""Logs that left their directory: renamed at once, removed later.

    discarded = logs.discard(log, unique)      owner: the log is no longer available
    logs.rename(some_discarded)                any thread: renames the folder to that of a deleted one
    logs.remove(path, now_ms)                  any thread, after `file.delete.delay.ms`

Only the new name is written, and nothing is synced: the content of the folder is worthless. If a folder keeps its old
name in a crash, the next start finds it as the log of a deleted topic.

Times are `base.clock.passed_ms`: a wall clock that is set forward must not cut the delay short.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.partition_log import PartitionLog
from ottla.log.replica_move import relocate


@dataclass(slots=True, eq=False)
class DiscardedLog:
    """A folder to remove, and its log, unless it was found at the start."""

    folder: Path
    due_ms: int
    log: PartitionLog | None = None
    is_renamed: bool = False
    is_removed: bool = False


class DiscardedLogs:
    """For all directories. `discard`, `find`, `due` and `close` belong to the owner."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[DiscardedLog] = []

    def find(self, folder: Path, now_ms: int) -> None:
        """Adds a folder that an earlier run left."""
        self._waiting.append(DiscardedLog(folder, now_ms, is_renamed=True))

    def discard(self, log: PartitionLog, unique: Uuid, now_ms: int) -> DiscardedLog:
        """Call `rename` afterwards. Its files stay open, for reads in progress, unless the caller closes them."""
        folder = log.directory.with_name(marked_folder(log.partition, unique, "delete"))
        discarded = DiscardedLog(folder, now_ms + log.config.file_delete_delay_ms, log)
        self._waiting.append(discarded)
        return discarded

    def rename(self, some: Iterable[DiscardedLog]) -> None:
        """Any thread; the caller syncs the directory. After an `OSError` the remaining folders keep their names."""
        for each in some:
            if each.log is not None and not each.is_renamed:
                self._disk.replace(each.log.directory, each.folder)
                relocate(each.log, each.folder)
                each.is_renamed = True

    def take_back(self, some: Iterable[DiscardedLog]) -> list[PartitionLog]:
        """Forgets those that were not renamed; returns their logs, which are closed."""
        kept = [each for each in some if each.log is not None and not each.is_renamed]
        self._waiting = [each for each in self._waiting if each not in kept]
        return [each.log for each in kept if each.log is not None]

    def due(self, directory: Path, now_ms: int) -> list[DiscardedLog]:
        """Returns what can be removed from a directory, with files closed. What cannot be removed is returned again."""
        self._waiting = [each for each in self._waiting if not each.is_removed]
        due = [
            each
            for each in self._waiting
            if each.is_renamed and each.due_ms <= now_ms and each.folder.parent == directory
        ]
        _close(due)
        return due

    def remove(self, some: Iterable[DiscardedLog]) -> None:
        """Any thread."""
        for each in some:
            self._disk.remove_directory(each.folder)
            each.is_removed = True

    def close(self) -> None:
        """Closes files; the next start finds the folders."""
        _close(self._waiting)


def _close(some: Iterable[DiscardedLog]) -> None:
    for each in some:
        if each.log is not None:
            each.log.abandon()


def marked_folder(partition: TopicPartition, unique: Uuid, mark: str) -> str:
    """A long topic name is shortened, so that the folder name has at most 255 bytes."""
    ending = f"-{partition.partition}.{unique.hex()}-{mark}"
    return partition.topic[: 255 - len(ending)] + ending
