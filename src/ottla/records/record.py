"""One record of a batch, with its absolute offset and timestamp."""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]


class Record(NamedTuple):
    """A record of a partition. A null value is a tombstone. Header keys may repeat and are never null."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class RecordLists(NamedTuple):
    """The fields of records as lists, for callers that create their own objects."""

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]

    def part(self, begin: int, end: int) -> RecordLists:
        """The records from one index to another, which may be beyond the last."""
        return RecordLists(
            self.offsets[begin:end],
            self.timestamps_ms[begin:end],
            self.keys[begin:end],
            self.values[begin:end],
            self.headers[begin:end],
        )

    def between(self, begin: int, end: int) -> RecordLists:
        """The records whose offsets are in that range."""
        if not self.offsets or begin <= min(self.offsets) <= max(self.offsets) < end:
            return self
        wanted = [begin <= offset < end for offset in self.offsets]
        return RecordLists(
            list(compress(self.offsets, wanted)),
            list(compress(self.timestamps_ms, wanted)),
            list(compress(self.keys, wanted)),
            list(compress(self.values, wanted)),
            list(compress(self.headers, wanted)),
        )

    def extend(self, other: RecordLists) -> None:
        """Adds those of the other."""
        self.offsets.extend(other.offsets)
        self.timestamps_ms.extend(other.timestamps_ms)
        self.keys.extend(other.keys)
        self.values.extend(other.values)
        self.headers.extend(other.headers)
