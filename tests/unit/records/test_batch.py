from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from ottla.records import (
    BatchLengthError,
    BatchOptions,
    BatchView,
    Compression,
    CorruptBatchError,
    OffsetDeltaError,
    Record,
    RecordCountError,
    RecordError,
    TimestampType,
    TruncatedBatchError,
    UnknownCompressionError,
    UnknownMagicError,
    attributes_of,
    batch_size,
    compute_crc,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
    sequence_after,
)
from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    MAGIC_AT,
    RECORD_COUNT_AT,
)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**62)
TIMESTAMPS = st.integers(-1, 2**62)

OPTIONS = st.builds(
    BatchOptions,
    base_offset=OFFSETS,
    leader_epoch=INT32,
    compression=st.sampled_from(Compression),
    timestamp_type=st.sampled_from(TimestampType),
    max_timestamp_ms=st.none() | TIMESTAMPS,
    producer_id=INT64,
    producer_epoch=INT16,
    base_sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
    control=st.booleans(),
    delete_horizon_ms=st.none() | TIMESTAMPS,
    last_offset_delta=st.none() | st.integers(3, 2**31 - 1),
)
RECORDS = [Record(0, 1_700_000_000_000, b"k", b"v"), Record(1, 1_700_000_000_500, None, b"w"), Record(2, 5, b"", None)]


def patched(batch: bytes | bytearray, at: int, layout: str, value: int, *, fix_crc: bool = True) -> bytearray:
    out = bytearray(batch)
    struct.pack_into(layout, out, at, value)
    if fix_crc:
        BatchView(out).refresh_crc()
    return out


@settings(deadline=None)
@given(OPTIONS)
def test_fields_are_what_was_encoded(options: BatchOptions) -> None:
    batch = b"before" + encode_batch(RECORDS, options) + b"after"
    view = BatchView(batch, 6)
    last_offset_delta = 2 if options.last_offset_delta is None else options.last_offset_delta
    expected = {
        "base_offset": options.base_offset,
        "size_in_bytes": len(batch) - 11,
        "length": len(batch) - 11 - 12,
        "leader_epoch": options.leader_epoch,
        "magic": 2,
        "crc": compute_crc(batch, 6),
        "compression": options.compression,
        "timestamp_type": options.timestamp_type,
        "is_transactional": options.transactional,
        "is_control": options.control,
        "has_delete_horizon": options.delete_horizon_ms is not None,
        "delete_horizon_ms": options.delete_horizon_ms,
        "last_offset_delta": last_offset_delta,
        "last_offset": options.base_offset + last_offset_delta,
        "next_offset": options.base_offset + last_offset_delta + 1,
        "base_timestamp_ms": RECORDS[0].timestamp_ms
        if options.delete_horizon_ms is None
        else options.delete_horizon_ms,
        "max_timestamp_ms": RECORDS[1].timestamp_ms if options.max_timestamp_ms is None else options.max_timestamp_ms,
        "producer_id": options.producer_id,
        "producer_epoch": options.producer_epoch,
        "base_sequence": options.base_sequence,
        "last_sequence": -1 if options.base_sequence == -1 else (options.base_sequence + last_offset_delta) % 2**31,
        "record_count": 3,
    }
    header = read_header(batch, 6)
    assert {name: getattr(view, name) for name in expected} == expected
    assert {name: getattr(header, name) for name in expected} == expected
    assert view.header == header == view.validate()
    assert view.attributes == header.attributes
    assert view.data == batch[6:-5]
    assert view.payload == batch[6 + HEADER_SIZE : -5]


@settings(deadline=None)
@given(OPTIONS)
def test_kafka_python_reads_the_same_header(options: BatchOptions) -> None:
    batch = bytes(encode_batch(RECORDS, options))
    theirs, ours = DefaultRecordBatch(batch), read_header(batch)
    assert theirs.validate_crc()
    assert {
        "base_offset": theirs.base_offset,
        "leader_epoch": theirs.leader_epoch,
        "crc": theirs.crc,
        "attributes": theirs.attributes,
        "last_offset_delta": theirs.last_offset_delta,
        "base_timestamp_ms": theirs.first_timestamp,
        "max_timestamp_ms": theirs.max_timestamp,
        "producer_id": theirs.producer_id,
        "producer_epoch": theirs.producer_epoch,
        "base_sequence": theirs.base_sequence,
        "record_count": theirs.records_count,
    }.items() <= ours._asdict().items()


@pytest.mark.parametrize(
    ("sequence", "increment", "after"),
    [(0, 0, 0), (5, 7, 12), (2**31 - 1, 1, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 3, 10, 7)],
)
def test_sequences_wrap(sequence: int, increment: int, after: int) -> None:
    assert sequence_after(sequence, increment) == after


# Patching.


@settings(deadline=None)
@given(OPTIONS, INT64, INT32, st.booleans())
def test_offset_and_epoch_do_not_touch_the_crc(
    options: BatchOptions, offset: int, epoch: int, in_memoryview: bool
) -> None:
    batch = encode_batch(RECORDS, options)
    before = bytes(batch)
    view = BatchView(memoryview(batch) if in_memoryview else batch)
    view.assign_offset(offset)
    view.assign_leader_epoch(epoch)
    assert (view.base_offset, view.leader_epoch) == (offset, epoch)
    assert view.crc == compute_crc(batch)
    assert batch[LENGTH_AT:LEADER_EPOCH_AT] + batch[MAGIC_AT:] == before[LENGTH_AT:LEADER_EPOCH_AT] + before[MAGIC_AT:]


@settings(deadline=None)
@given(OPTIONS, st.sampled_from(TimestampType), INT64)
def test_max_timestamp_keeps_the_batch_valid(options: BatchOptions, kind: TimestampType, timestamp_ms: int) -> None:
    batch = encode_batch(RECORDS, options)
    view = BatchView(batch)
    before = view.header
    view.assign_max_timestamp(kind, timestamp_ms)
    after = view.validate()
    assert (after.timestamp_type, after.max_timestamp_ms) == (kind, timestamp_ms)
    changed = {"crc": after.crc, "attributes": after.attributes, "max_timestamp_ms": timestamp_ms}
    assert after == before._replace(**changed)
    assert after.compression == before.compression
    assert after.is_control == before.is_control
    assert after.is_transactional == before.is_transactional
    assert after.has_delete_horizon == before.has_delete_horizon
    if kind is TimestampType.LOG_APPEND_TIME:
        assert {record.timestamp_ms for record in decode_batch(view)} == {timestamp_ms}


@settings(deadline=None)
@given(OPTIONS, INT64, INT16, INT32)
def test_producer_keeps_the_batch_valid(options: BatchOptions, producer: int, epoch: int, sequence: int) -> None:
    view = BatchView(encode_batch(RECORDS, options))
    before = view.header
    view.assign_producer(producer, epoch, sequence)
    after = view.validate()
    assert after == before._replace(crc=after.crc, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


@pytest.mark.parametrize("readonly", [bytes, lambda batch: memoryview(bytes(batch))])
def test_read_only_buffers_are_not_patched(readonly: Any) -> None:
    view = BatchView(readonly(encode_batch(RECORDS)))
    with pytest.raises(TypeError, match="read-only"):
        view.assign_offset(1)
    with pytest.raises(TypeError, match="read-only"):
        view.assign_max_timestamp(TimestampType.LOG_APPEND_TIME, 5)


# What is wrong with a header.


@pytest.mark.parametrize("length", [-1, 0, 13, 48, -(2**31)])
def test_lengths_no_batch_has(length: int) -> None:
    batch = patched(encode_batch(RECORDS, BatchOptions(base_offset=9)), LENGTH_AT, ">i", length, fix_crc=False)
    for read in (batch_size, BatchView, read_header, compute_crc):
        with pytest.raises(BatchLengthError, match=f"base offset 9 at byte 0: .*{length}"):
            read(batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_magic_says_who_reads_it(magic: int) -> None:
    batch = patched(encode_batch(RECORDS), MAGIC_AT, "b", magic, fix_crc=False)
    with pytest.raises(UnknownMagicError, match="legacy"):
        BatchView(batch)


@pytest.mark.parametrize("magic", [3, 127, -1, -128])
def test_unknown_magic(magic: int) -> None:
    batch = patched(encode_batch(RECORDS), MAGIC_AT, "b", magic, fix_crc=False)
    for read in (batch_size, BatchView, read_header):
        with pytest.raises(UnknownMagicError, match=f"magic {magic}"):
            read(batch)


def test_every_prefix_is_truncated() -> None:
    batch = bytes(encode_batch(RECORDS))
    for size in range(len(batch)):
        for read in (batch_size, BatchView, read_header):
            with pytest.raises(TruncatedBatchError):
                read(batch[:size])


def test_a_huge_length_is_only_compared() -> None:
    batch = patched(encode_batch(RECORDS), LENGTH_AT, ">i", 2**31 - 1, fix_crc=False)
    with pytest.raises(TruncatedBatchError, match=str(2**31 + 11)):
        BatchView(batch)


@pytest.mark.parametrize("count", [-1, -(2**31), 4, 2**31 - 1])
def test_counts_that_cannot_be(count: int) -> None:
    batch = patched(encode_batch(RECORDS), RECORD_COUNT_AT, ">i", count)
    with pytest.raises(RecordCountError, match=str(count)):
        BatchView(batch).validate()


def test_more_records_than_bytes_could_hold() -> None:
    batch = encode_batch(RECORDS, BatchOptions(last_offset_delta=2**31 - 1))
    batch = patched(batch, RECORD_COUNT_AT, ">i", 2**31 - 1)
    with pytest.raises(RecordCountError):
        BatchView(batch).validate()


@pytest.mark.parametrize("delta", [-1, -(2**31)])
def test_negative_last_offset_delta(delta: int) -> None:
    batch = patched(encode_batch(RECORDS), LAST_OFFSET_DELTA_AT, ">i", delta)
    with pytest.raises(OffsetDeltaError, match=str(delta)):
        BatchView(batch).validate()


def test_offsets_beyond_64_bits() -> None:
    batch = patched(encode_batch(RECORDS), BASE_OFFSET_AT, ">q", 2**63 - 2)
    with pytest.raises(OffsetDeltaError):
        BatchView(batch).validate()


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_compression(codec: int) -> None:
    batch = patched(encode_batch(RECORDS, BatchOptions(base_offset=77)), ATTRIBUTES_AT, ">h", codec)
    view = BatchView(batch)
    with pytest.raises(UnknownCompressionError, match=f"base offset 77.*{codec}"):
        view.validate()
    with pytest.raises(UnknownCompressionError):
        _ = view.compression


@pytest.mark.parametrize("compression", Compression)
def test_every_bit_flip_is_found(compression: Compression) -> None:
    batch = encode_batch(RECORDS, BatchOptions(compression=compression))
    outside = {*range(BASE_OFFSET_AT, LENGTH_AT), *range(LEADER_EPOCH_AT, MAGIC_AT)}
    for at in range(len(batch)):
        for bit in range(8):
            batch[at] ^= 1 << bit
            if at in outside:
                decode_batch(batch)
            else:
                with pytest.raises(RecordError):
                    BatchView(batch).validate()
            batch[at] ^= 1 << bit


def test_crc_is_named() -> None:
    batch = encode_batch(RECORDS, BatchOptions(base_offset=3))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="base offset 3 at byte 0"):
        BatchView(batch).validate()
    assert BatchView(batch).validate(verify_crc=False).base_offset == 3


# Many batches.


def many(count: int) -> bytes:
    return b"".join(encode_batch(RECORDS, BatchOptions(base_offset=3 * index)) for index in range(count))


def test_batches_follow_each_other() -> None:
    buffer = many(5)
    views = list(iter_batches(buffer))
    assert [view.base_offset for view in views] == [0, 3, 6, 9, 12]
    assert b"".join(view.data for view in views) == buffer
    assert [view.base_offset for view in iter_batches(buffer, views[3].position)] == [9, 12]
    assert list(iter_batches(b"")) == []


def test_a_partial_tail() -> None:
    buffer = many(3)
    size = len(buffer) // 3
    for cut in range(1, size):
        tail = buffer[: len(buffer) - cut]
        assert [view.base_offset for view in iter_batches(tail, partial_tail=True)] == [0, 3]
        with pytest.raises(TruncatedBatchError, match=f"at byte {2 * size}"):
            list(iter_batches(tail))


def test_a_wrong_length_is_no_partial_tail() -> None:
    buffer = many(1) + bytes(8) + struct.pack(">i", -5)
    with pytest.raises(BatchLengthError):
        list(iter_batches(buffer, partial_tail=True))


def test_what_follows_must_be_batches() -> None:
    buffer = many(1) + patched(many(1), MAGIC_AT, "b", 9, fix_crc=False)
    with pytest.raises(UnknownMagicError, match=f"at byte {len(buffer) // 2}"):
        list(iter_batches(buffer, partial_tail=True))


def test_attributes() -> None:
    assert attributes_of() == 0
    assert (
        attributes_of(
            compression=Compression.ZSTD,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            transactional=True,
            control=True,
            delete_horizon=True,
        )
        == 0b111_1100
    )


def test_the_view_shows_itself() -> None:
    assert "base_offset=0" in repr(BatchView(encode_batch(RECORDS)))
