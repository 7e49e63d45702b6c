"""The records of committed offsets, encoded by hand because most records of `__consumer_offsets` are of this kind.

    key     kind 1 (0 means the same) | group | topic | partition          strings: int16 length, UTF-8
    value   version 3 | offset | leader epoch | metadata | committed at
            version 1 | offset | metadata | committed at | expires at      if a client sends a retention (KIP-211)

The codec decodes other versions of values. The part of a key between its kind and the partition is the *head*
of a topic's offsets: all partitions have the same head.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.wire.codec import decode_versioned
from ottla.wire.errors import TruncatedError
from ottla.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue

KINDS: Final = (0, 1)
NO_EXPIRY: Final = -1

_KIND: Final = b"\x00\x01"
_KIND_SIZE: Final = 2
_LENGTH = Struct(">h")
_PARTITION = Struct(">i")
_PARTITION_SIZE: Final = 4
_VALUE_START = Struct(">hqih")
"""The start of version 3: version, offset, leader epoch, length of the metadata."""
_VERSION: Final = 3
_TIME = Struct(">q")
_TIMED_START = Struct(">hqh")
"""The start of version 1: version, offset, length of the metadata."""
_TIMES = Struct(">qq")


class CommittedOffset(NamedTuple):
    """What a group committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = NO_EXPIRY


class OffsetColumn(Collection[tuple[bytes, bytes | None]]):
    """The records of offsets that a group commits for one topic, none of them a tombstone. Iterating
    gives their keys and values; replay uses the columns, and need not parse the keys."""

    __slots__ = ("head", "partitions", "values")

    def __init__(self, head: bytes, partitions: Sequence[int], values: Sequence[bytes]) -> None:
        self.head = head
        self.partitions = partitions
        self.values = values

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        for partition, value in zip(self.partitions, self.values, strict=True):
            yield key_of(self.head, partition), value

    def __contains__(self, record: object) -> bool:
        return any(record == each for each in self)


def head_of(group_id: str, topic: str) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join((_LENGTH.pack(len(group)), group, _LENGTH.pack(len(name)), name))


def key_of(head: bytes, partition: int) -> bytes:
    return b"".join((_KIND, head, _PARTITION.pack(partition)))


def split_key(key: bytes) -> tuple[bytes, int]:
    """Head and partition. Does not validate the head: `names_of` does, once for each head."""
    if len(key) < _KIND_SIZE + _PARTITION_SIZE:
        raise TruncatedError(f"{len(key)} bytes are too few for a key", message="OffsetCommitKey", offset=len(key))
    return key[_KIND_SIZE:-_PARTITION_SIZE], _PARTITION.unpack_from(key, len(key) - _PARTITION_SIZE)[0]


def names_of(head: bytes) -> tuple[str, str]:
    """Group and topic; raises `ProtocolError` if the head is malformed."""
    key, _ = decode_versioned(OffsetCommitKey, key_of(head, 0))
    return key.group, key.topic


def encode_value(
    offset: int, leader_epoch: int, metadata: str, committed_ms: int, expires_ms: int = NO_EXPIRY
) -> bytes:
    """Encodes like Kafka 3.9. A value with an expiry time has no leader epoch."""
    text = metadata.encode()
    if expires_ms != NO_EXPIRY:
        return _TIMED_START.pack(1, offset, len(text)) + text + _TIMES.pack(committed_ms, expires_ms)
    return _VALUE_START.pack(_VERSION, offset, leader_epoch, len(text)) + text + _TIME.pack(committed_ms)


def decode_value(value: bytes) -> CommittedOffset:
    """Decodes any version. Raises `ProtocolError` if the value is malformed."""
    if value[:2] == b"\x00\x03" and len(value) >= _VALUE_START.size:
        _, offset, leader_epoch, size = _VALUE_START.unpack_from(value)
        end = _VALUE_START.size + size
        if size >= 0 and len(value) == end + _TIME.size:
            (committed_ms,) = _TIME.unpack_from(value, end)
            text = value[_VALUE_START.size : end]
            if text.isascii():
                return CommittedOffset(offset, leader_epoch, text.decode("ascii"), committed_ms)
    found, _ = decode_versioned(OffsetCommitValue, value)
    return CommittedOffset(
        found.offset, found.leader_epoch, found.metadata, found.commit_timestamp, found.expire_timestamp
    )
