"""Walks through the batches of a log file, by their headers or completely, with no more than a chunk in memory.

A file may contain messages of magic 0 and 1 from before an upgrade. They get a header, too: base offset and last offset
are both the message's own (for a wrapper the last one inside), the timestamps both its timestamp, which for a wrapper
is the newest inside; there is no producer and no epoch, and the record count of a wrapper is unknown (-1).

`end` limits the walk and is treated as the end of the file. A batch that extends beyond it raises a
`TruncatedBatchError`: a damaged length must not look like the end of the file. Any other damage is a `RecordError` with
the position in the file. Offsets increase from batch to batch; `OffsetOrderError` says where they do not, because no
CRC covers a base offset.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NoReturn

from crc32c import crc32c

from ottla.base.disk import File
from ottla.records.batch import HEADER, BatchHeader
from ottla.records.errors import (
    BatchLengthError,
    CorruptBatchError,
    RecordError,
    TruncatedBatchError,
    UnknownMagicError,
)
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    ByteBuffer,
)

CHUNK_BYTES: Final = 1024 * 1024
_FIRST_CHUNK_BYTES: Final = 64 * 1024
_WINDOW_BYTES: Final = 8 * 1024
"""For look-ups: a little more than an index interval, within which most of them end."""

FoundBatch = tuple[int, int, int, bytes, int]
"""Position, size and base offset of a batch; bytes that were read to find it, and where in them it begins."""

_STEP = struct.Struct(">qi4xb6xi")
"""Only base offset, length, magic and last offset delta of a header."""
_NO_STEP: Final = (0, 0, 0, 0)
_PREFIX = struct.Struct(">qi4xb")
_OLD = struct.Struct(">qiIbB")
_TIMESTAMP = struct.Struct(">18xq")
_OLD_SIZES: Final = {MAGIC_V0: 26, MAGIC_V1: 34}
_SHORTEST_LENGTH: Final = 14
_SHORTEST_V2: Final = HEADER_SIZE - LENGTH_PREFIX_SIZE


def header_at(buffer: ByteBuffer, at: int, available: int, position: int) -> BatchHeader:
    """The header of the batch at `at`; the file has `available` bytes from there on, of which the buffer contains at
    least those of the header. `position` is the position in the file, for errors."""
    if available >= HEADER_SIZE:
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, at))
        if header[3] == MAGIC_V2 and _SHORTEST_V2 <= header[1] <= available - LENGTH_PREFIX_SIZE:
            return header
    return _old_header_at(buffer, at, available, position)


def _old_header_at(buffer: ByteBuffer, at: int, available: int, position: int) -> BatchHeader:
    if available <= MAGIC_AT:
        raise TruncatedBatchError(f"{available} bytes are too few for a batch", position=position)
    offset, length, magic = _PREFIX.unpack_from(buffer, at)
    size = length + LENGTH_PREFIX_SIZE
    if length < _SHORTEST_LENGTH:
        _refuse_length(length, position, offset)
    if size > available:
        raise TruncatedBatchError(
            f"it is {size} bytes long, of which {available} are there", position=position, base_offset=offset
        )
    if magic not in _OLD_SIZES:
        if magic == MAGIC_V2:
            _refuse_length(length, position, offset)
        raise UnknownMagicError(f"magic {magic} is not one of 0, 1, 2", position=position, base_offset=offset)
    if size < _OLD_SIZES[magic]:
        _refuse_length(length, position, offset)
    _, _, crc, _, attributes = _OLD.unpack_from(buffer, at)
    timestamp_ms: int = NO_TIMESTAMP if magic == MAGIC_V0 else _TIMESTAMP.unpack_from(buffer, at)[0]
    compressed = attributes & COMPRESSION_MASK
    return BatchHeader(
        base_offset=offset,
        length=length,
        leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=compressed | (attributes & TIMESTAMP_TYPE_BIT if magic == MAGIC_V1 else 0),
        last_offset_delta=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=-1 if compressed else 1,
    )


def _refuse_length(length: int, position: int, offset: int) -> NoReturn:
    raise BatchLengthError(f"{length} is not a valid batch length", position=position, base_offset=offset)


class OffsetOrderError(RecordError):
    """The offsets of a batch do not come after those of the previous batch."""


def _check_length_read(size: int, wanted: int, position: int) -> None:
    if size < wanted:
        raise TruncatedBatchError(f"the file ends after {size} of {wanted} bytes", position=position)


def iter_headers(
    file: File, position: int, end: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch. Reads at most `chunk_bytes` at once, and less the larger batches are: for
    large ones little more than the headers."""
    wanted = min(chunk_bytes, _FIRST_CHUNK_BYTES)
    while position < end:
        buffer = file.read_at(position, min(wanted, end - position))
        start, size = position, len(buffer)
        enough = min(HEADER_SIZE, end - position)
        _check_length_read(size, enough, position)
        at, previous = 0, position
        while size - at >= enough:
            available = end - start - at
            header = header_at(buffer, at, available, start + at)
            yield start + at, header
            previous = start + at
            at += header[1] + LENGTH_PREFIX_SIZE
            enough = min(HEADER_SIZE, available - header[1] - LENGTH_PREFIX_SIZE)
            if not enough:
                return
        position = start + at
        is_large = position - previous > size // 4
        wanted = max(wanted // 4, HEADER_SIZE) if is_large else min(wanted * 4, chunk_bytes)


def iter_batches(
    file: File, position: int, end: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each batch, with its CRC checked. The bytes stay valid as long as they are held."""
    wanted = chunk_bytes
    while position < end:
        buffer = file.read_at(position, min(wanted, end - position))
        view, start, size = memoryview(buffer), position, len(buffer)
        if size < min(wanted, end - position):
            end = position + size  # the file is shorter than it should be
        wanted = chunk_bytes
        at = 0
        while at < size:
            if size - at < HEADER_SIZE and start + size < end:
                break
            header = header_at(buffer, at, end - start - at, start + at)
            behind = at + header[1] + LENGTH_PREFIX_SIZE
            if behind > size:
                wanted = max(chunk_bytes, behind - at)
                break
            data = view[at:behind]
            if header[3] != MAGIC_V2 or crc32c(data[ATTRIBUTES_AT:]) != header[4]:
                check_crc(header, data, start + at)
            yield start + at, header, data
            at = behind
        position = start + at


def iter_in_order(file: File, end: int, first_offset: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """The batches of a file from its start, with their CRCs checked, up to the first invalid one. No CRC covers a base
    offset: a batch with a gap before it does not count if the next one does not follow it."""
    expected = first_offset
    doubtful: tuple[int, BatchHeader, memoryview] | None = None
    try:
        for batch in iter_batches(file, 0, end):
            header = batch[1]
            base_offset = header[0]
            if base_offset == expected and doubtful is None:  # nearly all
                yield batch
            elif base_offset < expected and header[3] >= MAGIC_V2:
                return
            else:
                if doubtful is not None:
                    yield doubtful
                    doubtful = None
                if base_offset == expected or header[3] < MAGIC_V2:
                    yield batch
                else:
                    doubtful = batch
            expected = base_offset + header[6] + 1
    except RecordError:
        pass
    if doubtful is not None:  # a follower that truncated in the middle of a batch has such a gap
        yield doubtful


def check_crc(header: BatchHeader, data: memoryview, position: int) -> None:
    """Raises `CorruptBatchError` if the CRC of a complete batch, of any magic, is wrong."""
    crc = crc32c(data[ATTRIBUTES_AT:]) if header[3] == MAGIC_V2 else zlib.crc32(data[MAGIC_AT:])
    if crc != header[4]:
        raise CorruptBatchError(
            f"its CRC is {header[4]:#010x}, its bytes have {crc:#010x}", position=position, base_offset=header[0]
        )


def find_offset(
    file: File, position: int, end: int, offset: int, *, window_bytes: int = _WINDOW_BYTES
) -> FoundBatch | None:
    """The first batch that reaches the offset; None if none does.

    The hot path of reading: one read of a window, and only the necessary fields of each header. After a batch that is
    larger than the window only the next header is read.
    """
    unpack = _STEP.unpack_from
    wanted = window_bytes
    previous, size = -1, 0
    while end - position >= HEADER_SIZE:
        buffer = file.read_at(position, min(wanted, end - position))
        last_at = len(buffer) - HEADER_SIZE
        if last_at < 0:
            _check_length_read(len(buffer), HEADER_SIZE, position)
        at = 0
        while at <= last_at:
            base_offset, length, magic, last_offset_delta = unpack(buffer, at)
            if magic != MAGIC_V2 or length < _SHORTEST_V2 or base_offset <= previous or last_offset_delta < 0:
                header = header_at(buffer, at, end - position - at, position + at)
                length, last_offset_delta = header.length, header.last_offset_delta
                if header.magic == MAGIC_V2:
                    _refuse_offsets(header, previous, position + at)
            size = length + LENGTH_PREFIX_SIZE
            previous = base_offset + last_offset_delta
            if previous >= offset:
                if position + at + size > end:
                    _refuse_size(size, position + at, end, base_offset)
                return position + at, size, base_offset, buffer, at
            at += size
        position += at
        if size > window_bytes:
            wanted = HEADER_SIZE
        else:
            wanted = window_bytes = min(window_bytes * 2, CHUNK_BYTES)
    if position > end:
        _refuse_size(size, position - size, end, None)
    # Fewer bytes than a current header: perhaps an old message.
    for found, header in iter_headers(file, position, end):
        if header.last_offset >= offset:
            return found, header.size_in_bytes, header.base_offset, b"", 0
    return None


def _refuse_offsets(header: BatchHeader, previous: int, position: int) -> NoReturn:
    reason = f"its offsets {header.base_offset} to {header.last_offset} do not come after {previous}"
    raise OffsetOrderError(reason, position=position, base_offset=header.base_offset)


def _refuse_size(size: int, position: int, end: int, offset: int | None) -> NoReturn:
    reason = f"it is {size} bytes long, of which {end - position} are there"
    raise TruncatedBatchError(reason, position=position, base_offset=offset)


def check_chain(
    file: File, position: int, until: int, end: int, *, first_offset: int, end_offset: int, compacted: bool
) -> tuple[int, int, RecordError | None]:
    """Follows the batches from the one at `position` to the last that begins before `until`. Each must lead to the
    next, and their offsets must increase from `first_offset` on and stay below `end_offset`.

    If offsets are missing between two batches of a log that is not `compacted`, the CRC of the first one tells whether
    its length or last offset are damaged; if it is right, so is the gap (a follower has those of its leader).

    Returns where to continue later, the last batch that is known to be valid; how far those reach; and the error of the
    first one that cannot be relied on, at the error's position.
    """
    unpack = _STEP.unpack_from
    wanted = window_bytes = _WINDOW_BYTES
    previous, previous_at, previous_size, previous_magic = first_offset - 1, position, 0, MAGIC_V2
    before_at, is_continuing = position, True
    # A batch that follows the previous one without a gap is not at fault if the next does not follow.
    try:
        while position < until:
            buffer = file.read_at(position, min(wanted, until - position + HEADER_SIZE, end - position))
            enough = min(HEADER_SIZE, end - position)
            _check_length_read(len(buffer), enough, position)
            at, last_at = 0, len(buffer) - enough
            while at <= last_at and position < until:
                base_offset, length, magic, last_offset_delta = (
                    unpack(buffer, at) if enough == HEADER_SIZE else _NO_STEP
                )
                if magic != MAGIC_V2 or length < _SHORTEST_V2 or last_offset_delta < 0:
                    header = header_at(buffer, at, end - position, position)
                    base_offset, length, magic = header.base_offset, header.length, header.magic
                    last_offset_delta = header.last_offset_delta
                    if magic == MAGIC_V2:
                        _refuse_offsets(header, previous, position)
                size = length + LENGTH_PREFIX_SIZE
                if size > end - position:
                    _refuse_size(size, position, end, base_offset)
                last_offset = base_offset + last_offset_delta
                follows = base_offset == previous + 1 or magic != MAGIC_V2
                if not follows and base_offset <= previous:
                    reason = f"offset {base_offset} at byte {position} comes after {previous} at {previous_at}"
                    if not is_continuing:
                        return before_at, previous_at, OffsetOrderError(reason, position=previous_at)
                    raise OffsetOrderError(reason, position=position, base_offset=base_offset)
                # An old message after a batch is more likely the result of a wrong length.
                is_gap_strange = not follows and not compacted
                if previous_size and (is_gap_strange or (magic != MAGIC_V2 and previous_magic == MAGIC_V2)):
                    try:
                        _check_crc_at(file, previous_at, previous_size)
                    except RecordError as error:
                        return before_at, previous_at, error
                if last_offset >= end_offset and magic == MAGIC_V2:
                    reason = f"its last offset is {last_offset}, but offset {end_offset} comes after it"
                    raise OffsetOrderError(reason, position=position, base_offset=base_offset)
                before_at, is_continuing = previous_at, follows
                previous, previous_at, previous_size, previous_magic = last_offset, position, size, magic
                at += size
                position += size
                enough = min(HEADER_SIZE, end - position)
                last_at = len(buffer) - enough
            if previous_size > window_bytes:
                wanted = HEADER_SIZE
            else:
                wanted = window_bytes = min(window_bytes * 2, CHUNK_BYTES)
    except RecordError as error:
        if previous_size:
            try:
                _check_crc_at(file, previous_at, previous_size)
            except RecordError as cause:  # there is no batch where its length leads
                return before_at, previous_at, cause
        return previous_at, position, error
    return previous_at, position, None


def _check_crc_at(file: File, position: int, size: int) -> None:
    data = memoryview(file.read_at(position, size))
    _check_length_read(len(data), size, position)
    check_crc(header_at(data, 0, size, position), data, position)


def has_batch_of(file: File, position: int, end: int, first_offset: int, last_offset: int) -> bool:
    """Whether a batch with offsets in this range begins at the position: what an index entry promises."""
    size = min(HEADER_SIZE, end - position)
    buffer = file.read_at(position, max(size, 0))
    if len(buffer) < size:
        return False
    try:
        header = header_at(buffer, 0, end - position, position)
    except RecordError:
        return False
    return first_offset <= header.base_offset and header.last_offset <= last_offset
