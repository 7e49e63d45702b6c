"""Logs that left their directory: renamed at once, removed later.

    discarded = logs.discard(log, unique)      owner: nobody gets the log any more
    logs.rename(some_discarded)                any thread: the folder gets the name of a deleted one
    logs.remove(path, now_ms)                  any thread, when `file.delete.delay.ms` have passed

Nothing is written or synced but the name: what is in the folder is worth nothing. A folder that keeps its old name
through a crash is found at the next start as a log of a topic that is gone.
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
    """A folder to be removed, and its log, unless it was found at the start."""

    folder: Path
    due_ms: int
    log: PartitionLog | None = None
    is_renamed: bool = False
    is_removed: bool = False


class DiscardedLogs:
    """Of all directories. `discard`, `find`, `due` and `close` belong to the owner."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[DiscardedLog] = []

    def find(self, folder: Path, now_ms: int) -> None:
        """A folder that an earlier run left."""
        self._waiting.append(DiscardedLog(folder, now_ms, is_renamed=True))

    def discard(self, log: PartitionLog, unique: Uuid, now_ms: int) -> DiscardedLog:
        """To be renamed by `rename`. Its files stay open, for readers under way, unless the caller closes them."""
        folder = log.directory.with_name(marked_folder(log.partition, unique, "delete"))
        discarded = DiscardedLog(folder, now_ms + log.config.file_delete_delay_ms, log)
        self._waiting.append(discarded)
        return discarded

    def rename(self, some: Iterable[DiscardedLog]) -> None:
        """Any thread; the caller syncs the directory. What was not renamed when an `OSError` came stays as it is."""
        for each in some:
            if each.log is not None and not each.is_renamed:
                self._disk.replace(each.log.directory, each.folder)
                relocate(each.log, each.folder)
                each.is_renamed = True

    def due(self, directory: Path, now_ms: int) -> list[DiscardedLog]:
        """What may be removed from a directory, its files closed. What could not be removed comes again."""
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
        """Closes files; the folders are found at the next start."""
        _close(self._waiting)


def _close(some: Iterable[DiscardedLog]) -> None:
    for each in some:
        if each.log is not None:
            each.log.abandon()


def marked_folder(partition: TopicPartition, unique: Uuid, mark: str) -> str:
    """A long topic name is cut, so that the folder's has at most 255 bytes."""
    ending = f"-{partition.partition}.{unique.hex()}-{mark}"
    return partition.topic[: 255 - len(ending)] + ending
