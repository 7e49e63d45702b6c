"""Columns against the plain codec: the same bytes out of the same records, the same records or the same refusal out."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.records import column_reader
from ottla.records.batch import BatchView
from ottla.records.columns import (
    ColumnSizeError,
    Reading,
    decode_columns,
    decode_records,
    encode_batches,
    encode_columns,
    iterate_records,
)
from ottla.records.errors import (
    BatchLengthError,
    CorruptBatchError,
    DecompressionLimitError,
    RecordCountError,
    RecordError,
    UnknownCompressionError,
    UnknownMagicError,
)
from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    RECORD_COUNT_AT,
    Compression,
    TimestampType,
)
from ottla.records.plain import BatchOptions, decode_batch, encode_batch
from ottla.records.record import Record
from ottla.records.sections import Sections
from ottla.records.varint import write_varint
from support.examples import examples

EXAMPLES = settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])

CELLS = st.none() | st.binary(max_size=40) | st.binary(min_size=130, max_size=140)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
STAMPS = st.integers(-1, 2**45)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = False, min_size: int = 0) -> list[Record]:
    """Records with offsets from 0 on, some left out where compaction may have been."""
    records: list[Record] = []
    offset = draw(st.integers(0, 200)) if gaps else 0
    for key, value, headers, stamp in draw(
        st.lists(st.tuples(CELLS, CELLS, HEADERS | st.just(()), STAMPS), min_size=min_size, max_size=12)
    ):
        records.append(Record(offset, stamp, key, value, headers))
        offset += draw(st.integers(1, 200)) if gaps else 1
    return records


def moved(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=record.offset + base_offset) for record in records]


OPTIONS = st.builds(
    BatchOptions,
    base_offset=st.integers(0, 2**40),
    leader_epoch=st.integers(-1, 100),
    compression=st.sampled_from(Compression),
    timestamp_type=st.sampled_from(TimestampType),
    max_timestamp_ms=st.none() | STAMPS,
    producer_id=st.integers(-1, 2**40),
    producer_epoch=st.integers(-1, 100),
    base_sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
    control=st.booleans(),
    delete_horizon_ms=st.none() | STAMPS,
)


# Writing.


def fields(records: list[Record]) -> dict[str, Any]:
    return {
        "values": [record.value for record in records],
        "keys": [record.key for record in records],
        "headers": [record.headers for record in records],
        "timestamps_ms": [record.timestamp_ms for record in records],
    }


@EXAMPLES
@given(record_lists(), OPTIONS)
def test_lists_become_the_bytes_of_the_plain_codec(records: list[Record], options: BatchOptions) -> None:
    assert encode_columns(**fields(records), options=options) == encode_batch(records, options)


@EXAMPLES
@given(record_lists(gaps=True, min_size=1), OPTIONS, st.integers(0, 1000))
def test_given_offsets_are_kept(records: list[Record], options: BatchOptions, room: int) -> None:
    records = moved(records, options.base_offset)
    last = records[-1].offset - options.base_offset
    options = replace(options, last_offset_delta=last + room if room else None)
    offsets = [record.offset for record in records]
    encoded = encode_columns(**fields(records), options=options, offsets=offsets)
    assert encoded == encode_batch(records, options, keep_offsets=True)


@EXAMPLES
@given(
    record_lists(),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    st.integers(0, 9),
    st.integers(1, 4),
)
def test_arrow_becomes_the_bytes_of_the_plain_codec(records: list[Record], kind: Any, before: int, chunks: int) -> None:
    """Slices that begin and end inside of an array, whole arrays and chunked ones, of each type."""
    padded = [Record(0, 7, b"before", b"before", (("before", b""),))] * before + records + [Record(0, 7, b"", None)]

    def column(cells: list[Any], kind: Any) -> Any:
        whole = pa.array(cells, kind).slice(before, len(records))
        if chunks == 1:
            return whole
        step = max(1, len(records) // chunks)
        return pa.chunked_array([whole.slice(at, step) for at in range(0, len(records), step)], type=kind)

    headers = [[{"key": key, "value": value} for key, value in record.headers] for record in padded]
    encoded = encode_columns(
        column([record.value for record in padded], kind),
        column([record.key for record in padded], kind),
        column(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        column([record.timestamp_ms * 1000 + 999 for record in padded], pa.timestamp("us", "UTC")),
    )
    assert encoded == encode_batch(records)


@pytest.mark.parametrize(
    ("timestamps", "expected_ms"),
    [
        (5, [5, 5, 5]),
        ([3, 1, 2], [3, 1, 2]),
        (np.array([3, 1, 2]), [3, 1, 2]),
        (np.array([3, 0, 1, 0, 2, 0])[::2], [3, 1, 2]),
        (np.frombuffer(np.array([3, 1, 2]).tobytes(), np.int64), [3, 1, 2]),
        (pa.array([3, 1, 2]), [3, 1, 2]),
        (pa.array([3, 1, 2], pa.timestamp("s")), [3000, 1000, 2000]),
        (pa.array([3, 1, 2], pa.timestamp("ms", "UTC")), [3, 1, 2]),
        (pa.array([3001, -1, 2999], pa.timestamp("us")), [3, -1, 2]),
        (pa.array([3_999_999, 1_000_000, 2_000_001], pa.timestamp("ns")), [3, 1, 2]),
    ],
)
def test_timestamps_of_any_unit_become_milliseconds(timestamps: Any, expected_ms: list[int]) -> None:
    encoded = encode_columns([b"a", b"b", b"c"], timestamps_ms=timestamps)
    assert [record.timestamp_ms for record in decode_batch(encoded)] == expected_ms


def test_strings_null_columns_and_fixed_sizes_are_sent_as_bytes() -> None:
    values = pa.array(["ä", None, "c"])
    batches = [
        encode_columns(values, pa.nulls(3)),
        encode_columns(values.cast(pa.large_string()), pa.array([None] * 3, pa.binary())),
        encode_columns(values.cast(pa.string_view()), [None] * 3),
    ]
    expected = encode_batch([Record(0, -1, None, value) for value in ("ä".encode(), None, b"c")])
    assert batches == [expected] * 3
    fixed = encode_columns(pa.array([b"ab", None], pa.binary(2)))
    assert fixed == encode_batch([Record(0, -1, None, b"ab"), Record(1, -1, None, None)])


def test_null_lists_are_no_headers() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}]], kind)
    expected = encode_batch(
        [Record(0, -1, None, b"", (("a", b"1"),)), Record(0, -1, None, b""), Record(0, -1, None, b"", (("b", None),))]
    )
    assert encode_columns([b""] * 3, headers=headers) == expected
    assert encode_columns([b""] * 3, headers=[[("a", b"1")], None, [("b", None)]]) == expected


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"keys": [b"k"]}, ValueError, "2 values, but 1 keys"),
        ({"headers": [()]}, ValueError, "2 values, but headers for 1"),
        ({"headers": [[(None, b"")], []]}, ValueError, "1 headers have no key"),
        ({"headers": pa.array([[None], []], column_reader.HEADERS_TYPE)}, ValueError, "1 headers are null"),
        ({"timestamps_ms": [1]}, ValueError, "2 values, but timestamps of shape"),
        ({"timestamps_ms": [1, -2]}, ValueError, "timestamp -2"),
        ({"timestamps_ms": -2}, ValueError, "timestamp -2"),
        ({"timestamps_ms": pa.array([1, None])}, ValueError, "1 timestamps are null"),
        ({"offsets": [1]}, ValueError, "2 values, but offsets of shape"),
        ({"offsets": [1, 1]}, ValueError, "do not ascend"),
        ({"offsets": [-1, 1]}, ValueError, "before the base offset"),
        ({"offsets": [0, 2**31]}, ValueError, "offset 2147483648 is too far"),
        ({"options": BatchOptions(last_offset_delta=0)}, ValueError, "last offset delta 0"),
        ({"keys": pa.array([1, 2])}, TypeError, "a column of type int64"),
    ],
)
def test_columns_that_cannot_be_a_batch_are_refused(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        encode_columns([b"a", b"b"], **arguments)


@EXAMPLES
@given(record_lists(), OPTIONS, st.integers(HEADER_SIZE, 1000))
def test_batches_are_cut_where_the_next_record_would_not_fit(
    records: list[Record], options: BatchOptions, max_batch_bytes: int
) -> None:
    plain = replace(options, compression=Compression.NONE)
    expected, chunk, start = [], list[Record](), 0
    for index, record in enumerate(records):
        if chunk and len(encode_batch([*chunk, record], plain)) > max_batch_bytes:
            expected.append((start, chunk))
            chunk, start = [], index
        chunk.append(record)
    if chunk:
        expected.append((start, chunk))

    batches = list(encode_batches(**fields(records), max_batch_bytes=max_batch_bytes, options=options))
    assert batches == [
        encode_batch(
            chunk,
            replace(
                options,
                base_offset=options.base_offset + start,
                base_sequence=-1 if options.base_sequence == -1 else (options.base_sequence + start) % 2**31,
            ),
        )
        for start, chunk in expected
    ]


# Reading.


def plainly(data: bytes, reading: Reading | None = None) -> list[Record]:
    """What should be read: batch by batch with the plain codec, the rest left out record by record."""
    reading = reading or Reading()
    records: list[Record] = []
    position = 0
    while position < len(data):
        view = BatchView(data, position)
        if view.is_control:
            view.validate()  # Nobody reads what is inside.
        else:
            records += decode_batch(view, max_decompressed_bytes=reading.max_decompressed_bytes)
        position += view.size_in_bytes
    first = -1 if reading.first_offset is None else reading.first_offset
    until = 2**63 if reading.until_offset is None else reading.until_offset
    return [record for record in records if first <= record.offset < until]


def from_arrow(batch: Any) -> list[Record]:
    """The rows as records, their timestamps in microseconds."""
    batch.validate(full=True)
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in batch.set_column(
            batch.schema.get_field_index("timestamp"), "timestamp", batch["timestamp"].cast(pa.int64())
        ).to_pylist()
    ]


@st.composite
def fetches(draw: st.DrawFn) -> bytes:
    """Batches as a log has them: one after the other, of all kinds, with gaps inside and between."""
    data = bytearray()
    offset = 0
    for _ in range(draw(st.integers(0, 5))):
        offset += draw(st.integers(0, 3))
        records = moved(draw(record_lists(gaps=True)), offset)
        last = records[-1].offset - offset if records else 0
        options = replace(draw(OPTIONS), base_offset=offset, last_offset_delta=last + draw(st.integers(0, 3)))
        batch = encode_batch(records, options, keep_offsets=True)
        data += batch
        offset = BatchView(batch).next_offset
    return bytes(data)


@EXAMPLES
@given(fetches(), st.none() | st.integers(0, 1500), st.none() | st.integers(0, 1500), st.binary(max_size=11))
def test_what_is_read_is_what_the_plain_codec_reads(
    data: bytes, first_offset: int | None, until_offset: int | None, tail: bytes
) -> None:
    reading = Reading(first_offset=first_offset, until_offset=until_offset)
    expected = plainly(data, reading)
    assert decode_records(data + tail, reading) == expected
    columns = decode_columns(memoryview(bytearray(data + tail)), reading, headers=True)
    assert from_arrow(columns) == [record._replace(timestamp_ms=record.timestamp_ms * 1000) for record in expected]


@EXAMPLES
@given(fetches(), st.data())
def test_a_fetch_may_end_anywhere_in_a_batch(data: bytes, chosen: st.DataObject) -> None:
    end = chosen.draw(st.integers(0, len(data)))
    position = 0
    while position < end and position + BatchView(data, position).size_in_bytes <= end:
        position += BatchView(data, position).size_in_bytes
    assert decode_records(data[:end]) == plainly(data[:position])


def test_records_taken_one_by_one_were_all_checked_before() -> None:
    good = encode_batch([Record(0, 1, b"k", b"v", (("h", b""),)), Record(1, 2, None, None)])
    assert list(iterate_records(good)) == decode_batch(good)
    bad = encode_batch([Record(0, 1, b"k", b"v")])
    bad[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        iterate_records(bytes(good + bad))


def sealed(batch: bytearray) -> bytes:
    """With length and CRC made right, so that what is inside gets read."""
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12)
    struct.pack_into(">I", batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    return bytes(batch)


@st.composite
def broken_batches(draw: st.DrawFn) -> bytes:
    compression = draw(st.sampled_from(Compression))
    batch = encode_batch(
        draw(record_lists(gaps=True, min_size=1)), BatchOptions(compression=compression), keep_offsets=True
    )
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(ATTRIBUTES_AT, len(batch) - 1))
        if draw(st.booleans()) or at < HEADER_SIZE:
            batch[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        elif draw(st.booleans()):
            batch[at:at] = draw(st.binary(min_size=1, max_size=12))
        else:
            del batch[at : at + draw(st.integers(1, 20))]
    return sealed(batch)


def outcome(read: Callable[[bytes, Reading], Any], data: bytes, reading: Reading) -> Any:
    """What is read, or how it is refused."""
    try:
        return read(data, reading)
    except RecordError as error:
        return type(error), str(error)


@settings(EXAMPLES, max_examples=examples(240))
@given(broken_batches())
def test_what_is_broken_is_refused_in_the_words_of_the_plain_codec(batch: bytes) -> None:
    intact = bytes(encode_batch([Record(0, 0, b"k", b"v")]))
    data = intact + batch + intact
    reading = Reading(max_decompressed_bytes=1 << 20)
    assert outcome(decode_records, data, reading) == outcome(plainly, data, reading)
    if isinstance(outcome(plainly, data, reading), tuple):
        assert outcome(decode_columns, data, reading) == outcome(plainly, data, reading)


def with_header(at: int, layout: str, number: int, *records: Record) -> bytes:
    """A batch of these records with one field of its header changed."""
    batch = encode_batch(records, keep_offsets=True)
    struct.pack_into(layout, batch, at, number)
    return sealed(batch)


@pytest.mark.parametrize(
    "batch",
    [
        with_header(LAST_OFFSET_DELTA_AT, ">i", 4, Record(0, 0, None, None), Record(5, 0, None, None)),
        with_header(LAST_OFFSET_DELTA_AT, ">i", -1, Record(0, 0, None, None)),
        with_header(BASE_OFFSET_AT, ">q", 2**63 - 1, Record(0, 0, None, None), Record(1, 0, None, None)),
        with_header(BASE_TIMESTAMP_AT, ">q", 2**63 - 1, Record(0, 0, None, None), Record(1, 1, None, None)),
        with_header(BASE_TIMESTAMP_AT, ">q", -(2**63), Record(0, 1, None, None), Record(1, 0, None, None)),
        with_header(RECORD_COUNT_AT, ">i", 3, Record(0, 0, None, None), Record(1, 0, None, None)),
        with_header(RECORD_COUNT_AT, ">i", 1, Record(0, 0, None, None), Record(1, 0, None, None)),
        with_header(RECORD_COUNT_AT, ">i", -1, Record(0, 0, None, None)),
    ],
    ids=range(8),
)
def test_a_header_that_does_not_fit_its_records_is_refused(batch: bytes) -> None:
    refusal = outcome(plainly, batch, Reading())
    assert isinstance(refusal, tuple)
    assert outcome(decode_records, batch, Reading()) == refusal


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
def test_a_claimed_count_is_refused_before_anything_is_allocated_by_it(codec: Compression) -> None:
    batch = encode_batch([Record(0, 0, None, bytes(50))], BatchOptions(compression=codec, last_offset_delta=2**31 - 1))
    struct.pack_into(">i", batch, RECORD_COUNT_AT, 2**31 - 1)
    with pytest.raises(RecordCountError):
        Sections(sealed(batch), Reading())


def holding(*bodies: list[int] | bytes) -> bytes:
    """A batch of hand-made records: each the numbers behind its length, after attributes and timestamp delta."""
    payload = bytearray()
    for numbers in bodies:
        body = bytearray(numbers if isinstance(numbers, bytes) else 2)
        for number in () if isinstance(numbers, bytes) else numbers:
            write_varint(body, number)
        write_varint(payload, len(body))
        payload += body
    batch = encode_batch([Record(0, 0, None, None)], BatchOptions(last_offset_delta=100))
    batch[HEADER_SIZE:] = payload
    struct.pack_into(">i", batch, RECORD_COUNT_AT, len(bodies))
    return sealed(batch)


def test_hand_made_records_are_read_where_nothing_is_wrong() -> None:
    batch = holding([0, -1, 0, 0], [3, 0, -1, 0], [100, -1, -1, 1, 0, -1])
    assert decode_records(batch) == decode_batch(batch)
    assert [record.offset for record in decode_records(batch)] == [0, 3, 100]


@pytest.mark.parametrize(
    "bodies",
    [
        [[3, -1, -1, 0], [3, -1, -1, 0]],
        [[3, -1, -1, 0], [2, -1, -1, 0]],
        [[-1, -1, -1, 0]],
        [[101, -1, -1, 0]],
        [[0, -2, -1, 0]],
        [[0, -1, -2, 0]],
        [[0, 100, -1, 0]],
        [[0, -1, 100, 0]],
        [[0, 2**31 - 1, -1, 0]],
        [[0, -1, -1, -1]],
        [[0, -1, -1, 1]],
        [[0, -1, -1, 1, -1, -1]],
        [[0, -1, -1, 1, 0, -2]],
        [[0, -1, -1, 1, 0, 5]],
        [[0, -1, -1, 2**31 - 1, 0, 0]],
        [[0, -1, -1, 0, 0]],
        [[0, -1, -1]],
        [b"", [1, -1, -1, 0]],
        [bytes(1), bytes(13)],
    ],
    ids=str,
)
def test_hand_made_records_are_refused_as_by_the_plain_codec(bodies: list[Any]) -> None:
    batch = holding(*bodies)
    refusal = outcome(plainly, batch, Reading())
    assert isinstance(refusal, tuple)
    assert outcome(decode_records, batch, Reading()) == refusal


def corrupt(batch: bytearray) -> None:
    batch[-1] ^= 1


def unknown_codec(batch: bytearray) -> None:
    batch[ATTRIBUTES_AT + 1] |= 7
    sealed(batch)


def unknown_magic(batch: bytearray) -> None:
    batch[MAGIC_AT] = 3


def no_length(batch: bytearray) -> None:
    struct.pack_into(">i", batch, LENGTH_AT, 20)


def one_more_record(batch: bytearray) -> None:
    struct.pack_into(">i", batch, RECORD_COUNT_AT, 2)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_AT, 1)
    sealed(batch)


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (corrupt, CorruptBatchError),
        (unknown_codec, UnknownCompressionError),
        (unknown_magic, UnknownMagicError),
        (no_length, BatchLengthError),
        (one_more_record, RecordCountError),
    ],
)
def test_the_error_names_the_batch(harm: Any, error: type[RecordError]) -> None:
    intact = encode_batch([Record(0, 0, b"k", b"v")])
    harmed = encode_batch([Record(0, 0, b"k", b"v" * 20)], BatchOptions(base_offset=17))
    harm(harmed)
    with pytest.raises(error) as refused:
        decode_columns(bytes(intact + harmed + intact))
    assert refused.value.position == len(intact)
    assert refused.value.base_offset == 17


def test_a_wrong_crc_passes_where_nobody_asks_for_it() -> None:
    batch = encode_batch([Record(0, 0, b"k", b"v")])
    batch[CRC_AT] ^= 1
    assert decode_records(batch, Reading(verify_crc=False)) == [Record(0, 0, b"k", b"v")]


def test_a_bomb_is_refused() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(5000))], BatchOptions(compression=Compression.ZSTD))
    assert len(decode_records(batch, Reading(max_decompressed_bytes=6000))) == 1
    with pytest.raises(DecompressionLimitError):
        decode_columns(batch, Reading(max_decompressed_bytes=5000))


def test_a_column_too_large_for_arrow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = encode_batch([Record(0, 0, b"k", b"v" * 60), Record(1, 0, b"k", b"v" * 60)])
    monkeypatch.setattr(column_reader, "MAX_COLUMN_BYTES", 120)
    assert decode_columns(batch).num_rows == 2
    monkeypatch.setattr(column_reader, "MAX_COLUMN_BYTES", 119)
    with pytest.raises(ColumnSizeError, match="would have 120 bytes"):
        decode_columns(batch)


def test_columns_are_those_asked_for_in_the_order_of_spark() -> None:
    first = encode_batch([Record(0, 1_700_000_000_123, b"k", None), Record(1, 1_700_000_000_000, None, b"v")])
    stamped = encode_batch(
        [Record(2, 5, b"", b"")],
        BatchOptions(base_offset=2, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp_ms=1_700_000_001_000),
    )
    everything = decode_columns(bytes(first + stamped), headers=True, timestamp_types=True, partition=3)
    assert everything.schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", column_reader.HEADERS_TYPE),
        ]
    )
    assert everything.to_pydict() == {
        "key": [b"k", None, b""],
        "value": [None, b"v", b""],
        "partition": [3, 3, 3],
        "offset": [0, 1, 2],
        "timestamp": [
            datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
            datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC),
        ],
        "timestampType": [0, 0, 1],
        "headers": [[], [], []],
    }
    sliced = decode_columns(bytes(first + stamped), Reading(first_offset=1), timestamp_types=True)
    assert sliced["timestampType"].to_pylist() == [0, 1]
    bare = decode_columns(bytes(first + stamped), keys=False, values=False, timestamps=False)
    assert bare.to_pydict() == {"offset": [0, 1, 2]}


def test_timestamps_beyond_what_microseconds_can_count_stop_at_the_end() -> None:
    batch = encode_batch(
        [Record(0, 2**62, None, None), Record(1, 2**63 // 1000, None, None), Record(2, -1, None, None)]
    )
    assert decode_columns(batch)["timestamp"].cast(pa.int64()).to_pylist() == [
        2**63 // 1000 * 1000,
        2**63 // 1000 * 1000,
        -1000,
    ]
    assert [record.timestamp_ms for record in decode_records(batch)] == [2**62, 2**63 // 1000, -1]


def message(offset: int, value: bytes) -> bytes:
    """A message of magic 1."""
    body = struct.pack(">bbqii", 1, 0, 1_700_000_000_000, -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_old_messages_are_converted() -> None:
    data = message(4, b"old") + bytes(encode_batch([Record(5, 3, b"k", b"new")], BatchOptions(base_offset=5)))
    expected = [Record(4, 1_700_000_000_000, None, b"old"), Record(5, 3, b"k", b"new")]
    assert decode_records(data) == expected
    assert decode_records(data + message(6, b"cut off")[:20], Reading(first_offset=5)) == expected[1:]
    harmed = bytearray(data)
    harmed[30] ^= 1
    with pytest.raises(CorruptBatchError):
        decode_records(harmed)


def test_the_room_is_imported_without_the_kernels() -> None:
    code = "import sys, ottla.records; print(sorted({'numba', 'numpy', 'pyarrow'} & set(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
