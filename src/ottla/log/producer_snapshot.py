"""Snapshots of a log's producer state: `<offset>.snapshot` next to the segments, in Kafka's format.

    version         i16   1
    crc-32c         u32       of all that follows
    producers       i32       their number, then for each:
        producer id i64, producer epoch i16,
        last sequence i32, last offset i64, last offset less first i32: those of its last batch,
        last timestamp i64, coordinator epoch i32, first offset of its open transaction i64

-1 means none, but 0 for the difference of missing offsets. A snapshot contains the state of all records below its
offset. One that cannot be read is never repaired: an older one and the records after it give the same state.

Belongs to the thread that owns the log; `sync_snapshot` is thread-safe.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.base.disk import Disk
from ottla.log.errors import CorruptSnapshotError
from ottla.log.names import DELETED, PRODUCER_SNAPSHOT, parse_segment_file, segment_name

VERSION: Final = 1

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ROW = struct.Struct(">qhiqiqiq")
_ROWS_AT: Final = _HEAD.size + _COUNT.size


class ProducerRow(NamedTuple):
    """One producer in a snapshot, in the order of the fields."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def encode_snapshot(rows: Sequence[ProducerRow]) -> bytes:
    """The content of a snapshot file."""
    pack = _ROW.pack
    content = b"".join((_COUNT.pack(len(rows)), *(pack(*row) for row in rows)))
    return _HEAD.pack(VERSION, crc32c(content)) + content


def decode_snapshot(path: Path, data: bytes) -> list[ProducerRow]:
    """The producers in a snapshot; the path is for error messages."""
    if len(data) < _ROWS_AT:
        raise CorruptSnapshotError(path, f"{len(data)} bytes are too few for a snapshot of producers")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError(path, f"version {version} of a snapshot is not known, only {VERSION}")
    computed = crc32c(memoryview(data)[_HEAD.size :])
    if crc != computed:
        raise CorruptSnapshotError(path, f"its CRC is {crc:#010x}, its bytes have {computed:#010x}")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    end = _ROWS_AT + count * _ROW.size
    if count < 0 or len(data) < end:
        raise CorruptSnapshotError(path, f"it promises {count} producers, which {len(data)} bytes do not hold")
    return [ProducerRow._make(fields) for fields in _ROW.iter_unpack(memoryview(data)[_ROWS_AT:end])]


class SnapshotFiles:
    """The snapshots in one partition's folder, by offset. The caller may pass the offsets if it has listed the
    folder."""

    __slots__ = ("_disk", "_offsets", "directory")

    def __init__(self, disk: Disk, directory: Path, offsets: Iterable[int] | None = None) -> None:
        self._disk = disk
        self.directory = directory
        self._offsets: list[int] = []
        if offsets is None:
            self.reload()
        else:
            self._offsets += sorted(offsets)

    def reload(self) -> None:
        """Lists the folder again."""
        names = (name for name in self._disk.list(self.directory) if name.endswith(PRODUCER_SNAPSHOT))
        forms = map(parse_segment_file, names)
        self._offsets = sorted(form.base_offset for form in forms if form and form[1:] == (PRODUCER_SNAPSHOT, ""))

    @property
    def offsets(self) -> tuple[int, ...]:
        """Lowest first."""
        return tuple(self._offsets)

    @property
    def oldest(self) -> int | None:
        return self._offsets[0] if self._offsets else None

    @property
    def latest(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    def path(self, offset: int) -> Path:
        return self.directory / segment_name(offset, PRODUCER_SNAPSHOT)

    def read(self, offset: int) -> list[ProducerRow]:
        path = self.path(offset)
        return decode_snapshot(path, self._disk.read(path))

    def write(self, offset: int, rows: Sequence[ProducerRow], *, sync: bool) -> Path:
        path, data = self.path(offset), encode_snapshot(rows)
        if sync:
            self._disk.write_atomically(path, data)
        else:
            self._disk.write(path, data)
        if offset not in self._offsets:
            insort(self._offsets, offset)
        return path

    def remove(self, offset: int) -> None:
        """No error if it is gone."""
        if offset in self._offsets:
            self._offsets.remove(offset)
            self._disk.remove(self.path(offset))

    def remove_where(self, unwanted: Callable[[int], bool]) -> None:
        """Durably removes snapshots that do not match the log as it is now: a snapshot of truncated records must not
        come back after a power cut, when other records may have their offsets."""
        doomed = [offset for offset in self._offsets if unwanted(offset)]
        for offset in doomed:
            self.remove(offset)
        if doomed:
            self._disk.sync_directory(self.directory)

    def remove_before(self, offset: int) -> None:
        """Removes snapshots that only records below the offset could need."""
        for old in self._offsets[: bisect_left(self._offsets, offset)]:
            self.remove(old)

    def remove_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Removes those at no segment's start; but keeps the last one if a clean stop left it after the last
        segment."""
        strays = [offset for offset in self._offsets if offset not in segment_base_offsets]
        if strays and (not segment_base_offsets or strays[-1] >= max(segment_base_offsets)):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def mark_deleted(self, offset: int) -> Path | None:
        """Renames the snapshot of a deleted segment; the caller removes it with the segment's files."""
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        path = self.path(offset)
        marked = path.with_name(path.name + DELETED)
        try:
            self._disk.replace(path, marked)
        except FileNotFoundError:
            return None
        return marked
