"""Control records, which brokers write among the data. The key contains version and type; transaction markers have a
value.

Readers parse the fields that they know and ignore what a newer version may have added after them, as Kafka does. So
both are parsed by hand here instead of with the compiled codec, which would refuse the rest.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.records.batch import BatchView
from ottla.records.errors import MalformedRecordError, RecordCountError
from ottla.records.layout import CONTROL_BIT, NO_LEADER_EPOCH, TIMESTAMP_TYPE_BIT, ByteBuffer
from ottla.records.new_batch import NewBatch, new_batch_of_transaction
from ottla.records.plain import decode_batch

_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")
_CURRENT_VERSION = 0
_MARKER = struct.Struct(">5shhBhix")
"""The record of a marker: what comes before its key, its key, the size of its value, its value, and no headers."""
_MARKER_START: Final = bytes((16 << 1, 0, 0, 0, _KEY.size << 1))
"""The record's size, attributes, time and offset, and the size of its key."""
_MARKER_VALUE_SIZE: Final = _END_TRANSACTION.size << 1


class ControlType(IntEnum):
    """The type of a control record. Those from LEADER_CHANGE on belong to KRaft's own log."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlKey(NamedTuple):
    """The key of a control record. If the type is unknown here, `known_type` is None."""

    version: int
    type: int

    @property
    def known_type(self) -> ControlType | None:
        return ControlType(self.type) if self.type in _TYPES else None


_TYPES = frozenset(ControlType)


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in a partition, as found in the log."""

    offset: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def read_control_key(key: ByteBuffer | None) -> ControlKey:
    """Version and type of a control record."""
    if key is None or len(key) < _KEY.size:
        raise MalformedRecordError(f"a control record has a key of {0 if key is None else len(key)} bytes")
    version, type_ = _KEY.unpack_from(key)
    if version < 0:
        raise MalformedRecordError(f"a control record has a key of version {version}")
    return ControlKey(version, type_)


def read_coordinator_epoch(value: ByteBuffer | None) -> int:
    """The epoch of the coordinator that wrote a transaction marker: the value of the marker."""
    if value is None or len(value) < _END_TRANSACTION.size:
        raise MalformedRecordError(f"a transaction marker has a value of {0 if value is None else len(value)} bytes")
    version, coordinator_epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        raise MalformedRecordError(f"a transaction marker has a value of version {version}")
    return int(coordinator_epoch)


def encode_transaction_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch of one record that ends a transaction in a partition."""
    marker = TransactionMarker(base_offset, timestamp_ms, producer_id, producer_epoch, committed, coordinator_epoch)
    return bytearray(marker_batch(marker).placed(base_offset, leader_epoch))


def marker_batch(marker: TransactionMarker, *, is_log_append_time: bool = False) -> NewBatch:
    """The same before it has a place in a log. A broker writes one for each partition of each transaction: so this
    packs the bytes directly."""
    record = _MARKER.pack(
        _MARKER_START,
        _CURRENT_VERSION,
        ControlType.COMMIT if marker.committed else ControlType.ABORT,
        _MARKER_VALUE_SIZE,
        _CURRENT_VERSION,
        marker.coordinator_epoch,
    )
    attributes = CONTROL_BIT | TIMESTAMP_TYPE_BIT if is_log_append_time else CONTROL_BIT
    return new_batch_of_transaction(
        record, 1, marker.timestamp_ms, marker.producer_id, marker.producer_epoch, attributes=attributes
    )


def read_transaction_marker(batch: BatchView, *, verify_crc: bool = True) -> TransactionMarker | None:
    """The marker in a control batch; None if compaction emptied it or its record ends no transaction."""
    header = batch.header
    where = {"position": batch.position, "base_offset": header.base_offset}
    if not header.is_control:
        raise MalformedRecordError("it is not a control record", **where)
    records = decode_batch(batch, verify_crc=verify_crc)
    if not records:
        return None
    if len(records) > 1:
        raise RecordCountError(f"{len(records)} records in a control batch, which has one", **where)
    (record,) = records
    try:
        type_ = read_control_key(record.key).known_type
        if type_ not in (ControlType.COMMIT, ControlType.ABORT):
            return None
        coordinator_epoch = read_coordinator_epoch(record.value)
    except MalformedRecordError as error:
        raise error.located(**where) from None
    return TransactionMarker(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        committed=type_ is ControlType.COMMIT,
        coordinator_epoch=coordinator_epoch,
    )
