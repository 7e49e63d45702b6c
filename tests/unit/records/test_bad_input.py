"""Whatever the bytes, readers give records or a `RecordError` that names the batch, and no other exception."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import (
    BatchLengthError,
    BatchOptions,
    BatchView,
    Compression,
    DecompressionError,
    DecompressionLimitError,
    MalformedRecordError,
    OffsetDeltaError,
    Record,
    RecordCountError,
    RecordError,
    TruncatedBatchError,
    compress,
    convert_to_v2,
    decode_batch,
    encode_batch,
    iter_batches,
    iter_records,
)
from ottla.records.batch import HEADER
from ottla.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_SIZE, LENGTH_AT, MAGIC_AT
from ottla.records.varint import write_varint
from support.examples import examples

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 20, (("trace", b"\x01\x02"), ("ünï", None))),
    Record(1, 1_700_000_000_100, None, None),
    Record(2, 1_699_999_999_000, b"", b"x" * 300, (("", b""),)),
]


def sealed(batch: bytearray) -> bytearray:
    """With length and CRC made right, so that what is inside gets read."""
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12)
    struct.pack_into(">I", batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    return batch


def batch_of(
    *bodies: bytes,
    count: int | None = None,
    last_offset_delta: int = 100,
    base_timestamp_ms: int = 0,
    compression: Compression = Compression.NONE,
    after: bytes = b"",
) -> bytearray:
    """A batch of hand-made records: each is the bytes behind its length."""
    payload = bytearray()
    for body in bodies:
        write_varint(payload, len(body))
        payload += body
    payload += after
    count = len(bodies) if count is None else count
    header = (1234, 0, -1, 2, 0, compression, last_offset_delta, base_timestamp_ms, 0, -1, -1, -1, count)
    return sealed(bytearray(HEADER.pack(*header)) + compress(compression, payload))


VALUE = b"long enough for what follows"
GOOD = bytes.fromhex("00 00 00 026b 38") + VALUE + b"\x00"
"""No attributes, no deltas, key k, the value, no headers."""


def test_the_hand_made_one_is_good() -> None:
    assert decode_batch(batch_of(GOOD)) == [Record(1234, 0, b"k", VALUE)]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="no bytes at all"),
        pytest.param("00", id="nothing after the attributes"),
        pytest.param("00 00 00 026b 0276", id="no header count"),
        pytest.param("00 00 00 026b 0276 00 00", id="a byte after the headers"),
        pytest.param("00 00 00 03 0276 00 00 00", id="key of length -2"),
        pytest.param("00 00 00 ffffffff0f 0276 00", id="key of the most negative length"),
        pytest.param("00 00 00 feffffff0f 0276 00", id="key of two gigabytes"),
        pytest.param("00 00 00 01 03 00", id="value of length -2"),
        pytest.param("00 00 00 01 7e 00", id="value beyond the record"),
        pytest.param("00 00 00 01 01 01", id="header count -1"),
        pytest.param("00 00 00 01 01 feffffff0f", id="two billion headers"),
        pytest.param("00 00 00 01 01 04 0201", id="more headers than bytes for them"),
        pytest.param("00 00 00 01 01 02 01 01", id="header without a key"),
        pytest.param("00 00 00 01 01 02 03 01", id="header key of length -2"),
        pytest.param("00 00 00 01 01 02 02ff 01", id="header key that is not UTF-8"),
        pytest.param("00 00 00 01 01 02 06eda080 01", id="header key of half a surrogate pair"),
        pytest.param("00 00 00 01 01 02 0268 03", id="header value of length -2"),
        pytest.param("00 00 00 01 01 02 0268 04ff", id="header value beyond the record"),
        pytest.param("00 808080808080808080 8000 00 01 01 00", id="timestamp delta too long"),
        pytest.param("00 808080808080808080 02 00 01 01 00", id="timestamp delta beyond 64 bits"),
        pytest.param("00 00 808080808000 01 01 00", id="offset delta too long"),
        pytest.param("00 00 8080808010 01 01 00", id="offset delta beyond 32 bits"),
        pytest.param("00 00 80", id="offset delta cut off"),
    ],
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_broken_records(body: str, compression: Compression) -> None:
    # Good ones stand before and behind, so that reading on beyond the record would find bytes.
    broken = bytes.fromhex(body)
    last = bytes.fromhex("00 00 04 026b 0276 00")
    batch = batch_of(GOOD, broken, last, compression=compression)
    with pytest.raises(MalformedRecordError, match="base offset 1234 at byte 0"):
        decode_batch(batch)


@pytest.mark.parametrize("length", ["03", "7e", "feffffff0f", "ffffffff0f", "80", "808080808000", ""])
def test_broken_record_lengths(length: str) -> None:
    batch = batch_of(GOOD, GOOD[:2] + b"\x02" + GOOD[3:], count=3, after=bytes.fromhex(length))
    kind = MalformedRecordError if length else RecordCountError
    with pytest.raises(kind, match="base offset 1234"):
        decode_batch(BatchView(b"--" + batch, 2))


def test_timestamps_beyond_64_bits() -> None:
    body = bytes.fromhex("00 02 00 01 01 00")
    with pytest.raises(MalformedRecordError, match="beyond 64 bits"):
        decode_batch(batch_of(body, base_timestamp_ms=2**63 - 1))


@pytest.mark.parametrize("compression", Compression)
def test_fewer_records_than_the_header_says(compression: Compression) -> None:
    bodies = [b"\x00\x00" + bytes([2 * index]) + b"\x01\x50" + b"." * 40 + b"\x00" for index in range(3)]
    with pytest.raises(RecordCountError, match=r"4 .*3"):
        decode_batch(batch_of(*bodies, count=4, compression=compression))


@pytest.mark.parametrize("compression", Compression)
def test_more_records_than_the_header_says(compression: Compression) -> None:
    batch = batch_of(GOOD, GOOD[:2] + b"\x02" + GOOD[3:], count=1, compression=compression)
    with pytest.raises(RecordCountError, match="36 bytes follow"):
        decode_batch(batch)


def test_records_where_the_header_says_none() -> None:
    with pytest.raises(RecordCountError, match="36 bytes follow"):
        decode_batch(batch_of(GOOD, count=0))


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1, 0), (0, 6), (0, -3)])
def test_offset_deltas_that_do_not_fit(deltas: tuple[int, ...]) -> None:
    bodies = []
    for delta in deltas:
        body = bytearray(2)
        write_varint(body, delta)
        bodies.append(bytes(body) + b"\x01\x01\x00")
    with pytest.raises(OffsetDeltaError, match="offset delta"):
        decode_batch(batch_of(*bodies, last_offset_delta=5))


def test_a_limit_for_what_is_decompressed() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(1_000_000))], BatchOptions(compression=Compression.ZSTD))
    with pytest.raises(DecompressionLimitError, match="base offset 0 at byte 0"):
        decode_batch(batch, max_decompressed_bytes=100_000)


def test_a_payload_that_is_not_compressed_as_it_says() -> None:
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        batch = batch_of(GOOD)
        batch[ATTRIBUTES_AT + 1] = codec
        with pytest.raises(DecompressionError, match=f"base offset 1234.*{codec.name.lower()}"):
            decode_batch(sealed(batch))


# Mutations. One edit in three hits the front, where the framing is.

EDITS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 2)), min_size=1, max_size=6)
SEEDS = {codec: bytes(encode_batch(RECORDS, BatchOptions(compression=codec, base_offset=500))) for codec in Compression}


def mutated(seed: bytes, edits: list[tuple[int, int, int]], front: int) -> bytearray:
    """Bytes set, put in and taken out."""
    data = bytearray(seed)
    for place, value, kind in edits:
        at = place % (front if place % 3 == 0 else len(data))
        if kind == 0:
            data[at] = value
        elif kind == 1:
            data.insert(at, value)
        elif len(data) > front + 1:
            del data[at]
    return data


@settings(deadline=None, max_examples=examples(240))
@given(st.sampled_from(Compression), EDITS, st.booleans())
def test_mutated_batches(codec: Compression, edits: list[tuple[int, int, int]], seal: bool) -> None:
    batch = mutated(SEEDS[codec], edits, HEADER_SIZE)
    if seal:
        batch[MAGIC_AT] = 2
        sealed(batch)
    with suppress(RecordError):
        for view in iter_batches(batch, partial_tail=True):
            records = decode_batch(view, verify_crc=seal, max_decompressed_bytes=1_000_000)
            assert len(records) == view.record_count
            assert encode_records_again(view, records) == records


def encode_records_again(view: BatchView, records: list[Record]) -> list[Record]:
    """What was read can be written, and reads the same: nothing half-broken comes through."""
    if any(record.timestamp_ms < -1 for record in records) or view.base_offset < 0:
        return records
    options = BatchOptions(base_offset=view.base_offset, last_offset_delta=view.last_offset_delta)
    return decode_batch(encode_batch(records, options, keep_offsets=True))


@settings(deadline=None, max_examples=examples(240))
@given(EDITS)
def test_mutated_payloads(edits: list[tuple[int, int, int]]) -> None:
    seed = SEEDS[Compression.NONE]
    batch = sealed(bytearray(seed[:HEADER_SIZE]) + mutated(seed[HEADER_SIZE:], edits, 20))
    with suppress(MalformedRecordError, OffsetDeltaError, RecordCountError):
        decode_batch(batch)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_noise(noise: bytes) -> None:
    for read in (decode_batch, convert_to_v2):
        with suppress(RecordError):
            read(noise)
    with suppress(RecordError):
        list(iter_batches(noise))


def old_message(offset: int, magic: int, attributes: int, value: bytes) -> bytes:
    body = struct.pack(">bB", magic, attributes) + (struct.pack(">q", 1000) if magic else b"")
    body += struct.pack(">i", 1) + b"k" + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_seed(magic: int, codec: Compression) -> bytes:
    inner = b"".join(old_message(index, magic, 0, b"value %d" % index * 5) for index in range(3))
    return inner if codec is Compression.NONE else old_message(9, magic, codec, compress(codec, inner))


@settings(deadline=None, max_examples=examples(240))
@given(st.sampled_from([0, 1]), st.sampled_from(list(Compression)[:4]), EDITS, st.booleans())
def test_mutated_message_sets(magic: int, codec: Compression, edits: list[tuple[int, int, int]], seal: bool) -> None:
    data = mutated(old_seed(magic, codec), edits, 30)
    if seal:
        data[MAGIC_AT] = magic
        struct.pack_into(">i", data, LENGTH_AT, len(data) - 12)
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    with suppress(RecordError):
        records = list(iter_records(data, verify_crc=seal, max_decompressed_bytes=1_000_000))
        assert records
    with suppress(RecordError):
        batches = convert_to_v2(data, max_decompressed_bytes=1_000_000)
        assert [record for batch in batches for record in decode_batch(batch)] == list(iter_records(data))


def test_errors_tell_where() -> None:
    good = bytes(encode_batch(RECORDS))
    wrong = bytearray(encode_batch(RECORDS, BatchOptions(base_offset=3)))
    struct.pack_into(">i", wrong, LENGTH_AT, 20)
    with pytest.raises(BatchLengthError) as caught:
        list(iter_batches(good + wrong))
    assert (caught.value.position, caught.value.base_offset) == (len(good), 3)
    assert str(caught.value) == f"record batch with base offset 3 at byte {len(good)}: 20 is not a valid batch length"
    with pytest.raises(TruncatedBatchError, match=f"at byte {len(good)}: 5 bytes"):
        list(iter_batches(good + b"12345"))
