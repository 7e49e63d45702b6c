"""Validates batches before they are appended, and assigns their offsets.

Checks headers and, for a producer's batch, the records as well (`record_validation`). Batches of coordinators and
leaders are trusted. A batch is patched in place; it is copied only if its codec must change.

`validate_and_assign` does everything at once. If the caller asks for it (`bounded`), a batch that takes long raises
`LargeBatchError` instead, and is left unchanged: `prepare`, which is thread-safe, then does everything except assigning
offsets. Changing the codec of a batch that is not small takes long: compressing costs more than the rest of an append.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from crc32c import crc32c

from ottla.base.disk import Buffer
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.errors import (
    CorruptRecordsError,
    InvalidRecordsError,
    InvalidTimestampError,
    LargeBatchError,
    LogRecordTooLargeError,
    NotOneBatchError,
)
from ottla.log.producer_state import DuplicateBatch
from ottla.log.record_validation import decompressed, is_large, keeps_rules, validate_records
from ottla.records import (
    BatchHeader,
    BatchView,
    Compression,
    RecordError,
    TimestampType,
    TruncatedBatchError,
    compress,
    read_header,
)
from ottla.records.batch import HEADER
from ottla.records.errors import OffsetDeltaError, RecordCountError, UnknownCompressionError
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    MINIMUM_RECORD_SIZE,
    TIMESTAMP_TYPE_BIT,
)
from ottla.records.record_walk import walk, walk_one

NO_TIMESTAMP: Final = -1
_LAST_CODEC: Final = max(Compression)
_NOT_FOR_CLIENTS: Final = CONTROL_BIT | DELETE_HORIZON_BIT
_UNUSUAL_FOR_CLIENTS: Final = _NOT_FOR_CLIENTS | TIMESTAMP_TYPE_BIT
# Looking up an enum member costs as much as a comparison.
_CLIENT: Final = AppendOrigin.CLIENT
_COORDINATOR: Final = AppendOrigin.COORDINATOR
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
_LOOP_RECOMPRESSED_BYTES: Final = 16 * 1024
"""The size of a batch as it was sent: a larger one is recompressed in a thread; for a smaller one that costs more than
it gains."""
_PLACE = struct.Struct(">qii")
"""Base offset, length and leader epoch: the start of a batch, which the CRC does not cover."""


@dataclass(slots=True)
class AppendInfo:
    """What is appended: the batches' headers, and what follows from them."""

    headers: tuple[BatchHeader, ...]
    valid_bytes: int
    """Without the incomplete batch at the end of a fetch."""
    first_offset: int = -1
    last_offset: int = -1
    max_timestamp_ms: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    """The last offset of the batch with the newest record."""
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = -1
    offsets_monotonic: bool = True
    is_duplicate: bool = False

    @classmethod
    def of(cls, headers: tuple[BatchHeader, ...], valid_bytes: int) -> AppendInfo:
        if len(headers) == 1:  # every produce request of a client
            header = headers[0]
            last = header.base_offset + header.last_offset_delta
            return cls(headers, valid_bytes, header.base_offset, last, header.max_timestamp_ms, last)
        info = cls(headers, valid_bytes)
        previous, newest_ms = -1, NO_TIMESTAMP
        for header in headers:
            base_offset = header[0]
            last = base_offset + header[6]
            if header[8] > newest_ms:
                newest_ms, info.offset_of_max_timestamp = header[8], last
            if base_offset <= previous:
                info.offsets_monotonic = False
            previous = last
        info.max_timestamp_ms = newest_ms
        if headers:
            info.first_offset, info.last_offset = headers[0].base_offset, previous
        return info

    def of_duplicate(self, duplicate: DuplicateBatch, log_start_offset: int) -> AppendInfo:
        """What a producer gets for a batch that it sent before."""
        return AppendInfo(
            self.headers,
            self.valid_bytes,
            first_offset=duplicate.first_offset,
            last_offset=duplicate.last_offset,
            log_append_time_ms=duplicate.timestamp_ms,  # even if the topic does not use that time, as in Kafka
            log_start_offset=log_start_offset,
            is_duplicate=True,
        )


class ValidatedBatches(NamedTuple):
    """Batches that may be written as they are."""

    data: Buffer
    info: AppendInfo


class PreparedBatches(NamedTuple):
    """Batches that were validated under a config, and only need offsets. They own the buffer, which is writable."""

    data: Buffer
    headers: tuple[BatchHeader, ...]
    config: LogConfig


def analyse(data: Buffer, origin: AppendOrigin) -> AppendInfo:
    """The headers of the batches, after checking lengths, magic and CRC. A follower's last batch may be incomplete."""
    headers, valid_bytes = _sound_headers(data, origin)
    return AppendInfo.of(headers, valid_bytes)


def _sound_headers(data: Buffer, origin: AppendOrigin) -> tuple[tuple[BatchHeader, ...], int]:
    headers = []
    position, size = 0, len(data)
    view = memoryview(data)
    try:
        while position < size:
            header = read_header(data, position)
            end = position + header.length + LENGTH_PREFIX_SIZE
            if crc32c(view[position + ATTRIBUTES_AT : end]) != header.crc:
                BatchView(data, position).validate()  # raises with a full message
            count = header[12]
            if (
                header[5] & COMPRESSION_MASK > _LAST_CODEC
                or not 0 <= count <= header[6] + 1
                or count * MINIMUM_RECORD_SIZE > header[1]
            ):
                BatchView(data, position).validate(verify_crc=False)  # raises, unless compression explains it
            headers.append(header)
            position = end
    except TruncatedBatchError as error:
        if origin is not AppendOrigin.REPLICATION:
            raise NotOneBatchError(str(error)) from error
    except RecordError as error:
        # With a right CRC it is what the producer sent, and sending it again cannot help.
        is_lie = origin is _CLIENT and isinstance(error, (RecordCountError, OffsetDeltaError, UnknownCompressionError))
        raise (InvalidRecordsError if is_lie else CorruptRecordsError)(str(error)) from error
    return tuple(headers), position


def _check_lengths(data: Buffer, config: LogConfig) -> None:
    """A client may send one batch per partition, with offset 0 and a limited size. Checked before CRCs, as in Kafka:
    clients retry a wrong CRC."""
    try:
        header = read_header(data, 0)
    except RecordError:
        return  # reported with the batch's other faults
    size = header.size_in_bytes
    if size < len(data):
        with suppress(RecordError):  # trailing bytes are reported with the faults of the first batch, if it has any
            if not _is_old_batch(data, size):
                read_header(data, size)
            behind = len(data) - size
            raise NotOneBatchError(
                f"{behind} bytes follow the batch; a request may contain only one batch per partition"
            )
    if header.base_offset:
        raise InvalidRecordsError(f"a client's batch begins at offset 0, not at {header.base_offset}")
    _check_size(header, config)


def _is_old_batch(data: Buffer, position: int) -> bool:
    """Whether a complete message of magic 0 or 1 is there, according to its length."""
    if len(data) - position <= MAGIC_AT or data[position + MAGIC_AT] >= MAGIC_V2:
        return False
    length = int.from_bytes(data[position + LENGTH_AT : position + LENGTH_PREFIX_SIZE], "big", signed=True)
    return 0 < length <= len(data) - position - LENGTH_PREFIX_SIZE


def has_old_magic(data: Buffer) -> bool:
    """Whether the first batch is a message set of magic 0 or 1."""
    return len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC_V2


def validate_and_assign(
    data: Buffer,
    next_offset: int,
    now_ms: int,
    config: LogConfig,
    leader_epoch: int,
    origin: AppendOrigin,
    bounded: bool = False,
) -> ValidatedBatches:
    """Checks what a leader should append and assigns offsets from `next_offset` on, the epoch, and, if the topic says
    so, the time and the codec. Patches the given buffer if it is writable."""
    if config.compression is None:
        info = _assign_one(data, next_offset, now_ms, config, leader_epoch, origin, bounded)
        if info is not None:
            return tuple.__new__(ValidatedBatches, (data, info))
    elif bounded and must_be_recompressed(data, config):
        raise LargeBatchError(f"{len(data)} bytes to compress as {config.compression.name.lower()}")
    prepared = prepare(data, now_ms=now_ms, config=config, origin=origin, bounded=bounded)
    return assign(prepared, next_offset=next_offset, now_ms=now_ms, leader_epoch=leader_epoch)


def must_be_recompressed(data: Buffer, config: LogConfig) -> bool:
    """Whether the topic has another codec than the first batch, according to its header, and to change it takes too
    long for the loop."""
    return (
        config.compression is not None
        and len(data) > _LOOP_RECOMPRESSED_BYTES
        and data[ATTRIBUTES_AT + 1] & COMPRESSION_MASK != config.compression
    )


def prepare(
    data: Buffer, *, now_ms: int, config: LogConfig, origin: AppendOrigin = _CLIENT, bounded: bool = False
) -> PreparedBatches:
    """Does everything of `validate_and_assign` that does not depend on the log. Thread-safe."""
    if has_old_magic(data):
        raise NotOneBatchError(
            f"records of the old format {data[MAGIC_AT]}; this needs format {MAGIC_V2}, Kafka 0.11's"
        )
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        data = bytearray(data)
    if origin is _CLIENT:
        _check_lengths(data, config)
    headers, _ = _sound_headers(data, origin)
    for header in headers:
        _check_batch(header, config, origin, now_ms)
    batches = [
        _prepared(data, position, header, config, origin, now_ms, bounded)
        for position, header in zip(_positions(headers), headers, strict=True)
    ]
    if any(type(batch) is bytearray for batch in batches):
        data = batches[0] if len(batches) == 1 else bytearray(b"".join(batches))
        headers = tuple(read_header(batch, 0) for batch in batches)
        for header in headers:
            _check_size(header, config)  # another codec may have made it larger
    elif origin is _CLIENT:  # timestamps may have been corrected
        headers = tuple(read_header(batch, 0) for batch in batches)
    return PreparedBatches(data, headers, config)


def assign(prepared: PreparedBatches, *, next_offset: int, now_ms: int, leader_epoch: int) -> ValidatedBatches:
    """Assigns offsets, the epoch and, if the topic says so, the time to prepared batches."""
    data, headers, config = prepared
    stamped = config.timestamp_type is _LOG_APPEND_TIME
    position, offset = 0, next_offset
    assigned = []
    for header in headers:
        length = header[1]
        _PLACE.pack_into(data, position, offset, length, leader_epoch)
        if stamped:
            batch = BatchView(data, position)
            batch.assign_max_timestamp(_LOG_APPEND_TIME, now_ms)
            header = batch.header
        else:
            header = tuple.__new__(BatchHeader, (offset, length, leader_epoch, *header[3:]))
        assigned.append(header)
        position += length + LENGTH_PREFIX_SIZE
        offset += header[6] + 1
    info = AppendInfo.of(tuple(assigned), position)
    if stamped:
        info.log_append_time_ms = now_ms
    return ValidatedBatches(data, info)


def _assign_one(
    data: Buffer,
    next_offset: int,
    now_ms: int,
    config: LogConfig,
    leader_epoch: int,
    origin: AppendOrigin,
    bounded: bool,
) -> AppendInfo | None:
    """Handles what every well-behaved producer sends: a single valid batch with nothing to change but its time. Returns
    None for anything else, unchanged: the general path has the error messages."""
    size = len(data)
    if type(data) is not memoryview or data.readonly or size < HEADER_SIZE:
        return None
    is_stamped = config.timestamp_type
    header = HEADER.unpack_from(data)
    base_offset, length, _, magic, crc, attributes, last_delta, base_ms, newest, producer_id, epoch, sequence, count = (
        header
    )
    if (
        magic != MAGIC_V2
        or length + LENGTH_PREFIX_SIZE != size
        or size > config.max_message_bytes
        or attributes & _UNUSUAL_FOR_CLIENTS
        or attributes & COMPRESSION_MASK > _LAST_CODEC
        or base_offset
        or count < 1
        or count != last_delta + 1
        or (producer_id >= 0 and (sequence < 0 or epoch < 0))
        or (newest - now_ms > config.timestamp_after_max_ms and not is_stamped)
        or crc32c(data[ATTRIBUTES_AT:]) != crc
    ):
        return None
    if origin is _CLIENT:
        if count > 1 and bounded and is_large(count):
            return None
        try:
            codec = attributes & COMPRESSION_MASK
            if count == 1 and not codec:
                facts = walk_one(data, HEADER_SIZE, base_ms)
            elif codec:
                records = decompressed(codec, data[HEADER_SIZE:], bounded=bounded)
                facts = walk(records, 0, count, base_ms)
            else:
                facts = walk(data, HEADER_SIZE, count, base_ms)
        except RecordError:
            return None
        if facts is None or (facts[0] != newest and not is_stamped):
            return None
        if config.limits_records and not keeps_rules(facts, config, now_ms):
            return None
    elif origin is not _COORDINATOR:
        return None
    _PLACE.pack_into(data, 0, next_offset, length, leader_epoch)
    last_offset = next_offset + last_delta
    if is_stamped:
        batch = BatchView(data)
        batch.assign_max_timestamp(_LOG_APPEND_TIME, now_ms)
        return AppendInfo((batch.header,), size, next_offset, last_offset, now_ms, last_offset, now_ms)
    assigned = tuple.__new__(BatchHeader, (next_offset, length, leader_epoch, *header[3:]))
    return AppendInfo((assigned,), size, next_offset, last_offset, newest, last_offset)


def _prepared(
    data: Buffer,
    position: int,
    header: BatchHeader,
    config: LogConfig,
    origin: AppendOrigin,
    now_ms: int,
    bounded: bool,
) -> Buffer:
    """The batch, validated and in the topic's codec: a view of the argument, or a copy if that must change."""
    batch = memoryview(data)[position : position + header.size_in_bytes]
    records: Buffer | None = None
    if origin is _CLIENT:
        records, newest_ms = validate_records(data, position, header, config=config, now_ms=now_ms, bounded=bounded)
        is_wrong = newest_ms != header.max_timestamp_ms or header.attributes & TIMESTAMP_TYPE_BIT
        if is_wrong and not config.timestamp_type:
            BatchView(batch).assign_max_timestamp(TimestampType.CREATE_TIME, newest_ms)  # as Kafka does
    codec = config.compression
    if codec is None or header.compression == codec or header.is_control:  # a smaller marker gains nothing
        return batch
    if records is None:
        try:
            records = decompressed(header.compression, batch[HEADER_SIZE:], bounded=bounded)
        except RecordError as error:
            raise CorruptRecordsError(str(error)) from error
    return _recompressed(batch, records, codec, config.compression_level)


def _positions(headers: Sequence[BatchHeader]) -> Iterator[int]:
    """The position of each batch."""
    position = 0
    for header in headers:
        yield position
        position += header[1] + LENGTH_PREFIX_SIZE


def _check_batch(header: BatchHeader, config: LogConfig, origin: AppendOrigin, now_ms: int) -> None:
    _, length, _, _, _, attributes, last_delta, _, max_timestamp_ms, producer_id, epoch, sequence, count = header
    if length > config.max_message_bytes - LENGTH_PREFIX_SIZE:
        _check_size(header, config)
    if (
        origin is not _CLIENT
        and max_timestamp_ms - now_ms > config.timestamp_after_max_ms
        and not config.timestamp_type
    ):
        raise InvalidTimestampError(
            f"timestamp {max_timestamp_ms} is {max_timestamp_ms - now_ms} ms in the future; "
            f"message.timestamp.after.max.ms allows {config.timestamp_after_max_ms}"
        )
    if origin is not _CLIENT:
        return
    if attributes & _NOT_FOR_CLIENTS:
        _refuse_attributes(header)
    if count < 1 or count != last_delta + 1:
        raise InvalidRecordsError(f"a batch of {count} records has last offset delta {last_delta}")
    if producer_id >= 0 and (sequence < 0 or epoch < 0):
        raise InvalidRecordsError(f"producer {producer_id} sends sequence number {sequence} and epoch {epoch}")


def _check_size(header: BatchHeader, config: LogConfig) -> None:
    if header.size_in_bytes > config.max_message_bytes:
        raise LogRecordTooLargeError(
            f"a batch of {header.size_in_bytes} bytes is larger than max.message.bytes, {config.max_message_bytes}"
        )


def _refuse_attributes(header: BatchHeader) -> NoReturn:
    if header.is_control:
        raise InvalidRecordsError("clients may not write control records")
    raise InvalidRecordsError("clients may not set a delete horizon")


def _recompressed(batch: memoryview, records: Buffer, codec: Compression, level: int | None) -> bytearray:
    """Changes the codec: the bytes of the records stay the same, only the batch around them changes."""
    result = bytearray(batch[:HEADER_SIZE])
    result += records if codec is Compression.NONE else compress(codec, records, level)
    attributes = BatchView(batch).attributes & ~COMPRESSION_MASK | codec
    result[LENGTH_AT : LENGTH_AT + 4] = (len(result) - LENGTH_PREFIX_SIZE).to_bytes(4, "big")
    result[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big")
    BatchView(result).refresh_crc()
    return result
