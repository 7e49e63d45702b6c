"""The positions of offsets in a segment's log, every few KiB: the file `<base offset>.index`.

    relative offset   i32   0     of the last record in a batch, counted from the segment's base offset
    position          i32   4     where that batch begins in the log

Offsets and positions both increase strictly. Positions are read as unsigned: a damaged one is then beyond the log, and
no batch is found there. `index_file` documents the threads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from ottla.base.disk import Disk
from ottla.log.errors import CorruptIndexError
from ottla.log.index_file import IndexFile

_ENTRY = struct.Struct(">iI")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_GUESS_ENTRIES = 16
"""How far from the interpolated position a look-up searches first."""


class OffsetIndex(IndexFile):
    """The offset index of one segment."""

    ENTRY = _ENTRY

    __slots__ = ("_last",)

    def __init__(self, disk: Disk, path: Path, base_offset: int, max_bytes: int, *, is_new: bool = False) -> None:
        super().__init__(disk, path, base_offset, max_bytes, is_new=is_new)
        self._last = (base_offset, 0)

    def _take_last(self, data: bytearray | memoryview) -> None:
        if data:
            relative, position = _ENTRY.unpack_from(data, len(data) - 8)
            self._last = (self.base_offset + relative, position)
        else:
            self._last = (self.base_offset, 0)

    @property
    def last_offset(self) -> int:
        """The base offset if there is no entry."""
        if self._data is None:
            self._load()
        return self._last[0]

    @property
    def last_position(self) -> int:
        if self._data is None:
            self._load()
        return self._last[1]

    @property
    def is_full(self) -> bool:
        data = self._data
        return len(self._load() if data is None else data) >> 3 >= self.max_entries

    @property
    def entries_left(self) -> int:
        """How many entries fit until it is full."""
        return self.max_entries - self.entry_count

    def lookup(self, offset: int) -> tuple[int, int]:
        """Offset and position of the last entry at or before the offset; the segment's beginning if there is none."""
        data = self._data
        if data is None:
            data = self._load()
        last = self._last
        if offset >= last[0]:
            return last
        relative = offset - self.base_offset
        if relative < 0:
            return self.base_offset, 0
        unpack = _INT32.unpack_from
        low, high = 0, len(data) >> 3
        # Offsets usually increase evenly, so interpolation saves most steps, and most pages that must be in memory.
        guess = relative * high // (last[0] - self.base_offset)
        below, above = guess - _GUESS_ENTRIES, guess + _GUESS_ENTRIES
        if below > 0 and unpack(data, below << 3)[0] <= relative:
            low = below
        if above < high and unpack(data, above << 3)[0] > relative:
            high = above
        while low < high:
            middle = (low + high) >> 1
            if unpack(data, middle << 3)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        if not low:
            return self.base_offset, 0
        found, position = _ENTRY.unpack_from(data, (low - 1) << 3)
        return self.base_offset + found, position

    def offset_behind(self, position: int) -> int | None:
        """The offset of the first entry at or after the position: an upper bound for everything before."""
        data = self._entries()
        index = self._first_at(position)
        return self.base_offset + int(_INT32.unpack_from(data, index << 3)[0]) if index < len(data) >> 3 else None

    def _first_at(self, position: int) -> int:
        data = self._entries()
        low, high = 0, len(data) >> 3
        while low < high:
            middle = (low + high) >> 1
            if _UINT32.unpack_from(data, (middle << 3) + 4)[0] < position:
                low = middle + 1
            else:
                high = middle
        return low

    def append(self, offset: int, position: int) -> None:
        """Adds an entry after the last one, whose offset must be smaller."""
        data = self._growing()
        if data and offset <= self._last[0]:
            raise ValueError(f"{self.path}: offset {offset} does not come after {self._last[0]}")
        if len(data) >> 3 >= self.max_entries:
            raise ValueError(f"{self.path}: full, with {self.max_entries} entries; roll the segment")
        data += _ENTRY.pack(self._relative(offset), position)
        self._last = (offset, position)

    def entries(self) -> list[tuple[int, int]]:
        """Offset and position of each entry, as stored."""
        base_offset = self.base_offset
        return [(base_offset + relative, position) for relative, position in _ENTRY.iter_unpack(self._entries())]

    def replace_all(self, entries: Sequence[tuple[int, int]]) -> None:
        """Replaces all entries, in memory and in the file."""
        self._replace(b"".join(_ENTRY.pack(self._relative(offset), position) for offset, position in entries))

    def truncate_to(self, offset: int) -> None:
        """Removes the entries at and after the offset."""
        data = self._entries()
        relative = offset - self.base_offset
        low, high = 0, len(data) >> 3
        while low < high:
            middle = (low + high) >> 1
            if _INT32.unpack_from(data, middle << 3)[0] < relative:
                low = middle + 1
            else:
                high = middle
        self._cut(low)

    def drop_beyond(self, log_size: int) -> None:
        """Removes entries for positions beyond the end of the log: they cannot be right."""
        if self._entries() and self._last[1] >= log_size:
            self._cut(self._first_at(log_size))

    def check(self) -> None:
        super().check()
        if self.last_offset < self.base_offset:
            raise CorruptIndexError(
                self.path,
                f"its last entry is offset {self.last_offset} at byte {self.last_position}, "
                f"in a segment that begins at {self.base_offset}",
            )
