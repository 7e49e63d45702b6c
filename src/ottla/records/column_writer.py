"""Columns into record batches, byte for byte what the plain codec writes, without a step per record in Python.

One kernel measures the records, one writes them into a buffer of exactly that size, behind room for the header: an
uncompressed batch is written once and never moved. Stateless, safe in any thread; kernels and codecs run without the
interpreter's lock. Columns must not change while they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    return rows.encode(0, rows.count, options)


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
    for until in rows.split(max_batch_bytes - HEADER_SIZE):
        sequence = options.base_sequence
        continued = replace(
            options,
            base_offset=options.base_offset + first,
            base_sequence=sequence if sequence == NO_SEQUENCE else sequence_after(sequence, first),
        )
        yield rows.encode(first, until, continued)
        first = until


@dataclass(frozen=True, slots=True)
class _Rows:
    """Everything that is written of each record."""

    count: int
    cells: CellColumns
    timestamps_ms: Int64s
    offsets: Int64s

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
        kept = _COUNTED if offsets is None else np.ascontiguousarray(offsets, np.int64)
        if offsets is not None and kept.shape != (rows,):
            raise ValueError(f"there are {rows} values, but offsets of shape {kept.shape}")
        if rows > 1 and (np.diff(kept) <= 0).any():
            raise ValueError("the offsets do not ascend from each record to the next")
        return cls(rows, cells, timestamps_ms_of(timestamps_ms, rows), kept)

    def split(self, limit: int) -> list[int]:
        """The row after each batch."""
        ends = np.empty(self.count, np.int64)
        batches = kernels.split_rows(self.cells.table, self.cells.header_ends, self.timestamps_ms, limit, ends)
        return [int(end) for end in ends[:batches]]

    def encode(self, first: int, until: int, options: BatchOptions) -> bytearray:
        count = until - first
        stamps = self.timestamps_ms[first:until]
        newest = int(stamps.max()) if count else NO_TIMESTAMP
        max_timestamp_ms = newest if options.max_timestamp_ms is None else options.max_timestamp_ms
        base_timestamp_ms = options.delete_horizon_ms
        if base_timestamp_ms is None:
            base_timestamp_ms = int(stamps[0]) if count else max_timestamp_ms
        last_offset_delta = self._last_offset_delta(first, until, options)
        compression = options.compression if count else Compression.NONE

        out = self._write_payload(first, until, base_timestamp_ms, options.base_offset)
        if compression is not Compression.NONE:
            payload = memoryview(out)[HEADER_SIZE:]
            packed = compress(compression, payload, options.compression_level)
            out = bytearray(HEADER_SIZE)
            out += packed
        HEADER.pack_into(
            out,
            0,
            options.base_offset,
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
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            options.producer_id,
            options.producer_epoch,
            options.base_sequence,
            count,
        )
        BatchView(out).refresh_crc()
        return out

    def _last_offset_delta(self, first: int, until: int, options: BatchOptions) -> int:
        delta = until - first - 1
        if len(self.offsets):
            first_delta, delta = (int(self.offsets[row]) - options.base_offset for row in (first, until - 1))
            if first_delta < 0:
                raise ValueError(f"offset {self.offsets[first]} is before the base offset {options.base_offset}")
        least = max(delta, 0)
        last = least if options.last_offset_delta is None else options.last_offset_delta
        if not least <= last <= MAX_INT32:
            raise ValueError(f"last offset delta {last} does not fit a record with delta {delta}")
        return last

    def _write_payload(self, first: int, until: int, base_timestamp_ms: int, base_offset: int) -> bytearray:
        """The records, behind room for the batch's header."""
        table, header_ends, stamps, offsets = (
            self.cells.table,
            self.cells.header_ends,
            self.timestamps_ms,
            self.offsets,
        )
        sizes = np.empty(until - first, np.int64)
        size = kernels.measure_records(
            table, header_ends, stamps, base_timestamp_ms, offsets, base_offset, first, until, sizes
        )
        if size > MAX_INT32 - HEADER_SIZE:
            raise ValueError(f"{until - first} records of {size} bytes are too much for one batch: split them")
        out = bytearray(HEADER_SIZE + size)
        address = pa.py_buffer(out).address + HEADER_SIZE
        kernels.write_records(
            table, header_ends, stamps, base_timestamp_ms, offsets, base_offset, first, until, sizes, address
        )
        return out
