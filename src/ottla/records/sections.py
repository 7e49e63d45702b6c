"""Fetched data as sections of uncompressed records that the kernels can read: checked, decompressed, located.

A section contains the records of one batch, at an address: in the caller's buffer, or in the buffer into which they
were decompressed. A kernel reads and checks batch headers; Python does work per batch. If a kernel finds an invalid
batch, the plain codec reads that batch again and raises the error, so that both give the same message.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

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
    """Which records to read, and which checks to make."""

    first_offset: int | None = None
    until_offset: int | None = None
    verify_crc: bool = True
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    """The limit per batch."""

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last offset to read."""
        first = kernels.MIN_INT64 if self.first_offset is None else self.first_offset
        return first, MAX_INT64 if self.until_offset is None else self.until_offset - 1


class Sections:
    """The batches of a buffer that contain data within a range of offsets. An incomplete batch at its end is
    skipped."""

    __slots__ = ("_buffer", "_positions", "_reading", "_sources", "table")

    table: Int64s
    """One row per section, with the address and size of its uncompressed records."""

    def __init__(self, buffer: ByteBuffer, reading: Reading) -> None:
        self._reading = reading
        self._buffer = buffer
        source = pa.py_buffer(buffer)
        batches = np.empty((kernels.count_batches(source.address, source.size), kernels.BATCH_FIELDS), np.int64)
        sound = kernels.scan_batches(source.address, batches)
        self._positions: list[int] = []
        self._sources = [source]
        kept = self._keep(batches, sound)
        self.table = batches if len(kept) == len(batches) else batches[kept]

    def _keep(self, batches: Int64s, sound: int) -> list[int]:
        """Checks the batches and decompresses those that are needed. Returns their indexes."""
        verify_crc = self._reading.verify_crc
        first_offset, last_offset = self._reading.range
        view = memoryview(self._buffer)
        kept = []
        end = 0
        for index, (_, size, base_offset, last_delta, _, _, count, attributes, crc) in enumerate(batches.tolist()):
            position, end = end, end + HEADER_SIZE + size
            if index == sound or (verify_crc and crc32c(view[position + ATTRIBUTES_AT : end]) != crc):
                self.refuse(position)
            if attributes & CONTROL_BIT or base_offset > last_offset or base_offset + last_delta < first_offset:
                continue
            codec = attributes & COMPRESSION_MASK
            if codec and size:
                self._decompress(batches[index], position, view[position + HEADER_SIZE : end], _CODECS[codec], count)
            kept.append(index)
            self._positions.append(position)
        if end < len(view):
            # Only an incomplete batch may follow the last complete one.
            with suppress(TruncatedBatchError):
                BatchView(self._buffer, end)
        return kept

    def _decompress(
        self, section: Int64s, position: int, payload: memoryview, codec: Compression, record_count: int
    ) -> None:
        try:
            expanded = decompress(codec, payload, max_bytes=self._reading.max_decompressed_bytes)
        except RecordError:
            self.refuse(position)
        if record_count * MINIMUM_RECORD_SIZE > len(expanded):
            self.refuse(position)
        source = pa.py_buffer(_without_slack(expanded))
        self._sources.append(source)
        section[kernels.ADDRESS] = source.address
        section[kernels.SIZE] = source.size

    def refuse_section(self, section: int) -> NoReturn:
        """Raises the error of the batch of that section."""
        self.refuse(self._positions[section])

    def refuse(self, position: int) -> NoReturn:
        """Raises the error of the batch at that position, with the message of the plain codec."""
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


def _without_slack(expanded: ByteBuffer) -> ByteBuffer:
    """The same bytes in no more memory than they need: lz4 returns a view into a buffer for the largest possible
    result.

    All sections live until their columns are gathered. Without this a fetch of small batches takes four times the
    memory, and three times the time, all of it page faults.
    """
    if isinstance(expanded, memoryview) and memoryview(expanded.obj).nbytes > 2 * expanded.nbytes:
        return bytes(expanded)
    return expanded


def sections_of(buffer: ByteBuffer, reading: Reading) -> Sections:
    """The sections of a buffer that may also contain messages of older magics: those are converted first."""
    try:
        return Sections(buffer, reading)
    except UnknownMagicError:
        from ottla.records.legacy import convert_to_v2

        limit = reading.max_decompressed_bytes
        return Sections(b"".join(convert_to_v2(buffer, partial_tail=True, max_decompressed_bytes=limit)), reading)
