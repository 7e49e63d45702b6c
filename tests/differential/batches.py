"""Record batches by description, whole or damaged in a way that has a name.

    {"n": 3, "size": 100, "key": "k", "time": "$time:0", "codec": 1, "headers": 2,
     "pid": "$pid:p0", "epoch": 0, "seq": 4, "damage": "crc"}

All records of a batch look alike: their times are a millisecond apart, and their values are made of the number of the
record and as many bytes as `size` says.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.records import BatchOptions, Compression, Record, TimestampType, encode_batch
from ottla.records.batch import BatchView
from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
    RECORDS_AT,
)

DAMAGES: Final = (
    "crc",
    "count more",
    "count less",
    "count negative",
    "last offset delta",
    "trailing",
    "payload",
    "magic 1",
    "magic 3",
    "length more",
    "length less",
    "cut",
    "base offset",
    "max timestamp",
    "codec 5",
    "offset deltas",
    "record attributes",
    "control",
    "transactional",
    "log append time",
)
"""`base offset`, `log append time` and `record attributes` leave batches that Kafka takes."""
CRC_STAYS: Final = ("magic 1", "magic 3", "length more", "length less", "cut")


def build(spec: dict[str, Any]) -> bytes:
    """The bytes that a producer would send; symbols are resolved already."""
    damage = spec.get("damage")
    key = spec.get("key")
    count, size, start_ms = spec.get("n", 1), spec.get("size", 10), spec.get("time", 0)
    headers = tuple((f"h{number}", b"v") for number in range(spec.get("headers", 0)))
    records = [
        Record(index, start_ms + index, None if key is None else f"{key}{index}".encode(), _value(index, size), headers)
        for index in range(count)
    ]
    options = BatchOptions(
        compression=Compression(spec.get("codec", 0)),
        producer_id=spec.get("pid", -1),
        producer_epoch=spec.get("epoch", -1),
        base_sequence=spec.get("seq", -1),
        transactional=damage == "transactional",
        control=damage == "control",
        timestamp_type=TimestampType(int(damage == "log append time")),
    )
    data = encode_batch(records, options)
    if damage is not None:
        _damage(data, damage)
    return bytes(data)


def _value(index: int, size: int) -> bytes:
    start = b"%d:" % index
    return (start + b"abcdefgh" * (size // 8 + 1))[:size]


def _damage(data: bytearray, damage: str) -> None:
    """Everything but `crc` and what stands before it is covered by a CRC that is right."""
    if damage == "crc":
        data[CRC_AT] ^= 1
        return
    if damage in ("count more", "count less", "count negative"):
        (count,) = struct.unpack_from(">i", data, RECORD_COUNT_AT)
        changed = {"count more": count + 1, "count less": count - 1, "count negative": -5}[damage]
        struct.pack_into(">i", data, RECORD_COUNT_AT, changed)
    elif damage == "last offset delta":
        (delta,) = struct.unpack_from(">i", data, LAST_OFFSET_DELTA_AT)
        struct.pack_into(">i", data, LAST_OFFSET_DELTA_AT, delta + 3)
    elif damage == "trailing":
        data += b"\0" * 5
        struct.pack_into(">i", data, LENGTH_AT, len(data) - 12)
    elif damage == "payload":
        data[RECORDS_AT:] = b"\xff" * (len(data) - RECORDS_AT)
    elif damage.startswith("magic"):
        data[MAGIC_AT] = int(damage[-1])
    elif damage == "length more":
        struct.pack_into(">i", data, LENGTH_AT, len(data) - 12 + 7)
    elif damage == "length less":
        struct.pack_into(">i", data, LENGTH_AT, len(data) - 12 - 3)
    elif damage == "cut":
        del data[-4:]
    elif damage == "base offset":
        struct.pack_into(">q", data, BASE_OFFSET_AT, 77)
    elif damage == "max timestamp":
        (stamp_ms,) = struct.unpack_from(">q", data, MAX_TIMESTAMP_AT)
        struct.pack_into(">q", data, MAX_TIMESTAMP_AT, stamp_ms + 5000)
    elif damage == "codec 5":
        data[ATTRIBUTES_AT + 1] = data[ATTRIBUTES_AT + 1] & ~7 | 5
    elif damage == "offset deltas":
        # The offset delta of the first record: after its length, attributes and timestamp delta.
        if len(data) > RECORDS_AT + 4:
            data[RECORDS_AT + (2 if data[RECORDS_AT] & 0x80 else 1) + 2] = 8
    elif damage == "record attributes":
        if len(data) > RECORDS_AT + 3:
            data[RECORDS_AT + (2 if data[RECORDS_AT] & 0x80 else 1)] = 3
    elif damage not in ("control", "transactional", "log append time"):
        raise ValueError(f"there is no damage {damage!r}")
    if damage not in CRC_STAYS:
        BatchView(data).refresh_crc()


def size_of(spec: dict[str, Any]) -> int:
    """In bytes; symbols stand for numbers of the same size everywhere in a batch's header."""
    plain = {key: 0 if isinstance(value, str) and value.startswith("$") else value for key, value in spec.items()}
    return len(build(plain))
