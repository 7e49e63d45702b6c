"""Batches before they are appended: checked, and made the log's own.

All of it is per batch, from headers. Records are looked at only where a topic's config cannot be kept otherwise: keys
on a compacted topic, a bound on how old a record may be. A batch is patched where it lies; it is copied only when its
codec or its format must change.
"""

from __future__ import annotations

import struct
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
    RecordTooLargeError,
)
from ottla.log.producer_state import DuplicateBatch
from ottla.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    BatchView,
    Compression,
    RecordError,
    TimestampType,
    TruncatedBatchError,
    compress,
    convert_to_v2,
    decode_batch,
    decompress,
    iter_batches,
    read_header,
)
from ottla.records.batch import HEADER
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
from ottla.records.varint import read_varint, read_varlong

NO_TIMESTAMP: Final = -1
_NO_LIMIT_MS: Final = 2**63 - 1
_LAST_CODEC: Final = max(Compression)
_NOT_FOR_CLIENTS: Final = CONTROL_BIT | DELETE_HORIZON_BIT | TIMESTAMP_TYPE_BIT
# Looking a member up in its enumeration costs as much as a comparison.
_CLIENT: Final = AppendOrigin.CLIENT
_COORDINATOR: Final = AppendOrigin.COORDINATOR
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
_PLACE = struct.Struct(">qii")
"""Base offset, length and leader epoch: what a batch begins with, none of it within the CRC."""


@dataclass(slots=True)
class AppendInfo:
    """What is appended: the batches' headers, and what follows from them."""

    headers: tuple[BatchHeader, ...]
    valid_bytes: int
    """Without the piece of a batch that a fetch may end in."""
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
        previous = -1
        for header in headers:
            last = header.last_offset
            if header.max_timestamp_ms > info.max_timestamp_ms:
                info.max_timestamp_ms, info.offset_of_max_timestamp = header.max_timestamp_ms, last
            info.offsets_monotonic &= header.base_offset > previous
            previous = last
        if headers:
            info.first_offset, info.last_offset = headers[0].base_offset, previous
        return info

    def of_duplicate(self, duplicate: DuplicateBatch, log_start_offset: int) -> AppendInfo:
        """What the producer is told who sent this before."""
        return AppendInfo(
            self.headers,
            self.valid_bytes,
            first_offset=duplicate.first_offset,
            last_offset=duplicate.last_offset,
            log_append_time_ms=duplicate.timestamp_ms if self.log_append_time_ms >= 0 else NO_TIMESTAMP,
            log_start_offset=log_start_offset,
            is_duplicate=True,
        )


class ValidatedBatches(NamedTuple):
    """Batches that may be written as they are."""

    data: Buffer
    info: AppendInfo


def analyse(data: Buffer, origin: AppendOrigin) -> AppendInfo:
    """The headers of the batches, whose bytes are sound: lengths, magic, CRC. A follower's last may be cut off."""
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
                BatchView(data, position).validate()  # raises: it has the words
            count = header[12]
            if (
                header[5] & COMPRESSION_MASK > _LAST_CODEC
                or not 0 <= count <= header[6] + 1
                or count * MINIMUM_RECORD_SIZE > header[1]
            ):
                BatchView(data, position).validate(verify_crc=False)  # raises, unless compression makes room for them
            headers.append(header)
            position = end
    except TruncatedBatchError as error:
        if origin is not AppendOrigin.REPLICATION:
            raise CorruptRecordsError(str(error)) from error
    except RecordError as error:
        raise CorruptRecordsError(str(error)) from error
    return tuple(headers), position


def has_old_magic(data: Buffer) -> bool:
    """Whether the first batch is a message set of magic 0 or 1."""
    return len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC_V2


def validate_and_assign(
    data: Buffer, *, next_offset: int, now_ms: int, config: LogConfig, leader_epoch: int, origin: AppendOrigin
) -> ValidatedBatches:
    """Checks what a leader is asked to append and gives it offsets from `next_offset` on, the epoch, and, where the
    topic says so, the time and the codec. Patches the given buffer when it can be written to."""
    if (origin is _CLIENT and config.takes_as_sent) or (origin is _COORDINATOR and config.takes_coordinators_as_sent):
        info = _assign_one(data, next_offset, now_ms, config, leader_epoch)
        if info is not None:
            return ValidatedBatches(data, info)
    is_old = has_old_magic(data)
    if is_old:
        data = _converted(data)
    elif isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        data = bytearray(data)
    headers, _ = _sound_headers(data, origin)
    if len(headers) > 1 and origin is _CLIENT and not is_old:
        raise InvalidRecordsError(f"{len(headers)} batches at once for a partition; a client may send one")
    for header in headers:
        _check_batch(header, config, origin, now_ms)
    if config.compression is not None and any(header.compression != config.compression for header in headers):
        data = bytearray(b"".join(_recompressed(batch, config) for batch in iter_batches(data)))
        headers = tuple(batch.header for batch in iter_batches(data))
        for header in headers:
            _check_size(header, config)  # another codec may have made it larger
    stamped = config.timestamp_type is _LOG_APPEND_TIME
    if config.compacts and origin is _CLIENT:
        for batch in iter_batches(data):
            _check_keys(batch)
    if config.timestamp_before_max_ms != _NO_LIMIT_MS and not stamped:
        for batch in iter_batches(data):
            _check_age(batch, now_ms, config.timestamp_before_max_ms)
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


def _assign_one(data: Buffer, next_offset: int, now_ms: int, config: LogConfig, leader_epoch: int) -> AppendInfo | None:
    """What every well-behaved producer sends, in one go: a single batch with nothing wrong and nothing to change. None
    for anything else, untouched: the long way has the words for it."""
    size = len(data)
    if type(data) is not memoryview or data.readonly or size < HEADER_SIZE:
        return None
    header = HEADER.unpack_from(data)
    base_offset, length, _, magic, crc, attributes, last_delta, _, newest_ms, producer_id, _, sequence, count = header
    if (
        magic != MAGIC_V2
        or length + LENGTH_PREFIX_SIZE != size
        or size > config.max_message_bytes
        or attributes & _NOT_FOR_CLIENTS
        or attributes & COMPRESSION_MASK > _LAST_CODEC
        or base_offset
        or count < 1
        or count != last_delta + 1
        or count * MINIMUM_RECORD_SIZE > length
        or (producer_id >= 0 and sequence < 0)
        or newest_ms - now_ms > config.timestamp_after_max_ms
        or crc32c(data[ATTRIBUTES_AT:]) != crc
    ):
        return None
    _PLACE.pack_into(data, 0, next_offset, length, leader_epoch)
    last_offset = next_offset + last_delta
    assigned = tuple.__new__(BatchHeader, (next_offset, length, leader_epoch, *header[3:]))
    return AppendInfo((assigned,), size, next_offset, last_offset, newest_ms, last_offset)


def _check_batch(header: BatchHeader, config: LogConfig, origin: AppendOrigin, now_ms: int) -> None:
    base_offset, length, _, _, _, attributes, last_delta, _, max_timestamp_ms, producer_id, _, sequence, count = header
    if length > config.max_message_bytes - LENGTH_PREFIX_SIZE:
        _check_size(header, config)
    if max_timestamp_ms - now_ms > config.timestamp_after_max_ms and not config.timestamp_type:
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
    if base_offset:
        raise InvalidRecordsError(f"a client's batch begins at offset 0, not at {base_offset}")
    if producer_id >= 0 and sequence < 0:
        raise InvalidRecordsError(f"producer {producer_id} sends sequence number {sequence}")


def _check_size(header: BatchHeader, config: LogConfig) -> None:
    if header.size_in_bytes > config.max_message_bytes:
        raise RecordTooLargeError(
            f"a batch of {header.size_in_bytes} bytes is larger than max.message.bytes, {config.max_message_bytes}"
        )


def _refuse_attributes(header: BatchHeader) -> NoReturn:
    if header.is_control:
        raise InvalidRecordsError("clients may not write control records")
    if header.has_delete_horizon:
        raise InvalidRecordsError("clients may not set a delete horizon")
    raise InvalidTimestampError("clients may not send timestamps as the broker's")


def _converted(data: Buffer) -> bytearray:
    """Old message sets as batches; each begins at offset 0, as clients send them now."""
    try:
        batches = convert_to_v2(data)
    except RecordError as error:
        raise CorruptRecordsError(str(error)) from error
    for batch in batches:
        BatchView(batch).assign_offset(0)
    return bytearray(b"".join(batches))


def _payload(batch: BatchView) -> Buffer:
    """The records, decompressed."""
    header = batch.header
    start = batch.position + HEADER_SIZE
    records = memoryview(batch.buffer)[start : batch.position + batch.size_in_bytes]
    if header.compression is Compression.NONE:
        return records
    return decompress(header.compression, records, max_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES)


def _recompressed(batch: BatchView, config: LogConfig) -> bytearray:
    """The same records under the topic's codec: their bytes stay, only what is around them changes."""
    codec = config.compression
    if codec is None or batch.compression == codec or batch.is_control:  # nobody gains by a smaller marker
        return bytearray(memoryview(batch.buffer)[batch.position : batch.position + batch.size_in_bytes])
    try:
        records = _payload(batch)
    except RecordError as error:
        raise CorruptRecordsError(str(error)) from error
    if codec is not Compression.NONE:
        records = compress(codec, records, config.compression_level)
    result = bytearray(memoryview(batch.buffer)[batch.position : batch.position + HEADER_SIZE])
    result += records
    attributes = batch.attributes & ~COMPRESSION_MASK | codec
    result[LENGTH_AT : LENGTH_AT + 4] = (len(result) - LENGTH_PREFIX_SIZE).to_bytes(4, "big")
    result[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big")
    BatchView(result).refresh_crc()
    return result


def _check_keys(batch: BatchView) -> None:
    """A compacted topic keeps the last record of each key, so each record needs one. Only lengths are read."""
    try:
        records = _payload(batch)
        at = 0
        for index in range(batch.record_count):
            size, at = read_varint(records, at)
            end = at + size
            _, at = read_varlong(records, at + 1)
            _, at = read_varint(records, at)
            key_size, _ = read_varint(records, at)
            if key_size < 0:
                reason = f"record {index} has no key, and the topic is compacted by key"
                raise InvalidRecordsError(reason, record_index=index)
            at = end
    except (RecordError, IndexError) as error:
        raise CorruptRecordsError(str(error)) from error


def _check_age(batch: BatchView, now_ms: int, before_max_ms: int) -> None:
    try:
        records = decode_batch(batch, verify_crc=False, max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES)
    except RecordError as error:
        raise CorruptRecordsError(str(error)) from error
    for record in records:
        if record.timestamp_ms >= 0 and now_ms - record.timestamp_ms > before_max_ms:
            raise InvalidTimestampError(
                f"timestamp {record.timestamp_ms} is {now_ms - record.timestamp_ms} ms in the past; "
                f"message.timestamp.before.max.ms allows {before_max_ms}"
            )
