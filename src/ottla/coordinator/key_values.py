"""A fast codec for batches of keys and values, which is all that coordinators write.

It makes the same bytes as `records.encode_batch` and finds the same records as `records.decode_batch`, several times
faster: a coordinator encodes a batch for every commit, and may read a million records when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from ottla.records import (
    BatchHeader,
    BatchView,
    TransactionMarker,
    TruncatedBatchError,
    decode_batch,
    read_header,
    read_transaction_marker,
)
from ottla.records.layout import ATTRIBUTES_AT, RECORDS_AT, TRANSACTIONAL_BIT
from ottla.records.new_batch import NewBatch, new_batch, new_batch_of_transaction
from ottla.records.varint import write_varint

_RECORD_START: Final = b"\x00\x00"
"""No attributes, and the timestamp of the batch."""
_NO_VALUE_NO_HEADERS: Final = b"\x01\x00"
NO_HEADERS: Final = b"\x00"
"""The end of every record."""
_GOES_ON: Final = 0x80
"""This bit of a varint's byte says that more bytes follow."""
_NULL: Final = 1
"""The zigzag encoding of -1, the length of null."""


class KeyValue(NamedTuple):
    """A record of a coordinator's topic, as bytes. Without a value it is a tombstone."""

    key: bytes
    value: bytes | None


Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record to replay; a `KeyValue` is one."""


class TransactionProducer(NamedTuple):
    """The producer of a transaction."""

    producer_id: int
    producer_epoch: int


FoundRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None]
"""A record that was read: offset, timestamp, key, value."""


@lru_cache(4096)
def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def record_heads(key_size: int, value_size: int, first: int, count: int) -> list[bytes]:
    """The bytes before the key of `count` records, from the record number `first` on, for keys and values of these
    sizes."""
    known = _heads.get((key_size, value_size))
    if known is None:
        known = _heads[key_size, value_size] = []
    while len(known) < first + count:
        start = b"".join((_RECORD_START, _varint(len(known)), _varint(key_size)))
        body_size = len(start) + key_size + len(_varint(value_size)) + value_size + len(NO_HEADERS)
        known.append(_varint(body_size) + start)
    return known[first : first + count]


_heads: dict[tuple[int, int], list[bytes]] = {}
"""By sizes of key and value. There are few: names have at most 249 characters."""


def encode_key_values(
    records: Sequence[KeyValue], timestamp_ms: int, producer: TransactionProducer | None = None
) -> NewBatch:
    """One batch of the records, all with the same timestamp; with a producer, part of its transaction."""
    parts: list[bytes] = []
    for number, (key, value) in enumerate(records):
        if value is None:
            body = b"".join((_RECORD_START, _varint(number), _varint(len(key)), key, _NO_VALUE_NO_HEADERS))
        else:
            sizes = _varint(number), _varint(len(key)), _varint(len(value))
            body = b"".join((_RECORD_START, sizes[0], sizes[1], key, sizes[2], value, NO_HEADERS))
        parts += (_varint(len(body)), body)
    encoded, count = b"".join(parts), len(records)
    if producer is None:
        return new_batch(encoded, count, timestamp_ms)
    return new_batch_of_transaction(encoded, count, timestamp_ms, *producer)


def iter_key_values(data: bytes) -> Iterator[tuple[BatchHeader, list[FoundRecord] | TransactionMarker | None]]:
    """Yields each batch with its records; a control batch with its transaction marker, or None if it has none. Skips a
    truncated batch at the end; raises `RecordError` for a corrupt one."""
    view = memoryview(data)
    position = 0
    while position < len(data):
        try:
            header = read_header(data, position)
        except TruncatedBatchError:
            return
        end = position + header.size_in_bytes
        found: list[FoundRecord] | None = None
        if not header.attributes & ~TRANSACTIONAL_BIT and header.crc == crc32c(view[position + ATTRIBUTES_AT : end]):
            found = _read_quickly(data, position + RECORDS_AT, end, header)
        if found is not None:
            yield header, found
        elif header.is_control:
            yield header, read_transaction_marker(BatchView(data, position))
        else:
            yield header, [record[:4] for record in decode_batch(BatchView(data, position))]
        position = end


def _read_quickly(data: bytes, at: int, behind: int, header: BatchHeader) -> list[FoundRecord] | None:
    """None if the batch has headers or is corrupt, which the general codec handles."""
    found: list[FoundRecord] = []
    base_offset, base_timestamp_ms = header.base_offset, header.base_timestamp_ms
    try:
        for _ in range(header.record_count):
            folded = data[at]
            at += 1
            if folded >= _GOES_ON:
                folded, at = _rest_of_varint(data, at, folded)
            end = at + (folded >> 1)
            time = data[at + 1]
            at += 2
            if time >= _GOES_ON:
                time, at = _rest_of_varint(data, at, time)
            delta = data[at]
            at += 1
            if delta >= _GOES_ON:
                delta, at = _rest_of_varint(data, at, delta)
            size = data[at]
            at += 1
            if size >= _GOES_ON:
                size, at = _rest_of_varint(data, at, size)
            key = None
            if size != _NULL:
                key = data[at : at + (size >> 1)]
                at += size >> 1
            size = data[at]
            at += 1
            if size >= _GOES_ON:
                size, at = _rest_of_varint(data, at, size)
            value = None
            if size != _NULL:
                value = data[at : at + (size >> 1)]
                at += size >> 1
            if data[at] or at + 1 != end or end > behind:
                return None
            at = end
            found.append((base_offset + (delta >> 1), base_timestamp_ms + ((time >> 1) ^ -(time & 1)), key, value))
    except IndexError:
        return None
    return found if at == behind else None


def _rest_of_varint(data: bytes, at: int, value: int) -> tuple[int, int]:
    """The zigzag-encoded number that starts with this byte, and the position after it."""
    value &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _GOES_ON:
            return value, at
        shift += 7
