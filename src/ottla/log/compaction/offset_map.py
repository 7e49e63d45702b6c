"""The last offset of each key, within a limit of memory: it decides which records stay.

24 bytes per key: 128 bits of its hash and the offset. Two keys with the same hash would count as one; with 128 bits
that does not happen. The table starts small and grows eightfold, so that a small pass costs little and stays in the
caches. While it grows, the old and the new table are together within the limit, which leaves eight ninths of it for the
last table. Used by one thread.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ottla.log.compaction import kernels
from ottla.records.kernels import Int64s

ENTRY_BYTES: Final = 24
_GROWTH: Final = 8
_SMALLEST_SLOTS: Final = 8192
_FULL_ENOUGH: Final = 0.5
"""A table that can still grow does so above this load: the emptier it is, the shorter the search."""


class OffsetMap:
    """See the module docstring. `until_offset`: up to which offset records are entered."""

    __slots__ = ("_entries", "_largest_slots", "_limit", "_notes", "_progress")

    def __init__(self, max_bytes: int, load_factor: float, first_offset: int) -> None:
        slots = max_bytes // ENTRY_BYTES
        if slots > _SMALLEST_SLOTS:
            slots = slots * _GROWTH // (_GROWTH + 1)
        self._largest_slots = slots
        # One slot stays empty, so that every search ends.
        self._limit = min(int(slots * load_factor), slots - 1)
        if self._limit < 1:
            raise ValueError(
                f"{max_bytes} bytes are too small at a load factor of {load_factor}: increase "
                "log.cleaner.dedupe.buffer.size"
            )
        while slots > _SMALLEST_SLOTS * _GROWTH:
            slots //= _GROWTH
        self._entries: Int64s = np.zeros((slots, 3), np.int64)
        self._notes = np.empty((0, kernels.NOTE_FIELDS), np.int64)
        self._progress = np.zeros(3, np.int64)
        self._progress[kernels.MAPPED_UNTIL] = first_offset

    @property
    def entries(self) -> Int64s:
        """For the kernels."""
        return self._entries

    @property
    def size_in_bytes(self) -> int:
        return self._entries.nbytes

    @property
    def key_count(self) -> int:
        return int(self._progress[kernels.MAPPED_KEYS])

    @property
    def record_count(self) -> int:
        return int(self._progress[kernels.MAPPED_RECORDS])

    @property
    def until_offset(self) -> int:
        return int(self._progress[kernels.MAPPED_UNTIL])

    @property
    def utilization(self) -> float:
        return self.key_count / self._largest_slots

    def add(self, table: Int64s, first_offset: int) -> int:
        """Enters the keys of all records from an offset on. Returns how many batches were entered: all, or fewer if the
        map is full; -1 - n if batch n is invalid."""
        counts = table[:, kernels.RECORD_COUNT]
        self._make_room(int(counts.sum()))
        if len(self._notes) < counts.max(initial=0):
            self._notes = np.empty((int(counts.max()), kernels.NOTE_FIELDS), np.int64)
        return kernels.map_keys(table, first_offset, self._entries, self._limit, self._notes, self._progress)

    def pass_over(self, until_offset: int) -> None:
        """There are no records before that offset."""
        self._progress[kernels.MAPPED_UNTIL] = max(self.until_offset, until_offset)

    def _make_room(self, added: int) -> None:
        slots = len(self._entries)
        while self.key_count + added > slots * _FULL_ENOUGH and slots < self._largest_slots:
            # A size just below the largest would leave no room for both: use the largest.
            slots = slots * _GROWTH if slots * _GROWTH * _GROWTH <= self._largest_slots else self._largest_slots
        if slots > len(self._entries):
            larger = np.zeros((slots, 3), np.int64)
            kernels.move_entries(self._entries, larger)
            self._entries = larger
