"""The rows that operators get, and their order.

Within a lane (a partition of one input), rows are ordered by their position, whatever their timestamps. Lanes are
merged by the timestamps of their heads; at equal timestamps, the side with the smaller number is first. This is the
order in which a task of Kafka Streams takes records from the partitions that it reads.

A result belongs to no partition, but the results of one key are a lane, too. Its position begins with the number of
this lane, so that an operator that follows, with other keys, can tell the lanes apart and merge them by time.
"""

from __future__ import annotations

import heapq
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_LENGTH: Final = struct.Struct(">i")
_TIME: Final = struct.Struct(">q")
_NULL: Final = -1

LANE_SHIFT: Final = 41
"""A position of a result begins with its lane, above this number of bits; the rest is its place among the results."""
LANES: Final = 1 << (63 - LANE_SHIFT)


class Change(NamedTuple):
    """A row of an input, for one key."""

    side: int
    lane: int
    position: int
    """In the lane."""
    at_us: int
    """The timestamp of the record, in microseconds."""
    value: bytes | None
    extra: bytes | None = None
    """What an operator needs besides the value, such as a foreign key."""


class Result(NamedTuple):
    """A row that an operator emits. The fields are those of the operator."""

    key: bytes | None
    at_us: int
    fields: tuple[bytes | None, ...]


class Versioned(NamedTuple):
    """A value with the timestamp of the record that set it."""

    value: bytes
    at_us: int


def in_order(changes: Sequence[Change]) -> list[Change]:
    """The rows of a key in the order in which they take effect."""
    if len(changes) == 1:
        return list(changes)
    lanes: dict[tuple[int, int], list[Change]] = {}
    for change in changes:
        lanes.setdefault((change.side, change.lane), []).append(change)
    for lane in lanes.values():
        lane.sort(key=lambda one: one.position)
    if len(lanes) == 1:
        return next(iter(lanes.values()))
    heads = [(lane[0].at_us, side, number, 0) for (side, number), lane in lanes.items()]
    heapq.heapify(heads)
    merged: list[Change] = []
    while heads:
        _, side, number, index = heads[0]
        lane = lanes[side, number]
        merged.append(lane[index])
        if index + 1 < len(lane):
            heapq.heapreplace(heads, (lane[index + 1].at_us, side, number, index + 1))
        else:
            heapq.heappop(heads)
    return merged


def result_position(key: bytes | None, number: int) -> int:
    """The position of a result, the `number`th one of its task, that is due to rows with this key."""
    return zlib.crc32(key or b"") % LANES << LANE_SHIFT | number


# The bytes of state: fields with their lengths, and timestamps.


def joined(fields: Iterable[bytes | None]) -> bytes:
    """Fields as one value; the inverse of `parted`."""
    pieces: list[bytes] = []
    for field in fields:
        if field is None:
            pieces.append(_LENGTH.pack(_NULL))
        else:
            pieces += (_LENGTH.pack(len(field)), field)
    return b"".join(pieces)


def parted(data: bytes) -> list[bytes | None]:
    fields: list[bytes | None] = []
    begin, end = 0, len(data)
    while begin < end:
        (length,) = _LENGTH.unpack_from(data, begin)
        begin += _LENGTH.size
        if length == _NULL:
            fields.append(None)
        else:
            fields.append(data[begin : begin + length])
            begin += length
    return fields


def time_bytes(at_us: int) -> bytes:
    return _TIME.pack(at_us)


def time_of(data: bytes) -> int:
    (at_us,) = _TIME.unpack(data)
    return int(at_us)


def versioned_bytes(one: Versioned | None) -> bytes | None:
    return None if one is None else _TIME.pack(one.at_us) + one.value


def versioned_of(data: bytes | None) -> Versioned | None:
    return None if data is None else Versioned(data[_TIME.size :], time_of(data[: _TIME.size]))
