from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.disk import File
from ottla.log.segment_scan import CHUNK_BYTES, find_offset, has_batch_of, iter_batches, iter_headers
from ottla.records.batch import BatchView
from ottla.records.errors import (
    BatchLengthError,
    CorruptBatchError,
    RecordError,
    TruncatedBatchError,
    UnknownMagicError,
)
from ottla.records.layout import HEADER_SIZE, Compression, TimestampType
from ottla.records.plain import BatchOptions, encode_batch
from ottla.records.record import Record
from ottla.testing.simulated_disk import DiskOperation, SimulatedDisk
from support.examples import examples

PATH = Path("/00000000000000000000.log")


def batch(base_offset: int, value_size: int = 1, *, last_offset_delta: int = 0, timestamp_ms: int = 1000) -> bytes:
    options = BatchOptions(base_offset=base_offset, last_offset_delta=last_offset_delta, leader_epoch=3)
    return bytes(encode_batch([Record(base_offset, timestamp_ms, None, bytes(value_size))], options))


def message(
    offset: int, value: bytes | None = b"v", *, magic: int, attributes: int = 0, timestamp_ms: int = 7
) -> bytes:
    body = struct.pack(">bB", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic else b"")
    body += struct.pack(">i", -1)
    body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def file_of(*parts: bytes | bytearray) -> File:
    disk = SimulatedDisk()
    file = disk.open(PATH, create=True)
    file.append_all(parts)
    return file


Part = tuple[int, int, bytes]
"""Base offset, last offset, bytes."""


@st.composite
def logs(draw: st.DrawFn) -> list[Part]:
    offset, parts = 0, []
    for _ in range(draw(st.integers(0, 12))):
        base_offset = offset + draw(st.integers(0, 5))
        magic = draw(st.sampled_from([0, 1, 2, 2, 2]))
        size = draw(st.sampled_from([0, 1, 30, 200, 900]))
        if magic == 2:
            last = base_offset + draw(st.integers(0, 4))
            parts.append((base_offset, last, batch(base_offset, size, last_offset_delta=last - base_offset)))
        else:
            last = base_offset
            parts.append((base_offset, last, message(base_offset, bytes(size) if size else None, magic=magic)))
        offset = last + 1
    return parts


def positions(parts: list[Part]) -> Iterator[tuple[int, Part]]:
    position = 0
    for part in parts:
        yield position, part
        position += len(part[2])


@settings(deadline=None, max_examples=examples(60))
@given(parts=logs(), chunk_bytes=st.sampled_from([61, 64, 100, 333, 1000, CHUNK_BYTES]), begin=st.integers(0, 12))
def test_every_batch_is_met(parts: list[Part], chunk_bytes: int, begin: int) -> None:
    file = file_of(*(data for *_, data in parts))
    model = list(positions(parts))[begin:]
    start = model[0][0] if model else file.size()

    headers = list(iter_headers(file, start, file.size(), chunk_bytes=chunk_bytes))
    assert [(position, header.base_offset, header.last_offset) for position, header in headers] == [
        (position, base_offset, last_offset) for position, (base_offset, last_offset, _) in model
    ]
    batches = list(iter_batches(file, start, file.size(), chunk_bytes=chunk_bytes))
    assert [(position, header) for position, header, _ in batches] == headers
    assert [bytes(data) for *_, data in batches] == [data for _, (*_, data) in model]


@settings(deadline=None, max_examples=examples(60))
@given(parts=logs(), window_bytes=st.sampled_from([61, 100, 1000, 8192]), offset=st.integers(0, 70))
def test_finding_an_offset(parts: list[Part], window_bytes: int, offset: int) -> None:
    file = file_of(*(data for *_, data in parts))
    expected = next(
        ((position, len(data), base) for position, (base, last, data) in positions(parts) if last >= offset), None
    )
    found = find_offset(file, 0, file.size(), offset, window_bytes=window_bytes)
    assert (None if found is None else found[:3]) == expected
    if found is not None:  # what was read on the way is what the file has there
        position, _, _, window, at = found
        assert window[at:] == file.read_at(position, len(window) - at)


def checked(file: File, end: int) -> tuple[list[int], RecordError | None]:
    """Where whole valid batches were, and what ended the walk."""
    met = []
    try:
        for position, *_ in iter_batches(file, 0, end):
            met.append(position)
    except RecordError as error:
        return met, error
    return met, None


@pytest.mark.parametrize("last", [batch(10, 40), message(10, magic=1), message(10, None, magic=0)])
def test_a_torn_batch_ends_the_walk(last: bytes) -> None:
    first = batch(0, 100)
    whole = file_of(first, last)
    for end in range(len(first), whole.size()):
        # Both a file that is so short, and a walk that is bounded so.
        for file in (whole, file_of((first + last)[:end])):
            met = []
            with pytest.raises(TruncatedBatchError) if end > len(first) else nullcontext():
                for position, _ in iter_headers(file, 0, end, chunk_bytes=80):
                    met.append(position)
            assert met == [0]
            with pytest.raises(TruncatedBatchError) if end > len(first) else nullcontext():
                assert find_offset(file, 0, end, 10) is None
            found = find_offset(file, 0, end, 0)
            assert found is not None
            assert found[:3] == (0, len(first), 0)
            met, error = checked(file, end)
            assert met == [0]
            assert (type(error) is TruncatedBatchError) == (end > len(first))


def test_a_file_shorter_than_said() -> None:
    first, second = batch(0, 100), batch(1, 100)
    for size in range(len(first), len(first) + len(second)):
        file = file_of((first + second)[:size])
        end = len(first) + len(second)
        is_header_there = size - len(first) >= HEADER_SIZE
        with nullcontext() if is_header_there else pytest.raises(TruncatedBatchError):
            assert find_offset(file, len(first), end, 5) is None
        met, error = checked(file, end)
        assert met == [0]
        assert (type(error) is TruncatedBatchError) == (size > len(first))


@pytest.mark.parametrize("second", [batch(1, 5), message(1, magic=0), message(1, magic=1)])
def test_every_flipped_bit_under_the_crc_is_found(second: bytes) -> None:
    first = batch(0, 10)
    for at in range(12, len(second)):
        if second[16] == 2 and 12 <= at < 16:
            continue  # the leader epoch is not covered
        damaged = bytearray(second)
        damaged[at] ^= 1 << (at % 8)
        file = file_of(first, damaged)
        batches = iter_batches(file, 0, file.size())
        assert next(batches)[0] == 0
        with pytest.raises(RecordError) as caught:
            next(batches)
        assert caught.value.position == len(first)
        if at != 16:
            assert isinstance(caught.value, CorruptBatchError)
            assert caught.value.base_offset == 1


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (8, struct.pack(">i", 13), BatchLengthError),
        (8, struct.pack(">i", 48), BatchLengthError),
        (8, struct.pack(">i", -1), BatchLengthError),
        (8, struct.pack(">i", -(2**31)), BatchLengthError),
        (16, b"\x03", UnknownMagicError),
        (16, b"\xff", UnknownMagicError),
    ],
)
def test_headers_that_cannot_be(at: int, value: bytes, error: type[RecordError]) -> None:
    first, second = batch(0, 10), bytearray(batch(1, 10))
    second[at : at + len(value)] = value
    file = file_of(first, second)
    for walk in (
        lambda: list(iter_headers(file, 0, file.size())),
        lambda: list(iter_batches(file, 0, file.size())),
        lambda: find_offset(file, 0, file.size(), 1),
    ):
        with pytest.raises(error) as caught:
            walk()
        assert caught.value.position == len(first)


def test_zeros_are_no_batch() -> None:
    file = file_of(batch(0), bytes(4096))
    with pytest.raises(BatchLengthError):
        list(iter_headers(file, 0, file.size()))


def test_what_the_header_of_an_old_message_says() -> None:
    file = file_of(
        message(5, magic=0),
        message(6, magic=1, timestamp_ms=99, attributes=8),
        message(9, b"compressed", magic=1, timestamp_ms=98, attributes=0xF0 | Compression.GZIP),
        message(10, magic=0, attributes=0xF8),
    )
    zero, one, wrapper, odd = (header for _, header in iter_headers(file, 0, file.size()))
    assert (zero.base_offset, zero.last_offset, zero.max_timestamp_ms, zero.record_count) == (5, 5, -1, 1)
    assert (zero.magic, zero.leader_epoch, zero.producer_id, zero.base_sequence) == (0, -1, -1, -1)
    assert (one.magic, one.max_timestamp_ms, one.timestamp_type) == (1, 99, TimestampType.LOG_APPEND_TIME)
    assert (wrapper.compression, wrapper.next_offset, wrapper.record_count) == (Compression.GZIP, 10, -1)
    assert wrapper.attributes == Compression.GZIP
    assert odd.attributes == 0


def test_headers_are_those_of_the_batches() -> None:
    data = batch(8, 10, last_offset_delta=2, timestamp_ms=55)
    file = file_of(data)
    ((_, header),) = iter_headers(file, 0, file.size())
    assert header == BatchView(data).header


def test_records_of_large_batches_are_not_read() -> None:
    disk = SimulatedDisk()
    file = disk.open(PATH, create=True)
    for offset in range(4):
        file.append(batch(offset, 3 * CHUNK_BYTES))
    reads = []
    disk.before = lambda operation, _: reads.append(operation)
    assert len(list(iter_headers(file, 0, file.size()))) == 4
    assert reads == [DiskOperation.READ] * 4


def test_a_look_up_reads_once() -> None:
    disk = SimulatedDisk()
    file = disk.open(PATH, create=True)
    for offset in range(100):
        file.append(batch(offset, 4))
    reads = []
    disk.before = lambda operation, _: reads.append(operation)
    found = find_offset(file, 0, file.size(), 60)
    assert found is not None
    assert found[2] == 60
    assert reads == [DiskOperation.READ]


def test_what_an_index_entry_promises() -> None:
    first, second = batch(10, 5), batch(11, 5, last_offset_delta=4)
    file = file_of(first, second)
    size = file.size()
    assert has_batch_of(file, 0, size, 10, 10)
    assert has_batch_of(file, len(first), size, 10, 15)
    assert has_batch_of(file, len(first), size, 10, 20)  # Kafka before 3.9 indexed several batches by the last of them
    assert not has_batch_of(file, len(first), size, 10, 14)
    assert not has_batch_of(file, len(first), size, 12, 15)
    assert not has_batch_of(file, len(first) + 1, size, 10, 15)
    assert not has_batch_of(file, size, size, 10, 15)
    assert not has_batch_of(file, size + 100, size, 10, 15)
    assert not has_batch_of(file, size - 5, size, 10, 15)
