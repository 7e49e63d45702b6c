"""Stores, deletes and expires committed offsets, and those of open transactions. `commit` and `fetch` serve requests.

Values are stored as the bytes of their records and decoded when needed: a million of them load in seconds.

An offset that was committed in a transaction is pending until the transaction's marker. The marker makes it count,
unless a later offset was committed meanwhile. "Later" means a higher offset in the log, so compaction changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.offsets import records as offset_records
from ottla.coordinator.groups.offsets.records import NO_EXPIRY, CommittedOffset, decode_value, head_of
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.key_values import KeyValue
from ottla.coordinator.shards import WriteOutcome
from ottla.wire.messages.offset_delete import (
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
)

_EXPIRY_TIMER: Final = "expiry of offsets"
_EXPIRY_GOES_ON: Final = "expiry of offsets goes on"
_DELETED_TIMER: Final = "offsets of deleted topics"
_LOOKED_AT_AT_A_TIME: Final = 20_000
_RECORDS_AT_A_TIME: Final = 5_000
"""Tombstones in one batch, which must stay below max.message.bytes."""

Place: TypeAlias = tuple[str, str, int]
"""Group, topic, partition."""


class TopicOffsets:
    """The committed values of a group for a topic, by partition."""

    __slots__ = ("group_id", "head", "topic", "values")

    def __init__(self, group_id: str, topic: str, head: bytes) -> None:
        self.group_id = group_id
        self.topic = topic
        self.head = head
        self.values: dict[int, bytes] = {}

    def get(self, partition: int) -> CommittedOffset | None:
        value = self.values.get(partition)
        return None if value is None else decode_value(value)


class _Pending:
    """An offset of an open transaction."""

    __slots__ = ("is_overtaken", "record_offset", "value")

    def __init__(self, value: bytes, record_offset: int) -> None:
        self.value = value
        self.record_offset = record_offset
        self.is_overtaken = False


class OffsetStore:
    """All offsets of a shard."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._by_head: dict[bytes, TopicOffsets] = {}
        self._by_group: dict[str, dict[str, TopicOffsets]] = {}
        self._pending: dict[int, dict[Place, _Pending]] = {}
        """By producer id."""
        self._transactions: dict[str, set[int]] = {}
        """Producer ids with pending offsets, by group."""
        self._is_loaded = False
        self._deleted_topics: frozenset[str] = frozenset()
        """Those that were deleted while the shard was loading."""
        for kind in offset_records.KINDS:
            shard.replayers[kind] = self._replay
        shard.replay_offsets = self._put
        shard.on_end_of_transaction.append(self._end_transaction)
        shard.on_loaded.append(self._loaded)

    # --- what there is ----------------------------------------------------------------------------------------------

    def topics_of(self, group_id: str) -> dict[str, TopicOffsets]:
        """The group's offsets by topic, without pending ones."""
        return self._by_group.get(group_id, {})

    def all_topics(self) -> list[TopicOffsets]:
        """The offsets of all groups."""
        return list(self._by_head.values())

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction committed an offset for the partition."""
        open_ = self._transactions.get(group_id)
        return open_ is not None and any((group_id, topic, partition) in self._pending[each] for each in open_)

    def has_transactions(self, group_id: str) -> bool:
        return group_id in self._transactions

    # --- deleting ---------------------------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest) -> WriteOutcome[OffsetDeleteResponse]:
        group = self._shard.groups.get(request.group_id)
        if group is None:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id!r} does not exist.")
        group.check_offset_delete()
        records = []
        answers = []
        committed = self.topics_of(request.group_id)
        for topic in request.topics:
            is_read = group.subscribes_to(topic.name)
            count = self._shard.topics.partition_count(topic.name) or 0
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                error = ErrorCode.NONE
                if not 0 <= index < count:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif is_read:
                    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif self._is_there(committed, request.group_id, topic.name, index):
                    records.append(_tombstone(head_of(request.group_id, topic.name), index))
                partitions.append(OffsetDeletePartitionResponse(partition_index=index, error_code=error))
            answers.append(OffsetDeleteTopicResponse(name=topic.name, partitions=partitions))
        return WriteOutcome(OffsetDeleteResponse(topics=answers), records)

    def _is_there(self, committed: dict[str, TopicOffsets], group_id: str, topic: str, partition: int) -> bool:
        values = committed.get(topic)
        return (values is not None and partition in values.values) or self.is_pending(group_id, topic, partition)

    def tombstones(self, group_id: str) -> list[KeyValue]:
        """Tombstones for all offsets of a group, including pending ones."""
        found = [
            _tombstone(topic.head, partition)
            for topic in self.topics_of(group_id).values()
            for partition in topic.values
        ]
        committed = self.topics_of(group_id)
        for group, topic_name, partition in self._pending_places(group_id):
            values = committed.get(topic_name)
            if values is None or partition not in values.values:
                found.append(_tombstone(head_of(group, topic_name), partition))
        return found

    def _pending_places(self, group_id: str) -> Iterator[Place]:
        for producer_id in self._transactions.get(group_id, ()):
            yield from (place for place in self._pending[producer_id] if place[0] == group_id)

    def topics_deleted(self, deleted: frozenset[str]) -> None:
        """Deletes all offsets of deleted topics, so that they do not apply to new topics of the same name."""
        if not self._is_loaded:
            self._deleted_topics |= deleted
            return
        records = [
            _tombstone(topics[topic].head, partition)
            for topics in self._by_group.values()
            for topic in topics.keys() & deleted
            for partition in topics[topic].values
        ]
        for group_id in self._transactions:
            places = {place for place in self._pending_places(group_id) if place[1] in deleted}
            records += [_tombstone(head_of(group_id, topic), partition) for _, topic, partition in places]
        self._write_in_pieces(records)

    def _loaded(self) -> None:
        self._is_loaded = True
        if self._deleted_topics:  # nothing can be written before this returns
            self._shard.context.schedule(_DELETED_TIMER, 0, self._delete_late)
        self._schedule_expiry()

    def _delete_late(self) -> WriteOutcome[None]:
        deleted, self._deleted_topics = self._deleted_topics, frozenset()
        self.topics_deleted(deleted)
        return WriteOutcome(None)

    # --- expiring ---------------------------------------------------------------------------------------------------

    def _schedule_expiry(self) -> None:
        every_s = self._shard.settings.offsets_retention_check_interval_ms / 1000
        self._shard.context.schedule(_EXPIRY_TIMER, every_s, self._expire_all)

    def _expire_all(self) -> WriteOutcome[None]:
        self._schedule_expiry()
        return self._expire_some(iter(list(self._shard.groups)))

    def _expire_some(self, group_ids: Iterator[str]) -> WriteOutcome[None]:
        """Expires offsets of some groups, and schedules the rest. An empty group is deleted with its last offset."""
        records: list[KeyValue] = []
        seen = 0
        for group_id in group_ids:
            group = self._shard.groups.get(group_id)
            if group is None:
                continue
            count = sum(len(topic.values) for topic in self.topics_of(group_id).values())
            expired = self.expired(group)
            records += [_tombstone(topic.head, partition) for topic, partition in expired]
            if count == len(expired) and group.is_empty and not self.has_transactions(group_id):
                records += group.deletion_records()
            seen += count
            if seen >= _LOOKED_AT_AT_A_TIME:
                self._shard.context.schedule(_EXPIRY_GOES_ON, 0, lambda: self._expire_some(group_ids))
                break
        self._write_in_pieces(records)
        return WriteOutcome(None)

    def expired(self, group: Group) -> list[tuple[TopicOffsets, int]]:
        """The offsets of the group whose retention time has passed."""
        now_ms = self._shard.context.clock.now_ms()
        retention_ms = self._shard.settings.offsets_retention_ms
        found = []
        for topic in self.topics_of(group.group_id).values():
            if group.subscribes_to(topic.topic):
                continue
            for partition, value in topic.values.items():
                offset = decode_value(value)
                start_ms = group.retention_start_ms(offset.committed_ms)
                if start_ms is None:
                    return []
                due_ms = start_ms + retention_ms if offset.expires_ms == NO_EXPIRY else offset.expires_ms
                if now_ms >= due_ms and not self.is_pending(group.group_id, topic.topic, partition):
                    found.append((topic, partition))
        return found

    def _write_in_pieces(self, records: list[KeyValue]) -> None:
        for at in range(0, len(records), _RECORDS_AT_A_TIME):
            piece = records[at : at + _RECORDS_AT_A_TIME]
            self._shard.context.write(lambda piece=piece: WriteOutcome(None, piece))  # type: ignore[misc]

    # --- replay -----------------------------------------------------------------------------------------------------

    def _replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        head, partition = offset_records.split_key(key)
        if value is None:
            self._forget(self._by_head.get(head), head, partition)
        else:
            self._put(head, (partition,), (value,), (offset,), producer_id)

    def _put(
        self,
        head: bytes,
        partitions: Sequence[int],
        values: Sequence[bytes],
        offsets: Sequence[int],
        producer_id: int,
    ) -> None:
        """Stores the values of one topic's records; `offsets` are those of the records in the log."""
        topic = self._by_head.get(head)
        if topic is None or topic.group_id not in self._shard.groups:
            topic = self._topic_with(head)
        if producer_id >= 0:
            places = self._pending.setdefault(producer_id, {})
            for partition, value, offset in zip(partitions, values, offsets, strict=True):
                places[topic.group_id, topic.topic, partition] = _Pending(value, offset)
            self._transactions.setdefault(topic.group_id, set()).add(producer_id)
            return
        if not topic.values:
            self._keep(topic)
        if len(partitions) == 1:
            topic.values[partitions[0]] = values[0]
        else:
            topic.values.update(zip(partitions, values, strict=True))
        if self._transactions:
            for partition, offset in zip(partitions, offsets, strict=True):
                self._overtake((topic.group_id, topic.topic, partition), offset)

    def _topic_with(self, head: bytes) -> TopicOffsets:
        """The topic, not yet stored if it is new. Creates its group if there is none."""
        topic = self._by_head.get(head)
        if topic is None:
            group_id, name = offset_records.names_of(head)
            topic = TopicOffsets(group_id, name, head)
        if topic.group_id not in self._shard.groups:
            self._shard.groups[topic.group_id] = self._shard.make_simple_group(topic.group_id)
        return topic

    def _keep(self, topic: TopicOffsets) -> None:
        self._by_head[topic.head] = topic
        self._by_group.setdefault(topic.group_id, {})[topic.topic] = topic

    def _overtake(self, place: Place, record_offset: int) -> None:
        """Marks pending offsets that are before this commit in the log: they no longer count."""
        for producer_id in self._transactions.get(place[0], ()):
            pending = self._pending[producer_id].get(place)
            if pending is not None and pending.record_offset < record_offset:
                pending.is_overtaken = True

    def _forget(self, topic: TopicOffsets | None, head: bytes, partition: int) -> None:
        if topic is not None:
            topic.values.pop(partition, None)
            if not topic.values:
                self._drop(topic)
        if self._transactions:
            group_id, name = offset_records.names_of(head)
            for producer_id in self._transactions.get(group_id, ()):
                self._pending[producer_id].pop((group_id, name, partition), None)

    def _drop(self, topic: TopicOffsets) -> None:
        del self._by_head[topic.head]
        topics = self._by_group[topic.group_id]
        del topics[topic.topic]
        if not topics:
            del self._by_group[topic.group_id]
            self._drop_simple_group(topic.group_id)

    def _drop_simple_group(self, group_id: str) -> None:
        """Removes a group that had nothing but offsets: it has no record of its own to delete."""
        group = self._shard.groups.get(group_id)
        is_simple = group is not None and not group.protocol_type and group.is_empty
        if is_simple and group_id not in self._by_group and group_id not in self._transactions:
            del self._shard.groups[group_id]

    def _end_transaction(self, producer_id: int, committed: bool) -> None:
        places = self._pending.pop(producer_id, None)
        if places is None:
            return
        ended = [group_id for group_id, open_ in self._transactions.items() if producer_id in open_]
        for group_id in ended:
            self._transactions[group_id].discard(producer_id)
            if not self._transactions[group_id]:
                del self._transactions[group_id]
        if committed:
            for (group_id, name, partition), pending in places.items():
                if not pending.is_overtaken:
                    key = offset_records.key_of(head_of(group_id, name), partition)
                    self._replay(key, pending.value, pending.record_offset, -1)
        for group_id in ended:
            self._drop_simple_group(group_id)


def _tombstone(head: bytes, partition: int) -> KeyValue:
    return KeyValue(offset_records.key_of(head, partition), None)
