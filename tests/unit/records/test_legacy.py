from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from ottla.records import (
    BatchLengthError,
    BatchOptions,
    BatchView,
    Compression,
    CorruptBatchError,
    DecompressionError,
    DecompressionLimitError,
    MalformedRecordError,
    MessageView,
    OffsetDeltaError,
    Record,
    TimestampType,
    TruncatedBatchError,
    UnknownCompressionError,
    UnknownMagicError,
    compress,
    convert_to_v2,
    decode_batch,
    encode_batch,
    iter_entries,
    iter_records,
)

LOG_APPEND_TIME_BIT = 8


def message(
    offset: int,
    key: bytes | None = None,
    value: bytes | None = b"v",
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp_ms: int = 1000,
) -> bytes:
    body = struct.pack(">bB", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp_ms)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    offset: int,
    inner: bytes,
    codec: Compression = Compression.GZIP,
    *,
    magic: int = 1,
    log_append: bool = False,
    timestamp_ms: int = 1000,
) -> bytes:
    attributes = codec | (LOG_APPEND_TIME_BIT if log_append else 0)
    return message(offset, None, compress(codec, inner), magic=magic, attributes=attributes, timestamp_ms=timestamp_ms)


def resealed(data: bytearray) -> bytearray:
    """One message with its CRC made right again."""
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return data


BYTES = st.none() | st.binary(max_size=50)
RECORDS = st.lists(
    st.builds(
        Record, offset=st.just(0), timestamp_ms=st.integers(0, 2**62), key=BYTES, value=BYTES, headers=st.just(())
    ),
    min_size=1,
    max_size=15,
).map(lambda records: [record._replace(offset=index) for index, record in enumerate(records)])
MAGICS = st.sampled_from([0, 1])


def expected(records: list[Record], magic: int) -> list[Record]:
    return records if magic else [record._replace(timestamp_ms=-1) for record in records]


def built(builder: Any, records: list[Record]) -> bytes:
    for record in records:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value)
    return bytes(builder.build())


# Against other people's codecs.


@settings(deadline=None)
@given(RECORDS, MAGICS, st.sampled_from(Compression), st.integers(1, 30))
def test_we_read_aiokafka(records: list[Record], magic: int, codec: Compression, repeat: int) -> None:
    if codec is Compression.ZSTD or (codec is Compression.LZ4 and magic == 0):
        codec = Compression.NONE
    records = [record._replace(offset=index) for index, record in enumerate(records * repeat)]
    data = built(AiokafkaBuilder(magic, codec, 1 << 30), records)
    assert list(iter_records(data)) == expected(records, magic)


@settings(deadline=None)
@given(RECORDS, MAGICS, st.sampled_from([Compression.NONE, Compression.GZIP]))
def test_we_read_kafka_python(records: list[Record], magic: int, codec: Compression) -> None:
    data = built(KafkaPythonBuilder(magic, codec, 1 << 30), records)
    assert list(iter_records(data)) == expected(records, magic)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), BYTES, BYTES, st.integers(0, 2**62)), min_size=1, max_size=10),
    MAGICS,
    st.integers(1000, 2**62),
    st.sampled_from([Compression.GZIP, Compression.SNAPPY, Compression.LZ4]),
    st.booleans(),
)
def test_wrappers_as_aiokafka_reads_them(
    steps: list[tuple[int, bytes | None, bytes | None, int]],
    magic: int,
    offset: int,
    codec: Compression,
    log_append: bool,
) -> None:
    if codec is Compression.LZ4:
        magic = 1  # aiokafka reads no lz4 of magic 0
    inner, position = b"", -1
    for gap, key, value, timestamp_ms in steps:
        position += gap + 1
        inner_offset = position if magic else offset + position
        inner += message(inner_offset, key, value, magic=magic, timestamp_ms=timestamp_ms)
    data = wrapper(offset + position, inner, codec, magic=magic, log_append=log_append, timestamp_ms=77)
    theirs = [
        Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in AiokafkaBatch(data, magic)
    ]
    assert MessageView(data).records() == theirs


# One message.


@pytest.mark.parametrize("magic", [0, 1])
def test_a_plain_message(magic: int) -> None:
    data = b"xx" + message(42, b"key", None, magic=magic) + b"yy"
    view = MessageView(data, 2)
    view.validate()
    assert (view.offset, view.last_offset, view.magic, view.size_in_bytes) == (42, 42, magic, len(data) - 4)
    assert (view.compression, view.timestamp_type) == (Compression.NONE, TimestampType.CREATE_TIME)
    assert view.records() == [Record(42, 1000 if magic else -1, b"key", None)]


def test_who_set_the_timestamp() -> None:
    assert MessageView(message(0, attributes=8)).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert MessageView(message(0, attributes=8, magic=0)).timestamp_type is TimestampType.CREATE_TIME


def test_relative_offsets_of_magic_1() -> None:
    data = wrapper(107, message(0) + message(2) + message(5))
    assert [record.offset for record in iter_records(data)] == [102, 104, 107]


def test_relative_offsets_of_a_producer_that_left_the_wrapper_at_zero() -> None:
    data = wrapper(0, message(0) + message(1) + message(2))
    assert [record.offset for record in iter_records(data)] == [0, 1, 2]


def test_absolute_offsets_of_magic_0() -> None:
    for offset in (107, 200):
        data = wrapper(offset, message(102, magic=0) + message(107, magic=0), magic=0)
        assert [record.offset for record in iter_records(data)] == [102, 107]


def test_timestamps_inside_of_a_wrapper() -> None:
    inner = message(0, timestamp_ms=5) + message(1, timestamp_ms=9)
    assert [r.timestamp_ms for r in iter_records(wrapper(1, inner, timestamp_ms=77))] == [5, 9]
    assert [r.timestamp_ms for r in iter_records(wrapper(1, inner, timestamp_ms=77, log_append=True))] == [77, 77]


def test_lz4_of_magic_0_with_its_broken_header() -> None:
    packed = bytearray(compress(Compression.LZ4, message(3, magic=0)))
    packed[6] ^= 0xFF
    data = message(3, None, bytes(packed), magic=0, attributes=Compression.LZ4)
    assert [record.offset for record in iter_records(data)] == [3]
    with pytest.raises(DecompressionError, match="checksum"):
        list(iter_records(message(3, None, bytes(packed), attributes=Compression.LZ4)))


# What is wrong.


def test_every_bit_flip_is_found() -> None:
    for data in (bytearray(message(1, b"k", b"v", magic=0)), bytearray(wrapper(1, message(0) + message(1)))):
        for at in range(8, len(data)):
            for bit in range(8):
                data[at] ^= 1 << bit
                with pytest.raises((CorruptBatchError, TruncatedBatchError, BatchLengthError, UnknownMagicError)):
                    MessageView(data).validate()
                data[at] ^= 1 << bit


def test_every_prefix_is_truncated() -> None:
    data = message(1, b"k", b"v")
    for size in range(len(data)):
        with pytest.raises(TruncatedBatchError):
            MessageView(data[:size])
        assert list(iter_entries(data + data[:size], partial_tail=True))[1:] == []
        if size:
            with pytest.raises(TruncatedBatchError, match=f"at byte {len(data)}"):
                list(iter_entries(data + data[:size]))


@pytest.mark.parametrize(("magic", "size"), [(0, 13), (0, -1), (0, -(2**31)), (1, 21), (1, 14)])
def test_sizes_no_message_has(magic: int, size: int) -> None:
    data = bytearray(message(1, magic=magic))
    struct.pack_into(">i", data, 8, size)
    with pytest.raises(BatchLengthError, match=str(size)):
        MessageView(data)
    with pytest.raises(BatchLengthError, match=str(size)):
        list(iter_entries(data, partial_tail=True))


@pytest.mark.parametrize("magic", [2, 3, 255])
def test_other_magic(magic: int) -> None:
    data = bytearray(message(1))
    data[16] = magic
    with pytest.raises(UnknownMagicError, match=str(magic)):
        MessageView(data)


@pytest.mark.parametrize(("at", "value"), [(26, -2), (26, 100), (26, 2**31 - 1), (30, -2), (30, 0), (30, 2), (26, 1)])
def test_lengths_that_cannot_be(at: int, value: int) -> None:
    data = bytearray(message(5, None, b"v"))
    struct.pack_into(">i", data, at, value)
    with pytest.raises(MalformedRecordError, match="base offset 5"):
        MessageView(resealed(data)).records()


def test_what_a_wrapper_must_not_hold() -> None:
    cases: list[tuple[bytes, type[Exception], str]] = [
        (message(1, None, None, attributes=1), MalformedRecordError, "no value"),
        (wrapper(1, b""), MalformedRecordError, "no message"),
        (wrapper(1, wrapper(0, message(0))), MalformedRecordError, "inside of a compressed"),
        (wrapper(1, message(0, magic=0)), UnknownMagicError, "magic 0 inside"),
        (wrapper(1, message(0)[:-1]), TruncatedBatchError, "of which"),
        (wrapper(1, message(0) + message(5)), OffsetDeltaError, "before the last one"),
        (wrapper(2**63 - 1, message(2**62) + message(0)), OffsetDeltaError, "64 bits"),
        (message(1, None, b"not gzip", attributes=1), DecompressionError, "gzip"),
        (message(1, None, b"any", attributes=Compression.ZSTD), UnknownCompressionError, "zstd"),
        (message(1, None, b"any", attributes=6), UnknownCompressionError, "compression 6"),
    ]
    for data, kind, reason in cases:
        with pytest.raises(kind, match=f"at byte 0: .*{reason}"):
            MessageView(data).records()


def test_inner_crc() -> None:
    inner = bytearray(message(0, None, b"value"))
    inner[-1] ^= 1
    data = wrapper(1, bytes(inner))
    with pytest.raises(CorruptBatchError):
        MessageView(data).records()
    assert MessageView(data).records(verify_crc=False)[0].value == b"valud"


def test_bombs() -> None:
    data = wrapper(1, message(0, None, bytes(1_000_000)))
    with pytest.raises(DecompressionLimitError, match="base offset 1 "):
        MessageView(data).records(max_decompressed_bytes=100_000)


# All magics in one buffer, and conversion.


def upgraded_log() -> bytes:
    """What a log looks like whose brokers went from 0.9 over 0.10 to today's."""
    return (
        message(0, b"a", b"0", magic=0)
        + wrapper(2, message(1, magic=0) + message(2, magic=0), Compression.SNAPPY, magic=0)
        + message(3, b"b", b"1")
        + message(4, b"c", None)
        + wrapper(8, message(0) + message(1) + message(3), Compression.LZ4, log_append=True, timestamp_ms=99)
        + bytes(encode_batch([Record(0, 5, b"d", b"2", (("h", b"x"),))], BatchOptions(base_offset=9)))
        + message(10, attributes=8, timestamp_ms=7)
    )


def test_entries_of_all_magics() -> None:
    entries = list(iter_entries(upgraded_log()))
    assert [entry.magic for entry in entries] == [0, 0, 1, 1, 1, 2, 1]
    assert [entry.last_offset for entry in entries] == [0, 2, 3, 4, 8, 9, 10]
    assert [record.offset for record in iter_records(upgraded_log())] == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]


def test_control_batches_are_no_records() -> None:
    control = encode_batch([Record(0, 5, b"d", b"2")], BatchOptions(control=True))
    assert list(iter_records(message(0) + bytes(control))) == list(iter_records(message(0)))


def test_conversion_keeps_what_the_records_say() -> None:
    log = upgraded_log()
    batches = [BatchView(batch) for batch in convert_to_v2(log)]
    assert [record for batch in batches for record in decode_batch(batch)] == list(iter_records(log))
    assert [(b.base_offset, b.last_offset, b.compression, b.timestamp_type) for b in batches] == [
        (0, 0, Compression.NONE, TimestampType.CREATE_TIME),
        (1, 2, Compression.SNAPPY, TimestampType.CREATE_TIME),
        (3, 4, Compression.NONE, TimestampType.CREATE_TIME),
        (5, 8, Compression.LZ4, TimestampType.LOG_APPEND_TIME),
        (9, 9, Compression.NONE, TimestampType.CREATE_TIME),
        (10, 10, Compression.NONE, TimestampType.LOG_APPEND_TIME),
    ]


def test_conversion_leaves_magic_2_alone() -> None:
    batch = encode_batch([Record(0, 5, b"d", b"2")], BatchOptions(base_offset=9, producer_id=4))
    assert convert_to_v2(bytes(batch)) == [batch]


def test_append_times_that_differ_stay_apart() -> None:
    log = b"".join(message(i, attributes=8, timestamp_ms=ts) for i, ts in enumerate((7, 7, 8)))
    batches = convert_to_v2(log)
    assert [BatchView(batch).record_count for batch in batches] == [2, 1]
    assert [record.timestamp_ms for batch in batches for record in decode_batch(batch)] == [7, 7, 8]


def test_large_sets_become_several_batches() -> None:
    log = b"".join(message(i, None, bytes(300_000)) for i in range(10))
    assert [BatchView(batch).record_count for batch in convert_to_v2(log)] == [4, 4, 2]


def test_offsets_far_apart_become_several_batches() -> None:
    log = message(0) + message(2**31 - 1) + message(2**31) + message(3)
    batches = [BatchView(batch) for batch in convert_to_v2(log)]
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [(0, 2**31 - 1), (2**31, 2**31), (3, 3)]


def test_offsets_of_a_produce_request_are_counted_from_the_base_offset() -> None:
    log = message(0) + message(0) + wrapper(0, message(0) + message(0) + message(0)) + message(0)
    log += bytes(encode_batch([Record(0, 0, None, None)] * 2, BatchOptions(last_offset_delta=4)))
    batches = convert_to_v2(log, base_offset=50)
    assert [r.offset for b in batches for r in decode_batch(b)] == [50, 51, 52, 53, 54, 55, 56, 57]
    assert BatchView(batches[-1]).last_offset == 60


def test_offsets_that_go_back_inside_of_a_wrapper() -> None:
    with pytest.raises(OffsetDeltaError, match="offset 5 inside of it follows 5"):
        convert_to_v2(wrapper(5, message(5, magic=0) + message(5, magic=0), magic=0))


def test_timestamps_that_cannot_be_converted() -> None:
    with pytest.raises(MalformedRecordError, match="timestamp -5"):
        convert_to_v2(message(1, timestamp_ms=-5))


def test_a_partial_tail_is_left_out_of_the_conversion() -> None:
    log = upgraded_log()
    assert convert_to_v2(log + log[:15], partial_tail=True) == convert_to_v2(log)
    with pytest.raises(TruncatedBatchError):
        convert_to_v2(log + log[:15])
