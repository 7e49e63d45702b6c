"""The compiled walk over records: see `record_walk`, whose other walks give the same results.

Importing this module loads numba (80 MB), and compiles unless `python -m ottla.records.warm` was run. It is separate
from `kernels`, which loads several times as much: a broker needs only this kernel. It uses no other compiled code,
because numba detects a stale cache by the modification time of the kernel's own file.

Compiled code has no bounds checks: each read is compared with the end first. After a failed read the position is
`_BEYOND`, past every end, so all further reads fail as well, and one comparison after a record's last field detects it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.extending import register_jitable
from numpy.typing import NDArray

from ottla.records.layout import ByteBuffer
from ottla.records.record_facts import RecordFacts

_F = TypeVar("_F", bound=Callable[..., Any])
_Bytes = NDArray[np.uint8]

_BEYOND: Final = 1 << 62
_MAX_INT64: Final = 2**63 - 1
_MIN_INT64: Final = -(2**63)
_NO_TIMESTAMP: Final = -1
_NULL: Final = -1
_SHORTEST: Final = 6
"""The minimum size of a record after its length: one byte for each field."""


def _inlined(function: _F) -> _F:
    inlined: _F = register_jitable(function)
    return inlined


@_inlined
def _byte(data: _Bytes, at: int) -> int:
    """An unsigned index avoids the check for a negative one in compiled code."""
    return np.int64(data[np.uint64(at)])  # type: ignore[return-value]  # numba's int64, which is an int


@_inlined
def _read_varint(data: _Bytes, at: int, end: int) -> tuple[int, int]:
    """A signed 32-bit varint and the position after it, or `_BEYOND`."""
    if at >= end:
        return 0, _BEYOND
    byte = _byte(data, at)
    at += 1
    folded = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if at >= end or shift > 28:
            return 0, _BEYOND
        byte = _byte(data, at)
        at += 1
        folded |= (byte & 0x7F) << shift
        shift += 7
    if folded > 0xFFFF_FFFF:
        return 0, _BEYOND
    return (folded >> 1) ^ -(folded & 1), at


@_inlined
def _read_varlong(data: _Bytes, at: int, end: int) -> tuple[int, int]:
    """A signed 64-bit varint and the position after it, or `_BEYOND`."""
    if at >= end:
        return 0, _BEYOND
    byte = _byte(data, at)
    at += 1
    folded = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if at >= end:
            return 0, _BEYOND
        byte = _byte(data, at)
        at += 1
        if shift == 63 and byte > 1:
            return 0, _BEYOND  # more bits than 64, or another byte to come
        folded |= (byte & 0x7F) << shift
        shift += 7
    return ((folded >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(folded & 1), at


@_inlined
def _skip(data: _Bytes, at: int, end: int, least: int) -> int:
    """The position after as many bytes as the length there says, which must be at least `least`; or `_BEYOND`."""
    size, at = _read_varint(data, at, end)
    if size < least or size > end - at:
        return _BEYOND
    return at + max(size, 0)


def _walk(data: _Bytes, at: int, count: int, base_ms: int) -> tuple[int, int, int, int]:
    """1 and the facts of valid records, or zeros."""
    # Most varints have one byte, and are read without a loop: that halves the time.
    end = len(data)
    newest, oldest = _MIN_INT64, _MAX_INT64
    none_delta = _NO_TIMESTAMP - base_ms
    untimed = keyless = 0
    for index in range(count):
        if at >= end:
            return 0, 0, 0, 0
        byte = _byte(data, at)
        if byte < 0x80:
            size = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            size, at = _read_varint(data, at, end)
        if size < _SHORTEST or size > end - at:
            return 0, 0, 0, 0
        behind = at + size
        byte = _byte(data, at + 1)  # after the attributes, which are unused
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
            at += 2
        else:
            delta, at = _read_varlong(data, at + 1, behind)
        newest = max(newest, delta)
        if delta != none_delta:
            oldest = min(oldest, delta)
        else:
            untimed += 1
        if at >= behind:
            return 0, 0, 0, 0
        byte = _byte(data, at)
        if byte < 0x80:
            offset_delta = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            offset_delta, at = _read_varint(data, at, behind)
        for field in range(2):  # key and value
            if at >= behind:
                return 0, 0, 0, 0
            byte = _byte(data, at)
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                size, at = _read_varint(data, at, behind)
            if size < _NULL or size > behind - at:
                return 0, 0, 0, 0
            if size >= 0:
                at += size
            elif field == 0:
                keyless += 1
        if at >= behind:
            return 0, 0, 0, 0
        if _byte(data, at) == 0:
            at += 1
        else:
            header_count, at = _read_varint(data, at, behind)
            if header_count < 0 or header_count > behind - at:
                return 0, 0, 0, 0
            for _ in range(header_count):
                at = _skip(data, at, behind, 0)
                at = _skip(data, at, behind, _NULL)
                if at > behind:
                    return 0, 0, 0, 0
        if at != behind or offset_delta != index:
            return 0, 0, 0, 0
    if at != end or newest > _MAX_INT64 - max(base_ms, 0) or oldest < _MIN_INT64 - min(base_ms, 0):
        return 0, 0, 0, 0
    oldest_ms = base_ms + oldest if untimed < count else _MAX_INT64
    return 1, max(base_ms + newest, _NO_TIMESTAMP), oldest_ms, keyless


_RESULT: Final = types.UniTuple(types.int64, 4)  # type: ignore[no-untyped-call]
_SIGNATURE: Final = _RESULT(types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64, types.int64)
_compiled = cast(
    "Callable[..., tuple[int, int, int, int]]", njit(_SIGNATURE, cache=True, nogil=True, error_model="numpy")(_walk)
)


def walk(data: ByteBuffer, start: int, count: int, base_timestamp_ms: int) -> RecordFacts | None:
    """Like `record_walk.walk`."""
    array = np.frombuffer(memoryview(data).toreadonly(), np.uint8)
    is_sound, newest_ms, oldest_ms, keyless = _compiled(array, start, count, base_timestamp_ms)
    return (newest_ms, oldest_ms, keyless) if is_sound else None
