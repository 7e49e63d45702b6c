"""Writes what remains of a log's batches into a new segment.

The decision about each batch is made here, that about each record in the kernel. Apart from the last offset of each
key:

- Records of an aborted transaction are dropped at once. Its marker, like that of a committed one, is dropped when
  nothing of the transaction is left and the delete horizon has passed that was set when this was first seen (KIP-534).
- A tombstone is dropped when the delete horizon of its batch has passed. The first pass that has the tombstone in its
  map sets it: that pass drops all older records of its key.
- The batch with the last sequence number of a producer stays as an empty one, as does the last marker of a producer
  without known data: its epoch must not be forgotten.
"""

from __future__ import annotations

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from ottla.log.compaction import kernels
from ottla.log.compaction.chunks import BatchChunk
from ottla.log.compaction.engine import CopyTotals, LastRecords
from ottla.log.compaction.offset_map import OffsetMap
from ottla.log.compaction.transactions import TransactionTracker
from ottla.log.segment import Segment
from ottla.records.batch import compression_of
from ottla.records.compression import compress
from ottla.records.kernels import Int64s
from ottla.records.layout import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_PREFIX_SIZE,
    MAX_INT64,
    TRANSACTIONAL_BIT,
)

_SPECIAL = TRANSACTIONAL_BIT | CONTROL_BIT


class Rewriter:
    """For one pass over a log: segments, and chunks in them, must come in order."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: TransactionTracker,
        last_records: LastRecords,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_data_offsets = np.array(sorted(last_records.data_offsets), np.int64)
        self._marker_epochs = last_records.marker_epochs
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, MAX_INT64)
        self._output = np.empty(0, np.uint8)
        self._notes = np.empty((0, kernels.NOTE_FIELDS), np.int64)
        self.totals = CopyTotals()

    def copy(self, chunk: BatchChunk, target: Segment) -> int:
        """Appends what remains. Returns the number of bytes written."""
        self._judge(chunk)
        written = 0
        for first, table in chunk.runs():
            written += self._copy_run(chunk, first, table, target)
        for transaction in self._transactions.kept_aborted:
            target.transaction_index.append(transaction)
        self._transactions.kept_aborted.clear()
        self.totals.bytes_read += chunk.size
        self.totals.bytes_written += written
        return written

    # Decisions without looking at records.

    def _judge(self, chunk: BatchChunk) -> None:
        table = chunk.table
        verdicts = table[:, kernels.VERDICT]
        data = table[:, kernels.ATTRIBUTES] & CONTROL_BIT == 0
        verdicts[data & (table[:, kernels.LAST_OFFSET] < self._offsets.until_offset)] |= kernels.HORIZON
        verdicts[data & self._is_last_of_producer(table)] |= kernels.AS_EMPTY
        for batch in np.flatnonzero(table[:, kernels.ATTRIBUTES] & _SPECIAL).tolist():
            row = table[batch]
            producer_id, last_offset = int(row[kernels.PRODUCER_ID]), int(row[kernels.LAST_OFFSET])
            if row[kernels.ATTRIBUTES] & CONTROL_BIT:
                needless = self._transactions.is_needless_marker(producer_id, last_offset, chunk.is_committed(batch))
                row[kernels.VERDICT] = self._verdict_on_marker(row, needless)
            elif self._transactions.is_aborted(producer_id, last_offset):
                row[kernels.VERDICT] = kernels.DROP | (row[kernels.VERDICT] & kernels.AS_EMPTY)

    def _is_last_of_producer(self, table: Int64s) -> NDArray[np.bool_]:
        known = self._last_data_offsets
        if not len(known):
            return np.zeros(len(table), np.bool_)
        offsets = table[:, kernels.LAST_OFFSET]
        found: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, offsets), len(known) - 1)] == offsets
        return found & (table[:, kernels.PRODUCER_ID] >= 0)

    def _verdict_on_marker(self, row: Int64s, needless: bool) -> int:
        epoch = self._marker_epochs.get(int(row[kernels.PRODUCER_ID]))
        verdict = kernels.AS_EMPTY if epoch is not None and epoch == row[kernels.PRODUCER_EPOCH] else 0
        if not needless:
            return verdict | kernels.KEEP
        has_horizon = row[kernels.ATTRIBUTES] & DELETE_HORIZON_BIT
        if has_horizon and row[kernels.BASE_TIMESTAMP] <= self._now_ms:
            return verdict | kernels.DROP
        return verdict | kernels.KEEP | kernels.HORIZON

    # Decisions by key.

    def _copy_run(self, chunk: BatchChunk, first: int, table: Int64s, target: Segment) -> int:
        counts = table[:, kernels.RECORD_COUNT]
        room = int(np.maximum(table[:, kernels.RECORDS_SIZE], table[:, kernels.SIZE]).sum())
        room += len(table) * HEADER_SIZE + int(counts.sum()) * kernels.RECORD_GROWTH
        if len(self._output) < room:
            self._output = np.empty(room, np.uint8)
        if len(self._notes) < counts.max(initial=0):
            self._notes = np.empty((int(counts.max()), kernels.NOTE_FIELDS), np.int64)
        totals = np.zeros(kernels.TOTALS, np.int64)
        wrong = kernels.copy_batches(
            table,
            self._offsets.entries,
            self._offsets.until_offset,
            self._now_ms,
            self._horizon_ms,
            self._notes,
            self._output.ctypes.data,
            totals,
        )
        if wrong < 0:
            chunk.refuse(first - 1 - wrong)
        written, read, kept, keyless = totals.tolist()
        self.totals.records_read += read
        self.totals.records_kept += kept
        self.totals.keyless_records += keyless
        if not written:
            return 0
        data = self._compressed(table, self._output[:written].data)
        stayed = table[table[:, kernels.OUTCOME] != kernels.GONE]
        newest = int(stayed[:, kernels.MAX_TIMESTAMP].argmax())
        target.append(
            data,
            last_offset=int(stayed[-1, kernels.LAST_OFFSET]),
            max_timestamp_ms=int(stayed[newest, kernels.MAX_TIMESTAMP]),
            offset_of_max_timestamp=int(stayed[newest, kernels.LAST_OFFSET]),
        )
        return len(data)

    @staticmethod
    def _compressed(table: Int64s, output: memoryview) -> memoryview | bytes:
        """Compresses those batches of the output that were compressed before."""
        waiting = np.flatnonzero(table[:, kernels.OUTCOME] == kernels.TO_COMPRESS)
        if not len(waiting):
            return output
        ends = np.cumsum(table[:, kernels.WRITTEN])
        parts: list[memoryview | bytearray] = []
        position = 0
        for batch in waiting.tolist():
            end = int(ends[batch])
            begin = end - int(table[batch, kernels.WRITTEN])
            parts.append(output[position:begin])
            parts.append(_compress_batch(output[begin:end], int(table[batch, kernels.ATTRIBUTES])))
            position = end
        parts.append(output[position:])
        return b"".join(parts)


def drop_unmapped(chunk: BatchChunk, transactions: TransactionTracker, first_offset: int) -> None:
    """Marks batches whose keys must not be in the map: those before the offset, and aborted ones."""
    table = chunk.table
    table[table[:, kernels.LAST_OFFSET] < first_offset, kernels.VERDICT] = kernels.DROP
    for batch in np.flatnonzero(table[:, kernels.ATTRIBUTES] & _SPECIAL).tolist():
        row = table[batch]
        producer_id, last_offset = int(row[kernels.PRODUCER_ID]), int(row[kernels.LAST_OFFSET])
        if row[kernels.ATTRIBUTES] & CONTROL_BIT:
            transactions.is_needless_marker(producer_id, last_offset, chunk.is_committed(batch))
        elif transactions.is_aborted(producer_id, last_offset):
            row[kernels.VERDICT] = kernels.DROP


def _compress_batch(batch: memoryview, attributes: int) -> bytearray:
    out = bytearray(batch[:HEADER_SIZE])
    out += compress(compression_of(attributes), batch[HEADER_SIZE:])
    out[LENGTH_AT:LENGTH_PREFIX_SIZE] = (len(out) - LENGTH_PREFIX_SIZE).to_bytes(4, "big")
    out[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(out)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return out
