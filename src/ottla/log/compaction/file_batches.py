"""Reads a log file in chunks of complete batches, for both engines.

A chunk is about as large as the I/O buffer, or one larger batch. Every CRC is checked: compaction must not write a new
CRC over corrupt bytes. Messages of magic 0 and 1 are converted to batches of magic 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

from ottla.base.disk import File
from ottla.log.compaction.engine import EngineChunk
from ottla.log.errors import CorruptRecordsError
from ottla.records.batch import BatchView
from ottla.records.errors import MalformedRecordError, RecordError
from ottla.records.layout import HEADER_SIZE, LENGTH_AT, LENGTH_PREFIX_SIZE
from ottla.records.legacy import convert_to_v2, iter_entries
from ottla.records.plain import decode_batch

ENDED, NOT_THIS_MAGIC, UNSOUND = range(3)
"""Why a scan stopped: no further complete batch, one of another magic, an invalid one."""

C = TypeVar("C", bound=EngineChunk)
Scan = Callable[[Path, bytes], tuple[C, int]]
"""The complete, valid batches at the beginning of some bytes, and why the scan stopped."""


def read_chunks(file: File, size: int, chunk_bytes: int, scan: Scan[C]) -> Iterator[C]:
    """All batches of a file of that size."""
    chunk_bytes = max(chunk_bytes, HEADER_SIZE)  # less would not contain the size of a batch
    position, wanted = 0, chunk_bytes
    while position < size:
        data = file.read_at(position, min(wanted, size - position))
        if len(data) < min(wanted, size - position):
            raise CorruptRecordsError(f"{file.path}: ends at byte {position + len(data)}, before its {size} bytes")
        chunk, stopped = scan(file.path, data)
        if chunk.size:
            yield chunk
            position, wanted = position + chunk.size, chunk_bytes
        elif stopped == NOT_THIS_MAGIC:
            converted, consumed = _convert(file.path, data)
            if consumed:
                chunk, _ = scan(file.path, converted)
                chunk.size = consumed
                yield chunk
                position, wanted = position + consumed, chunk_bytes
            else:
                wanted = _more(file.path, data, position, size)
        elif stopped == UNSOUND:
            _refuse(file.path, data, position)
        else:
            wanted = _more(file.path, data, position, size)


def refuse_records(path: Path, view: BatchView) -> NoReturn:
    """Raises what is wrong with a batch's records, in the words of the plain codec."""
    try:
        decode_batch(view)
        raise MalformedRecordError("its records cannot be taken apart", base_offset=view.base_offset)
    except RecordError as error:
        raise CorruptRecordsError(f"{path}: {error}") from error


def _convert(path: Path, data: bytes) -> tuple[bytes, int]:
    """Converts the messages at the beginning of the data to batches; returns them and the number of bytes read."""
    consumed = 0
    try:
        for entry in iter_entries(data, partial_tail=True):
            if isinstance(entry, BatchView):
                break
            consumed += entry.size_in_bytes
        return b"".join(convert_to_v2(memoryview(data)[:consumed])), consumed
    except RecordError as error:
        raise CorruptRecordsError(f"{path}: {error}") from error


def _more(path: Path, data: bytes, position: int, size: int) -> int:
    """The size of the batch that begins there, of which the data has only a part."""
    needed = int.from_bytes(data[LENGTH_AT:LENGTH_PREFIX_SIZE], "big", signed=True) + LENGTH_PREFIX_SIZE
    if len(data) < LENGTH_PREFIX_SIZE or not len(data) < needed <= size - position:
        raise CorruptRecordsError(
            f"{path}: incomplete batch at position {position}, {size - position} bytes before the end"
        )
    return needed


def _refuse(path: Path, data: bytes, position: int) -> NoReturn:
    try:
        header = BatchView(data).validate()
    except RecordError as error:
        raise CorruptRecordsError(f"{path}: byte {position}: {error}") from error
    raise CorruptRecordsError(f"{path}: byte {position}: the batch at offset {header.base_offset} is not sound")
