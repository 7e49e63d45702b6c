"""The aborted transactions of a segment: the file `<base offset>.txnindex`, which is missing if there are none.

    version        i16   0      first offset         i64   10     of its records, perhaps in an earlier segment
    producer id    i64   2      last offset          i64   18     of the abort marker, which is in this segment
                                last stable offset   i64   26     after the marker

Last offsets increase strictly, last stable offsets never decrease. A consumer with read_committed gets the aborted
transactions that overlap its fetch; the last stable offset says when later entries cannot contain more of them.

Aborts are rare, so each is written at once. Changes belong to the thread that owns the log; `collect` and `sync` are
thread-safe.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from ottla.base.disk import Disk
from ottla.log.errors import CorruptIndexError

_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">18xq")
_LAST_STABLE_OFFSET = struct.Struct(">26xq")
_VERSION = 0


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose records, `first_offset` to `last_offset` of its producer, are not visible."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index of one segment. Nothing is read before it is needed."""

    __slots__ = ("_data", "_disk", "_guard", "_unsynced", "base_offset", "is_new", "path")

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._data: bytes | None = None
        self._unsynced = False
        self._guard = threading.Lock()
        self.is_new = False
        """The file was created, and its folder not synced since: whoever syncs the segment has to do that."""

    def __repr__(self) -> str:
        return f"TransactionIndex({str(self.path)!r})"

    def _entries(self) -> bytes:
        data = self._data
        if data is None:
            with self._guard:
                data = self._disk.read(self.path) if self._disk.exists(self.path) else b""
                # A crash may have left an incomplete last entry.
                data = data[: len(data) - len(data) % _ENTRY.size]
                self._data = data
        return data

    def _entry(self, data: bytes, index: int) -> AbortedTransaction:
        version, *fields = _ENTRY.unpack_from(data, index * _ENTRY.size)
        if version != _VERSION:
            raise CorruptIndexError(self.path, f"entry {index} has version {version}, only {_VERSION} is known")
        return AbortedTransaction(*fields)

    @property
    def entry_count(self) -> int:
        return len(self._entries()) // _ENTRY.size

    def all(self) -> list[AbortedTransaction]:
        data = self._entries()
        return [self._entry(data, index) for index in range(len(data) // _ENTRY.size)]

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that overlap the offsets from `fetch_offset` (inclusive) to `upper_bound_offset`
        (exclusive), and whether those are all: if not, the next segment's index may have more."""
        data = self._entries()
        if not data:
            return [], False
        count = len(data) // _ENTRY.size
        first = self._first_ending_at(data, fetch_offset)
        if first and self._last_stable_offset(data, first - 1) >= upper_bound_offset:
            return [], True
        found = []
        for index in range(first, count):
            transaction = self._entry(data, index)
            if transaction.first_offset < upper_bound_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    @staticmethod
    def _last_stable_offset(data: bytes, index: int) -> int:
        value: int = _LAST_STABLE_OFFSET.unpack_from(data, index * _ENTRY.size)[0]
        return value

    @staticmethod
    def _first_ending_at(data: bytes, offset: int) -> int:
        low, high = 0, len(data) // _ENTRY.size
        while low < high:
            middle = (low + high) >> 1
            if _LAST_OFFSET.unpack_from(data, middle * _ENTRY.size)[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def append(self, transaction: AbortedTransaction) -> None:
        """Adds a transaction whose marker comes after all others."""
        data = self._entries()
        if data:
            last_offset = _LAST_OFFSET.unpack_from(data, len(data) - _ENTRY.size)[0]
            if transaction.last_offset <= last_offset:
                raise ValueError(f"{self.path}: offset {transaction.last_offset} does not come after {last_offset}")
        entry = _ENTRY.pack(
            _VERSION,
            transaction.producer_id,
            transaction.first_offset,
            transaction.last_offset,
            transaction.last_stable_offset,
        )
        self._store(data, entry)

    def truncate_to(self, offset: int) -> None:
        """Removes the transactions whose marker is at or after the offset."""
        data = self._entries()
        kept = self._first_ending_at(data, offset) * _ENTRY.size
        if kept < len(data):
            self._store(data[:kept], b"")

    def clear(self) -> None:
        """Removes all transactions."""
        if self._disk.exists(self.path):
            self._store(b"", b"")
        self._data = b""

    def _store(self, kept: bytes, added: bytes) -> None:
        with self._guard:
            self._unsynced = True
            self.is_new = self.is_new or not self._disk.exists(self.path)
            file = self._disk.open(self.path, create=True)
            try:
                if file.size() != len(kept):
                    file.truncate(len(kept))
                if added:
                    file.append(added)
            finally:
                file.close()
            self._data = kept + added

    def sync(self) -> None:
        """Makes it survive a power cut. Thread-safe."""
        with self._guard:
            if self._unsynced:
                file = self._disk.open(self.path)
                try:
                    file.sync()
                finally:
                    file.close()
                self._unsynced = False

    def release(self) -> None:
        """Releases the memory; the next access reads the file again."""
        self._data = None

    def close(self) -> None:
        self.sync()
        self._data = None

    def abandon(self) -> None:
        """Drops what is in memory: for a file that is removed or a disk that failed."""
        self._data = None
        self._unsynced = False

    def rename(self, path: Path) -> None:
        with self._guard:
            if self._disk.exists(self.path):
                self._disk.replace(self.path, path)
            self.path = path

    def delete(self) -> None:
        self.abandon()
        self._disk.remove(self.path)

    def check(self) -> None:
        """Raises `CorruptIndexError` for entries that cannot belong to this segment, or an incomplete last entry."""
        size = self._disk.size(self.path) if self._disk.exists(self.path) else 0
        if size % _ENTRY.size:
            raise CorruptIndexError(self.path, f"its size of {size} bytes is not a multiple of {_ENTRY.size}")
        previous = self.base_offset - 1
        for index, transaction in enumerate(self.all()):
            if transaction.last_offset <= previous:
                raise CorruptIndexError(
                    self.path,
                    f"entry {index} ends at offset {transaction.last_offset}, which does not come after {previous}",
                )
            previous = transaction.last_offset
