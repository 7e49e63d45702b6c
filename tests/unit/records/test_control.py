from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import (
    BatchOptions,
    BatchView,
    ControlType,
    MalformedRecordError,
    Record,
    RecordCountError,
    TransactionMarker,
    decode_batch,
    encode_batch,
    encode_transaction_marker,
    read_control_key,
    read_coordinator_epoch,
    read_transaction_marker,
)


def control_batch(*records: Record) -> BatchView:
    return BatchView(encode_batch(records, BatchOptions(control=True, base_offset=8)))


@settings(deadline=None)
@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.booleans(),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
)
def test_round_trip(producer: int, epoch: int, committed: bool, coordinator: int, timestamp: int, offset: int) -> None:
    batch = encode_transaction_marker(
        producer_id=producer,
        producer_epoch=epoch,
        committed=committed,
        coordinator_epoch=coordinator,
        timestamp_ms=timestamp,
        base_offset=offset,
        leader_epoch=6,
    )
    view = BatchView(batch)
    assert read_transaction_marker(view) == TransactionMarker(
        offset=offset,
        timestamp_ms=timestamp,
        producer_id=producer,
        producer_epoch=epoch,
        committed=committed,
        coordinator_epoch=coordinator,
    )
    (record,) = decode_batch(view)
    assert record.key is not None
    assert ControlRecord.parse(record.key) == (COMMIT_MARKER if committed else ABORT_MARKER)
    assert (view.leader_epoch, view.base_sequence) == (6, -1)


def test_the_bytes_of_a_marker() -> None:
    batch = encode_transaction_marker(
        producer_id=4000, producer_epoch=7, committed=True, coordinator_epoch=3, timestamp_ms=1000, base_offset=5
    )
    assert (
        batch.hex() == "0000000000000005"  # base offset
        "00000042"
        "ffffffff02"
        f"{BatchView(batch).crc:08x}"
        "0030"  # transactional, control
        "00000000"
        "00000000000003e8"
        "00000000000003e8"
        "0000000000000fa0"
        "0007"
        "ffffffff"  # no sequence
        "00000001"
        "20000000"  # sixteen bytes, no attributes, no deltas
        "0800000001"  # key: version 0, commit
        "0c000000000003"  # value: version 0, epoch 3
        "00"
    )


@pytest.mark.parametrize("type_", ControlType)
def test_types(type_: ControlType) -> None:
    key = read_control_key(bytes([0, 0, 0, type_]))
    assert (key.version, key.known_type) == (0, type_)


def test_unknown_types_and_newer_versions_stay_readable() -> None:
    key = read_control_key(b"\x00\x05\x00\x63more")
    assert (key.version, key.type, key.known_type) == (5, 0x63, None)
    assert read_coordinator_epoch(b"\x00\x05\x00\x00\x00\x09more") == 9
    assert read_transaction_marker(control_batch(Record(0, 0, b"\x00\x00\x00\x63", None))) is None
    assert read_transaction_marker(control_batch(Record(0, 0, b"\x00\x00\x00\x02", b"leader"))) is None


def test_a_marker_that_compaction_removed() -> None:
    assert read_transaction_marker(control_batch()) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00\x00\x00\x00\x03"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x03"),
        (b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x03"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x03"),
    ],
)
def test_broken_markers(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedRecordError, match="base offset 8"):
        read_transaction_marker(control_batch(Record(0, 0, key, value)))


def test_data_is_no_marker() -> None:
    with pytest.raises(MalformedRecordError, match="it is not a control record"):
        read_transaction_marker(BatchView(encode_batch([Record(0, 0, b"\x00\x00\x00\x01", None)])))


def test_one_record_to_a_control_batch() -> None:
    with pytest.raises(RecordCountError, match="2 records"):
        read_transaction_marker(control_batch(Record(0, 0, b"\x00\x00\x00\x01", None), Record(1, 0, None, None)))
