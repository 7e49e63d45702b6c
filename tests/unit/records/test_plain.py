from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.records import BatchOptions, BatchView, Compression, Record, TimestampType, decode_batch, encode_batch
from ottla.records.layout import HEADER_SIZE

TIMESTAMPS = st.integers(-1, 2**62)
BYTES = st.none() | st.binary(max_size=100)
HEADERS = st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=3).map(tuple)
RECORD = st.builds(Record, offset=st.just(0), timestamp_ms=TIMESTAMPS, key=BYTES, value=BYTES, headers=HEADERS)


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


RECORDS = st.lists(RECORD, min_size=1, max_size=20).map(numbered)
OPTIONS = st.builds(
    BatchOptions,
    base_offset=st.integers(0, 2**62),
    compression=st.sampled_from(Compression),
    producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
    delete_horizon_ms=st.none() | TIMESTAMPS,
)


@settings(deadline=None)
@given(RECORDS, OPTIONS)
def test_round_trip(records: list[Record], options: BatchOptions) -> None:
    batch = encode_batch(records, options)
    decoded = decode_batch(batch)
    assert decoded == numbered(records, options.base_offset)
    assert encode_batch(decoded, options) == batch
    assert decode_batch(BatchView(b"xyz" + bytes(batch), 3)) == decoded


@settings(deadline=None)
@given(st.lists(st.tuples(RECORD, st.integers(0, 1000)), max_size=20), st.integers(0, 50), OPTIONS)
def test_gaps_between_offsets_are_kept(steps: list[tuple[Record, int]], after: int, options: BatchOptions) -> None:
    records, offset = [], options.base_offset
    for record, gap in steps:
        records.append(record._replace(offset=offset + gap))
        offset += gap + 1
    options = replace(options, last_offset_delta=max(offset - 1 - options.base_offset, 0) + after)
    batch = encode_batch(records, options, keep_offsets=True)
    view = BatchView(batch)
    assert decode_batch(view) == records
    assert view.last_offset_delta == options.last_offset_delta
    assert view.record_count == len(records)


def test_an_empty_batch_is_what_compaction_leaves() -> None:
    options = BatchOptions(
        base_offset=40,
        compression=Compression.LZ4,
        max_timestamp_ms=77,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        last_offset_delta=3,
    )
    view = BatchView(encode_batch([], options))
    header = view.validate()
    assert view.size_in_bytes == HEADER_SIZE
    assert decode_batch(view) == []
    assert (header.last_offset, header.last_sequence, header.record_count) == (43, 12, 0)
    assert (header.base_timestamp_ms, header.max_timestamp_ms, header.compression) == (-1, 77, Compression.NONE)


def test_the_bytes_of_a_batch() -> None:
    records = [
        Record(0, 1000, b"k1", b"hello", (("h", b"x"), ("n", None))),
        Record(1, 1003, None, None),
        Record(2, 999, b"", b""),
    ]
    options = BatchOptions(producer_id=4, producer_epoch=2, base_sequence=11, transactional=True)
    batch = encode_batch(records, options)
    payload = "2800000004" + b"k1".hex() + "0a" + b"hello".hex() + "0402" + b"h".hex() + "0278" + "026e01"
    payload += "0c000602010100" + "0c000104000000"
    expected = (
        "0000000000000000"  # base offset
        f"{49 + len(payload) // 2:08x}"
        "ffffffff02"  # no leader epoch, magic
        f"{BatchView(batch).crc:08x}"
        "0010"  # transactional
        "00000002"
        "00000000000003e8"
        "00000000000003eb"
        "0000000000000004"
        "0002"
        "0000000b"
        "00000003"
    )
    assert batch.hex() == expected + payload


def test_log_append_time_is_that_of_every_record() -> None:
    options = BatchOptions(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp_ms=500)
    batch = encode_batch([Record(0, 10, None, b"a"), Record(1, 900, None, b"b")], options)
    view = BatchView(batch)
    assert (view.base_timestamp_ms, view.max_timestamp_ms) == (10, 500)
    assert [record.timestamp_ms for record in decode_batch(view)] == [500, 500]


def test_timestamps_are_relative_to_the_delete_horizon() -> None:
    batch = encode_batch([Record(0, 100, b"a", None)], BatchOptions(delete_horizon_ms=5000))
    assert BatchView(batch).base_timestamp_ms == 5000
    assert decode_batch(batch)[0].timestamp_ms == 100


def test_without_the_crc_when_told_so() -> None:
    batch = encode_batch([Record(0, 1, None, b"abc")])
    batch[-2] ^= 1  # the last byte of the value
    assert decode_batch(batch, verify_crc=False)[0].value == b"abb"


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        ([Record(0, -2, None, None)], BatchOptions(), "timestamp -2"),
        ([Record(5, 0, None, None), Record(5, 0, None, None)], BatchOptions(base_offset=5), "offset 5 does not"),
        ([Record(4, 0, None, None)], BatchOptions(base_offset=5), "offset 4 does not"),
        ([Record(9, 0, None, None)], BatchOptions(base_offset=5, last_offset_delta=3), "last offset delta 3"),
        ([Record(2**31, 0, None, None)], BatchOptions(), str(2**31)),
        ([], BatchOptions(last_offset_delta=-1), "last offset delta -1"),
    ],
)
def test_what_cannot_be_encoded(records: list[Record], options: BatchOptions, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_batch(records, options, keep_offsets=True)


# Against other people's codecs.

THEIR_RECORD = st.builds(
    Record, offset=st.just(0), timestamp_ms=st.integers(0, 2**62), key=BYTES, value=BYTES, headers=HEADERS
)
THEIR_RECORDS = st.lists(THEIR_RECORD, min_size=1, max_size=20).map(numbered)


def built(builder: Any, records: list[Record]) -> bytes:
    for record in records:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def read(batch: Any) -> list[Record]:
    assert batch.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in batch]


@settings(deadline=None)
@given(THEIR_RECORDS, st.booleans())
def test_the_same_bytes_as_kafka_python_and_aiokafka(records: list[Record], transactional: bool) -> None:
    options = BatchOptions(producer_id=7, producer_epoch=3, base_sequence=100, transactional=transactional)
    theirs = AiokafkaBuilder(2, 0, int(transactional), 7, 3, 100, 1 << 30)
    assert built(theirs, records) == encode_batch(records, options)
    theirs = KafkaPythonBuilder(2, 0, transactional, 7, 3, 100, 1 << 30)
    assert built(theirs, records) == encode_batch(records, replace(options, leader_epoch=0))


@settings(deadline=None)
@given(THEIR_RECORDS, st.sampled_from(Compression))
def test_aiokafka_reads_ours(records: list[Record], compression: Compression) -> None:
    batch = encode_batch(records, BatchOptions(compression=compression))
    assert read(AiokafkaBatch(bytes(batch))) == records


@settings(deadline=None)
@given(THEIR_RECORDS, st.sampled_from(Compression), st.integers(1, 100))
def test_we_read_aiokafka(records: list[Record], compression: Compression, repeat: int) -> None:
    records = numbered(records * repeat)
    assert decode_batch(built(AiokafkaBuilder(2, compression, 0, -1, -1, -1, 1 << 30), records)) == records


# kafka-python has no libraries for the other codecs here.
@settings(deadline=None)
@given(THEIR_RECORDS, st.sampled_from([Compression.NONE, Compression.GZIP]))
def test_kafka_python_reads_ours(records: list[Record], compression: Compression) -> None:
    batch = encode_batch(records, BatchOptions(compression=compression))
    assert read(KafkaPythonBatch(bytes(batch))) == records


@settings(deadline=None)
@given(THEIR_RECORDS, st.sampled_from([Compression.NONE, Compression.GZIP]), st.integers(1, 100))
def test_we_read_kafka_python(records: list[Record], compression: Compression, repeat: int) -> None:
    records = numbered(records * repeat)
    assert decode_batch(built(KafkaPythonBuilder(2, compression, False, -1, -1, -1, 1 << 30), records)) == records
