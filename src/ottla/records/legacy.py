"""Message sets before magic 2, from old clients and old log files: they are read and converted, never written.

    offset          i64    0     magic           i8    16          what follows the attributes:
    size            i32    8     attributes      i8    17            magic 1: timestamp i64
    crc-32          u32   12                                          key    i32 length (-1: null), bytes
                                                                      value  i32 length (-1: null), bytes

A compressed message is a wrapper: its value is a compressed message set of the same magic; its offset is that of the
last message inside. In magic 0 the inner offsets are absolute, in magic 1 relative to the first one. Magic 0 has no
timestamps. In magic 1 the wrapper's timestamp applies to every message inside if the broker's clock set it.

`iter_entries` accepts buffers with all three magics, as in a log that was upgraded.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ottla.records.batch import BatchView, compression_of
from ottla.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, decompress
from ottla.records.errors import (
    BatchLengthError,
    CorruptBatchError,
    MalformedRecordError,
    OffsetDeltaError,
    RecordError,
    TruncatedBatchError,
    UnknownMagicError,
)
from ottla.records.layout import (
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V0,
    MAGIC_V1,
    MAX_INT32,
    MAX_INT64,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    ByteBuffer,
    Compression,
    TimestampType,
)
from ottla.records.plain import BatchOptions, decode_batch, encode_batch
from ottla.records.record import Record

_HEADER = struct.Struct(">qiIbB")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

_TIMESTAMP_AT = 18
_SMALLEST_SIZE = {MAGIC_V0: 26, MAGIC_V1: 34}
"""The size of a message with null key and null value, including offset and size field."""

_CONVERTED_BATCH_BYTES = 1024 * 1024
"""When uncompressed messages are combined into batches, one is closed once its messages took this much."""


class MessageView:
    """One message of magic 0 or 1 in a buffer, possibly a wrapper. Creating it checks size and magic, not the CRC."""

    __slots__ = ("attributes", "buffer", "crc", "magic", "offset", "position", "size_in_bytes")

    offset: int
    crc: int
    magic: int
    attributes: int

    def __init__(self, buffer: ByteBuffer, position: int = 0) -> None:
        magic = _magic_at(buffer, position)
        if magic not in _SMALLEST_SIZE:
            raise UnknownMagicError(f"magic {magic} instead of 0 or 1", position=position)
        if len(buffer) - position < _HEADER.size:
            raise TruncatedBatchError(f"{len(buffer) - position} bytes are too few for a message", position=position)
        self.offset, size, self.crc, self.magic, self.attributes = _HEADER.unpack_from(buffer, position)
        self.size_in_bytes = size + LENGTH_PREFIX_SIZE
        self.buffer = buffer
        self.position = position
        if self.size_in_bytes < _SMALLEST_SIZE[magic]:
            raise self._error(BatchLengthError, f"a message of magic {magic} cannot have size {size}")
        if self.size_in_bytes > len(buffer) - position:
            available = len(buffer) - position
            raise self._error(
                TruncatedBatchError, f"it is {self.size_in_bytes} bytes long, of which {available} are there"
            )

    def _error(self, kind: type[RecordError], reason: str) -> RecordError:
        return kind(reason, position=self.position, base_offset=self.offset)

    @property
    def last_offset(self) -> int:
        """The offset of the message, or of the last one inside if it is a wrapper."""
        return self.offset

    @property
    def compression(self) -> Compression:
        return compression_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        stamped = self.magic == MAGIC_V1 and self.attributes & TIMESTAMP_TYPE_BIT
        return TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME

    @property
    def timestamp_ms(self) -> int:
        if self.magic == MAGIC_V0:
            return NO_TIMESTAMP
        value: int = _INT64.unpack_from(self.buffer, self.position + _TIMESTAMP_AT)[0]
        return value

    def validate(self) -> None:
        """Checks the CRC, which covers everything from the magic on."""
        crc = zlib.crc32(memoryview(self.buffer)[self.position + MAGIC_AT : self.position + self.size_in_bytes])
        if crc != self.crc:
            raise self._error(CorruptBatchError, f"its CRC is {self.crc:#010x}, its bytes have {crc:#010x}")

    def key_and_value(self) -> tuple[memoryview | None, memoryview | None]:
        """Both as views; the value of a wrapper is compressed."""
        end = self.size_in_bytes
        key, position = self._field("key", _TIMESTAMP_AT if self.magic == MAGIC_V0 else _TIMESTAMP_AT + 8)
        value, position = self._field("value", position)
        if position != end:
            raise self._error(MalformedRecordError, f"{end - position} bytes follow the value")
        return key, value

    def _field(self, what: str, at: int) -> tuple[memoryview | None, int]:
        left = self.size_in_bytes - at - 4
        if left < 0:
            raise self._error(MalformedRecordError, f"the length of its {what} is cut off")
        start = self.position + at + 4
        size = _INT32.unpack_from(self.buffer, start - 4)[0]
        if size == -1:
            return None, at + 4
        if not 0 <= size <= left:
            raise self._error(MalformedRecordError, f"it has a {what} of {size} bytes, {left} are left")
        return memoryview(self.buffer)[start : start + size], at + 4 + size

    def records(
        self, *, verify_crc: bool = True, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    ) -> list[Record]:
        """The record of this message, or those inside the wrapper."""
        if verify_crc:
            self.validate()
        try:
            if self.compression is Compression.NONE:
                return [self._record(self.offset, self.timestamp_ms)]
            return self._inner_records(verify_crc, max_decompressed_bytes)
        except RecordError as error:
            raise error.located(position=self.position, base_offset=self.offset) from error.__cause__

    def _record(self, offset: int, timestamp_ms: int) -> Record:
        key, value = self.key_and_value()
        return Record(
            offset, timestamp_ms, None if key is None else bytes(key), None if value is None else bytes(value)
        )

    def _inner_records(self, verify_crc: bool, max_decompressed_bytes: int) -> list[Record]:
        _, value = self.key_and_value()
        if value is None:
            raise MalformedRecordError("the message is compressed and has no value")
        payload = decompress(self.compression, value, max_bytes=max_decompressed_bytes, magic=self.magic)
        inner = list(_messages_inside(payload, self.magic))
        if not inner:
            raise MalformedRecordError("the message is compressed and contains no message")
        base = self._base_of_inner_offsets(inner[-1].offset)
        stamped = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        records = []
        for message in inner:
            if verify_crc:
                message.validate()
            offset = base + message.offset
            if offset > MAX_INT64:
                raise OffsetDeltaError(f"an offset inside of it would be {offset}, beyond 64 bits")
            records.append(message._record(offset, self.timestamp_ms if stamped else message.timestamp_ms))
        return records

    def _base_of_inner_offsets(self, last_inner_offset: int) -> int:
        # Producers may leave the wrapper's offset at zero: then the relative offsets are used as they are.
        if self.magic == MAGIC_V0 or self.offset == 0:
            return 0
        if self.offset < last_inner_offset:
            raise OffsetDeltaError(f"offset {self.offset} is before the last one inside, {last_inner_offset}")
        return self.offset - last_inner_offset


def _messages_inside(payload: ByteBuffer, magic: int) -> Iterator[MessageView]:
    position = 0
    while position < len(payload):
        message = MessageView(payload, position)
        if message.magic != magic:
            raise UnknownMagicError(f"a message of magic {message.magic} inside of one of magic {magic}")
        if message.compression is not Compression.NONE:
            raise MalformedRecordError("a compressed message inside of a compressed message")
        yield message
        position += message.size_in_bytes


def _magic_at(buffer: ByteBuffer, position: int) -> int:
    available = len(buffer) - position
    if available >= LENGTH_PREFIX_SIZE:
        size = _INT32.unpack_from(buffer, position + 8)[0]
        if size + LENGTH_PREFIX_SIZE < _SMALLEST_SIZE[MAGIC_V0]:
            raise BatchLengthError(f"nothing has size {size}", position=position)
    if available <= MAGIC_AT:
        raise TruncatedBatchError(f"{available} bytes are too few for a message", position=position)
    return buffer[position + MAGIC_AT]


def iter_entries(
    buffer: ByteBuffer, position: int = 0, *, partial_tail: bool = False
) -> Iterator[BatchView | MessageView]:
    """Yields batches and messages of any magic from `position` on.

    `partial_tail` as in `ottla.records.batch.iter_batches`.
    """
    while position < len(buffer):
        try:
            old = _magic_at(buffer, position) in _SMALLEST_SIZE
            entry = MessageView(buffer, position) if old else BatchView(buffer, position)
        except TruncatedBatchError:
            if partial_tail:
                return
            raise
        yield entry
        position += entry.size_in_bytes


def iter_records(
    buffer: ByteBuffer,
    *,
    partial_tail: bool = False,
    verify_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Iterator[Record]:
    """Yields the records of all entries of any magic, except those of control batches."""
    for entry in iter_entries(buffer, partial_tail=partial_tail):
        if isinstance(entry, MessageView):
            yield from entry.records(verify_crc=verify_crc, max_decompressed_bytes=max_decompressed_bytes)
        elif entry.is_control:
            entry.validate(verify_crc=verify_crc)
        else:
            yield from decode_batch(entry, verify_crc=verify_crc, max_decompressed_bytes=max_decompressed_bytes)


def convert_to_v2(
    buffer: ByteBuffer,
    *,
    base_offset: int | None = None,
    partial_tail: bool = False,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[bytearray]:
    """Returns the same records in magic-2 batches, with their compression, timestamps and timestamp type; magic 2 is
    unchanged.

    Each wrapper becomes a batch, other messages are combined. Offsets are kept, or, if `base_offset` is given, counted
    from there: those in a produce request have no meaning, and old clients leave them all zero.
    """
    batches = []
    next_offset = base_offset
    for run in _runs(buffer, partial_tail, max_decompressed_bytes, keep_offsets=base_offset is None):
        batch = bytearray(run.data) if isinstance(run, BatchView) else run.encode(keep_offsets=base_offset is None)
        if next_offset is not None:
            view = BatchView(batch)
            view.assign_offset(next_offset)
            next_offset = view.next_offset
        batches.append(batch)
    return batches


@dataclass(slots=True)
class _Run:
    """Messages that go into the same batch."""

    position: int
    compression: Compression
    timestamp_type: TimestampType
    records: list[Record]
    size_in_bytes: int

    def takes(self, message: MessageView, *, keep_offsets: bool) -> bool:
        """Whether the batch can also take this message and still have the same properties for all its records."""
        if self.compression is not Compression.NONE or message.compression is not Compression.NONE:
            return False
        if self.timestamp_type is not message.timestamp_type or self.size_in_bytes >= _CONVERTED_BATCH_BYTES:
            return False
        first, last = self.records[0], self.records[-1]
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME and first.timestamp_ms != message.timestamp_ms:
            return False
        return not keep_offsets or last.offset < message.offset <= first.offset + MAX_INT32

    def encode(self, *, keep_offsets: bool) -> bytearray:
        first = self.records[0]
        if keep_offsets:
            for before, after in pairwise(self.records):
                if not before.offset < after.offset <= first.offset + MAX_INT32:
                    reason = f"offset {after.offset} inside of it follows {before.offset}"
                    raise OffsetDeltaError(reason, position=self.position, base_offset=first.offset)
        for record in self.records:
            if record.timestamp_ms < NO_TIMESTAMP:
                reason = f"timestamp {record.timestamp_ms} is neither -1 (none) nor later"
                raise MalformedRecordError(reason, position=self.position, base_offset=first.offset)
        options = BatchOptions(
            base_offset=first.offset, compression=self.compression, timestamp_type=self.timestamp_type
        )
        return encode_batch(self.records, options, keep_offsets=keep_offsets)


def _runs(
    buffer: ByteBuffer, partial_tail: bool, max_decompressed_bytes: int, *, keep_offsets: bool
) -> Iterator[BatchView | _Run]:
    run: _Run | None = None
    for entry in iter_entries(buffer, partial_tail=partial_tail):
        if isinstance(entry, MessageView):
            records = entry.records(max_decompressed_bytes=max_decompressed_bytes)
            if run and run.takes(entry, keep_offsets=keep_offsets):
                run.records += records
                run.size_in_bytes += entry.size_in_bytes
                continue
        if run:
            yield run
            run = None
        if isinstance(entry, BatchView):
            yield entry
        else:
            run = _Run(entry.position, entry.compression, entry.timestamp_type, records, entry.size_in_bytes)
    if run:
        yield run
