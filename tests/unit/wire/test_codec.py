"""The compiled codec against the plain one, for every message in every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire import codec, plain
from ottla.wire.errors import (
    InvalidValueError,
    TrailingBytesError,
    TruncatedError,
    UnexpectedNullError,
    UnsupportedVersionError,
)
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from ottla.wire.messages.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from ottla.wire.messages.headers import RequestHeader
from ottla.wire.registry import all_messages
from ottla.wire.schema import Message
from support.examples import examples
from support.strategies.messages import messages

EVERY_VERSION = [
    pytest.param(message, version, id=f"{name}-v{version}")
    for name, message in all_messages().items()
    for version in message.versions
]


@pytest.mark.parametrize(("message", "version"), EVERY_VERSION)
@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_both_codecs_agree_and_return_what_was_written(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(messages(message, version, unknown_tags=True))
    encoded = codec.encode(value, version)
    assert encoded == plain.write(value, version)
    assert codec.decode(message, version, encoded) == value
    assert codec.decode(message, version, bytearray(encoded)) == value
    assert plain.read(message, version, encoded) == value


@pytest.mark.parametrize(("message", "version"), EVERY_VERSION)
def test_a_message_of_defaults_survives(message: type[Message], version: int) -> None:
    encoded = codec.encode(message(), version)
    assert encoded == plain.write(message(), version)
    assert codec.encode(codec.decode(message, version, encoded), version) == encoded


def fetch_response(records: bytes | memoryview) -> FetchResponse:
    partition = FetchPartitionResponse(partition_index=3, high_watermark=9, records=records)
    return FetchResponse(responses=[FetchTopicResponse(topic="orders", partitions=[partition])])


def test_records_are_views_into_the_frame() -> None:
    frame = bytearray(codec.encode(fetch_response(b"batch"), 12))
    decoded = codec.decode(FetchResponse, 12, frame)
    records = decoded.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"batch"
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(records) == b"Batch"


def test_large_records_stay_a_chunk_of_their_own() -> None:
    records = memoryview(bytes(codec.JOIN_BELOW_BYTES))
    chunks = codec.encode_chunks(fetch_response(records), 12)
    assert [chunk is records for chunk in chunks] == [False, True, False]
    assert b"".join(chunks) == codec.encode(fetch_response(records), 12)


def test_what_is_not_bytes_stays_a_chunk_of_its_own() -> None:
    class FileSlice:
        def __len__(self) -> int:
            return 7

    slice_of_a_file = FileSlice()
    response = fetch_response(b"")
    response.responses[0].partitions[0].records = slice_of_a_file  # type: ignore[assignment]  # as a broker will
    before, chunk, after = codec.encode_chunks(response, 12)
    assert chunk is slice_of_a_file
    whole = codec.encode(fetch_response(b"1234567"), 12)
    assert before + b"1234567" + after == whole


def test_small_records_are_joined() -> None:
    assert len(codec.encode_chunks(fetch_response(memoryview(b"tiny")), 12)) == 1


def test_absent_fields_hold_their_defaults() -> None:
    decoded = codec.decode(FetchRequest, 0, codec.encode(FetchRequest(replica_id=4), 0))
    assert decoded == FetchRequest(replica_id=4)
    assert decoded.max_bytes == 2**31 - 1
    assert decoded.rack_id == ""


def test_two_messages_never_share_a_list() -> None:
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchTopic())
    assert other.topics == []
    encoded = codec.encode(FetchRequest(), 0)
    codec.decode(FetchRequest, 0, encoded).forgotten_topics_data.append(None)  # type: ignore[arg-type]
    assert codec.decode(FetchRequest, 0, encoded).forgotten_topics_data == []


def test_an_ignorable_field_is_dropped_where_the_version_lacks_it() -> None:
    assert codec.encode(FetchRequest(rack_id="r1"), 10) == codec.encode(FetchRequest(), 10)


def test_a_field_that_must_not_be_lost_is_refused_by_name() -> None:
    partition = FetchPartition(last_fetched_epoch=3)
    request = FetchRequest(topics=[FetchTopic(), FetchTopic(partitions=[partition])])
    with pytest.raises(UnsupportedVersionError, match=r"FetchRequest v11, field topics\[1\]\.partitions\[0\]\.last_fe"):
        codec.encode(request, 11)
    codec.encode(request, 12)


def test_a_tagged_struct_of_defaults_is_not_sent() -> None:
    partition = FetchPartitionResponse(diverging_epoch=EpochEndOffset())
    response = FetchResponse(responses=[FetchTopicResponse(partitions=[partition])])
    plain_response = FetchResponse(responses=[FetchTopicResponse(partitions=[FetchPartitionResponse()])])
    partition.records = plain_response.responses[0].partitions[0].records = b""
    assert codec.encode(response, 12) == codec.encode(plain_response, 12)


@pytest.mark.parametrize(
    ("request_", "error", "field"),
    [
        (FetchRequest(max_wait_ms=2**31), InvalidValueError, "max_wait_ms"),
        (FetchRequest(max_wait_ms=None), UnexpectedNullError, "max_wait_ms"),  # type: ignore[arg-type]
        (FetchRequest(rack_id="r" * 40_000), InvalidValueError, "rack_id"),
        (FetchRequest(rack_id=b"r"), InvalidValueError, "rack_id"),  # type: ignore[arg-type]
        (FetchRequest(rack_id=None), UnexpectedNullError, "rack_id"),  # type: ignore[arg-type]
        (FetchRequest(rack_id="\ud800"), InvalidValueError, "rack_id"),
        (FetchRequest(topics=7), InvalidValueError, "topics"),  # type: ignore[arg-type]
        (FetchRequest(topics=[FetchPartition()]), InvalidValueError, r"topics\[0\]"),  # type: ignore[list-item]
        (FetchRequest(topics=[FetchTopic(topic_id=b"short")]), InvalidValueError, r"topics\[0\]\.topic_id"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(request_: FetchRequest, error: type, field: str) -> None:
    for version in (13, 17):
        with pytest.raises(error, match=f"FetchRequest v{version}, field {field}: ") as raised:
            codec.encode(request_, version)
        assert type(raised.value) is error


def test_a_version_that_does_not_exist() -> None:
    with pytest.raises(UnsupportedVersionError, match="FetchRequest v99: there are versions 0-18 only"):
        codec.decode(FetchRequest, 99, b"")
    with pytest.raises(UnsupportedVersionError, match="FetchRequest v-1"):
        codec.encode(FetchRequest(), -1)


def test_bytes_left_over() -> None:
    encoded = codec.encode(FetchRequest(), 4)
    with pytest.raises(TrailingBytesError, match=r"FetchRequest v4, byte \d+: 2 bytes are left"):
        codec.decode(FetchRequest, 4, encoded + b"\0\0")
    with pytest.raises(TrailingBytesError):
        plain.read(FetchRequest, 4, encoded + b"\0\0")


def test_the_client_id_is_never_compact() -> None:
    header = RequestHeader(request_api_key=1, request_api_version=12, correlation_id=5, client_id="me")
    assert codec.encode(header, 2) == bytes.fromhex("0001 000c 00000005 0002") + b"me" + b"\0"


def test_a_message_preceded_by_its_version() -> None:
    encoded = codec.encode_versioned(FetchRequest(max_wait_ms=4), 3)
    assert encoded[:2] == b"\0\3"
    assert codec.decode_versioned(FetchRequest, encoded) == (FetchRequest(max_wait_ms=4), 3)
    with pytest.raises(TruncatedError):
        codec.decode_versioned(FetchRequest, b"\0")


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        # What Kafka 4.3.1's own class writes: a tagged struct that is null is told apart from one that is absent.
        (None, "01010263010101ffffffff0101000100"),
        (ClassicMemberMetadata(), "01010263010101ffffffff0100"),
        (ClassicMemberMetadata(session_timeout_ms=7), "01010263010101ffffffff0101000701000000070100"),
    ],
)
def test_a_tagged_struct_that_can_be_null(member: ClassicMemberMetadata | None, expected: str) -> None:
    value = ConsumerGroupMemberMetadataValue(client_id="c", classic_member_metadata=member)
    value.rebalance_timeout_ms = -1
    assert codec.encode(value, 0).hex() == expected
    assert codec.decode(ConsumerGroupMemberMetadataValue, 0, bytes.fromhex(expected)) == value
    assert plain.read(ConsumerGroupMemberMetadataValue, 0, bytes.fromhex(expected)) == value


def test_repr_shows_what_is_not_default() -> None:
    assert repr(FetchTopic(topic="a", partitions=[FetchPartition(partition=2)])) == (
        "FetchTopic(topic='a', partitions=[FetchPartition(partition=2)])"
    )
