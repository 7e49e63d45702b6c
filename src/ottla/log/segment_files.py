"""The files of a segment: the log and three indexes. Opens, syncs, renames and removes them together.

Nothing is opened before it is needed, and index objects are created on first use: most segments of most partitions are
never touched. The log's descriptor stays open from its first use until the segment is closed or deleted, because
responses in progress may still send from it; indexes hold none.

Belongs to the thread that owns the log; `log`, the indexes and `sync` are thread-safe.
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
        """Whether this object created the files."""
        self._is_new = False
        """Whether the folder may not have been synced since they were created."""
        self.change_count = 0
        """The number of changes of the log by its owner; `_synced_changes` counts those that a sync has covered."""
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
        """The path of the log."""
        return self._path(LOG)

    @property
    def modified_ms(self) -> int:
        return self._disk.modified_ms(self.path)

    def find_size(self) -> int:
        """The size of the log in bytes; creates the files of a new segment."""
        try:
            size = self._disk.size(self.path)
        except FileNotFoundError:
            self.create()
            return 0
        self._is_new = not size  # it may exist without its name having been synced
        return size

    def create(self) -> None:
        """Creates empty files if there is no log: Kafka rebuilds the indexes of a segment that lacks them."""
        for kind in (LOG, OFFSET_INDEX, TIME_INDEX):
            file = self._disk.open(self._path(kind), create=True)
            try:
                if kind is not LOG and file.size():  # it belonged to another log
                    file.truncate(0)
            finally:
                file.close()
        self._is_made = self._is_new = True
        if self.base_offset or self.suffix:  # otherwise they mean the same as an empty folder
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
        """Called when the log was changed."""
        self.change_count += 1

    def mark_doubtful(self) -> None:
        """Called when the log was found after a crash: neither its bytes nor its name may be on the disk."""
        self.change_count += 1
        self._is_new = True

    def sync(self) -> None:
        """Syncs all files that were changed, and the folder if it has new ones."""
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
        # Only now: a sync in another thread must not treat as safe what this one is still writing.
        self._synced_changes = changes

    def release_indexes(self) -> None:
        """Releases their maps and memory; they are loaded again when they are needed."""
        for index in self._indexes_in_use():
            index.release()

    def close(self) -> None:
        """Syncs what was not, and closes all files."""
        if self.change_count != self._synced_changes:
            self.sync()
        for index in self._indexes_in_use():
            index.close()
        self.close_log()

    def abandon(self) -> None:
        """Closes all files without writing."""
        for index in self._indexes_in_use():
            index.abandon()
        self.close_log()

    def close_log(self) -> None:
        """Closes its descriptor, which nobody else may be using."""
        if self._log is None:
            return
        with self._guard:
            log, self._log = self._log, None
            if log is not None:
                log.close()

    def rename_suffix(self, old: str, new: str) -> None:
        """Renames the log first. Open files stay open; the folder is not synced."""
        if self.suffix != old:
            raise ValueError(f"{self.path} does not have suffix {old!r}")
        source = self.path
        # Before the suffix changes: an index object created later would have the new name, but its file the old one.
        offset_index, time_index, transaction_index = self.offset_index, self.time_index, self.transaction_index
        self.suffix = new
        self._disk.replace(source, self.path)
        offset_index.rename(self._path(OFFSET_INDEX))
        time_index.rename(self._path(TIME_INDEX))
        transaction_index.rename(self._path(TRANSACTION_INDEX))

    def relocate(self, directory: Path) -> None:
        """Called when the folder was renamed, with everything in it."""
        self.directory = directory
        with self._guard:
            if self._offset_index is not None:
                self._offset_index.path = self._path(OFFSET_INDEX)
            if self._time_index is not None:
                self._time_index.path = self._path(TIME_INDEX)
            if self._transaction_index is not None:
                self._transaction_index.path = self._path(TRANSACTION_INDEX)

    def delete(self) -> None:
        """Removes the log first: indexes without a log are known to be worthless."""
        self.abandon()
        self._disk.remove(self.path)
        self.offset_index.delete()
        self.time_index.delete()
        self.transaction_index.delete()
