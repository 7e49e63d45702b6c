"""What a fetch brings, as stretches of uncompressed records that the kernels can read: checked, decompressed, located.

A section is what one batch holds, at an address: inside the caller's buffer, or in the buffer it was decompressed into.
Batch headers are read and checked by a kernel, a step in Python is taken once a batch. Where a kernel finds a batch
wrong, the plain codec reads that batch again and raises the error, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from ottla.records import kernels
from ottla.records.batch import BatchView
from ottla.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, decompress
from ottla.records.errors import MalformedRecordError, RecordError, TruncatedBatchError, UnknownMagicError
from ottla.records.kernels import Int64s
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    MAX_INT64,
    MINIMUM_RECORD_SIZE,
    ByteBuffer,
    Compression,
)
from ottla.records.plain import decode_batch

_CODECS = tuple(Compression)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Which records to read, and how far to trust the bytes."""

    first_offset: int | None = None
    until_offset: int | None = None
    verify_crc: bool = True
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    """For each batch."""

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last offset to read."""
        first = kernels.MIN_INT64 if self.first_offset is None else self.first_offset
        return first, MAX_INT64 if self.until_offset is None else self.until_offset - 1


class Sections:
    """The batches of a buffer that hold data within a range of offsets. A piece of a batch at its end is left out."""

    __slots__ = ("_buffer", "_positions", "_reading", "_sources", "table")

    table: Int64s
    """A row for each, fields as in `scan_batches`; position and size are the address and the size of its records."""

    def __init__(self, buffer: ByteBuffer, reading: Reading) -> None:
        self._reading = reading
        self._buffer = buffer
        source = pa.py_buffer(buffer)
        batches = np.empty((kernels.count_batches(source.address, source.size), kernels.BATCH_FIELDS), np.int64)
        sound = kernels.scan_batches(source.address, batches)
        kept = self._check(batches[:sound].tolist())
        if sound < len(batches):
            self.refuse(int(batches[sound, kernels.POSITION]))
        self._check_rest(int(batches[-1, kernels.POSITION] + batches[-1, kernels.SIZE]) if sound else 0)
        self.table = batches if len(kept) == len(batches) else batches[kept]
        self._positions = self.table[:, kernels.POSITION].tolist()
        self.table[:, kernels.POSITION] += source.address + HEADER_SIZE
        self.table[:, kernels.SIZE] -= HEADER_SIZE
        self._sources = [source, *self._decompress()]

    def _check(self, batches: list[list[int]]) -> list[int]:
        """Compare the CRCs. Returns which batches are wanted."""
        view = memoryview(self._buffer)
        verify_crc = self._reading.verify_crc
        first_offset, last_offset = self._reading.range
        kept = []
        for index, (position, size, base_offset, last_delta, _, _, _, attributes, crc) in enumerate(batches):
            if verify_crc and crc32c(view[position + ATTRIBUTES_AT : position + size]) != crc:
                self.refuse(position)
            if base_offset <= last_offset and base_offset + last_delta >= first_offset and not attributes & CONTROL_BIT:
                kept.append(index)
        return kept

    def _check_rest(self, position: int) -> None:
        """What follows the last whole batch may be a piece of one, nothing else."""
        if position < len(self._buffer):
            with suppress(TruncatedBatchError):
                BatchView(self._buffer, position)

    def _decompress(self) -> Iterator[Any]:
        """Move the sections that are compressed to where they are not."""
        codecs = self.table[:, kernels.ATTRIBUTES] & COMPRESSION_MASK
        view = memoryview(self._buffer)
        limit = self._reading.max_decompressed_bytes
        for section in codecs.nonzero()[0].tolist():
            size, count = self.table[section, kernels.SIZE], self.table[section, kernels.RECORD_COUNT]
            if size == count == 0:
                continue
            position = self._positions[section] + HEADER_SIZE
            try:
                expanded = decompress(_CODECS[codecs[section]], view[position : position + size], max_bytes=limit)
            except RecordError:
                self.refuse(self._positions[section])
            if count * MINIMUM_RECORD_SIZE > len(expanded):
                self.refuse(self._positions[section])
            source = pa.py_buffer(expanded)
            self.table[section, kernels.POSITION] = source.address
            self.table[section, kernels.SIZE] = source.size
            yield source

    def refuse_section(self, section: int) -> NoReturn:
        """Raise what is wrong with the batch of that section."""
        self.refuse(self._positions[section])

    def refuse(self, position: int) -> NoReturn:
        """Raise what is wrong with the batch at that position, in the words of the plain codec."""
        view = BatchView(self._buffer, position)
        decode_batch(
            view,
            verify_crc=self._reading.verify_crc,
            max_decompressed_bytes=self._reading.max_decompressed_bytes,
        )
        raise MalformedRecordError(
            "its records are broken in a way that only the compiled codec sees: please report this batch",
            position=position,
            base_offset=view.base_offset,
        )


def sections_of(buffer: ByteBuffer, reading: Reading) -> Sections:
    """The sections of a buffer in which messages of older magics may stand as well: those are converted first."""
    try:
        return Sections(buffer, reading)
    except UnknownMagicError:
        from ottla.records.legacy import convert_to_v2

        limit = reading.max_decompressed_bytes
        return Sections(b"".join(convert_to_v2(buffer, partial_tail=True, max_decompressed_bytes=limit)), reading)
