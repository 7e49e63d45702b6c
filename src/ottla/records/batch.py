"""A magic-2 record batch in a buffer: reads, checks and patches its header in place, and does not touch its records.

This is all that a broker needs, so work is per batch and cheap: `read_header` reads every field with one unpack,
`BatchView` reads single fields on demand and always sees the current content of the buffer. Views own nothing: they are
valid as long as the buffer keeps its bytes, and patching needs a writable one. Neither decompresses or reads records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from ottla.records.errors import (
    BatchLengthError,
    CorruptBatchError,
    OffsetDeltaError,
    RecordCountError,
    TruncatedBatchError,
    UnknownCompressionError,
    UnknownMagicError,
)
from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    MAX_INT32,
    MAX_INT64,
    MAX_TIMESTAMP_AT,
    MINIMUM_RECORD_SIZE,
    NO_SEQUENCE,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    RECORDS_AT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    ByteBuffer,
    Compression,
    TimestampType,
)

HEADER = struct.Struct(">qiibIhiqqqhii")
"""All fields of the header, in the order of `BatchHeader`."""

_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")

_SHORTEST_LENGTH = 14
"""The minimum number of bytes after the length field for any magic: less is not a valid length."""

_COMPRESSIONS = tuple(Compression)
_TIMESTAMP_TYPES = tuple(TimestampType)


def compression_of(attributes: int) -> Compression:
    """The codec in the attribute bits."""
    codec = attributes & COMPRESSION_MASK
    if codec >= len(_COMPRESSIONS):
        raise UnknownCompressionError(f"compression {codec} is not one of {', '.join(c.name for c in _COMPRESSIONS)}")
    return _COMPRESSIONS[codec]


def attributes_of(
    *,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
) -> int:
    """The attribute bits of a batch."""
    return (
        compression
        | (TIMESTAMP_TYPE_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon else 0)
    )


def sequence_after(sequence: int, increment: int) -> int:
    """The sequence number that many records later: after 2^31-1 comes 0."""
    return (sequence + increment) & MAX_INT32


class _HeaderFields(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class BatchHeader(_HeaderFields):
    """The header of one batch when it was read: plain numbers in field order, and derived properties."""

    __slots__ = ()

    @property
    def size_in_bytes(self) -> int:
        """The whole batch, including the header."""
        return self.length + LENGTH_PREFIX_SIZE

    @property
    def compression(self) -> Compression:
        return compression_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return _TIMESTAMP_TYPES[bool(self.attributes & TIMESTAMP_TYPE_BIT)]

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones and markers of this batch (KIP-534): replaces the base timestamp."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 if the producer sends none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_after(self.base_sequence, self.last_offset_delta)


def batch_size(buffer: ByteBuffer, position: int = 0) -> int:
    """The size of the whole magic-2 batch at `position`, after checking that it is complete."""
    available = len(buffer) - position
    if available <= MAGIC_AT:
        _refuse_stub(buffer, position, available)
    length, magic = _LENGTH_AND_MAGIC.unpack_from(buffer, position)
    if magic != MAGIC_V2 or length < HEADER_SIZE - LENGTH_PREFIX_SIZE:
        _refuse_start(buffer, position, length, magic)
    size: int = length + LENGTH_PREFIX_SIZE
    if size > available:
        raise TruncatedBatchError(
            f"it is {size} bytes long, of which {available} are there",
            position=position,
            base_offset=_INT64.unpack_from(buffer, position)[0],
        )
    return size


def _refuse_stub(buffer: ByteBuffer, position: int, available: int) -> NoReturn:
    if available >= LENGTH_PREFIX_SIZE:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(buffer, position)
        if length < _SHORTEST_LENGTH:
            raise BatchLengthError(f"{length} is not a valid batch length", position=position, base_offset=base_offset)
    raise TruncatedBatchError(f"{available} bytes are too few for a batch", position=position)


def _refuse_start(buffer: ByteBuffer, position: int, length: int, magic: int) -> NoReturn:
    base_offset = _INT64.unpack_from(buffer, position)[0]
    if length < _SHORTEST_LENGTH or magic == MAGIC_V2:
        raise BatchLengthError(f"{length} is not a valid batch length", position=position, base_offset=base_offset)
    old = " (an old message set: `ottla.records.legacy` reads those)" if magic in (0, 1) else ""
    raise UnknownMagicError(f"magic {magic} instead of 2{old}", position=position, base_offset=base_offset)


def read_header(buffer: ByteBuffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, which must be complete. Checks length and magic, not the CRC."""
    if len(buffer) - position < HEADER_SIZE:
        batch_size(buffer, position)  # raises, with a message for each kind of error
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    length = header[1]
    if header[3] != MAGIC_V2 or not HEADER_SIZE <= length + LENGTH_PREFIX_SIZE <= len(buffer) - position:
        batch_size(buffer, position)
    return header


def compute_crc(buffer: ByteBuffer, position: int = 0) -> int:
    """The right CRC-32C of the batch at `position`."""
    end = position + batch_size(buffer, position)
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end])


class BatchView:
    """One complete batch in a buffer. Creating it checks length and magic; `validate` checks the rest of the header."""

    __slots__ = ("buffer", "position", "size_in_bytes")

    def __init__(self, buffer: ByteBuffer, position: int = 0) -> None:
        self.size_in_bytes = batch_size(buffer, position)
        self.buffer = buffer
        self.position = position

    def __repr__(self) -> str:
        return f"BatchView(position={self.position}, {self.header!r})"

    @property
    def header(self) -> BatchHeader:
        """All current fields with one unpack: for callers that need more than two or three."""
        return tuple.__new__(BatchHeader, HEADER.unpack_from(self.buffer, self.position))

    @property
    def data(self) -> memoryview:
        """The whole batch."""
        return memoryview(self.buffer)[self.position : self.position + self.size_in_bytes]

    @property
    def payload(self) -> memoryview:
        """The records, possibly compressed."""
        return memoryview(self.buffer)[self.position + RECORDS_AT : self.position + self.size_in_bytes]

    # Fields, each read in place.

    def _int32(self, at: int) -> int:
        value: int = _INT32.unpack_from(self.buffer, self.position + at)[0]
        return value

    def _int64(self, at: int) -> int:
        value: int = _INT64.unpack_from(self.buffer, self.position + at)[0]
        return value

    @property
    def base_offset(self) -> int:
        return self._int64(BASE_OFFSET_AT)

    @property
    def length(self) -> int:
        """The number of bytes after the length field: twelve less than the whole."""
        return self.size_in_bytes - LENGTH_PREFIX_SIZE

    @property
    def leader_epoch(self) -> int:
        return self._int32(LEADER_EPOCH_AT)

    @property
    def magic(self) -> int:
        return self.buffer[self.position + MAGIC_AT]

    @property
    def crc(self) -> int:
        value: int = _UINT32.unpack_from(self.buffer, self.position + CRC_AT)[0]
        return value

    @property
    def attributes(self) -> int:
        value: int = _INT16.unpack_from(self.buffer, self.position + ATTRIBUTES_AT)[0]
        return value

    @property
    def last_offset_delta(self) -> int:
        return self._int32(LAST_OFFSET_DELTA_AT)

    @property
    def base_timestamp_ms(self) -> int:
        return self._int64(BASE_TIMESTAMP_AT)

    @property
    def max_timestamp_ms(self) -> int:
        return self._int64(MAX_TIMESTAMP_AT)

    @property
    def producer_id(self) -> int:
        return self._int64(PRODUCER_ID_AT)

    @property
    def producer_epoch(self) -> int:
        value: int = _INT16.unpack_from(self.buffer, self.position + PRODUCER_EPOCH_AT)[0]
        return value

    @property
    def base_sequence(self) -> int:
        return self._int32(BASE_SEQUENCE_AT)

    @property
    def record_count(self) -> int:
        return self._int32(RECORD_COUNT_AT)

    # Derived properties: defined once, in BatchHeader.

    @property
    def compression(self) -> Compression:
        return compression_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return self.header.timestamp_type

    @property
    def is_transactional(self) -> bool:
        return self.header.is_transactional

    @property
    def is_control(self) -> bool:
        return self.header.is_control

    @property
    def has_delete_horizon(self) -> bool:
        return self.header.has_delete_horizon

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.header.delete_horizon_ms

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def next_offset(self) -> int:
        return self.header.next_offset

    @property
    def last_sequence(self) -> int:
        return self.header.last_sequence

    # Checking.

    def validate(self, *, verify_crc: bool = True) -> BatchHeader:
        """Returns the header after checking CRC, codec and counts: everything except the records."""
        header = self.header
        if verify_crc:
            crc = compute_crc(self.buffer, self.position)
            if crc != header.crc:
                raise CorruptBatchError(
                    f"its CRC is {header.crc:#010x}, its bytes have {crc:#010x}",
                    position=self.position,
                    base_offset=header.base_offset,
                )
        self._check_counts(header)
        return header

    def _check_counts(self, header: BatchHeader) -> None:
        count, last_offset_delta = header.record_count, header.last_offset_delta
        try:
            compression = compression_of(header.attributes)
        except UnknownCompressionError as error:
            raise error.located(position=self.position, base_offset=header.base_offset) from None
        if last_offset_delta < 0 or header.base_offset + last_offset_delta > MAX_INT64:
            raise OffsetDeltaError(
                f"{last_offset_delta} is not a valid last offset delta",
                position=self.position,
                base_offset=header.base_offset,
            )
        payload_size = self.size_in_bytes - HEADER_SIZE
        fits = compression is not Compression.NONE or count * MINIMUM_RECORD_SIZE <= payload_size
        # Compaction leaves gaps between offsets, so there may be fewer records than offsets, but never more.
        if not (0 <= count <= last_offset_delta + 1 and fits):
            raise RecordCountError(
                f"{count} records cannot be within {last_offset_delta + 1} offsets and {payload_size} bytes",
                position=self.position,
                base_offset=header.base_offset,
            )

    # Patching in place.

    def assign_offset(self, base_offset: int) -> None:
        """Sets the offset of the batch in the log. Not covered by the CRC."""
        _INT64.pack_into(self._writable(), self.position, base_offset)

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Sets the epoch of the leader that appends it. Not covered by the CRC."""
        _INT32.pack_into(self._writable(), self.position + LEADER_EPOCH_AT, leader_epoch)

    def assign_max_timestamp(self, timestamp_type: TimestampType, max_timestamp_ms: int) -> None:
        """Sets timestamp type and max timestamp, and updates the CRC. Does nothing if both are already right."""
        header = self.header
        if header.timestamp_type == timestamp_type and header.max_timestamp_ms == max_timestamp_ms:
            return
        buffer, position = self._writable(), self.position
        attributes = (header.attributes & ~TIMESTAMP_TYPE_BIT) | (TIMESTAMP_TYPE_BIT if timestamp_type else 0)
        _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
        _INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, max_timestamp_ms)
        self.refresh_crc()

    def assign_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Sets the producer's identity and sequence number, and updates the CRC: a producer may learn them late."""
        _PRODUCER.pack_into(
            self._writable(), self.position + PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence
        )
        self.refresh_crc()

    def refresh_crc(self) -> None:
        """Updates the CRC to the current bytes."""
        _UINT32.pack_into(self._writable(), self.position + CRC_AT, compute_crc(self.buffer, self.position))

    def _writable(self) -> bytearray | memoryview:
        if isinstance(self.buffer, bytes) or (isinstance(self.buffer, memoryview) and self.buffer.readonly):
            raise TypeError("this batch is in a read-only buffer: copy it to a bytearray first")
        return self.buffer


def iter_batches(buffer: ByteBuffer, position: int = 0, *, partial_tail: bool = False) -> Iterator[BatchView]:
    """Yields the batches from `position` to the end of the buffer.

    With `partial_tail`, an incomplete last batch is skipped, as in fetch responses; a wrong length or magic is still an
    error. Without it, an incomplete batch is an error as well.
    """
    end = len(buffer)
    while position < end:
        try:
            view = BatchView(buffer, position)
        except TruncatedBatchError:
            if partial_tail:
                return
            raise
        yield view
        position += view.size_in_bytes
