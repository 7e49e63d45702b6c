"""Commits as consumers send them all the time, taken as columns: no object for each partition, on the way in or out.

A commit is *plain* if it is of a version with compact fields, every offset comes without metadata and without tags, and
names are short. Each partition then takes equally many bytes in the request, in the log and in the answer, and a whole
column is packed or unpacked by one call. What is not plain, and plain commits that are refused for some partition, take
the long way through `offset_commit`, which decides what is right: what is done here is the same, only quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.coordinator.groups.offset_commit import TOPIC_IDS_SINCE, check_commit
from ottla.coordinator.groups.offset_records import PLAIN_VALUE_SIZE, encode_plain_values, head_of, key_parts
from ottla.coordinator.groups.offsets import OffsetStore
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.key_values import record_heads
from ottla.coordinator.runtime import Gathered
from ottla.wire.codec import reader_of
from ottla.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic

PLAIN_SINCE: Final = 8
"""The first version with compact fields."""

_PARTITION = Struct(">iqiBB")
"""Index, offset, leader epoch; the size of the metadata, which is empty; no tags."""
_ACCEPTED = Struct(">ihx")
"""Index, no error, no tags."""
_GENERATION = Struct(">i")
_NO_THROTTLING: Final = b"\x00\x00\x00\x00"
_NO_TAGS: Final = b"\x00"
_ID_SIZE: Final = 16
_LONGER: Final = 0x80
"""In a byte of a number: more follow."""
_NULL, _EMPTY = 0, 1
"""How compact strings begin."""
_VALUE_SIZE: Final = bytes([PLAIN_VALUE_SIZE << 1])
_NO_HEADERS: Final = b"\x00"


class PlainTopic(NamedTuple):
    """Offsets that a commit has for a topic. `raw` is how it begins: its name or id, and how many partitions follow."""

    raw: bytes
    name: str
    topic_id: Uuid
    indexes: Sequence[int]
    offsets: Sequence[int]
    leader_epochs: Sequence[int]


class PlainCommit(NamedTuple):
    """An OffsetCommit request."""

    version: int
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    topics: list[PlainTopic]

    def as_request(self) -> OffsetCommitRequest:
        """The same as everybody else reads it."""
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                OffsetCommitTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata="",
                        )
                        for index, offset, leader_epoch in zip(
                            topic.indexes, topic.offsets, topic.leader_epochs, strict=True
                        )
                    ],
                )
                for topic in self.topics
            ],
        )

    def accepted(self) -> bytes:
        """The body of the answer when nothing is wrong."""
        parts = [_NO_THROTTLING, bytes([len(self.topics) + 1])]
        for topic in self.topics:
            parts += (topic.raw, *map(_ACCEPTED.pack, topic.indexes, repeat(0)), _NO_TAGS)
        parts.append(_NO_TAGS)
        return b"".join(parts)


def commit_reader(version: int) -> Callable[[memoryview], PlainCommit | OffsetCommitRequest]:
    """Reads requests of that version."""
    read: Callable[[memoryview], OffsetCommitRequest] = reader_of(OffsetCommitRequest, version)
    if version < PLAIN_SINCE:
        return read

    def read_any(frame: memoryview) -> PlainCommit | OffsetCommitRequest:
        return _read_plain(bytes(frame), version) or read(frame)

    return read_any


def _read_plain(data: bytes, version: int) -> PlainCommit | None:
    """None for what is not plain, or broken: the long way tells."""
    try:
        at = data[0]
        member_at = at + _GENERATION.size
        instance_at = member_at + data[member_at]
        # Of sizes that do not fit into a byte the first is this large, and so is one of a string that is null.
        if not 0 < at < _LONGER or not 0 < data[member_at] < _LONGER or data[instance_at] >= _LONGER:
            return None
        instance_id = data[instance_at + 1 : instance_at + data[instance_at]].decode() if data[instance_at] else None
        (generation,) = _GENERATION.unpack_from(data, at)
        member_id = data[member_at + 1 : instance_at].decode()
        at_topics = instance_at + (data[instance_at] or 1)
        topics = _read_topics(data, at_topics, version >= TOPIC_IDS_SINCE)
        if topics is None:
            return None
        return PlainCommit(version, data[1:at].decode(), generation, member_id, instance_id, topics)
    except (IndexError, UnicodeDecodeError, struct_error):
        return None


def _read_topics(data: bytes, at: int, by_id: bool) -> list[PlainTopic] | None:
    count = data[at] - 1
    at += 1
    if not 0 < count < _LONGER - 1:
        return None
    topics = []
    for _ in range(count):
        start = at
        name, topic_id = "", ZERO_UUID
        if by_id:
            at += _ID_SIZE
            topic_id = Uuid(data[start:at])
        else:
            at += data[at]
            if not 0 < data[start] < _LONGER:
                return None
            name = data[start + 1 : at].decode()
        size = data[at]
        at += 1
        if size >= _LONGER:
            size = size & 0x7F | data[at] << 7
            at += 1
            if size >= _LONGER << 7:
                return None
        size -= 1
        behind = at + size * _PARTITION.size
        if size < 1 or data[behind]:  # tags of the topic
            return None
        indexes, offsets, leader_epochs, metadata, tags = zip(*_PARTITION.iter_unpack(data[at:behind]), strict=True)
        if metadata.count(_EMPTY) + metadata.count(_NULL) != size or any(tags):
            return None
        topics.append(PlainTopic(data[start:at], name, topic_id, indexes, offsets, leader_epochs))
        at = behind + 1
    return None if data[at] else topics


class CommittedBlock:
    """What a plain commit appends for one topic, and what its replay does to the offsets."""

    __slots__ = ("_head", "_indexes", "_offsets", "_values")

    def __init__(self, offsets: OffsetStore, head: bytes, indexes: Sequence[int], values: list[bytes]) -> None:
        self._offsets = offsets
        self._head = head
        self._indexes = indexes
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def parts(self, first: int) -> Iterable[bytes]:
        start, packed = key_parts(self._head, self._indexes)
        heads = record_heads(len(start) + len(packed[0]), PLAIN_VALUE_SIZE, first, len(packed))
        columns = heads, repeat(start), packed, repeat(_VALUE_SIZE), self._values, repeat(_NO_HEADERS)
        return chain.from_iterable(zip(*columns, strict=False))

    def replay(self, first_offset: int) -> None:
        self._offsets.replay_committed(self._head, self._indexes, self._values, first_offset)


class OffsetShard(GroupShard):
    """A shard that keeps offsets."""

    offsets: OffsetStore


def commit_plainly(shard: OffsetShard, commit: PlainCommit) -> Gathered[bytes] | None:
    """Raises `CoordinatorError` if the group may not commit so; None if some partition is not to be committed."""
    known, offsets, version = shard.topics, shard.offsets, commit.version
    now_ms = shard.context.clock.now_ms()
    blocks = []
    for topic in commit.topics:
        name = topic.name if version < TOPIC_IDS_SINCE else known.topic_name(topic.topic_id)
        count = known.partition_count(name) if name is not None else None
        if name is None or count is None or min(topic.indexes) < 0 or max(topic.indexes) >= count:
            return None
        values = encode_plain_values(topic.offsets, topic.leader_epochs, now_ms)
        blocks.append(CommittedBlock(offsets, head_of(commit.group_id, name), topic.indexes, values))
    check_commit(shard, commit.group_id, commit.member_id, commit.instance_id, commit.generation, version)
    return Gathered(commit.accepted(), blocks)
