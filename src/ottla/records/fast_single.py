"""Encodes a batch of one record, without compression: the same bytes as `plain.encode_batch`, in one pass.

Producers whose callers wait for each record send such batches only. What a batch of many costs at its beginning and end
would be most of what it costs.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from crc32c import crc32c

from ottla.records.header_sections import NULL, varint
from ottla.records.layout import (
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)

_BEFORE_CRC: Final = Struct(">qiibI")
_AFTER_CRC: Final = Struct(">hiqqqhii")
_DELTAS: Final = b"\0\0\0"
"""Of the first record: its attributes, and its distance from the base in time and offset."""
_NO_HEADERS: Final = b"\0"


def encode_single(
    value: bytes | None,
    key: bytes | None,
    header_section: bytes | None,
    timestamp_ms: int,
    attributes: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    sequence: int = NO_SEQUENCE,
) -> bytearray:
    """The batch of this record. Its headers are already encoded (`header_sections`)."""
    if timestamp_ms < NO_TIMESTAMP:
        raise ValueError(f"a record has timestamp {timestamp_ms}: it must be -1 (none) or later")
    record = b"".join(
        (
            _DELTAS,
            NULL if key is None else varint(len(key)),
            key or b"",
            NULL if value is None else varint(len(value)),
            value or b"",
            header_section or _NO_HEADERS,
        )
    )
    fields = _AFTER_CRC.pack(attributes, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, sequence, 1)
    covered = b"".join((fields, varint(len(record)), record))
    size = HEADER_SIZE - len(fields) + len(covered) - LENGTH_PREFIX_SIZE
    encoded = bytearray(_BEFORE_CRC.pack(0, size, NO_LEADER_EPOCH, MAGIC_V2, crc32c(covered)))
    encoded += covered
    return encoded
