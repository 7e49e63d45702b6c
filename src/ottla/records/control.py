"""Control records: what brokers write among the data. A key of version and type; transaction markers with a value.

Readers take the fields they know and leave alone what a newer version may have added behind them, as Kafka does: so
both are read by hand here rather than through the compiled codec, which would refuse the rest.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.records.batch import BatchView
from ottla.records.errors import MalformedRecordError, RecordCountError
from ottla.records.layout import NO_LEADER_EPOCH, ByteBuffer
from ottla.records.plain import BatchOptions, decode_batch, encode_batch
from ottla.records.record import Record

_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")
_CURRENT_VERSION = 0


class ControlType(IntEnum):
    """What a control record says. Those from LEADER_CHANGE on belong to KRaft's own log."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlKey(NamedTuple):
    """The key of a control record. The type may be one that is not known here: then `known_type` is None."""

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
    type_ = ControlType.COMMIT if committed else ControlType.ABORT
    record = Record(
        offset=base_offset,
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_CURRENT_VERSION, type_),
        value=_END_TRANSACTION.pack(_CURRENT_VERSION, coordinator_epoch),
    )
    options = BatchOptions(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return encode_batch([record], options)


def read_transaction_marker(batch: BatchView, *, verify_crc: bool = True) -> TransactionMarker | None:
    """The marker in a control batch; None where it was compacted empty or its record ends no transaction."""
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
