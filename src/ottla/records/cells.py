"""Converts columns to what the kernels read: addresses of offsets, bytes and validity bits.

Arrow arrays are read in place, including slices and both widths of offsets; lists of `bytes` become Arrow arrays first.
Anything that is not a column of bytes raises a `TypeError`, values that cannot be in a batch a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.records import kernels
from ottla.records.byte_lists import ByteList, byte_list
from ottla.records.kernels import Int64s
from ottla.records.layout import NO_TIMESTAMP
from ottla.records.record import Header

BytesColumn: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[bytes | None]"
HeadersColumn: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[Sequence[Header] | None]"
TimestampsColumn: TypeAlias = "pa.Array | pa.ChunkedArray | Int64s | Sequence[int] | int"

_ABSENT = [0] * kernels.COLUMN_FIELDS
_NONE = np.empty(0, np.int64)
_WIDTHS = {pa.binary().id: 4, pa.string().id: 4, pa.large_binary().id: 8, pa.large_string().id: 8}
"""The types that are read in place, with the width of their offsets in bytes."""
_CAST_FIRST = {pa.null().id, pa.binary_view().id, pa.string_view().id, pa.binary(1).id}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TICKS_PER_MS = {"us": 1000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class CellColumns:
    """Columns with the same number of rows, in the form of the kernels."""

    rows: int
    table: Int64s
    header_ends: Int64s
    sources: tuple[Any, ...]
    """Keeps the bytes alive to which the addresses point."""


def cell_columns(
    values: BytesColumn,
    keys: BytesColumn | None,
    headers: HeadersColumn | None,
    header_sections: BytesColumn | None = None,
) -> CellColumns:
    """The columns of records; missing ones are null, or without headers, in all rows."""
    arrays: list[Any] = [None] * kernels.COLUMNS
    arrays[kernels.VALUE] = _cells(values)
    arrays[kernels.KEY] = None if keys is None else _cells(keys)
    arrays[kernels.HEADER_SECTION] = None if header_sections is None else _cells(header_sections)
    rows = len(arrays[kernels.VALUE])
    if arrays[kernels.KEY] is not None and len(arrays[kernels.KEY]) != rows:
        raise ValueError(f"there are {rows} values, but {len(arrays[kernels.KEY])} keys")
    if arrays[kernels.HEADER_SECTION] is not None and len(arrays[kernels.HEADER_SECTION]) != rows:
        raise ValueError(f"there are {rows} values, but {len(arrays[kernels.HEADER_SECTION])} sections of headers")
    header_ends = _NONE
    if headers is not None:
        header_ends, arrays[kernels.HEADER_KEY], arrays[kernels.HEADER_VALUE] = _header_columns(headers)
        if len(header_ends) != rows + 1:
            raise ValueError(f"there are {rows} values, but headers for {len(header_ends) - 1}")
    table = np.array([_describe(array) for array in arrays], np.int64)
    return CellColumns(rows, table, header_ends, tuple(arrays))


def _describe(array: Any) -> list[int]:
    """One row of the table of columns."""
    if isinstance(array, ByteList):
        return [array.references, kernels.OBJECTS, id(None), 0, 0]
    if array is None or array.null_count == len(array):
        return _ABSENT
    width = _WIDTHS[array.type.id]
    validity, ends, data = array.buffers()
    first = array.offset
    return [
        ends.address + width * first,
        width,
        0 if data is None else data.address,
        0 if validity is None else validity.address,
        first,
    ]


def _cells(column: BytesColumn) -> Any:
    """The column in a form that can be described: an Arrow array, or the list itself."""
    listed = byte_list(column)
    return _bytes_array(column) if listed is None else listed


def _bytes_array(column: BytesColumn) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array):
        return pa.array(column, pa.large_binary())
    if column.type.id in _WIDTHS:
        return column
    if column.type.id in _CAST_FIRST:
        return column.cast(pa.binary())
    raise TypeError(f"a column of type {column.type} cannot be sent: cast it to binary or string first")


def _header_columns(headers: HeadersColumn) -> tuple[Int64s, Any, Any]:
    """The end of each record's headers, and all their keys and values."""
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    if isinstance(headers, pa.Array):
        if pa.types.is_null(headers.type) or pa.types.is_map(headers.type):
            headers = headers.cast(_HEADERS)
        pairs = headers.flatten() if _is_list(headers.type) else headers
        if not pa.types.is_struct(pairs.type) or sorted(field.name for field in pairs.type) != ["key", "value"]:
            raise TypeError(
                f"headers of type {headers.type} cannot be sent: they are maps, or lists of structs with the fields "
                "key and value"
            )
        sizes = pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)
        keys, values = pairs.field("key"), pairs.field("value")
        if pairs.null_count:
            raise ValueError(f"{pairs.null_count} headers are null: a header has a key")
    else:
        lists = [row or () for row in headers]
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        flat = list(chain.from_iterable(lists))
        keys = pa.array([key for key, _ in flat], pa.string())
        values = pa.array([value for _, value in flat], pa.binary())
    if keys.null_count:
        raise ValueError(f"{keys.null_count} headers have no key")
    ends = np.zeros(len(sizes) + 1, np.int64)
    sizes.cumsum(out=ends[1:])
    return ends, _bytes_array(keys), _bytes_array(values)


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def kernel_array(numbers: Int64s | Sequence[int]) -> Int64s:
    """The numbers in the form for which kernels are compiled: 64 bits, contiguous, and writable although none
    writes."""
    return np.require(numbers, np.int64, ["C", "A", "W"])


def timestamps_ms_of(timestamps: TimestampsColumn, rows: int) -> Int64s:
    """The timestamps in milliseconds, one per row."""
    if isinstance(timestamps, int):
        stamps = np.empty(rows, np.int64)
        stamps.fill(timestamps)
    elif isinstance(timestamps, pa.Array | pa.ChunkedArray):
        stamps = kernel_array(_milliseconds(timestamps))
    else:
        stamps = kernel_array(timestamps)
    if stamps.shape != (rows,):
        raise ValueError(f"there are {rows} values, but timestamps of shape {stamps.shape}")
    oldest = timestamps if isinstance(timestamps, int) else int(stamps.min(initial=NO_TIMESTAMP))
    if oldest < NO_TIMESTAMP:
        raise ValueError(f"a record has timestamp {oldest}: it must be -1 (none) or later")
    return stamps


def _milliseconds(column: Any) -> Int64s:
    if column.null_count:
        raise ValueError(f"{column.null_count} timestamps are null: fill them first, with -1 ms for none")
    unit = column.type.unit if pa.types.is_timestamp(column.type) else "ms"
    ticks: Int64s = column.cast(pa.int64()).to_numpy()
    if unit == "s":
        return ticks * 1000
    return ticks if unit == "ms" else ticks // _TICKS_PER_MS[unit]
