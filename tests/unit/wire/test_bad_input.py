"""Bytes that nobody meant to send: one named error each, with message, field and offset, at no cost."""

from __future__ import annotations

import tracemalloc

import pytest

from fuzz import wire as wire_fuzz
from ottla.wire import codec, plain
from ottla.wire.errors import (
    InvalidLengthError,
    InvalidTagError,
    InvalidTextError,
    InvalidVarintError,
    ProtocolError,
    TruncatedError,
    UnexpectedNullError,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.registry import all_messages
from ottla.wire.schema import Message

# A FetchRequest's fields before its topics: v4 has no sessions, v12 is flexible.
V4_HEAD = bytes.fromhex("ffffffff 000001f4 00000001 00000400 00")
V12_HEAD = bytes.fromhex("ffffffff 000001f4 00000001 00000400 00 00000000 ffffffff")
ONE_TOPIC_V4 = V4_HEAD + b"\0\0\0\1"
VALID_V12 = codec.encode(
    FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=1)])], rack_id="rack"), 12
)
END = len(VALID_V12)


@pytest.mark.parametrize(
    ("message", "version", "data", "error", "field", "offset"),
    [
        (FetchRequest, 4, V4_HEAD + b"\x7f\xff\xff\xff", InvalidLengthError, "topics", 21),
        (FetchRequest, 4, V4_HEAD + b"\xff\xff\xff\xfe", InvalidLengthError, "topics", 21),
        (FetchRequest, 4, V4_HEAD + b"\xff\xff\xff\xff", UnexpectedNullError, "topics", 21),
        (FetchRequest, 4, V4_HEAD[:-3], TruncatedError, "max_bytes", 12),
        (
            FetchRequest,
            4,
            ONE_TOPIC_V4 + b"\x7f\xffa\0\0\0\0",
            InvalidLengthError,
            "topics[0].topic",
            23,
        ),
        (
            FetchRequest,
            4,
            ONE_TOPIC_V4 + b"\xff\xffa\0\0\0\0",
            UnexpectedNullError,
            "topics[0].topic",
            23,
        ),
        (
            FetchRequest,
            4,
            ONE_TOPIC_V4 + b"\0\2\xc3\x28\0\0\0\0",
            InvalidTextError,
            "topics[0].topic",
            23,
        ),
        (FetchRequest, 12, V12_HEAD + b"\xff\xff\xff\xff\x0f", InvalidLengthError, "topics", 30),
        (FetchRequest, 12, V12_HEAD + b"\xff\xff\xff\xff\x10", InvalidVarintError, "topics", 25),
        (FetchRequest, 12, V12_HEAD + b"\x80\x80\x80\x80\x80\x01", InvalidVarintError, "topics", 25),
        (FetchRequest, 12, V12_HEAD + b"\x80", TruncatedError, "topics", 25),
        (FetchRequest, 12, V12_HEAD + b"\x00", UnexpectedNullError, "topics", 26),
        # The tagged section: more tags than bytes, a size beyond the end, a size that is not the value's.
        (FetchRequest, 12, VALID_V12[:-1] + b"\xff\xff\xff\xff\x0f", TruncatedError, "", END + 4),
        (FetchRequest, 12, VALID_V12[:-1] + b"\x01\x07\x7f", InvalidLengthError, "", END + 2),
        (
            FetchRequest,
            12,
            VALID_V12[:-1] + b"\x01\x00\x03\x02a\x00",
            InvalidTagError,
            "cluster_id",
            END + 4,
        ),
        # The records of a ProduceRequest are not copied, but counted.
        (
            ProduceRequest,
            3,
            bytes.fromhex("ffff 0001 00000064 00000001 0001 74 00000001 00000000 7fffffff"),
            InvalidLengthError,
            "topic_data[0].partition_data[0].records",
            27,
        ),
        (MetadataRequest, 0, b"", TruncatedError, "topics", 0),
    ],
)
def test_a_named_error_with_its_place(
    message: type[Message], version: int, data: bytes, error: type[ProtocolError], field: str, offset: int
) -> None:
    for read in (codec.decode, plain.read):
        with pytest.raises(ProtocolError) as raised:
            read(message, version, data)
        assert type(raised.value) is error
        assert (raised.value.field, raised.value.offset) == (field, offset)
        assert raised.value.message == f"{message.__name__} v{version}"
        assert f"{message.__name__} v{version}" in str(raised.value)


@pytest.mark.parametrize("message", all_messages().values(), ids=list(all_messages()))
def test_every_truncation_is_reported(message: type[Message]) -> None:
    version = message.versions.high
    encoded = codec.encode(message(), version)
    for size in range(len(encoded)):
        with pytest.raises(ProtocolError):
            codec.decode(message, version, encoded[:size])


def test_an_announced_size_allocates_nothing() -> None:
    absurd: list[tuple[type[Message], int, bytes]] = [
        (FetchRequest, 4, V4_HEAD + b"\x7f\xff\xff\xff"),
        (FetchRequest, 12, V12_HEAD + b"\xff\xff\xff\xff\x0f"),
        (FetchRequest, 12, VALID_V12[:-1] + b"\x01\x07\xff\xff\xff\xff\x0f"),
        (ProduceRequest, 3, bytes.fromhex("ffff 0001 00000064 00000001 0001 74 00000001 00000000 7fffffff")),
    ]
    for message, version, data in absurd:  # compiled before it is measured
        with pytest.raises(ProtocolError):
            codec.decode(message, version, data)
    tracemalloc.start()
    try:
        for message, version, data in absurd:
            with pytest.raises(ProtocolError):
                codec.decode(message, version, data)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


@pytest.mark.parametrize("seed", range(4))
def test_mutated_frames_raise_protocol_errors_only(seed: int) -> None:
    outcomes = wire_fuzz.run(seed, frames=8_000)
    assert outcomes.total() == 8_000
    assert outcomes["read"]
    assert {"TruncatedError", "InvalidLengthError", "InvalidTextError", "TrailingBytesError"} <= outcomes.keys()
