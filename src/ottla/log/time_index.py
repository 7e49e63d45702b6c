"""The timestamps of a segment's records, every few KiB: the file `<base offset>.timeindex`.

    timestamp         i64   0     the newest so far in the segment
    relative offset   i32   8     of the last record in the first batch that has it, counted from the base offset

Both increase strictly: an entry means that no record up to its offset is newer than its timestamp. The last slot is
reserved for the entry that is added when the segment is closed: it gives retention the newest timestamp without reading
the log.

`index_file` documents the threads.
"""

from __future__ import annotations

import struct
from pathlib import Path

from ottla.base.disk import Disk
from ottla.log.errors import CorruptIndexError
from ottla.log.index_file import IndexFile
from ottla.records.layout import NO_TIMESTAMP

_ENTRY = struct.Struct(">qi")
_TIMESTAMP = struct.Struct(">q")
_OFFSET = struct.Struct(">8xi")


class TimeIndex(IndexFile):
    """The time index of one segment."""

    ENTRY = _ENTRY

    __slots__ = ("_last",)

    def __init__(self, disk: Disk, path: Path, base_offset: int, max_bytes: int, *, is_new: bool = False) -> None:
        super().__init__(disk, path, base_offset, max_bytes, is_new=is_new)
        self._last = (NO_TIMESTAMP, base_offset)

    def _take_last(self, data: bytearray | memoryview) -> None:
        if data:
            timestamp_ms, relative = _ENTRY.unpack_from(data, len(data) - _ENTRY.size)
            self._last = (timestamp_ms, self.base_offset + relative)
        else:
            self._last = (NO_TIMESTAMP, self.base_offset)

    @property
    def last_entry(self) -> tuple[int, int]:
        """Timestamp and offset; no timestamp and the base offset if there is no entry."""
        if self._data is None:
            self._load()
        return self._last

    @property
    def is_full(self) -> bool:
        """Whether only the reserved slot is left."""
        data = self._data
        return len(self._load() if data is None else data) >= (self.max_entries - 1) * 12

    @property
    def entries_left(self) -> int:
        """How many entries fit until it is full."""
        return self.max_entries - 1 - self.entry_count

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """Timestamp and offset of the last entry that is not newer; without one, no timestamp and the base offset."""
        data = self._entries()
        last = self._last
        if timestamp_ms >= last[0]:
            return last
        low, high = 0, len(data) // _ENTRY.size
        while low < high:
            middle = (low + high) >> 1
            if _TIMESTAMP.unpack_from(data, middle * _ENTRY.size)[0] <= timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if not low:
            return NO_TIMESTAMP, self.base_offset
        found_ms, relative = _ENTRY.unpack_from(data, (low - 1) * _ENTRY.size)
        return found_ms, self.base_offset + relative

    def maybe_append(self, timestamp_ms: int, offset: int, *, even_if_full: bool = False) -> None:
        """Adds an entry if its timestamp is newer than the last one's; an older timestamp or offset is an error.

        `even_if_full` is for the last entry of a segment.
        """
        data = self._growing()
        last_ms, last_offset = self._last
        if self.is_full and not even_if_full:
            raise ValueError(f"{self.path}: full, with {self.max_entries} entries; roll the segment")
        if data and (offset < last_offset or timestamp_ms < last_ms):
            raise ValueError(
                f"{self.path}: timestamp {timestamp_ms} at offset {offset} comes before {last_ms} at {last_offset}"
            )
        if timestamp_ms > last_ms:
            data += _ENTRY.pack(timestamp_ms, self._relative(offset))
            self._last = (timestamp_ms, offset)

    def truncate_to(self, offset: int) -> None:
        """Removes the entries at and after the offset."""
        data = self._entries()
        relative = offset - self.base_offset
        low, high = 0, len(data) // _ENTRY.size
        while low < high:
            middle = (low + high) >> 1
            if _OFFSET.unpack_from(data, middle * _ENTRY.size)[0] < relative:
                low = middle + 1
            else:
                high = middle
        self._cut(low)

    def drop_last(self) -> None:
        self._cut(self.entry_count - 1)

    def check(self) -> None:
        super().check()
        if data := self._entries():
            first_ms = _TIMESTAMP.unpack_from(data)[0]
            last_ms, last_offset = self._last
            if last_ms < first_ms or last_offset < self.base_offset:
                raise CorruptIndexError(
                    self.path,
                    f"its last entry is timestamp {last_ms} at offset {last_offset}, "
                    f"in a segment that begins with {first_ms} at {self.base_offset}",
                )
