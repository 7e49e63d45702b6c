"""Magic-2 batches in plain Python: the readable codec, the oracle of the compiled one, and used for small batches.

`encode_batch` writes the same bytes as Kafka's Java producer for the same records (apart from compression).
`decode_batch` trusts nothing: any bytes give records or a `RecordError` that names the batch.

A record, all integers zigzag varints except the attributes, which are one unused byte:

    length | attributes | timestamp delta (64 bits) | offset delta | key length, key | value length, value |
    header count | per header: key length, key, value length, value         (length -1: null, never for a header's key)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.records.batch import HEADER, BatchView, attributes_of
from ottla.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, compress, decompress
from ottla.records.errors import MalformedRecordError, OffsetDeltaError, RecordCountError, RecordError
from ottla.records.layout import (
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC_V2,
    MAX_INT32,
    MAX_INT64,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ByteBuffer,
    Compression,
    TimestampType,
)
from ottla.records.record import Header, Record
from ottla.records.varint import read_varint, read_varlong, write_varint, write_varlong


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The properties of a batch besides its records. The defaults are those of a producer without idempotence."""

    base_offset: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    max_timestamp_ms: int | None = None
    """The broker's time for LOG_APPEND_TIME. By default, the newest of the records' timestamps."""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    control: bool = False
    delete_horizon_ms: int | None = None
    """Replaces the base timestamp, so the records' timestamps become relative to it."""
    last_offset_delta: int | None = None
    """Kept by compaction when the last records of a batch are gone. By default, that of the last record."""


def encode_batch(
    records: Iterable[Record], options: BatchOptions | None = None, *, keep_offsets: bool = False
) -> bytearray:
    """Returns the batch of these records in a new writable buffer.

    Offsets are consecutive from `base_offset` on, whatever the records say; with `keep_offsets` those of the records
    are kept, including gaps. Without records it is the empty batch that compaction leaves so that a producer's sequence
    number is not forgotten.
    """
    options = options or BatchOptions()
    payload = bytearray()
    base_timestamp_ms = options.delete_horizon_ms
    max_timestamp_ms = NO_TIMESTAMP
    count = 0
    offset_delta = -1
    for record in records:
        if record.timestamp_ms < NO_TIMESTAMP:
            raise ValueError(f"a record has timestamp {record.timestamp_ms}: it must be -1 (none) or later")
        if base_timestamp_ms is None:
            base_timestamp_ms = record.timestamp_ms
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        previous, offset_delta = offset_delta, record.offset - options.base_offset if keep_offsets else count
        if offset_delta <= previous:
            raise ValueError(f"offset {record.offset} does not come after {options.base_offset + previous}")
        _write_record(payload, record, record.timestamp_ms - base_timestamp_ms, offset_delta)
        count += 1
    return finish_batch(payload, count, offset_delta, base_timestamp_ms, max_timestamp_ms, options)


def finish_batch(
    payload: ByteBuffer,
    count: int,
    offset_delta: int,
    base_timestamp_ms: int | None,
    max_timestamp_ms: int,
    options: BatchOptions,
) -> bytearray:
    """The batch of these records, compressed if requested. The offset delta is that of the last record, or -1."""
    if options.max_timestamp_ms is not None:
        max_timestamp_ms = options.max_timestamp_ms
    if base_timestamp_ms is None:
        base_timestamp_ms = NO_TIMESTAMP
    last_offset_delta = max(offset_delta, 0) if options.last_offset_delta is None else options.last_offset_delta
    if not max(offset_delta, 0) <= last_offset_delta <= MAX_INT32:
        raise ValueError(f"last offset delta {last_offset_delta} does not fit a record with delta {offset_delta}")

    compression = options.compression if count else Compression.NONE
    out = bytearray(HEADER_SIZE)
    out += payload if compression is Compression.NONE else compress(compression, payload, options.compression_level)
    HEADER.pack_into(
        out,
        0,
        options.base_offset,
        len(out) - LENGTH_PREFIX_SIZE,
        options.leader_epoch,
        MAGIC_V2,
        0,
        attributes_of(
            compression=compression,
            timestamp_type=options.timestamp_type,
            transactional=options.transactional,
            control=options.control,
            delete_horizon=options.delete_horizon_ms is not None,
        ),
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        options.producer_id,
        options.producer_epoch,
        options.base_sequence,
        count,
    )
    BatchView(out).refresh_crc()
    return out


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)
    write_varlong(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_bytes(body, key.encode())
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(data))
        out += data


def decode_batch(
    batch: BatchView | ByteBuffer,
    *,
    verify_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """The records of one batch, including control records: check `is_control` first if you want data."""
    view = batch if isinstance(batch, BatchView) else BatchView(batch)
    header = view.validate(verify_crc=verify_crc)
    try:
        if header.record_count == 0 and view.size_in_bytes == HEADER_SIZE:
            return []
        payload = decompress(header.compression, view.payload, max_bytes=max_decompressed_bytes)
        # If the broker's clock set it, the max timestamp applies to every record.
        stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        log_append_time_ms = header.max_timestamp_ms if stamped else None
        records: list[Record] = []
        position = 0
        previous_delta = -1
        for index in range(header.record_count):
            if position == len(payload):
                raise RecordCountError(f"its header says {header.record_count} records, it has {index}")
            size, position = read_varint(payload, position)
            if not 0 <= size <= len(payload) - position:
                raise MalformedRecordError(
                    f"record {index} claims {size} bytes, the batch has {len(payload) - position} more"
                )
            reader = _RecordReader(payload[position : position + size], index)
            timestamp_delta, offset_delta, key, value, headers = reader.read()
            position += size
            if not previous_delta < offset_delta <= header.last_offset_delta:
                raise OffsetDeltaError(
                    f"record {index} has offset delta {offset_delta}, "
                    f"after {previous_delta} and with {header.last_offset_delta} as the last"
                )
            previous_delta = offset_delta
            timestamp_ms = header.base_timestamp_ms + timestamp_delta
            if not -MAX_INT64 - 1 <= timestamp_ms <= MAX_INT64:
                raise MalformedRecordError(f"record {index} has a timestamp beyond 64 bits: {timestamp_ms}")
            if log_append_time_ms is not None:
                timestamp_ms = log_append_time_ms
            records.append(Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers))
        if position != len(payload):
            raise RecordCountError(
                f"{len(payload) - position} bytes follow the last of its {header.record_count} records"
            )
    except RecordError as error:
        raise error.located(position=view.position, base_offset=header.base_offset) from error.__cause__
    return records


class _RecordReader:
    """Parses the bytes of one record from start to end."""

    __slots__ = ("_data", "_index", "_position")

    def __init__(self, data: ByteBuffer, index: int) -> None:
        self._data = data
        self._index = index
        self._position = 1

    def read(self) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]:
        if not self._data:
            raise MalformedRecordError(f"record {self._index} has no bytes")
        timestamp_delta, self._position = read_varlong(self._data, self._position)
        offset_delta = self._int()
        key = self._bytes("key")
        value = self._bytes("value")
        headers = self._headers()
        if self._position != len(self._data):
            raise MalformedRecordError(
                f"record {self._index} has {len(self._data) - self._position} bytes after its headers"
            )
        return timestamp_delta, offset_delta, key, value, headers

    def _int(self) -> int:
        value, self._position = read_varint(self._data, self._position)
        return value

    def _bytes(self, what: str) -> bytes | None:
        size = self._int()
        if size == -1:
            return None
        start, left = self._position, len(self._data) - self._position
        if not 0 <= size <= left:
            raise MalformedRecordError(f"record {self._index} has a {what} of {size} bytes, {left} are left")
        self._position += size
        return bytes(self._data[start : self._position])

    def _headers(self) -> tuple[Header, ...]:
        count = self._int()
        if count < 0:
            raise MalformedRecordError(f"record {self._index} has {count} headers")
        headers = []
        for _ in range(count):
            key = self._bytes("header key")
            if key is None:
                raise MalformedRecordError(f"record {self._index} has a header without a key")
            try:
                name = key.decode()
            except UnicodeDecodeError as error:
                raise MalformedRecordError(f"record {self._index} has a header key that is not UTF-8") from error
            headers.append((name, self._bytes("header value")))
        return tuple(headers)
