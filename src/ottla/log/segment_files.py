"""The files of a segment under their names: the log and three indexes. Opens, syncs, renames and removes them together.

Nothing is opened before it is needed. The log's descriptor stays open from then until the segment is closed or deleted,
for responses under way may still send from it; indexes hold none.

Belongs to the thread that owns the log; `log` and `sync` may be used by others.
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
        "_is_new",
        "_log",
        "_unsynced",
        "base_offset",
        "directory",
        "offset_index",
        "suffix",
        "time_index",
        "transaction_index",
    )

    def __init__(self, disk: Disk, directory: Path, base_offset: int, max_index_bytes: int, suffix: str) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self._guard = threading.Lock()
        self._log: File | None = None
        self._is_new = False
        self._unsynced = False
        self.offset_index = OffsetIndex(disk, self._path(OFFSET_INDEX), base_offset, max_index_bytes)
        self.time_index = TimeIndex(disk, self._path(TIME_INDEX), base_offset, max_index_bytes)
        self.transaction_index = TransactionIndex(disk, self._path(TRANSACTION_INDEX), base_offset)

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
            return self._disk.size(self.path)
        except FileNotFoundError:
            self._log = self._disk.open(self.path, create=True)
            self.offset_index.create()
            self.time_index.create()
            self._is_new = self._unsynced = True
            return self._log.size()

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

    def mark_unsynced(self) -> None:
        """The log was changed."""
        self._unsynced = True

    def sync(self) -> None:
        """All files, and the folder if it got new ones."""
        self._unsynced = False
        try:
            self.log.sync()
        except OSError:
            self._unsynced = True
            raise
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()
        if self._is_new or self.transaction_index.is_new:
            self._disk.sync_directory(self.directory)
            self._is_new = self.transaction_index.is_new = False

    def release_indexes(self) -> None:
        """Gives their maps and memory back; they come again when they are needed."""
        self.offset_index.release()
        self.time_index.release()
        self.transaction_index.release()

    def close(self) -> None:
        """Syncs what was not, and lets go of all files."""
        if self._unsynced:
            self.sync()
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()
        self._close_log()

    def abandon(self) -> None:
        """Lets go of all files without writing."""
        self.offset_index.abandon()
        self.time_index.abandon()
        self.transaction_index.abandon()
        self._close_log()

    def _close_log(self) -> None:
        with self._guard:
            log, self._log = self._log, None
            if log is not None:
                log.close()

    def rename_suffix(self, old: str, new: str) -> None:
        """The log first. Open files stay open; the folder is not synced."""
        if self.suffix != old:
            raise ValueError(f"{self.path} does not have suffix {old!r}")
        source = self.path
        self.suffix = new
        self._disk.replace(source, self.path)
        self.offset_index.rename(self._path(OFFSET_INDEX))
        self.time_index.rename(self._path(TIME_INDEX))
        self.transaction_index.rename(self._path(TRANSACTION_INDEX))

    def relocate(self, directory: Path) -> None:
        """The folder was renamed, with everything in it."""
        self.directory = directory
        self.offset_index.path = self._path(OFFSET_INDEX)
        self.time_index.path = self._path(TIME_INDEX)
        self.transaction_index.path = self._path(TRANSACTION_INDEX)

    def delete(self) -> None:
        """The log first: indexes without a log are known to be worthless."""
        self.abandon()
        self._disk.remove(self.path)
        self.offset_index.delete()
        self.time_index.delete()
        self.transaction_index.delete()
