"""Reads many record batches at once into columns: one Arrow record batch or a list of records.

There are two passes, without Python code per record: one kernel checks all records and notes the positions of keys,
values and headers, so that every column can be allocated at its exact size; then each requested column is gathered, the
only copy of its bytes.

A timestamp is that of the batch, -1 ms if there is none, as in Spark's own connector. Arrow timestamps are in
microseconds, as Spark expects them, and are clamped to the range of 64 bits.

Stateless and thread-safe; kernels and codecs run without the GIL. The buffer must not change while it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.records import kernels
from ottla.records.kernels import Bits, Int32s, Int64s
from ottla.records.layout import MAX_INT32, TIMESTAMP_TYPE_BIT, ByteBuffer
from ottla.records.record import Header, Record, RecordLists
from ottla.records.sections import Reading, Sections, sections_of

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(HEADER_TYPE)
TIMESTAMP_TYPE: Final = pa.timestamp("us", "UTC")

MAX_COLUMN_BYTES = MAX_INT32
"""Arrow's binary type counts its bytes, and its lists count their items, in 32 bits."""

_MICROSECONDS: Final = 1000
_MILLISECONDS: Final = 1


class ColumnSizeError(ValueError):
    """The batches are valid, but a column would be larger than Arrow's type can count: read fewer at once."""


def decode_columns(
    data: ByteBuffer,
    reading: Reading | None = None,
    *,
    keys: bool = True,
    values: bool = True,
    headers: bool = False,
    timestamps: bool = True,
    timestamp_types: bool = False,
    partition: int | None = None,
) -> Any:
    """Returns the records of all batches as a `pyarrow.RecordBatch`, without control records.

    It has the requested columns, with the names and in the order of Spark's connector: key, value, partition, offset
    (always included), timestamp, timestampType, headers.
    """
    noted = _note_records(data, reading, _MICROSECONDS)
    rows = noted.rows
    columns = {}
    if keys:
        columns["key"] = noted.keys.gather(rows)
    if values:
        columns["value"] = noted.values.gather(rows)
    if partition is not None:
        columns["partition"] = _numbers(pa.int32(), np.full(rows, partition, np.int32), rows)
    columns["offset"] = _numbers(pa.int64(), noted.offsets, rows)
    if timestamps:
        columns["timestamp"] = _numbers(TIMESTAMP_TYPE, noted.timestamps, rows)
    if timestamp_types:
        columns["timestampType"] = _numbers(pa.int32(), noted.timestamp_types(), rows)
    if headers:
        columns["headers"] = noted.headers.gather(rows)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def decode_records(data: ByteBuffer, reading: Reading | None = None) -> list[Record]:
    """Returns the records of all batches as objects, without control records: like the plain codec, but much faster."""
    return list(iterate_records(data, reading))


def iterate_records(data: ByteBuffer, reading: Reading | None = None) -> Iterator[Record]:
    """Yields the same records one by one, in about two thirds of the time.

    Everything is checked by the time this returns. The objects are created on demand, and objects that are dropped
    immediately give the garbage collector nothing to scan.
    """
    # What calling the class does, without executing Python code.
    return map(tuple.__new__, repeat(Record), zip(*decode_lists(data, reading), strict=True))


def decode_lists(data: ByteBuffer, reading: Reading | None = None) -> RecordLists:
    """The fields of the records of all batches, without control records."""
    noted = _note_records(data, reading, _MILLISECONDS)
    rows = noted.rows
    return RecordLists(
        noted.offsets[:rows].tolist(),
        noted.timestamps[:rows].tolist(),
        noted.keys.gather(rows).to_pylist(),
        noted.values.gather(rows).to_pylist(),
        _header_tuples(noted.headers, rows),
    )


def _header_tuples(headers: _Headers, rows: int) -> list[tuple[Header, ...]]:
    if not headers.total:
        return [()] * rows
    pairs = headers.gather_pairs(rows)
    found = zip(pairs.field(0).to_pylist(), pairs.field(1).to_pylist(), strict=True)
    ends = headers.ends[: rows + 1]
    each = headers.total // rows
    if np.array_equal(ends, np.arange(rows + 1) * each):
        return list(zip(*[found] * each, strict=True))
    listed = list(found)
    return [tuple(listed[begin:end]) for begin, end in pairwise(ends.tolist())]


def _numbers(kind: Any, numbers: Int64s | Int32s, rows: int) -> Any:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)], 0)


class _Cells(NamedTuple):
    """The positions of the keys or the values."""

    ends: Int32s
    at: Int64s
    bits: Bits
    size_in_bytes: int
    nulls: int

    def gather(self, rows: int) -> Any:
        """Gathers them in an Arrow array."""
        target = pa.allocate_buffer(self.size_in_bytes)
        kernels.copy_cells(rows, self.ends, self.at, target.address)
        validity = pa.py_buffer(self.bits) if self.nulls else None
        return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(self.ends), target], self.nulls)


class _Headers(NamedTuple):
    """The positions of the headers."""

    ends: Int32s
    at: Int64s
    total: int
    key_bytes: int
    value_bytes: int

    def gather(self, rows: int) -> Any:
        """The headers of each record as an Arrow array of lists."""
        buffers = [None, pa.py_buffer(self.ends)]
        return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, 0, children=[self.gather_pairs(rows)])

    def gather_pairs(self, rows: int) -> Any:
        """The headers of all records, one after the other, as an Arrow array of structs."""
        key_ends, value_ends = np.empty(self.total + 1, np.int32), np.empty(self.total + 1, np.int32)
        bits = np.empty((self.total + 7) // 8, np.uint8)
        keys, values = pa.allocate_buffer(self.key_bytes), pa.allocate_buffer(self.value_bytes)
        nulls = kernels.copy_headers(rows, self.ends, self.at, key_ends, keys.address, value_ends, values.address, bits)
        validity = pa.py_buffer(bits) if nulls else None
        fields = [
            pa.Array.from_buffers(pa.string(), self.total, [None, pa.py_buffer(key_ends), keys], 0),
            pa.Array.from_buffers(pa.binary(), self.total, [validity, pa.py_buffer(value_ends), values], nulls),
        ]
        return pa.Array.from_buffers(HEADER_TYPE, self.total, [None], 0, children=fields)


class _NotedRecords(NamedTuple):
    """Checked records, and the positions of everything in them."""

    rows: int
    sections: Sections
    """Keeps the bytes alive to which the addresses point."""
    offsets: Int64s
    timestamps: Int64s
    keys: _Cells
    values: _Cells
    headers: _Headers

    def timestamp_types(self) -> Int32s:
        """Who set the timestamp of each record: 0 the producer, 1 the broker."""
        table = self.sections.table
        types = (table[:, kernels.ATTRIBUTES] & TIMESTAMP_TYPE_BIT != 0).astype(np.int32)
        return np.repeat(types, table[:, kernels.RECORD_COUNT])


def _note_records(data: ByteBuffer, reading: Reading | None, ticks_per_ms: int) -> _NotedRecords:
    reading = reading or Reading()
    sections = sections_of(data, reading)
    room = int(sections.table[:, kernels.RECORD_COUNT].sum())
    offsets, timestamps = np.empty(room, np.int64), np.empty(room, np.int64)
    key_at, value_at, header_at = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    key_ends, value_ends, header_ends = (np.empty(room + 1, np.int32) for _ in range(3))
    key_bits, value_bits = (np.empty((room + 7) // 8, np.uint8) for _ in range(2))
    totals = np.zeros(kernels.TOTALS, np.int64)
    first_offset, last_offset = reading.range
    rows = kernels.parse_records(
        sections.table,
        first_offset,
        last_offset,
        ticks_per_ms,
        offsets,
        timestamps,
        key_ends,
        key_at,
        key_bits,
        value_ends,
        value_at,
        value_bits,
        header_ends,
        header_at,
        totals,
    )
    if rows < 0:
        sections.refuse_section(-1 - rows)
    key_bytes, key_nulls, value_bytes, value_nulls, *header_totals = totals.tolist()
    largest = max(key_bytes, value_bytes, *header_totals)
    if largest > MAX_COLUMN_BYTES:
        raise ColumnSizeError(
            f"a column of these {rows} records would have {largest} bytes, {MAX_COLUMN_BYTES} is the most it can have:"
            " decode fewer batches at once"
        )
    return _NotedRecords(
        rows,
        sections,
        offsets,
        timestamps,
        _Cells(key_ends, key_at, key_bits, key_bytes, key_nulls),
        _Cells(value_ends, value_at, value_bits, value_bytes, value_nulls),
        _Headers(header_ends, header_at, *header_totals),
    )
