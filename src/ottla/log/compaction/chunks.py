"""Chunks of a log file as tables for the kernels. `file_batches` reads the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

import numpy as np

from ottla.base.disk import File
from ottla.log.compaction import file_batches, kernels
from ottla.log.errors import CorruptRecordsError
from ottla.records.batch import BatchView
from ottla.records.compression import decompress
from ottla.records.control import read_transaction_marker
from ottla.records.errors import RecordError
from ottla.records.kernels import Int64s
from ottla.records.layout import COMPRESSION_MASK, HEADER_SIZE, MINIMUM_RECORD_SIZE

_EXPANDED_BYTES: Final = 8 * 1024 * 1024
"""How much of a chunk is decompressed at once; a larger batch is handled alone."""


class BatchChunk:
    """Consecutive batches, with a table of them. The table is valid as long as the chunk is held."""

    __slots__ = ("_address", "_data", "_path", "_sources", "size", "table")

    def __init__(self, path: Path, data: bytes, table: Int64s, address: int, size: int) -> None:
        self._path = path
        self._data = data
        self._address = address
        self._sources: list[object] = []
        self.table = table
        self.size = size
        """Its size in the file."""

    def view(self, batch: int) -> BatchView:
        return BatchView(self._data, int(self.table[batch, kernels.AT]) - self._address)

    def is_committed(self, batch: int) -> bool | None:
        """The result in the marker of a control batch; None if it contains no marker."""
        try:
            marker = read_transaction_marker(self.view(batch), verify_crc=False)
        except RecordError as error:
            raise CorruptRecordsError(f"{self._path}: {error}") from error
        return None if marker is None else marker.committed

    def runs(self) -> Iterator[tuple[int, Int64s]]:
        """Yields the table in pieces, with the index of their first batches; the records of a piece that must be read
        are decompressed until the next piece is requested."""
        table = self.table
        compressed = np.flatnonzero(
            (table[:, kernels.ATTRIBUTES] & COMPRESSION_MASK != 0)
            & (table[:, kernels.VERDICT] & kernels.VERDICT_MASK != kernels.DROP)
            & (table[:, kernels.RECORDS_SIZE] != 0)
        )
        first = expanded_bytes = 0
        for batch in compressed.tolist():
            if expanded_bytes > _EXPANDED_BYTES:
                yield first, table[first:batch]
                self._sources.clear()
                first, expanded_bytes = batch, 0
            expanded_bytes += self._expand(batch)
        yield first, table[first:]
        self._sources.clear()

    def _expand(self, batch: int) -> int:
        view, row = self.view(batch), self.table[batch]
        try:
            records = np.frombuffer(decompress(view.compression, view.payload), np.uint8)
        except RecordError:
            self.refuse(batch)
        if int(row[kernels.RECORD_COUNT]) * MINIMUM_RECORD_SIZE > len(records):
            self.refuse(batch)
        self._sources.append(records)
        row[kernels.RECORDS_AT] = records.ctypes.data
        row[kernels.RECORDS_SIZE] = len(records)
        return len(records)

    def refuse(self, batch: int) -> NoReturn:
        """Raises the error of a batch, with the message of the plain codec."""
        file_batches.refuse_records(self._path, self.view(batch))


def read_chunks(file: File, size: int, chunk_bytes: int) -> Iterator[BatchChunk]:
    """All batches of a file of that size."""
    return file_batches.read_chunks(file, size, chunk_bytes, _scan)


def _scan(path: Path, data: bytes) -> tuple[BatchChunk, int]:
    buffer = np.frombuffer(data, np.uint8)
    table = np.empty((len(data) // HEADER_SIZE + 1, kernels.BATCH_FIELDS), np.int64)
    stopped = np.zeros(2, np.int64)
    address = buffer.ctypes.data
    count = kernels.scan_batches(address, len(data), table, stopped)
    return BatchChunk(path, data, table[:count], address, int(stopped[0])), int(stopped[1])
