"""The files of a segment under their names: the log and three indexes. Opens, syncs, renames and removes them together.

Nothing is opened before it is needed, and of an index nothing is there before it is asked for: most segments of most
partitions are never touched. The log's descriptor stays open from its first use until the segment is closed or deleted,
for responses under way may still send from it; indexes hold none.

Belongs to the thread that owns the log; `log`, the indexes and `sync` may be used by others.
"""

from __future__ import annotations

import threading
from pathlib import Path

from ottla.base.disk import Disk, File
from ottla.log.names import LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, segment_name
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import TransactionIndex


class SegmentFiles:
    """Log, offset index, time index and transaction index of one segment."""

    __slots__ = (
        "_disk",
        "_guard",
        "_is_made",
        "_is_new",
        "_log",
        "_max_index_bytes",
        "_offset_index",
        "_synced_changes",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "change_count",
        "directory",
        "suffix",
    )

    def __init__(self, disk: Disk, directory: Path, base_offset: int, max_index_bytes: int, suffix: str) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self._guard = threading.Lock()
        self._log: File | None = None
        self._is_made = False
        """The files are of this object's making."""
        self._is_new = False
        """Perhaps the folder was not synced since they were made."""
        self.change_count = 0
        """Of the log, by its owner; those that a sync has made safe are in `_synced_changes`."""
        self._synced_changes = 0
        self._max_index_bytes = max_index_bytes
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            with self._guard:
                index = self._offset_index
                if index is None:
                    path = self._path(OFFSET_INDEX)
                    limit, is_new = self._max_index_bytes, self._is_made
                    index = OffsetIndex(self._disk, path, self.base_offset, limit, is_new=is_new)
                    self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            with self._guard:
                index = self._time_index
                if index is None:
                    path = self._path(TIME_INDEX)
                    limit, is_new = self._max_index_bytes, self._is_made
                    index = TimeIndex(self._disk, path, self.base_offset, limit, is_new=is_new)
                    self._time_index = index
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        index = self._transaction_index
        if index is None:
            with self._guard:
                index = self._transaction_index
                if index is None:
                    index = TransactionIndex(self._disk, self._path(TRANSACTION_INDEX), self.base_offset)
                    self._transaction_index = index
        return index

    def _indexes_in_use(self) -> list[OffsetIndex | TimeIndex | TransactionIndex]:
        indexes = (self._offset_index, self._time_index, self._transaction_index)
        return [index for index in indexes if index is not None]

    def _path(self, kind: str) -> Path:
        return self.directory / (segment_name(self.base_offset, kind) + self.suffix)

    @property
    def path(self) -> Path:
        """Of the log."""
        return self._path(LOG)

    @property
    def modified_ms(self) -> int:
        return self._disk.modified_ms(self.path)

    def find_size(self) -> int:
        """Bytes of the log; a new segment's files are created."""
        try:
            size = self._disk.size(self.path)
        except FileNotFoundError:
            self.create()
            return 0
        self._is_new = not size  # it may be there without its name having been synced
        return size

    def create(self) -> None:
        """Empty files, for there is no log: Kafka rebuilds the indexes of a segment that lacks them."""
        for kind in (LOG, OFFSET_INDEX, TIME_INDEX):
            file = self._disk.open(self._path(kind), create=True)
            try:
                if kind is not LOG and file.size():  # it was another log's
                    file.truncate(0)
            finally:
                file.close()
        self._is_made = self._is_new = True
        if self.base_offset or self.suffix:  # else they say no more than a folder without them
            self.change_count += 1

    @property
    def log(self) -> File:
        """The file of batches."""
        log = self._log
        if log is None:
            with self._guard:
                if self._log is None:
                    self._log = self._disk.open(self.path)
                log = self._log
        return log

    @property
    def is_log_open(self) -> bool:
        return self._log is not None

    def mark_unsynced(self) -> None:
        """The log was changed."""
        self.change_count += 1

    def mark_doubtful(self) -> None:
        """The log was found after a crash: neither its bytes nor its name need have reached the disk."""
        self.change_count += 1
        self._is_new = True

    def sync(self) -> None:
        """All files that were changed, and the folder if it got new ones."""
        changes = self.change_count
        if changes != self._synced_changes:
            self.log.sync()
        for index in self._indexes_in_use():
            index.sync()
        transactions = self._transaction_index
        if (self._is_new and changes) or (transactions is not None and transactions.is_new):
            self._disk.sync_directory(self.directory)
            self._is_new = False
            if transactions is not None:
                transactions.is_new = False
        # Only now: a sync in another thread must not take for safe what this one is still at.
        self._synced_changes = changes

    def release_indexes(self) -> None:
        """Gives their maps and memory back; they come again when they are needed."""
        for index in self._indexes_in_use():
            index.release()

    def close(self) -> None:
        """Syncs what was not, and lets go of all files."""
        if self.change_count != self._synced_changes:
            self.sync()
        for index in self._indexes_in_use():
            index.close()
        self.close_log()

    def abandon(self) -> None:
        """Lets go of all files without writing."""
        for index in self._indexes_in_use():
            index.abandon()
        self.close_log()

    def close_log(self) -> None:
        """Gives its descriptor back, which nobody else may be using."""
        if self._log is None:
            return
        with self._guard:
            log, self._log = self._log, None
            if log is not None:
                log.close()

    def rename_suffix(self, old: str, new: str) -> None:
        """The log first. Open files stay open; the folder is not synced."""
        if self.suffix != old:
            raise ValueError(f"{self.path} does not have suffix {old!r}")
        source = self.path
        # Before the suffix changes: one that nobody asked for yet would be given the new name, its file the old one.
        offset_index, time_index, transaction_index = self.offset_index, self.time_index, self.transaction_index
        self.suffix = new
        self._disk.replace(source, self.path)
        offset_index.rename(self._path(OFFSET_INDEX))
        time_index.rename(self._path(TIME_INDEX))
        transaction_index.rename(self._path(TRANSACTION_INDEX))

    def relocate(self, directory: Path) -> None:
        """The folder was renamed, with everything in it."""
        self.directory = directory
        with self._guard:
            if self._offset_index is not None:
                self._offset_index.path = self._path(OFFSET_INDEX)
            if self._time_index is not None:
                self._time_index.path = self._path(TIME_INDEX)
            if self._transaction_index is not None:
                self._transaction_index.path = self._path(TRANSACTION_INDEX)

    def delete(self) -> None:
        """The log first: indexes without a log are known to be worthless."""
        self.abandon()
        self._disk.remove(self.path)
        self.offset_index.delete()
        self.time_index.delete()
        self.transaction_index.delete()
