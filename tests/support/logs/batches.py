"""Batches as a producer, a coordinator or an old client sends them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

from ottla.base.disk import Buffer
from ottla.records import (
    BatchOptions,
    Compression,
    Record,
    TimestampType,
    decode_batch,
    encode_batch,
    encode_transaction_marker,
    iter_batches,
)

NOW_MS = 1_700_000_000_000


def batch(
    values: Sequence[bytes | None] | int = 1,
    *,
    timestamp_ms: int = NOW_MS,
    timestamps_ms: Sequence[int] | None = None,
    key: bytes | None = b"key",
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Of these values, or so many small ones."""
    if isinstance(values, int):
        values = [b"value %d" % index for index in range(values)]
    times = timestamps_ms or [timestamp_ms] * len(values)
    records = [Record(0, time_ms, key, value) for time_ms, value in zip(times, values, strict=True)]
    options = BatchOptions(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        compression=compression,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
        delete_horizon_ms=delete_horizon_ms,
        last_offset_delta=last_offset_delta,
    )
    return encode_batch(records, options)


def marker(
    producer_id: int,
    *,
    committed: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp_ms: int = NOW_MS,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The end of a producer's transaction."""
    return encode_transaction_marker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def old_message(
    magic: int, value: bytes | None, *, key: bytes | None = b"key", offset: int = 0, timestamp_ms: int = NOW_MS
) -> bytes:
    """One message of magic 0 or 1, not compressed."""
    body = struct.pack(">bB", magic, 0) + (struct.pack(">q", timestamp_ms) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def records_of(data: Buffer, *, partial_tail: bool = False) -> list[Record]:
    """All records in these batches."""
    found: list[Record] = []
    for view in iter_batches(data, partial_tail=partial_tail):
        found += decode_batch(view)
    return found


def values_of(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]
