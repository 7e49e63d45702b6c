"""Columns into record batches, byte for byte what the plain codec writes, without a step per record in Python.

One kernel measures the records, one writes them into a buffer of exactly that size, behind room for the header: an
uncompressed batch is written once and never moved. Stateless, safe in any thread; kernels and codecs run without the
interpreter's lock. Columns must not change while they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ottla.records import kernels
from ottla.records.batch import HEADER, BatchView, attributes_of, sequence_after
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
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC_V2,
    MAX_INT32,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Compression,
)
from ottla.records.plain import BatchOptions

_COUNTED = np.empty(0, np.int64)
"""Stands for offsets that follow each other without a gap."""


def encode_columns(
    values: BytesColumn,
    keys: BytesColumn | None = None,
    headers: HeadersColumn | None = None,
    timestamps_ms: TimestampsColumn = NO_TIMESTAMP,
    *,
    options: BatchOptions | None = None,
    offsets: Int64s | Sequence[int] | None = None,
) -> bytearray:
    """One batch of all rows. Offsets follow each other from the base offset on, unless they are given.

    Bytes are Arrow arrays (binary, string, their large forms) or lists; headers are lists of key and value, in Arrow a
    list of structs of those two; timestamps are whole milliseconds, Arrow timestamps of any unit, or one for all rows.
    """
    options = options or BatchOptions()
    rows = _Rows.of(values, keys, headers, timestamps_ms, offsets)
    batch, until = rows.encode(0, MAX_INT32 - HEADER_SIZE, options, options.base_offset, options.base_sequence)
    if until < rows.count:
        raise ValueError(f"one batch can have {MAX_INT32} bytes, these {rows.count} records have more: split them")
    return batch


def encode_batches(
    values: BytesColumn,
    keys: BytesColumn | None = None,
    headers: HeadersColumn | None = None,
    timestamps_ms: TimestampsColumn = NO_TIMESTAMP,
    *,
    max_batch_bytes: int,
    options: BatchOptions | None = None,
) -> Iterator[bytearray]:
    """As many batches as it takes for none to be longer than that before compression, offsets and sequences continued.

    A record that does not fit by itself is alone in a longer batch: who sends it is told so by the broker's limit.
    """
    options = options or BatchOptions()
    rows = _Rows.of(values, keys, headers, timestamps_ms, None)
    first = 0
    while first < rows.count:
        sequence = options.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = sequence_after(sequence, first)
        batch, first = rows.encode(first, max_batch_bytes - HEADER_SIZE, options, options.base_offset + first, sequence)
        yield batch


@dataclass(frozen=True, slots=True)
class _Rows:
    """Everything that is written of each record."""

    count: int
    cells: CellColumns
    timestamps_ms: Int64s
    offsets: Int64s
    sizes: Int64s

    @classmethod
    def of(
        cls,
        values: BytesColumn,
        keys: BytesColumn | None,
        headers: HeadersColumn | None,
        timestamps_ms: TimestampsColumn,
        offsets: Int64s | Sequence[int] | None,
    ) -> _Rows:
        cells = cell_columns(values, keys, headers)
        rows = cells.rows
        kept = _COUNTED
        if offsets is not None:
            kept = kernel_array(offsets)
            if kept.shape != (rows,):
                raise ValueError(f"there are {rows} values, but offsets of shape {kept.shape}")
            if (np.diff(kept) <= 0).any():
                raise ValueError("the offsets do not ascend from each record to the next")
        return cls(rows, cells, timestamps_ms_of(timestamps_ms, rows), kept, np.empty(rows, np.int64))

    def encode(
        self, first: int, limit: int, options: BatchOptions, base_offset: int, base_sequence: int
    ) -> tuple[bytearray, int]:
        """The batch from row `first` on, its records no more than `limit` bytes if there are several; the row after."""
        base_timestamp_ms = options.delete_horizon_ms
        if base_timestamp_ms is None and self.count:
            base_timestamp_ms = int(self.timestamps_ms[first])
        out, until, newest_ms = self._write(first, limit, base_timestamp_ms or 0, base_offset)
        count = until - first
        max_timestamp_ms = newest_ms if options.max_timestamp_ms is None else options.max_timestamp_ms
        compression = options.compression if count else Compression.NONE
        if compression is not Compression.NONE:
            packed = compress(compression, memoryview(out)[HEADER_SIZE:], options.compression_level)
            out = bytearray(HEADER_SIZE)
            out += packed
        HEADER.pack_into(
            out,
            0,
            base_offset,
            len(out) - LENGTH_PREFIX_SIZE,
            options.leader_epoch,
            MAGIC_V2,
            0,
            attributes_of(
                compression=compression,
                timestamp_type=options.timestamp_type,
                transactional=options.transactional,
                control=options.control,
                delete_horizon=options.delete_horizon_ms is not None,
            ),
            self._last_offset_delta(first, until, options.last_offset_delta, base_offset),
            max_timestamp_ms if base_timestamp_ms is None else base_timestamp_ms,
            max_timestamp_ms,
            options.producer_id,
            options.producer_epoch,
            base_sequence,
            count,
        )
        BatchView(out).refresh_crc()
        return out, until

    def _write(self, first: int, limit: int, base_timestamp_ms: int, base_offset: int) -> tuple[bytearray, int, int]:
        """The records behind room for a header, the row after them, and the newest of their timestamps."""
        table, header_ends = self.cells.table, self.cells.header_ends
        stamps, offsets, sizes = self.timestamps_ms, self.offsets, self.sizes
        until, size, newest_ms = kernels.measure_records(
            table, header_ends, stamps, base_timestamp_ms, offsets, base_offset, first, limit, sizes
        )
        out = bytearray(HEADER_SIZE + size)
        address = pa.py_buffer(out).address + HEADER_SIZE
        kernels.write_records(
            table, header_ends, stamps, base_timestamp_ms, offsets, base_offset, first, until, sizes, address
        )
        return out, until, newest_ms

    def _last_offset_delta(self, first: int, until: int, wanted: int | None, base_offset: int) -> int:
        delta = until - first - 1
        if len(self.offsets):
            delta = int(self.offsets[until - 1]) - base_offset
            if self.offsets[first] < base_offset:
                raise ValueError(f"offset {self.offsets[first]} is before the base offset {base_offset}")
        least = max(delta, 0)
        last = least if wanted is None else wanted
        if not least <= last <= MAX_INT32:
            raise ValueError(f"last offset delta {last} does not fit a record with delta {delta}")
        return last
