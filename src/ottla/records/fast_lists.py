"""Decodes batches of similar records in plain Python, as long as no kernels are loaded: the same as `decode_batch`.

Records of a program are usually similar: no headers, keys of one length, values of one length. Then every record of a
batch takes the same number of bytes, up to the size of its offset, and each field is a slice of the batch with a step.
A few slices tell whether that is so, and `struct` cuts keys and values out of all records at once. A record takes a
tenth of the time of the plain codec. Other batches are left to `decode_batch`, and so are invalid ones, which it
explains.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.records.batch import BatchHeader, BatchView
from ottla.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, decompress
from ottla.records.errors import RecordError
from ottla.records.layout import ByteBuffer, TimestampType
from ottla.records.legacy import MessageView, iter_entries
from ottla.records.plain import decode_batch
from ottla.records.plain_columns import encoded_offsets
from ottla.records.record import Record, RecordLists
from ottla.records.varint import read_varint, read_varlong

_FEW: Final = 8
_SEGMENTS_MAX: Final = 16
_SAFE_MS: Final = 1 << 62
"""Timestamps below this cannot exceed 64 bits with a delta of a few bytes."""
_TIME_BYTES_MAX: Final = 4
_GOES_ON: Final = bytes(range(0x80, 0x100))
_ENDS: Final = bytes(range(0x80))
"""The bytes of a number that another byte follows, and those that are the last."""
_SMALL_DELTAS: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
"""The numbers that are encoded in one byte."""
_NULL: Final = -1


def iter_lists(
    buffer: ByteBuffer, *, verify_crc: bool = True, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> Iterator[tuple[RecordLists, bool]]:
    """Yields the records of all entries of any magic, except those of control batches: one list of each field per
    batch, and whether that was fast."""
    for entry in iter_entries(buffer):
        if isinstance(entry, MessageView):
            records = list(entry.records(verify_crc=verify_crc, max_decompressed_bytes=max_decompressed_bytes))
            yield _transposed(records), False
        elif entry.is_control:
            entry.validate(verify_crc=verify_crc)
        else:
            lists = _similar(entry, verify_crc, max_decompressed_bytes)
            if lists is not None:
                yield lists, True
            else:
                records = decode_batch(entry, verify_crc=verify_crc, max_decompressed_bytes=max_decompressed_bytes)
                yield _transposed(records), len(records) < _FEW


def _transposed(records: list[Record]) -> RecordLists:
    return RecordLists(*map(list, zip(*records, strict=True))) if records else RecordLists([], [], [], [], [])


def _similar(view: BatchView, verify_crc: bool, max_decompressed_bytes: int) -> RecordLists | None:
    """The records of a batch if they are similar and valid."""
    header = view.validate(verify_crc=verify_crc)
    if header.record_count < _FEW or header.last_offset_delta != header.record_count - 1:
        return None
    if not -_SAFE_MS < header.base_timestamp_ms < _SAFE_MS:
        return None
    try:
        payload = bytes(decompress(header.compression, view.payload, max_bytes=max_decompressed_bytes))
        return _decoded(header, payload)
    except (RecordError, IndexError):
        return None  # the plain codec says what is wrong


def _decoded(header: BatchHeader, payload: bytes) -> RecordLists | None:
    count = header.record_count
    stamps_ms: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times_ms = [header.base_timestamp_ms + delta for delta in _SMALL_DELTAS]
    position = index = 0
    for _ in range(_SEGMENTS_MAX):
        layout = _layout_at(payload, position, index)
        if layout is None:
            return None
        alike = _count_alike(payload, position, index, count - index, layout)
        if not alike:
            return None
        end = position + alike * layout.size
        if layout.offset_at == layout.time_at + 1:
            stamps_ms += map(times_ms.__getitem__, payload[position + layout.time_at : end : layout.size])
        else:
            stamps_ms += _longer_times(payload, position, end, layout, header.base_timestamp_ms)
        _cut_out(memoryview(payload)[position:end], alike, layout, keys, values)
        position, index = end, index + alike
        if index == count:
            break
    if index != count or position != len(payload):
        return None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        stamps_ms = [header.max_timestamp_ms] * count
    offsets = list(range(header.base_offset, header.base_offset + count))
    return RecordLists(offsets, stamps_ms, keys, values, [()] * count)


def _longer_times(payload: bytes, position: int, end: int, layout: _Layout, base_ms: int) -> list[int]:
    columns = [payload[position + at : end : layout.size] for at in range(layout.time_at, layout.offset_at)]
    encoded = list(map(bytes, zip(*columns, strict=True)))
    times_ms = {each: base_ms + read_varlong(each, 0)[0] for each in set(encoded)}  # only a few are different
    return [times_ms[each] for each in encoded]


class _Layout(NamedTuple):
    """Where the fields of a record are, relative to its start."""

    time_at: int
    offset_at: int
    key_size_at: int
    key_size: int
    value_size_at: int
    value_size: int
    headers_at: int
    size: int
    """Of the whole record, with its length."""


def _layout_at(payload: bytes, position: int, index: int) -> _Layout | None:
    """The layout of the record there; None if it has headers, or a time that takes too many bytes."""
    size, at = read_varint(payload, position)
    end = at + size
    time_at = at + 1
    _, offset_at = read_varlong(payload, time_at)
    offset_delta, key_size_at = read_varint(payload, offset_at)
    key_size, at = read_varint(payload, key_size_at)
    value_size_at = at + max(key_size, 0)
    value_size, at = read_varint(payload, value_size_at)
    headers_at = at + max(value_size, 0)
    if (
        offset_at - time_at > _TIME_BYTES_MAX
        or offset_delta != index
        or key_size < _NULL
        or value_size < _NULL
        or headers_at + 1 != end
        or end > len(payload)
        or payload[headers_at]
    ):
        return None
    return _Layout(
        time_at - position,
        offset_at - position,
        key_size_at - position,
        key_size,
        value_size_at - position,
        value_size,
        headers_at - position,
        end - position,
    )


def _count_alike(payload: bytes, position: int, index: int, most: int, layout: _Layout) -> int:
    """How many records from there on have this layout."""
    step = layout.size
    count = min(most, (len(payload) - position) // step)
    offset_bytes = layout.key_size_at - layout.offset_at
    key_at = layout.key_size_at + _varint_bytes(payload, position + layout.key_size_at)
    value_at = layout.value_size_at + _varint_bytes(payload, position + layout.value_size_at)
    same = (
        *range(layout.time_at - 1),
        *range(layout.key_size_at, key_at),
        *range(layout.value_size_at, value_at),
        layout.headers_at,
    )
    for at in same:
        start = position + at
        column = payload[start : position + count * step : step]
        count -= len(column.lstrip(column[:1]))
    for at in range(layout.time_at, layout.offset_at):
        times = payload[position + at : position + count * step : step]
        is_last = at + 1 == layout.offset_at
        if not (is_last and times.isascii()):
            count -= len(times.lstrip(_ENDS if is_last else _GOES_ON))
    expected = encoded_offsets(index + count)[index:]
    while expected and len(expected[-1]) != offset_bytes:  # at most once for each size of a number
        count = next(number for number, offset in enumerate(expected) if len(offset) != offset_bytes)
        expected = expected[:count]
    joined = b"".join(expected)
    for at in range(offset_bytes):
        start = position + layout.offset_at + at
        if payload[start : position + count * step : step] != joined[at::offset_bytes]:
            return 0
    return count


def _varint_bytes(payload: bytes, position: int) -> int:
    return read_varint(payload, position)[1] - position


def _cut_out(
    segment: memoryview, count: int, layout: _Layout, keys: list[bytes | None], values: list[bytes | None]
) -> None:
    # One field at a time: tuples of several, all alive at once, would make the garbage collector scan them.
    for field, at, size in (
        (keys, layout.value_size_at, layout.key_size),
        (values, layout.headers_at, layout.value_size),
    ):
        if size == _NULL:
            field.extend([None] * count)
        else:
            cut = Struct(f"{at - size}x{size}s{layout.size - at}x")
            field.extend([cell for (cell,) in cut.iter_unpack(segment)])
