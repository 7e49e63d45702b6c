"""What the bare commits of a consumer have in common: everything but the offsets.

A commit is *bare* if its version has compact fields, no offset has metadata or tags, and names are short. Every
partition then takes the same number of bytes in the request, in the log and in the response:

    request   index | offset | leader epoch | no metadata | no tags              a *row*
    log       … | key, which ends with the index | 3 | offset | leader epoch | no metadata | time | no headers

So the offsets of many partitions are copied as columns of bytes, and are never decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import Final

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.coordinator.groups.fast.bare_values import BARE_VALUE_SIZE, OFFSET_AT, TIME_AT, bare_value
from ottla.coordinator.groups.group import TopicImage
from ottla.coordinator.groups.offsets.commit import TOPIC_IDS_SINCE
from ottla.coordinator.groups.offsets.records import head_of, key_of
from ottla.coordinator.key_values import NO_HEADERS, record_heads

ROW = Struct(">iqiBB")
"""Index, offset, leader epoch, length of the empty metadata, no tags."""
_ROW_OFFSET_AT: Final = 4
_ROW_METADATA_AT: Final = 16
_ROW_TAGS_AT: Final = 17
ROW_OFFSET = slice(_ROW_OFFSET_AT, _ROW_METADATA_AT)
"""Offset and leader epoch, which are adjacent in the log too."""
_ACCEPTED = Struct(">ihx")
"""Index, no error, no tags."""
_NO_THROTTLING: Final = b"\x00\x00\x00\x00"
_NO_TAGS: Final = b"\x00"
_NULL_OR_EMPTY: Final = b"\x00\x01"
"""The first byte of a compact string that is null or empty."""
_BARE_ENDS: Final = (b"\x00\x00", b"\x01\x00")
"""The possible ends of a row: null or empty metadata, no tags."""
_VALUE_SIZE: Final = bytes([BARE_VALUE_SIZE << 1])
_TIME_SIZE: Final = 8
FORM_BYTES: Final = 1_500
FORM_PARTITION_BYTES: Final = 250
"""The approximate memory of a form, and of each of its partitions."""


class TopicForm:
    """The partitions of one topic in a commit. `raw` are the bytes before them: name or id, and their number."""

    __slots__ = ("_index_columns", "_log", "highest", "indexes", "lowest", "name", "only", "raw", "topic_id")

    def __init__(self, raw: bytes, name: str, topic_id: Uuid, rows: bytes) -> None:
        self.raw = raw
        self.name = name
        self.topic_id = topic_id
        self.indexes: tuple[int, ...] = tuple(row[0] for row in ROW.iter_unpack(rows))
        self.lowest, self.highest = min(self.indexes), max(self.indexes)
        self._index_columns = _index_columns(rows)
        self.only = rows[:_ROW_OFFSET_AT] if len(self.indexes) == 1 else None
        """The index of the partition if there is only one, as in most commits."""
        self._log: LoggedTopic | None = None

    def takes(self, rows: bytes) -> bool:
        """Whether the rows are bare and name these partitions."""
        if self.only is not None:
            return rows[:_ROW_OFFSET_AT] == self.only and rows[_ROW_METADATA_AT:] in _BARE_ENDS
        return _index_columns(rows) == self._index_columns and are_bare(rows)

    def in_log(self, group_id: str, name: str) -> LoggedTopic:
        """How the group's offsets for the topic of that name are encoded in the log."""
        log = self._log
        if log is None or log.names != (group_id, name):
            log = self._log = LoggedTopic(group_id, name, self.indexes)  # it rarely changes: a topic id has one name
        return log


class LoggedTopic:
    """The records of a group's offsets for some partitions of a topic."""

    __slots__ = ("_key_size", "_keys", "_pieces", "_start", "head", "names")

    def __init__(self, group_id: str, name: str, indexes: Sequence[int]) -> None:
        self.names = group_id, name
        self.head = head = head_of(group_id, name)
        self._keys = [key_of(head, index) + _VALUE_SIZE for index in indexes]
        """Keys, each followed by the size of its value."""
        self._key_size = len(self._keys[0]) - len(_VALUE_SIZE)
        (first,) = record_heads(self._key_size, BARE_VALUE_SIZE, 0, 1)
        self._start = first + self._keys[0]
        """The bytes before the first value, if these records are the first of a batch."""
        self._pieces: list[_Piece] | None = None

    def of_one(self, value: bytes, first: int) -> bytes:
        """The record of the only partition, in a batch that has `first` records before it."""
        if not first:
            return self._start + value + NO_HEADERS
        (head,) = record_heads(self._key_size, BARE_VALUE_SIZE, first, 1)
        return b"".join((head, self._keys[0], value, NO_HEADERS))

    def of_many(self, values: Sequence[bytes], first: int) -> bytes:
        """The records of all partitions, in a batch that has `first` records before them."""
        heads = record_heads(self._key_size, BARE_VALUE_SIZE, first, len(values))
        rows = zip(heads, self._keys, values, repeat(NO_HEADERS), strict=False)
        return b"".join([part for row in rows for part in row])

    def encoded(self, rows: bytes, now_ms: int) -> tuple[tuple[bytes, ...], bytes]:
        """The values for the rows of a request, and their records as the first of a batch."""
        if self._pieces is None:
            self._pieces = self._made_pieces()
        time = now_ms.to_bytes(_TIME_SIZE, "big")
        at, records = 0, list[bytes]()
        values: tuple[bytes, ...] = ()
        for piece in self._pieces:
            behind = at + piece.count * ROW.size
            values += piece.fill(rows[at:behind], time)
            records.append(bytes(piece.records))
            at = behind
        return values, b"".join(records)

    def _made_pieces(self) -> list[_Piece]:
        """Splits the records into runs of equal length: they differ only in the varint of their number in the batch."""
        heads = record_heads(self._key_size, BARE_VALUE_SIZE, 0, len(self._keys))
        made: list[_Piece] = []
        start = 0
        for end in range(1, len(heads) + 1):
            if end == len(heads) or len(heads[end]) != len(heads[start]):
                made.append(_Piece(heads[start:end], self._keys[start:end]))
                start = end
        return made


class _Piece:
    """Adjacent records of equal length, overwritten by each commit."""

    __slots__ = ("_read_values", "_record_size", "_time", "_value_at", "count", "records")

    def __init__(self, heads: Sequence[bytes], keys: Sequence[bytes]) -> None:
        self.count = len(keys)
        value = bare_value(bytes(_ROW_METADATA_AT - _ROW_OFFSET_AT), 0)
        self.records = bytearray().join(
            part for row in zip(heads, keys, repeat(value), repeat(NO_HEADERS), strict=False) for part in row
        )
        self._value_at = len(heads[0]) + len(keys[0])
        self._record_size = len(self.records) // self.count
        behind = self._record_size - self._value_at - BARE_VALUE_SIZE
        self._read_values = Struct(f"{self._value_at}x{BARE_VALUE_SIZE}s{behind}x" * self.count).unpack
        self._time = bytes(_TIME_SIZE)

    def fill(self, rows: bytes, time: bytes) -> tuple[bytes, ...]:
        """Writes the rows into the records, and returns the values."""
        records, record_size, row_size = self.records, self._record_size, ROW.size
        to = self._value_at + OFFSET_AT
        for at in range(_ROW_OFFSET_AT, _ROW_METADATA_AT):
            records[to::record_size] = rows[at::row_size]
            to += 1
        if time != self._time:
            to = self._value_at + TIME_AT
            for at in range(_TIME_SIZE):
                if time[at] != self._time[at]:
                    records[to + at :: record_size] = time[at : at + 1] * self.count
            self._time = time
        return self._read_values(records)


class CommitForm:
    """See the module."""

    __slots__ = (
        "_image",
        "_image_version",
        "_is_known",
        "accepted",
        "count",
        "generation",
        "group_id",
        "instance_id",
        "logged",
        "member_id",
        "topics",
        "version",
    )

    def __init__(
        self,
        version: int,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        topics: Sequence[TopicForm],
    ) -> None:
        self.version = version
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.count = sum(len(topic.indexes) for topic in topics)
        parts = [_NO_THROTTLING, bytes([len(topics) + 1])]
        for topic in topics:
            parts += (topic.raw, *map(_ACCEPTED.pack, topic.indexes, repeat(0)), _NO_TAGS)
        parts.append(_NO_TAGS)
        self.accepted = b"".join(parts)
        """The body of the response without errors."""
        self.logged: list[LoggedTopic] = []
        """For each topic, once `is_known` found them all."""
        self._image: TopicImage | None = None
        self._image_version = -1
        self._is_known = False

    def is_known(self, image: TopicImage) -> bool:
        """Whether all topics and partitions exist. Looked up again only if topics have changed."""
        if self._image is not image or self._image_version != image.version:
            self._image, self._image_version = image, image.version
            self._is_known = self._look_up(image)
        return self._is_known

    def _look_up(self, image: TopicImage) -> bool:
        logged = []
        for topic in self.topics:
            name = topic.name if self.version < TOPIC_IDS_SINCE else image.topic_name(topic.topic_id)
            count = image.partition_count(name) if name is not None else None
            if name is None or count is None or topic.lowest < 0 or topic.highest >= count:
                return False
            logged.append(topic.in_log(self.group_id, name))
        self.logged = logged
        return True


def topic_form(raw: bytes, rows: bytes, *, by_id: bool) -> TopicForm:
    """The form for a topic's name (after its length) or id, and its bare rows."""
    if by_id:
        return TopicForm(raw, "", Uuid(raw[: len(ZERO_UUID)]), rows)
    return TopicForm(raw, raw[1 : raw[0]].decode(), ZERO_UUID, rows)


def are_bare(rows: bytes) -> bool:
    """Whether rows have neither metadata nor tags."""
    metadata, tags = rows[_ROW_METADATA_AT :: ROW.size], rows[_ROW_TAGS_AT :: ROW.size]
    return not metadata.strip(_NULL_OR_EMPTY) and not tags.strip(_NO_TAGS)


def _index_columns(rows: bytes) -> list[bytes]:
    return [rows[at :: ROW.size] for at in range(_ROW_OFFSET_AT)]
