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
from ottla.coordinator.groups.offset_records import (
    PLAIN_VALUE_SIZE,
    encode_plain_values,
    head_of,
    key_start,
    pack_partitions,
)
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
_ONE_PARTITION = Struct(">iqiB3s")
"""The only one of the only topic, with the tags of all three: none."""
_ACCEPTED = Struct(">ihx")
"""Index, no error, no tags."""
_GENERATION = Struct(">i")
_NO_THROTTLING: Final = b"\x00\x00\x00\x00"
_NO_TAGS: Final = b"\x00"
_NO_TAGS_AT_ALL: Final = bytes(3)
_ID_SIZE: Final = 16
_LONGER: Final = 0x80
"""In a byte of a number: more follow."""
_NULL, _EMPTY = 0, 1
"""How compact strings begin."""
_ONE_TOPIC: Final = 2
"""How a compact array of one begins."""
_FORMS_MAX_BYTES: Final = 16 * 1024 * 1024
_FORM_BYTES: Final = 1_500
_FORM_PARTITION_BYTES: Final = 120
"""What is kept of a form, about."""
_VALUE_SIZE: Final = bytes([PLAIN_VALUE_SIZE << 1])
_NO_HEADERS: Final = b"\x00"


class TopicForm:
    """The partitions that a commit names of a topic. `raw` is how it begins: its name or id, and how many follow."""

    __slots__ = ("_key_starts", "highest", "indexes", "lowest", "name", "packed", "raw", "topic_id")

    def __init__(self, raw: bytes, name: str, topic_id: Uuid, indexes: tuple[int, ...]) -> None:
        self.raw = raw
        self.name = name
        self.topic_id = topic_id
        self.indexes = indexes
        self.lowest, self.highest = min(indexes), max(indexes)
        self.packed = pack_partitions(indexes)
        self._key_starts: dict[tuple[str, str], tuple[bytes, bytes]] = {}

    def key_start(self, group_id: str, name: str) -> tuple[bytes, bytes]:
        """The head of the topic's offsets, and how all their keys begin."""
        known = self._key_starts.get((group_id, name))
        if known is None:
            head = head_of(group_id, name)
            self._key_starts = {(group_id, name): (head, key_start(head))}  # a topic has one name at a time
            known = self._key_starts[group_id, name]
        return known


class CommitForm:
    """What a consumer's commits have in common from one to the next: all but the offsets."""

    __slots__ = ("accepted", "generation", "group_id", "instance_id", "member_id", "topics", "version")

    def __init__(
        self,
        version: int,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        topics: list[TopicForm],
    ) -> None:
        self.version = version
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        parts = [_NO_THROTTLING, bytes([len(topics) + 1])]
        for topic in topics:
            parts += (topic.raw, *map(_ACCEPTED.pack, topic.indexes, repeat(0)), _NO_TAGS)
        parts.append(_NO_TAGS)
        self.accepted = b"".join(parts)
        """The body of the answer when nothing is wrong."""


class Column(NamedTuple):
    """What is committed for the partitions of a topic, in their order."""

    offsets: Sequence[int]
    leader_epochs: Sequence[int]


class PlainCommit(NamedTuple):
    """An OffsetCommit request."""

    form: CommitForm
    columns: Sequence[Column]

    def as_request(self) -> OffsetCommitRequest:
        """The same as everybody else reads it."""
        form = self.form
        return OffsetCommitRequest(
            group_id=form.group_id,
            generation_id_or_member_epoch=form.generation,
            member_id=form.member_id,
            group_instance_id=form.instance_id,
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
                        for index, offset, leader_epoch in zip(topic.indexes, *column, strict=True)
                    ],
                )
                for topic, column in zip(form.topics, self.columns, strict=True)
            ],
        )


def commit_reader(version: int) -> Callable[[memoryview], PlainCommit | OffsetCommitRequest]:
    """Reads requests of that version."""
    read: Callable[[memoryview], OffsetCommitRequest] = reader_of(OffsetCommitRequest, version)
    if version < PLAIN_SINCE:
        return read
    plain = _PlainReader(version)

    def read_any(frame: memoryview) -> PlainCommit | OffsetCommitRequest:
        return plain.read(bytes(frame)) or read(frame)

    return read_any


class _PlainReader:
    """Knows the forms of commits that came lately: who commits does it again and again."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._by_id = version >= TOPIC_IDS_SINCE
        self._forms: dict[bytes, CommitForm] = {}
        """Of commits for one topic, by all that comes before the first partition."""
        self._bytes_kept = 0

    def read(self, data: bytes) -> PlainCommit | None:
        """None for what is not plain, or broken: the long way tells."""
        try:
            at = data[0]
            member_at = at + _GENERATION.size
            instance_at = member_at + data[member_at]
            # Of sizes that do not fit into a byte the first is this large, and so is one of a string that is null.
            if not 0 < at < _LONGER or not 0 < data[member_at] < _LONGER or data[instance_at] >= _LONGER:
                return None
            topics_at = instance_at + (data[instance_at] or 1)
            if data[topics_at] != _ONE_TOPIC:
                return self._read_long(data, at, member_at, instance_at, topics_at)
            first_at = topics_at + 1
            first_at += _ID_SIZE if self._by_id else data[first_at]
            first_at += 1 if data[first_at] < _LONGER else 2
            form = self._forms.get(data[:first_at])
            if form is None:
                return self._read_long(data, at, member_at, instance_at, topics_at, first_at)
            (topic,) = form.topics
            indexes = topic.indexes
            size = len(indexes)
            if size == 1:
                index, offset, leader_epoch, metadata, end = _ONE_PARTITION.unpack_from(data, first_at)
                if index == indexes[0] and metadata <= _EMPTY and end == _NO_TAGS_AT_ALL:
                    return PlainCommit(form, (Column((offset,), (leader_epoch,)),))
            elif data[(behind := first_at + size * _PARTITION.size)] == 0 == data[behind + 1]:
                rows = _PARTITION.iter_unpack(data[first_at:behind])
                found, offsets, leader_epochs, metadata, tags = zip(*rows, strict=True)
                if found == indexes and max(metadata) <= _EMPTY and not any(tags):
                    return PlainCommit(form, (Column(offsets, leader_epochs),))
            return self._read_long(data, at, member_at, instance_at, topics_at, first_at)
        except (IndexError, UnicodeDecodeError, struct_error):
            return None

    def _read_long(
        self, data: bytes, at: int, member_at: int, instance_at: int, topics_at: int, first_at: int | None = None
    ) -> PlainCommit | None:
        instance_id = data[instance_at + 1 : instance_at + data[instance_at]].decode() if data[instance_at] else None
        (generation,) = _GENERATION.unpack_from(data, at)
        member_id = data[member_at + 1 : instance_at].decode()
        read = _read_topics(data, topics_at, self._by_id)
        if read is None:
            return None
        topics, columns = read
        form = CommitForm(self._version, data[1:at].decode(), generation, member_id, instance_id, topics)
        if first_at is not None:
            self._keep(data[:first_at], form)
        return PlainCommit(form, columns)

    def _keep(self, start: bytes, form: CommitForm) -> None:
        self._bytes_kept += _FORM_BYTES + _FORM_PARTITION_BYTES * len(form.topics[0].indexes)
        if self._bytes_kept > _FORMS_MAX_BYTES:
            self._forms, self._bytes_kept = {}, 0
        self._forms[start] = form


def _read_topics(data: bytes, at: int, by_id: bool) -> tuple[list[TopicForm], list[Column]] | None:
    count = data[at] - 1
    at += 1
    if not 0 < count < _LONGER - 1:
        return None
    topics, columns = [], []
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
        topics.append(TopicForm(data[start:at], name, topic_id, indexes))
        columns.append(Column(offsets, leader_epochs))
        at = behind + 1
    return None if data[at] else (topics, columns)


class CommittedBlock:
    """What a plain commit appends for one topic, and what its replay does to the offsets."""

    __slots__ = ("_head", "_key_start", "_offsets", "_topic", "_values")

    def __init__(
        self, offsets: OffsetStore, topic: TopicForm, head: bytes, key_start: bytes, values: list[bytes]
    ) -> None:
        self._offsets = offsets
        self._topic = topic
        self._head = head
        self._key_start = key_start
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def parts(self, first: int) -> Iterable[bytes]:
        start, packed, values = self._key_start, self._topic.packed, self._values
        heads = record_heads(len(start) + len(packed[0]), PLAIN_VALUE_SIZE, first, len(packed))
        if len(packed) == 1:
            return heads[0], start, packed[0], _VALUE_SIZE, values[0], _NO_HEADERS
        columns = heads, repeat(start), packed, repeat(_VALUE_SIZE), values, repeat(_NO_HEADERS)
        return chain.from_iterable(zip(*columns, strict=False))

    def replay(self, first_offset: int) -> None:
        self._offsets.replay_committed(self._head, self._topic.indexes, self._values, first_offset)


class OffsetShard(GroupShard):
    """A shard that keeps offsets."""

    offsets: OffsetStore


def commit_plainly(shard: OffsetShard, commit: PlainCommit) -> Gathered[bytes] | None:
    """Raises `CoordinatorError` if the group may not commit so; None if some partition is not to be committed."""
    form, columns = commit
    known, offsets, version, group_id = shard.topics, shard.offsets, form.version, form.group_id
    now_ms = shard.context.clock.now_ms()
    blocks = []
    for topic, column in zip(form.topics, columns, strict=True):
        name = topic.name if version < TOPIC_IDS_SINCE else known.topic_name(topic.topic_id)
        count = known.partition_count(name) if name is not None else None
        if name is None or count is None or topic.lowest < 0 or topic.highest >= count:
            return None
        values = encode_plain_values(*column, now_ms)
        blocks.append(CommittedBlock(offsets, topic, *topic.key_start(group_id, name), values))
    check_commit(shard, group_id, form.member_id, form.instance_id, form.generation, version)
    return Gathered(form.accepted, blocks)
