"""The position of each field of a magic-2 record batch, and the meaning of its attribute bits. No behaviour.

    base offset         i64    0     attributes          i16   21
    batch length        i32    8     last offset delta   i32   23
    leader epoch        i32   12     base timestamp      i64   27
    magic               i8    16     max timestamp       i64   35
    crc-32c             u32   17     producer id         i64   43
                                     producer epoch      i16   51
                                     base sequence       i32   53
                                     record count        i32   57
                                     records                   61

The batch length counts what follows it. The CRC covers everything from the attributes on, so a broker can set the base
offset and the leader epoch without changing it, but not the max timestamp.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

ByteBuffer: TypeAlias = bytes | bytearray | memoryview
"""What readers accept: bytes that can be indexed and sliced. A memoryview must have single bytes ("B")."""

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57
RECORDS_AT: Final = 61

HEADER_SIZE: Final = RECORDS_AT
LENGTH_PREFIX_SIZE: Final = 12
"""Base offset and length: not counted by the length field."""

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
MAGIC_V2: Final = 2

MINIMUM_RECORD_SIZE: Final = 7
"""Length, attributes, timestamp delta, offset delta, null key, null value, no headers: one byte each."""

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1


class Compression(IntEnum):
    """The codec in the lowest three attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who set the timestamps of a batch: the producer, or the broker when it appended the batch."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1
