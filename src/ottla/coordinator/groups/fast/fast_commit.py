"""Offset commits as consumers send them all the time, handled as bytes, without an object for each partition.

`commit_form` says which commits are bare, and what those of a consumer have in common. Commits that are not bare, or of
which some partition is to be refused, are left to `offsets.commit` before anything is done; this path must write the
same records and give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final

from ottla.base.ids import ZERO_UUID
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.fast.bare_values import bare_value
from ottla.coordinator.groups.fast.commit_form import (
    FORM_BYTES,
    FORM_PARTITION_BYTES,
    ROW,
    ROW_OFFSET,
    CommitForm,
    TopicForm,
    are_bare,
    topic_form,
)
from ottla.coordinator.groups.offsets.commit import TOPIC_IDS_SINCE, check_commit, refused_commit
from ottla.coordinator.groups.offsets.records import OffsetColumn
from ottla.coordinator.groups.service import GroupCoordinatorService
from ottla.coordinator.groups.shard import GroupShard
from ottla.wire.codec import reader_of
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)

COMPACT_SINCE: Final = 8
"""The first version with compact fields."""

_GENERATION = Struct(">i")
_ID_SIZE: Final = len(ZERO_UUID)
_NO_TAGS: Final = b"\x00\x00"
"""The tags of a topic and of the request, both empty."""
_LONGER: Final = 0x80
"""This bit of a varint's byte says that more bytes follow."""
_ONE_TOPIC: Final = 2
"""The first byte of a compact array of one."""
_FORMS_MAX_BYTES: Final = 16 * 1024 * 1024


def commit_fast(groups: GroupCoordinatorService, commit: FastCommit) -> bool:
    """Takes a commit, whose `answer` is called soon. False, and nothing is done, if
    `GroupCoordinatorService.commit_offsets` has to answer: something is to be refused, or looked at more closely."""
    try:
        return groups.runtime.write_gathered(commit.form.group_id, commit)
    except CoordinatorError:
        return False


class FastCommit:
    """An OffsetCommit request: its form, and the rows of each of its topics. A `GatheredWrite`."""

    __slots__ = ("_columns", "_encoded", "answer", "count", "form", "rows")

    def __init__(self, form: CommitForm, rows: Sequence[bytes]) -> None:
        self.form = form
        self.rows = rows
        self.count = form.count
        self.answer: Callable[[bytes | OffsetCommitResponse], None]
        """Called once with the response: the bytes of its body, unless the commit is refused."""
        self._columns: Sequence[OffsetColumn]
        self._encoded = b""
        """The records as the first of a batch, if `decide` made them already."""

    def decide(self, shard: GroupShard) -> bool:
        """Whether every partition can be committed. Raises `CoordinatorError` if the member may not commit."""
        form = self.form
        if not form.is_known(shard.topics):
            return False
        # A check for each partition is rare, and left to the general path.
        check = check_commit(shard, form.group_id, form.member_id, form.instance_id, form.generation, form.version)
        if check is not None:
            return False
        now_ms = shard.context.clock.now_ms()
        rows = self.rows
        if len(rows) > 1:
            self._columns = [
                OffsetColumn(logged.head, topic.indexes, _values(each, now_ms))
                for logged, topic, each in zip(form.logged, form.topics, rows, strict=True)
            ]
            return True
        logged = form.logged[0]
        values: Sequence[bytes]
        if self.count == 1:
            values = (bare_value(rows[0][ROW_OFFSET], now_ms),)
        else:
            values, self._encoded = logged.encoded(rows[0], now_ms)
        self._columns = (OffsetColumn(logged.head, form.topics[0].indexes, values),)
        return True

    def encoded(self, first: int) -> bytes:
        if not first and self._encoded:
            return self._encoded
        logged, columns = self.form.logged, self._columns
        if self.count == 1:
            return logged[0].of_one(columns[0].values[0], first)
        parts = []
        for topic, column in zip(logged, columns, strict=True):
            parts.append(topic.of_many(column.values, first))
            first += len(column.values)
        return b"".join(parts)

    def records(self) -> Sequence[OffsetColumn]:
        return self._columns

    def tell(self, error: CoordinatorError | None) -> None:
        self.answer(self.form.accepted if error is None else refused_commit(self.as_request(), error.code))

    def as_request(self) -> OffsetCommitRequest:
        """The request as the codec decodes it."""
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
                        for index, offset, leader_epoch, _, _ in ROW.iter_unpack(rows)
                    ],
                )
                for topic, rows in zip(form.topics, self.rows, strict=True)
            ],
        )


def _values(rows: bytes, now_ms: int) -> list[bytes]:
    size = ROW.size
    return [bare_value(rows[at : at + size][ROW_OFFSET], now_ms) for at in range(0, len(rows), size)]


def commit_reader(version: int) -> Callable[[memoryview], FastCommit | OffsetCommitRequest]:
    """A function that reads requests of this version."""
    read: Callable[[memoryview], OffsetCommitRequest] = reader_of(OffsetCommitRequest, version)
    if version < COMPACT_SINCE:
        return read
    read_fast = _FastReader(version).read

    def read_any(frame: memoryview) -> FastCommit | OffsetCommitRequest:
        return read_fast(bytes(frame)) or read(frame)

    return read_any


class _FastReader:
    """Remembers the forms of recent commits: a consumer commits again and again."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._by_id = version >= TOPIC_IDS_SINCE
        self._forms: dict[bytes, CommitForm] = {}
        """Forms of commits for one topic, by the bytes before the first partition."""
        self._bytes_kept = 0

    def read(self, data: bytes) -> FastCommit | None:
        """None for a request that is not bare, or broken: the general path answers it."""
        try:
            at = data[0]
            member_at = at + _GENERATION.size
            instance_at = member_at + data[member_at]
            # A larger first byte is the start of a longer varint; 0 is the length of a null string.
            if not 0 < at < _LONGER or not 0 < data[member_at] < _LONGER or data[instance_at] >= _LONGER:
                return None
            topics_at = instance_at + (data[instance_at] or 1)
            if data[topics_at] != _ONE_TOPIC:
                return self._read_long(data, at, member_at, instance_at, topics_at)
            first_at = topics_at + 1
            first_at += _ID_SIZE if self._by_id else data[first_at]
            first_at += 1 if data[first_at] < _LONGER else 2
            form = self._forms.get(data[:first_at])
            if form is not None:
                behind = first_at + form.count * ROW.size
                rows = data[first_at:behind]
                if data[behind : behind + 2] == _NO_TAGS and form.topics[0].takes(rows):
                    return FastCommit(form, (rows,))
            return self._read_long(data, at, member_at, instance_at, topics_at, first_at)
        except (IndexError, UnicodeDecodeError, struct_error):
            return None

    def _read_long(
        self, data: bytes, at: int, member_at: int, instance_at: int, topics_at: int, first_at: int | None = None
    ) -> FastCommit | None:
        instance_id = data[instance_at + 1 : instance_at + data[instance_at]].decode() if data[instance_at] else None
        (generation,) = _GENERATION.unpack_from(data, at)
        member_id = data[member_at + 1 : instance_at].decode()
        read = _read_topics(data, topics_at, self._by_id)
        if read is None:
            return None
        topics, rows = read
        form = CommitForm(self._version, data[1:at].decode(), generation, member_id, instance_id, topics)
        if first_at is not None:
            self._keep(data[:first_at], form)
        return FastCommit(form, rows)

    def _keep(self, start: bytes, form: CommitForm) -> None:
        self._bytes_kept += FORM_BYTES + FORM_PARTITION_BYTES * form.count
        if self._bytes_kept > _FORMS_MAX_BYTES:
            self._forms, self._bytes_kept = {}, 0
        self._forms[start] = form


def _read_topics(data: bytes, at: int, by_id: bool) -> tuple[list[TopicForm], list[bytes]] | None:
    count = data[at] - 1
    at += 1
    if not 0 < count < _LONGER - 1:
        return None
    topics, rows_of_all = [], []
    for _ in range(count):
        start = at
        at += _ID_SIZE if by_id else data[at]
        if not by_id and not 0 < data[start] < _LONGER:
            return None
        size = data[at]
        at += 1
        if size >= _LONGER:
            size = size & 0x7F | data[at] << 7
            at += 1
            if size >= _LONGER << 7:
                return None
        size -= 1
        behind = at + size * ROW.size
        if size < 1 or data[behind]:  # the topic has tags
            return None
        rows = data[at:behind]
        if not are_bare(rows):
            return None
        topics.append(topic_form(data[start:at], rows, by_id=by_id))
        rows_of_all.append(rows)
        at = behind + 1
    return None if data[at] else (topics, rows_of_all)
