"""Writes columns into record batches, with the same bytes as the plain codec, without Python code per record.

One kernel measures the records and plans the batches, one writes them into a buffer of exactly that size: uncompressed
data is written once and never moved. Python does work per batch, for CRC and compression. Stateless and thread-safe;
kernels and codecs run without the GIL. Columns must not change while they are read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from ottla.records import kernels
from ottla.records.batch import HEADER, attributes_of
from ottla.records.cells import (
    BytesColumn,
    CellColumns,
    HeadersColumn,
    TimestampsColumn,
    cell_columns,
    kernel_array,
    timestamps_ms_of,
)
from ottla.records.compression import compress
from ottla.records.kernels import Int64s
from ottla.records.layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_V2,
    MAX_INT32,
    NO_TIMESTAMP,
    Compression,
)
from ottla.records.plain import BatchOptions

_FOLLOWING = np.empty(0, np.int64)
"""Means that offsets are consecutive."""
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")


def encode_columns(
    values: BytesColumn,
    keys: BytesColumn | None = None,
    headers: HeadersColumn | None = None,
    timestamps_ms: TimestampsColumn = NO_TIMESTAMP,
    *,
    options: BatchOptions | None = None,
    offsets: Int64s | Sequence[int] | None = None,
    header_sections: BytesColumn | None = None,
) -> bytearray:
    """Encodes all rows in one batch. Offsets are consecutive from the base offset on, unless they are given.

    Headers that are already encoded are passed as `header_sections` (see the module of that name) instead of `headers`.
    Bytes are Arrow arrays (binary, string, their large forms) or lists; headers are lists of key and value, in Arrow a
    list of structs of those two; timestamps are whole milliseconds, Arrow timestamps of any unit, or one for all rows.
    """
    options = options or BatchOptions()
    if headers is not None and header_sections is not None:
        raise ValueError("headers are given twice: one by one, and as sections")
    cells = cell_columns(values, keys, headers, header_sections)
    written, _ = _write(cells, timestamps_ms, options, offsets, max_bytes=MAX_INT32, most_batches=1)
    if options.last_offset_delta is not None:
        least = _INT32.unpack_from(written, LAST_OFFSET_DELTA_AT)[0]
        if not least <= options.last_offset_delta <= MAX_INT32:
            raise ValueError(f"last offset delta {options.last_offset_delta} does not fit a record with delta {least}")
        _INT32.pack_into(written, LAST_OFFSET_DELTA_AT, options.last_offset_delta)
    out = written if isinstance(written, bytearray) else _compressed(written, options)
    _UINT32.pack_into(out, CRC_AT, crc32c(memoryview(out)[ATTRIBUTES_AT:]))
    return out


def encode_batches(
    values: BytesColumn,
    keys: BytesColumn | None = None,
    headers: HeadersColumn | None = None,
    timestamps_ms: TimestampsColumn = NO_TIMESTAMP,
    *,
    max_batch_bytes: int,
    options: BatchOptions | None = None,
) -> list[memoryview]:
    """Encodes rows in batches that are not larger than the limit before compression, with continuous offsets and
    sequence numbers.

    A record that exceeds the limit is alone in a larger batch: the broker's limit decides about it. The batches can be
    patched; uncompressed ones share one buffer.
    """
    options = options or BatchOptions()
    if options.last_offset_delta is not None:
        raise ValueError("a last offset delta is for one batch, not for several: leave it to be counted")
    if not len(values):
        return []
    cells = cell_columns(values, keys, headers)
    written, plan = _write(cells, timestamps_ms, options, None, max_bytes=max_batch_bytes, most_batches=cells.rows)
    view = memoryview(written)
    batches = []
    begin = 0
    for size in plan[:, kernels.RECORD_BYTES].tolist():
        end = begin + HEADER_SIZE + size
        batch = view[begin:end]
        if options.compression is not Compression.NONE:
            batch = memoryview(_compressed(batch, options))
        _UINT32.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
        batches.append(batch)
        begin = end
    return batches


def _write(
    cells: CellColumns,
    timestamps_ms: TimestampsColumn,
    options: BatchOptions,
    offsets: Int64s | Sequence[int] | None,
    *,
    max_bytes: int,
    most_batches: int,
) -> tuple[bytearray | memoryview, Int64s]:
    """The batches one after the other, without compression and CRCs, and their plan."""
    rows = cells.rows
    stamps = timestamps_ms_of(timestamps_ms, rows)
    kept = _FOLLOWING if offsets is None else _checked_offsets(offsets, rows, options.base_offset)
    base_ms = kernels.NOT_GIVEN if options.delete_horizon_ms is None else options.delete_horizon_ms
    max_ms = kernels.NOT_GIVEN if options.max_timestamp_ms is None else options.max_timestamp_ms
    sizes = np.empty(rows, np.int64)
    plan = np.empty((most_batches, kernels.PLAN_FIELDS), np.int64)
    limit = max_bytes - HEADER_SIZE
    count = kernels.plan_batches(
        cells.table, cells.header_ends, stamps, base_ms, kept, options.base_offset, limit, sizes, plan
    )
    if rows == 0:
        plan[0] = 0, 0, NO_TIMESTAMP if options.delete_horizon_ms is None else base_ms, NO_TIMESTAMP
    plan = plan[:count]
    if count > most_batches or plan[:, kernels.RECORD_BYTES].max() > MAX_INT32 - HEADER_SIZE:
        raise ValueError(f"a batch can have {MAX_INT32} bytes and these {rows} records need more: split them")
    size = int(plan[:, kernels.RECORD_BYTES].sum()) + count * HEADER_SIZE
    # Data that is compressed next is short-lived: Arrow's pool keeps the pages, where malloc would return them.
    compression = options.compression if rows else Compression.NONE
    out = bytearray(size) if compression is Compression.NONE else memoryview(pa.allocate_buffer(size))
    template = pa.py_buffer(_template(options, compression))
    kernels.write_batches(
        cells.table,
        cells.header_ends,
        stamps,
        kept,
        options.base_offset,
        options.base_sequence,
        max_ms,
        sizes,
        plan,
        template.address,
        pa.py_buffer(out).address,
    )
    return out, plan


def _checked_offsets(offsets: Int64s | Sequence[int], rows: int, base_offset: int) -> Int64s:
    kept = kernel_array(offsets)
    if kept.shape != (rows,):
        raise ValueError(f"there are {rows} values, but offsets of shape {kept.shape}")
    if (np.diff(kept) <= 0).any():
        raise ValueError("the offsets do not ascend from each record to the next")
    if rows and kept[0] < base_offset:
        raise ValueError(f"offset {kept[0]} is before the base offset {base_offset}")
    if rows and kept[-1] - base_offset > MAX_INT32:
        raise ValueError(f"offset {kept[-1]} is too far from the base offset {base_offset}")
    return kept


def _template(options: BatchOptions, compression: Compression) -> bytes:
    """A batch header with what all batches share; fields that the kernel fills in are 0."""
    attributes = attributes_of(
        compression=compression,
        timestamp_type=options.timestamp_type,
        transactional=options.transactional,
        control=options.control,
        delete_horizon=options.delete_horizon_ms is not None,
    )
    producer = options.producer_id, options.producer_epoch
    return HEADER.pack(0, 0, options.leader_epoch, MAGIC_V2, 0, attributes, 0, 0, 0, *producer, 0, 0)


def _compressed(batch: memoryview, options: BatchOptions) -> bytearray:
    out = bytearray(batch[:HEADER_SIZE])
    out += compress(options.compression, batch[HEADER_SIZE:], options.compression_level)
    _INT32.pack_into(out, LENGTH_AT, len(out) - LENGTH_PREFIX_SIZE)
    return out
