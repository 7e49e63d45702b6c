"""Lengths at which the compiled codec takes another path: it must still agree with the plain one on both sides."""

from __future__ import annotations

import pytest

from ottla.wire import codec, plain
from ottla.wire.errors import InvalidValueError, ProtocolError
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from ottla.wire.messages.fetch import ForgottenTopic as Forgotten
from ottla.wire.messages.metadata import MetadataPartitionResponse, MetadataResponse, MetadataTopicResponse
from ottla.wire.reader import SHORT_TEXT
from ottla.wire.reader import SMALL_ARRAY as SMALL_ARRAY_READ
from ottla.wire.schema import Message
from ottla.wire.writer import SMALL_ARRAY, SMALL_ARRAYS, Packers

VARINT_STEPS = [126, 127, 128, 2**14 - 2, 2**14 - 1, 2**14]


def assert_both_codecs_agree(value: Message, version: int) -> None:
    encoded = codec.encode(value, version)
    assert encoded == plain.write(value, version)
    assert b"".join(codec.encode_chunks(value, version)) == encoded
    assert codec.decode(type(value), version, encoded) == value
    for size in {0, len(encoded) // 2, len(encoded) - 1}:
        with pytest.raises(ProtocolError):
            codec.decode(type(value), version, encoded[:size])


@pytest.mark.parametrize("version", [11, 12, 18])
@pytest.mark.parametrize("size", [0, *VARINT_STEPS, 2**21 - 2, 2**21 - 1, 2**21])
def test_records(size: int, version: int) -> None:
    partition = FetchPartitionResponse(partition_index=3, preferred_read_replica=7, records=memoryview(bytes(size)))
    assert_both_codecs_agree(FetchResponse(responses=[FetchTopicResponse(partitions=[partition])]), version)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("size", [0, 1, SHORT_TEXT, SHORT_TEXT + 1, *VARINT_STEPS, 2**15 - 1])
def test_text_in_a_message_that_is_read_from_a_view(size: int, version: int) -> None:
    assert_both_codecs_agree(FetchResponse(responses=[FetchTopicResponse(topic="x" * size)]), version)


@pytest.mark.parametrize("version", [11, 12])
def test_text_that_is_too_long(version: int) -> None:
    with pytest.raises(InvalidValueError):
        codec.encode(FetchResponse(responses=[FetchTopicResponse(topic="x" * 2**15)]), version)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("count", [0, SMALL_ARRAY, SMALL_ARRAY + 1, SMALL_ARRAY_READ + 1, *VARINT_STEPS])
def test_an_array_of_numbers(count: int, version: int) -> None:
    request = FetchRequest(forgotten_topics_data=[Forgotten(topic="orders", partitions=list(range(count)))])
    assert_both_codecs_agree(request, version)


@pytest.mark.parametrize("unknown_tags", [None, {7: b"seven"}])
@pytest.mark.parametrize("version", [8, 13])
@pytest.mark.parametrize(
    "counts", [(3, 2, 0), (SMALL_ARRAYS, 0, SMALL_ARRAYS), (SMALL_ARRAYS + 1, 1, 1), (1, 1, 40), (127, 128, 0)]
)
def test_arrays_of_numbers_beside_each_other(
    counts: tuple[int, int, int], version: int, unknown_tags: dict[int, bytes] | None
) -> None:
    replicas, isr, offline = (list(range(count)) for count in counts)
    partition = MetadataPartitionResponse(
        partition_index=5, replica_nodes=replicas, isr_nodes=isr, offline_replicas=offline
    )
    if version in MetadataResponse.flexible:
        partition.unknown_tags = unknown_tags
    response = MetadataResponse(topics=[MetadataTopicResponse(name="orders", partitions=[partition])])
    assert_both_codecs_agree(response, version)


def test_large_records_stay_a_chunk_whatever_their_type() -> None:
    for records in (bytes(codec.JOIN_BELOW_BYTES), memoryview(bytes(codec.JOIN_BELOW_BYTES))):
        partition = FetchPartitionResponse(records=records)
        chunks = codec.encode_chunks(FetchResponse(responses=[FetchTopicResponse(partitions=[partition])]), 12)
        assert [chunk is records for chunk in chunks] == [False, True, False]


def test_packers_are_made_once_for_each_lengths() -> None:
    packers = Packers(["h", "B", "*i", "B", "*h", "x"])
    pack = packers[2, 1]
    assert pack(1, 3, 10, 11, 2, 12) == b"\0\1\3\0\0\0\x0a\0\0\0\x0b\2\0\x0c\0"
    assert packers[2, 1] is pack
    assert list(packers) == [(2, 1)]
