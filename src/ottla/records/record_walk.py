"""Walks over the records of a batch without decoding them: checks them, and collects what a broker must know.

Valid means: exactly as many records as the header says and no further bytes, each as long as its length says, with
offset deltas 0, 1, 2, …, a timestamp that fits 64 bits, and lengths that stay within the record. This is what Kafka
checks in a producer's batch, and a little more: Kafka does not compare offset deltas, and treats any negative length as
null. Header keys may be any bytes, as in Kafka.

There are three walks. `iter_marks` is the readable one: it has the error messages, and tests compare the others with
it. `fast_walk` is Python and takes half a microsecond per record; `walk_one` is its short form for the usual batch of
one record. `walk_kernel` is compiled and takes 8 ns. `walk` uses it if it is loaded, which happens in the background
once there is enough work: numba takes 80 MB.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct
from time import monotonic
from typing import Final, NamedTuple

from ottla.base.background_load import BackgroundLoad
from ottla.records.errors import MalformedRecordError, OffsetDeltaError, RecordCountError, RecordError
from ottla.records.layout import MAX_INT64, MINIMUM_RECORD_SIZE, NO_TIMESTAMP, ByteBuffer
from ottla.records.record_facts import RecordFacts
from ottla.records.varint import read_unsigned_varint, read_varint, read_varlong

_logger = logging.getLogger(__name__)

LOAD_AT_RECORDS: Final = 100_000
"""The number of records within a second that makes loading the kernel worthwhile: Python takes 50 ms for them."""
_PATIENCE_S: Final = 10.0
_NULL: Final = -1
_MIN_INT64: Final = -MAX_INT64 - 1
_FOLDED_NULL: Final = 1
"""The length -1 as a varint."""
_LOWEST_DELTA: Final = -(2**64)
_HIGHEST_DELTA: Final = 2**64
"""Larger than any timestamp delta."""
_LONGER: Final = 0x80
"""The bit of a varint's byte that says that another follows."""
_ODD_OR_LONGER: Final = 0x81
_START: Final = Struct("6B")
"""The length of a record, in one or two bytes, its attributes, deltas and the length of its key."""
_SPARSE_BYTES: Final = 2048
"""Records with at least this many bytes on average are read in place. Shorter ones are copied to `bytes` first:
indexing a memoryview costs twice as much."""


class RecordMark(NamedTuple):
    """The timestamp of a record, and whether it has a key."""

    timestamp_ms: int
    has_key: bool


# --- the fastest available ------------------------------------------------------------------------------------------


class _Walker:
    """The kernel, once it is loaded, and how much was walked without it. One per process."""

    __slots__ = ("_since_s", "_walked", "kernel", "loading")

    def __init__(self) -> None:
        self.kernel: Callable[[ByteBuffer, int, int, int], RecordFacts | None] | None = None
        self.loading = BackgroundLoad(self.load, ("numba",))
        self._walked = 0
        self._since_s = 0.0

    def load(self) -> None:
        """Imports the kernel. If that fails, Python continues to walk."""
        try:
            from ottla.records.walk_kernel import walk as kernel
        except Exception as error:  # numba also fails if it can neither read nor write its cache
            _logger.warning("records are validated in Python, which is slower: the kernel cannot be loaded: %s", error)
        else:
            self.kernel = kernel

    def wait(self) -> None:
        """Loads the kernel, if possible, and waits for it: for a thread that has a lot to walk."""
        if self.kernel is None:
            self.loading.begin()
            self.loading.wait(_PATIENCE_S)

    def note(self, count: int) -> None:
        """Counts records that are walked without the kernel: loads it if there are many in a short time."""
        self._walked += count
        if self._walked >= LOAD_AT_RECORDS:
            now_s = monotonic()
            if now_s - self._since_s <= 1:
                self.loading.begin()
            self._since_s, self._walked = now_s, 0


walker: Final = _Walker()


def walk(data: ByteBuffer, start: int, count: int, base_timestamp_ms: int) -> RecordFacts | None:
    """The facts of that many records (one or more) from `start` to the end of the data; None if they are invalid."""
    if count == 1:
        return walk_one(data, start, base_timestamp_ms)
    kernel = walker.kernel
    if kernel is not None:
        return kernel(data, start, count, base_timestamp_ms)
    if count * MINIMUM_RECORD_SIZE > len(data) - start:
        return None
    walker.note(count)
    return fast_walk(data, start, count, base_timestamp_ms)


# --- with error messages --------------------------------------------------------------------------------------------


def iter_marks(payload: ByteBuffer, count: int, base_timestamp_ms: int) -> Iterator[RecordMark]:
    """The marks of that many records, which must fill the payload. Raises a `RecordError` with the reason."""
    position = 0
    for index in range(count):
        if position == len(payload):
            raise RecordCountError(f"its header says {count} records, it has {index}")
        size, position = read_varint(payload, position)
        if not 0 <= size <= len(payload) - position:
            left = len(payload) - position
            raise MalformedRecordError(f"record {index} claims {size} bytes, the batch has {left} more")
        yield _mark(payload[position : position + size], index, base_timestamp_ms)
        position += size
    if position != len(payload):
        raise RecordCountError(f"{len(payload) - position} bytes follow the last of its {count} records")


def _mark(record: ByteBuffer, index: int, base_timestamp_ms: int) -> RecordMark:
    timestamp_delta, position = read_varlong(record, 1)
    offset_delta, position = read_varint(record, position)
    has_key, position = _skip(record, position, index, "key")
    _, position = _skip(record, position, index, "value")
    header_count, position = read_varint(record, position)
    if not 0 <= header_count <= len(record) - position:
        left = len(record) - position
        raise MalformedRecordError(f"record {index} has {header_count} headers in {left} bytes")
    for _ in range(header_count):
        has_name, position = _skip(record, position, index, "header key")
        if not has_name:
            raise MalformedRecordError(f"record {index} has a header without a key")
        _, position = _skip(record, position, index, "header value")
    if position != len(record):
        raise MalformedRecordError(f"record {index} has {len(record) - position} bytes after its headers")
    if offset_delta != index:
        raise OffsetDeltaError(f"record {index} has offset delta {offset_delta}")
    timestamp_ms = base_timestamp_ms + timestamp_delta
    if not _MIN_INT64 <= timestamp_ms <= MAX_INT64:
        raise MalformedRecordError(f"record {index} has a timestamp beyond 64 bits: {timestamp_ms}")
    return RecordMark(timestamp_ms, has_key)


def _skip(record: ByteBuffer, position: int, index: int, what: str) -> tuple[bool, int]:
    """Whether it is not null, and the position after it."""
    size, position = read_varint(record, position)
    if not _NULL <= size <= len(record) - position:
        raise MalformedRecordError(f"record {index} has a {what} of {size} bytes, {len(record) - position} are left")
    return size >= 0, position + max(size, 0)


# --- fast, in Python ------------------------------------------------------------------------------------------------


def fast_walk(data: ByteBuffer, start: int, count: int, base_timestamp_ms: int) -> RecordFacts | None:
    """Like `walk`."""
    if count > 1 and len(data) - start < count * _SPARSE_BYTES and type(data) is not bytes:
        data = bytes(data[start:])
        start = 0
    try:
        return _facts(data, start, count, base_timestamp_ms)
    except (IndexError, RecordError):
        return None  # a read beyond the end, or a varint that is too long


def walk_one(data: ByteBuffer, start: int, base_timestamp_ms: int) -> RecordFacts | None:
    """Like `walk`, for a single record: as fast as the kernel for the usual form, without its own timestamp and without
    headers."""
    end = len(data)
    if end - start < _START.size or data[end - 1]:
        return fast_walk(data, start, 1, base_timestamp_ms)
    first, second, third, fourth, fifth, sixth = _START.unpack_from(data, start)
    if first < _LONGER:
        size, zeros, key = first, third | fourth, fifth
        at = start + 1
    else:
        size, zeros, key = first + (second << 7) - _LONGER, fourth | fifth, sixth
        at = start + 2
        if second >= _LONGER:
            return fast_walk(data, start, 1, base_timestamp_ms)
    if zeros or at + at + size != end + end:  # sizes are doubled: an odd one is negative
        return fast_walk(data, start, 1, base_timestamp_ms)
    at += 4
    keyless = 0
    if key == _FOLDED_NULL:
        keyless = 1
    elif key & _ODD_OR_LONGER:
        return fast_walk(data, start, 1, base_timestamp_ms)
    else:
        at += key >> 1
        if at >= end:
            return None
    value = data[at]
    at += 1
    if value >= _LONGER:
        if at >= end:
            return None
        byte = data[at]
        if byte >= _LONGER:
            return fast_walk(data, start, 1, base_timestamp_ms)
        value += (byte << 7) - _LONGER
        at += 1
    if value & 1 or at + (value >> 1) != end - 1:
        return fast_walk(data, start, 1, base_timestamp_ms)
    if base_timestamp_ms >= 0:
        return base_timestamp_ms, base_timestamp_ms, keyless
    return NO_TIMESTAMP, MAX_INT64 if base_timestamp_ms == NO_TIMESTAMP else base_timestamp_ms, keyless


def _facts(data: ByteBuffer, at: int, count: int, base_ms: int) -> RecordFacts | None:
    # Nearly all varints here have one or two bytes, so those are read inline: a call for each would triple the time.
    # The comparison after the last field detects a field that exceeds its record, because positions only increase.
    end = len(data)
    none_delta = NO_TIMESTAMP - base_ms
    newest, oldest = _LOWEST_DELTA, _HIGHEST_DELTA
    keyless = 0
    for index in range(count):
        folded = data[at]
        at += 1
        if folded >= _LONGER:
            if (byte := data[at]) < _LONGER:
                at += 1
                folded += (byte << 7) - _LONGER
            else:
                folded, at = read_unsigned_varint(data, at - 1)
        behind = at + (folded >> 1)
        if folded & 1 or behind > end:
            return None
        folded = data[at + 1]  # after the attributes, which are unused
        at += 2
        if folded >= _LONGER:
            delta, at = read_varlong(data, at - 1)
        else:
            delta = (folded >> 1) ^ -(folded & 1)
        if delta > newest:
            newest = delta
        if delta < oldest and delta != none_delta:
            oldest = delta
        folded = data[at]
        at += 1
        if folded >= _LONGER:
            if (byte := data[at]) < _LONGER:
                at += 1
                folded += (byte << 7) - _LONGER
            else:
                folded, at = read_unsigned_varint(data, at - 1)
        if folded != index + index:
            return None
        folded = data[at]
        at += 1
        if folded >= _LONGER:
            folded, at = read_unsigned_varint(data, at - 1)
        if folded & 1:
            if folded != _FOLDED_NULL:
                return None
            keyless += 1
        else:
            at += folded >> 1
        folded = data[at]
        at += 1
        if folded >= _LONGER:
            if (byte := data[at]) < _LONGER:
                at += 1
                folded += (byte << 7) - _LONGER
            else:
                folded, at = read_unsigned_varint(data, at - 1)
        if not folded & 1:
            at += folded >> 1
        elif folded != _FOLDED_NULL:
            return None
        if data[at]:
            at = _behind_headers(data, at, behind)
        else:
            at += 1
        if at != behind:
            return None
    if at != end or base_ms + newest > MAX_INT64 or (oldest != _HIGHEST_DELTA and base_ms + oldest < _MIN_INT64):
        return None
    oldest_ms = MAX_INT64 if oldest == _HIGHEST_DELTA else base_ms + oldest
    return max(base_ms + newest, NO_TIMESTAMP), oldest_ms, keyless


def _behind_headers(data: ByteBuffer, at: int, behind: int) -> int:
    """The position after the headers of a record, or one that is not the record's end."""
    count, at = read_varint(data, at)
    if not 0 <= count <= behind - at:
        return -1
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            return -1
        size, at = read_varint(data, at + size)
        if size < _NULL:
            return -1
        at += max(size, 0)
        if at > behind:
            return -1
    return at
