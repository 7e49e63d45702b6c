"""Plain Produce requests: read as the codec reads them, with less work."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.broker.producing.fast_produce import FastProduce, ProduceTarget, produce_reader
from ottla.wire.codec import encode, reader_of
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

_INT32 = st.integers(-(2**31), 2**31 - 1)
_PARTITIONS = st.builds(ProducePartition, index=_INT32, records=st.none() | st.binary(max_size=300))
_TOPICS = st.builds(
    ProduceTopic,
    name=st.one_of(st.text(max_size=5), st.text(alphabet="a", min_size=120, max_size=140)),
    topic_id=st.binary(min_size=16, max_size=16).map(Uuid),
    partition_data=st.lists(_PARTITIONS, min_size=1, max_size=2),
)
_REQUESTS = st.builds(
    ProduceRequest,
    transactional_id=st.none() | st.sampled_from(["", "t"]),
    acks=st.integers(-2, 2),
    timeout_ms=_INT32,
    topic_data=st.lists(_TOPICS, min_size=1, max_size=2),
)
_VERSIONS = st.sampled_from([8, 9, 11, 12, 13])
_READERS = {version: produce_reader(version) for version in (8, 9, 11, 12, 13)}
"""Kept over all examples, as a broker keeps them."""


def one_batch(records: bytes, transactional_id: str | None = None) -> ProduceRequest:
    topic = ProduceTopic(name="t", partition_data=[ProducePartition(index=3, records=records)])
    return ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=30_000, topic_data=[topic])


def as_declared(request: ProduceRequest | FastProduce) -> ProduceRequest:
    """With bytes that can be compared."""
    declared = request.as_request() if isinstance(request, FastProduce) else request
    for topic in declared.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None:
                partition.records = bytes(partition.records)
    return declared


def read_or_error(read: Any, frame: bytes) -> Any:
    try:
        return as_declared(read(memoryview(frame)))
    except (ProtocolError, IndexError) as error:
        return type(error)


@given(request=_REQUESTS, version=_VERSIONS)
def test_reads_what_the_codec_reads(request: ProduceRequest, version: int) -> None:
    frame = encode(request, version)
    expected = as_declared(reader_of(ProduceRequest, version)(memoryview(frame)))
    for _ in range(2):  # the second time the beginning is known
        assert as_declared(_READERS[version](memoryview(frame))) == expected


@given(data=st.binary(max_size=80), version=_VERSIONS, at=st.integers(0, 400), byte=st.integers(0, 255))
def test_invalid_requests_are_refused_like_in_the_codec(data: bytes, version: int, at: int, byte: int) -> None:
    spoilt = bytearray(encode(one_batch(bytes(200)), version))
    at %= len(spoilt)
    spoilt[at] = byte
    for frame in (data, bytes(spoilt), bytes(spoilt[:at])):
        expected = read_or_error(reader_of(ProduceRequest, version), frame)
        assert read_or_error(_READERS[version], frame) == expected


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("size", [61, 126, 127, 128, 16_383, 16_384, 2_100_000])
def test_one_batch_is_read_fast_however_large(version: int, size: int) -> None:
    records = bytes(range(256)) * (size // 256) + bytes(size % 256)
    frame = memoryview(bytearray(encode(one_batch(records), version)))
    read = produce_reader(version)(frame)
    assert isinstance(read, FastProduce)
    assert read.target == ProduceTarget(version, 1, 30_000, "" if version > 12 else "t", ZERO_UUID, 3)
    assert bytes(read.records) == records
    read.records[0] = 7  # a view of the frame, to be patched there
    assert 7 in frame


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("transactional_id", ["", "t", "x" * 126])
def test_a_transactional_id_is_read(version: int, transactional_id: str) -> None:
    records = bytes(range(200))
    for _ in range(2):  # the second time it is recognised
        read = _READERS[version](memoryview(encode(one_batch(records, transactional_id=transactional_id), version)))
        assert isinstance(read, FastProduce)
        assert (read.target.transactional_id, read.target.index, bytes(read.records)) == (transactional_id, 3, records)
        assert read.as_request().transactional_id == transactional_id


def test_a_long_transactional_id_and_several_partitions_are_not_plain() -> None:
    two = one_batch(bytes(61))
    two.topic_data[0].partition_data *= 2
    for request in (two, one_batch(bytes(61), transactional_id="x" * 127), one_batch(b"")):
        assert not isinstance(_READERS[9](memoryview(encode(request, 9))), FastProduce)
