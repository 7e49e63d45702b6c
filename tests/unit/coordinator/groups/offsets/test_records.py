"""Offset commits, packed by hand, beside the codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.groups.offsets.records import (
    CommittedOffset,
    decode_value,
    encode_value,
    head_of,
    key_of,
    names_of,
    split_key,
)
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue

names = st.text(st.characters(codec="utf-8"), max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


@given(names, names, int32)
def test_keys_are_those_of_the_codec(group: str, topic: str, partition: int) -> None:
    head = head_of(group, topic)
    key = key_of(head, partition)
    assert key == encode_versioned(OffsetCommitKey(group=group, topic=topic, partition=partition), 1)
    assert split_key(key) == (head, partition)
    assert names_of(head) == (group, topic)


@given(int64, int32, names, int64)
def test_values_are_those_of_the_codec(offset: int, leader_epoch: int, metadata: str, committed_ms: int) -> None:
    value = encode_value(offset, leader_epoch, metadata, committed_ms)
    message = OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=committed_ms
    )
    assert value == encode_versioned(message, 3)
    assert decode_value(value) == CommittedOffset(offset, leader_epoch, metadata, committed_ms)


@given(int64, names, int64, st.integers(0, 2**63 - 1))
def test_values_that_expire_are_those_of_the_codec(
    offset: int, metadata: str, committed_ms: int, expires_ms: int
) -> None:
    value = encode_value(offset, 7, metadata, committed_ms, expires_ms)
    message = OffsetCommitValue(
        offset=offset, metadata=metadata, commit_timestamp=committed_ms, expire_timestamp=expires_ms
    )
    assert value == encode_versioned(message, 1)
    assert decode_value(value) == CommittedOffset(offset, -1, metadata, committed_ms, expires_ms)


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_are_read(version: int) -> None:
    message = OffsetCommitValue(offset=5, leader_epoch=6, metadata="m", commit_timestamp=7, expire_timestamp=8)
    found = decode_value(encode_versioned(message, version))
    read, _ = decode_versioned(OffsetCommitValue, encode_versioned(message, version))
    assert (found.offset, found.metadata, found.committed_ms) == (5, "m", 7)
    assert (found.leader_epoch, found.expires_ms) == (read.leader_epoch, read.expire_timestamp)


def test_tags_of_newer_kafkas_are_skipped() -> None:
    value = encode_versioned(OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7), 4)
    assert value[-1] == 0
    assert decode_value(value[:-1] + b"\x01\x63\x02ab").offset == 5


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00",
        b"\x00\x03",
        encode_value(1, 2, "metadata", 3)[:-1],
        encode_value(1, 2, "metadata", 3) + b"x",
        encode_value(1, 2, "abc", 3).replace(b"abc", b"\xff\xfe\xfd"),
        b"\x00\x63" + encode_value(1, 2, "", 3)[2:],
        encode_value(1, 2, "", 3)[:14] + b"\xff\xff" + bytes(8),
    ],
)
def test_an_invalid_value_is_an_error(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_value(value)


@pytest.mark.parametrize(
    "key", [b"", b"\x00\x01\x00\x00\x00", key_of(b"\x00\x05g", 1), key_of(head_of("g", "t") + b"x", 1)]
)
def test_an_invalid_key_is_an_error(key: bytes) -> None:
    with pytest.raises(ProtocolError):
        names_of(split_key(key)[0])
