"""Encodes columns into a batch in plain Python, if no kernels are loaded: the same bytes as `plain.encode_batch`.

Records are usually similar: keys of one length, values of one length. Then all parts of a record except its key, value
and headers are the same for records of one millisecond, up to the offset, which comes from a table. The rest takes a
few steps in C for a whole column. Other records take Python code for each, but still use tables for lengths. So that
times take no step for each record either, they are given as runs of records with the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import ClassVar, Final, cast

from ottla.records.header_sections import NULL, varint
from ottla.records.layout import NO_TIMESTAMP
from ottla.records.plain import BatchOptions, finish_batch
from ottla.records.varint import write_varlong

Cells = Sequence[bytes | None]
Runs = Sequence[tuple[int, int]]
"""Times: a number of records, and the milliseconds of each of them."""

_ONE_BYTE_UNTIL: Final = 64
_TWO_BYTES_UNTIL: Final = 8192
_WORTH_COMPARING: Final = 4
"""From this number of records on it pays to check what they have in common."""
_MIXED: Final = -2
_NONE: Final = -1
_NO_HEADERS: Final = b"\0"
_TABLES_MAX: Final = 16


def encode_plain_columns(
    values: Cells, keys: Cells | None, header_sections: Cells | None, times: Runs, options: BatchOptions
) -> bytearray:
    """Encodes all rows in one batch with consecutive offsets. Headers are already encoded: see `header_sections`."""
    stamps_ms = [stamp_ms for _, stamp_ms in times]
    oldest_ms, newest_ms = min(stamps_ms, default=NO_TIMESTAMP), max(stamps_ms, default=NO_TIMESTAMP)
    if oldest_ms < NO_TIMESTAMP:
        raise ValueError(f"a record has timestamp {oldest_ms}: it must be -1 (none) or later")
    count = len(values)
    if sum([size for size, _ in times]) != count:
        raise ValueError(f"there are {count} values, but times of {sum(size for size, _ in times)}")
    sizes = (_MIXED,) * 3
    if count >= _WORTH_COMPARING:
        sizes = _size_of_all(values), _size_of_all(keys), _size_of_all(header_sections)
    if _MIXED in sizes:
        payload = b"".join(_records(values, keys, header_sections, times))
    else:
        payload = b"".join(_pieces_of_like(values, keys, header_sections, times, sizes))
    base_ms = stamps_ms[0] if count else None
    return finish_batch(payload, count, count - 1, base_ms, newest_ms, options)


def runs_of(timestamps_ms: Sequence[int]) -> list[tuple[int, int]]:
    """The times of records, one by one, as runs."""
    return [(len(list(some)), stamp_ms) for stamp_ms, some in groupby(timestamps_ms)]


def _size_of_all(cells: Cells | None) -> int:
    """The size of every cell, -1 if all are None, or `_MIXED` if they differ."""
    if cells is None or not cells:
        return _NONE
    first = cells[0]
    if first is None:
        return _NONE if cells.count(None) == len(cells) else _MIXED
    try:
        return len(first) if len(set(map(len, cast("Sequence[bytes]", cells)))) == 1 else _MIXED
    except TypeError:  # some are None
        return _MIXED


def _cell_start(size: int) -> bytes:
    return NULL if size == _NONE else varint(size)


def _pieces_of_like(
    values: Cells,
    keys: Cells | None,
    header_sections: Cells | None,
    times: Runs,
    sizes: tuple[int, int, int],
) -> list[bytes]:
    value_size, key_size, section_size = sizes
    columns: list[Cells] = [(), ()]
    before_value = _cell_start(value_size)
    if key_size == _NONE:
        before_key = NULL + before_value
    else:
        before_key = _cell_start(key_size)
        columns += [keys or (), [before_value] * len(values)]
    if value_size != _NONE:
        columns.append(values)
    after = _NO_HEADERS if section_size == _NONE else b""
    if section_size != _NONE:
        columns.append(header_sections or ())
    cells = max(key_size, 0) + max(value_size, 0) + max(section_size, 1) + len(_cell_start(key_size) + before_value)
    starts: list[bytes] = []
    offset, base_ms = 0, times[0][1]
    # The end of a record without headers is joined with the start of the next, which saves a piece.
    for count, stamp_ms in times:
        end = offset + count
        delta = _varlong(stamp_ms - base_ms)
        while offset < end:
            offset_size, until = _alike(offset)
            until = min(until, end)
            starts += [after + varint(1 + len(delta) + offset_size + cells) + b"\0" + delta] * (until - offset)
            offset = until
    starts[0] = starts[0][len(after) :]
    columns[0] = starts
    columns[1] = _offsets_before(before_key, len(starts))
    pieces: list[bytes] = [b""] * (len(columns) * len(starts))
    for number, column in enumerate(columns):
        pieces[number :: len(columns)] = cast("Sequence[bytes]", column)
    pieces.append(after)
    return pieces


def _alike(offset: int) -> tuple[int, int]:
    """The size of its varint, and the first offset with a larger one."""
    if offset < _ONE_BYTE_UNTIL:
        return 1, _ONE_BYTE_UNTIL
    if offset < _TWO_BYTES_UNTIL:
        return 2, _TWO_BYTES_UNTIL
    size = len(varint(offset))
    return size, 1 << (7 * size - 1)


def _records(values: Cells, keys: Cells | None, header_sections: Cells | None, times: Runs) -> Iterator[bytes]:
    count = len(values)
    base_ms = times[0][1] if count else NO_TIMESTAMP
    timestamps_ms = chain.from_iterable(repeat(stamp_ms, size) for size, stamp_ms in times)
    delta_ms, delta = 0, _varlong(0)
    nothing = [None] * count
    for offset, value, key, section, stamp_ms in zip(
        encoded_offsets(count), values, keys or nothing, header_sections or nothing, timestamps_ms, strict=True
    ):
        if stamp_ms - base_ms != delta_ms:
            delta_ms = stamp_ms - base_ms
            delta = _varlong(delta_ms)
        body = b"".join(
            (
                b"\0",
                delta,
                offset,
                NULL if key is None else varint(len(key)),
                key or b"",
                NULL if value is None else varint(len(value)),
                value or b"",
                section or _NO_HEADERS,
            )
        )
        yield varint(len(body)) + body


class _Known:
    offsets: ClassVar[list[bytes]] = [varint(number) for number in range(_ONE_BYTE_UNTIL)]
    """Encoded offsets from 0 on: the same for all batches. The list never changes: a longer one replaces it."""
    before: ClassVar[dict[bytes, list[bytes]]] = {}
    """The same, each with these bytes after it: the lengths that all records of a program may share."""


def encoded_offsets(count: int) -> list[bytes]:
    """The first `count` encoded offsets. Thread-safe."""
    known = _Known.offsets
    if len(known) < count:
        two = [bytes((number << 1 & 0x7F | 0x80, number >> 6)) for number in range(_ONE_BYTE_UNTIL, _TWO_BYTES_UNTIL)]
        more = [varint(number) for number in range(_TWO_BYTES_UNTIL, count)]
        _Known.offsets = known = [*known[:_ONE_BYTE_UNTIL], *two, *more]
    return known[:count]


def _offsets_before(following: bytes, count: int) -> list[bytes]:
    """The first `count` encoded offsets, with these bytes after each. Thread-safe."""
    known = _Known.before.get(following, [])
    if len(known) < count:
        known = [offset + following for offset in encoded_offsets(count)]
        if len(_Known.before) >= _TABLES_MAX:
            _Known.before = {}
        _Known.before[following] = known
    return known[:count]


def _varlong(number: int) -> bytes:
    out = bytearray()
    write_varlong(out, number)
    return bytes(out)
