"""What offset index and time index have in common: a file of sorted entries of one size that grows at its end.

An index can always be rebuilt from its log, so it is cheap rather than durable: nothing is opened until the first
look-up, which maps the file; the first change copies the entries to memory, where they grow; `write` and `sync` update
the file. Recovery rebuilds what a crash loses. No descriptor is held.

A killed Kafka broker leaves its indexes preallocated, with zeros after the last entry, which are not entries. No two
entries are equal, so several zero entries at the end are a tail; a single one is kept, because it is harmless.

Changes belong to the thread that owns the log. Look-ups and `sync` may run in others, but not while the owner
truncates: truncating a mapped file while another thread reads it would kill the process.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import ClassVar

from ottla.base.disk import Disk
from ottla.log.errors import CorruptIndexError
from ottla.records.layout import MAX_INT32


class IndexFile:
    """The entries of one segment; subclasses define their meaning."""

    ENTRY: ClassVar[struct.Struct]

    __slots__ = ("_data", "_disk", "_guard", "_unsynced", "_written", "base_offset", "max_entries", "path")

    def __init__(self, disk: Disk, path: Path, base_offset: int, max_bytes: int, *, is_new: bool = False) -> None:
        """A new index has an empty file, which is not checked."""
        if max_bytes < self.ENTRY.size:
            raise ValueError(f"{path}: an index of {max_bytes} bytes cannot hold an entry of {self.ENTRY.size}")
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self._data: bytearray | memoryview | None = memoryview(b"") if is_new else None
        self._written = 0
        self._unsynced = False
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def _take_last(self, data: bytearray | memoryview) -> None:
        """Called when the last entry has changed."""
        raise NotImplementedError

    # Entries.

    @property
    def entry_count(self) -> int:
        return len(self._entries()) // self.ENTRY.size

    @property
    def is_loaded(self) -> bool:
        return self._data is not None

    def _entries(self) -> bytearray | memoryview:
        return self._load() if self._data is None else self._data

    def _load(self) -> bytearray | memoryview:
        with self._guard:
            if self._data is None:
                try:
                    data = self._disk.map(self.path)
                except FileNotFoundError:
                    data = memoryview(b"")
                data = data[: _count_entries(data, self.ENTRY.size) * self.ENTRY.size]
                self._take_last(data)
                self._written = len(data)
                self._data = data
            return self._data

    def _growing(self) -> bytearray:
        data = self._entries()
        if not isinstance(data, bytearray):
            data = bytearray(data)
            self._data = data
        return data

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_INT32:
            raise ValueError(f"{self.path}: offset {offset} is not within 2^31 offsets of the segment's first")
        return relative

    def _cut(self, count: int) -> None:
        size = count * self.ENTRY.size
        data = self._growing()
        if size < len(data):
            with self._guard:
                del data[size:]
                self._written = min(self._written, size)
                self._take_last(data)

    def clear(self) -> None:
        """Removes all entries."""
        with self._guard:
            self._data = bytearray()
            self._written = 0
            self._unsynced = True  # a killed process may have emptied the file without syncing it
            self._take_last(self._data)

    def _replace(self, content: bytes) -> None:
        """Replaces all entries. The file is replaced as well, so readers of the old map can continue."""
        with self._guard:
            self._disk.write_atomically(self.path, content)
            self._data = bytearray(content)
            self._written = len(content)
            self._unsynced = False
            self._take_last(self._data)

    # The file.

    def trim(self) -> None:
        """Removes what follows the last entry: zeros of a preallocated file."""
        entries_size = len(self._entries())
        if self._disk.exists(self.path) and self._disk.size(self.path) != entries_size:
            self._growing()
            self.write()

    def write(self) -> None:
        """Updates the file; a power cut may still undo it."""
        self._store(sync=False)

    def sync(self) -> None:
        """Updates the file durably. Thread-safe."""
        self._store(sync=True)

    def _store(self, *, sync: bool) -> None:
        with self._guard:
            data = self._data
            # An index that is only mapped was not changed.
            changed = isinstance(data, bytearray)
            if not changed and not (sync and self._unsynced):
                return
            file = self._disk.open(self.path, create=True)
            try:
                if isinstance(data, bytearray):
                    start = self._written if self._written <= file.size() else 0
                    if file.size() > start:
                        file.truncate(start)
                        self._unsynced = True
                    pending = data[start:]  # a copy: the owner may add entries meanwhile
                    if pending:
                        self._unsynced = True
                        self._written = start
                        file.append(pending)
                        self._written = start + len(pending)
                if sync and self._unsynced:
                    file.sync()
                    self._unsynced = False
            finally:
                file.close()

    def release(self) -> None:
        """Writes pending entries, and releases the memory or the map; the next look-up maps the file again."""
        self.write()
        self._data = None

    def abandon(self) -> None:
        """Drops what is in memory, written or not: for a file that is removed or a disk that failed."""
        with self._guard:
            self._data = None
            self._unsynced = False

    def close(self) -> None:
        """Afterwards the file is complete, and synced if anything was written since the last sync."""
        self.sync()
        self._data = None

    def rename(self, path: Path) -> None:
        """Renames the file; a missing file is ignored."""
        with self._guard:
            try:
                self._disk.replace(self.path, path)
            except FileNotFoundError:
                if self._disk.exists(self.path):
                    raise  # the folder of the target is missing
            self.path = path

    def delete(self) -> None:
        self.abandon()
        self._disk.remove(self.path)

    def check(self) -> None:
        """Raises `CorruptIndexError` for problems that the size and the first and last entries show."""
        size = self._disk.size(self.path) if self._disk.exists(self.path) else 0
        if size % self.ENTRY.size:
            raise CorruptIndexError(self.path, f"its size of {size} bytes is not a multiple of {self.ENTRY.size}")


def _count_entries(data: memoryview, entry_size: int) -> int:
    """The number of entries before the tail of zeros, if there is one."""
    count = len(data) // entry_size
    zeros = bytes(entry_size)
    if count < 2 or data[(count - 1) * entry_size : count * entry_size] != zeros:
        return count
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if data[middle * entry_size : (middle + 1) * entry_size] == zeros:
            high = middle
        else:
            low = middle + 1
    return low
