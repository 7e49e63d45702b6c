"""Applies the records of consumer groups; nothing else changes the groups.

Compaction may have removed records that others refer to: what is missing is created, or ignored by a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import Standing
from ottla.coordinator.groups.consumer.records import (
    ResolvedPattern,
    TopicShape,
    partitions_in,
    standing_of,
    subscription_of,
)
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.records import key_of, value_of
from ottla.coordinator.groups.shard import Replayer
from ottla.coordinator.key_values import KeyValue
from ottla.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.wire.schema import Data

K = TypeVar("K", bound=Data)
V = TypeVar("V", bound=Data)
NO_TARGET_EPOCH = -1


class ConsumerReplay:
    """Replays into a dictionary of groups: those of a shard, or a draft."""

    def __init__(self, groups: dict[str, Group]) -> None:
        self._groups = groups
        self.replayers: dict[int, Replayer] = {
            3: _reading(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, self._group),
            4: _reading(ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, self._topics),
            5: _reading(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, self._member),
            6: _reading(
                ConsumerGroupTargetAssignmentMetadataKey,
                ConsumerGroupTargetAssignmentMetadataValue,
                self._target_epoch,
            ),
            7: _reading(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, self._target),
            8: _reading(
                ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, self._standing
            ),
            16: _reading(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, self._pattern),
        }

    def replay(self, record: KeyValue) -> None:
        """Replays a record into a draft."""
        kind = int.from_bytes(record.key[:2], "big", signed=True)
        self.replayers[kind](record.key, record.value, -1, -1)

    def _made(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            # A group of the other protocol can only have offsets here, which are stored elsewhere.
            group = self._groups[group_id] = ConsumerGroup(group_id)
        return group

    def _known(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _group(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self._made(key.group_id).epoch = value.epoch
        elif self._known(key.group_id) is not None:
            del self._groups[key.group_id]

    def _topics(
        self, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
    ) -> None:
        if value is not None:
            self._made(key.group_id).topics = {
                each.topic_name: TopicShape(each.topic_id, each.num_partitions) for each in value.topics
            }
        elif (group := self._known(key.group_id)) is not None:
            group.topics = {}

    def _member(self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is not None:
            self._made(key.group_id).set_subscription(key.member_id, subscription_of(value))
        elif (group := self._known(key.group_id)) is not None:
            group.drop_member(key.member_id)

    def _target_epoch(
        self, key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        if value is not None:
            self._made(key.group_id).target_epoch = value.assignment_epoch
        elif (group := self._known(key.group_id)) is not None:
            group.target_epoch = NO_TARGET_EPOCH

    def _target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is not None:
            self._made(key.group_id).targets[key.member_id] = partitions_in(value.topic_partitions)
        elif (group := self._known(key.group_id)) is not None:
            group.targets.pop(key.member_id, None)

    def _standing(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is not None:
            self._made(key.group_id).set_standing(key.member_id, standing_of(value))
        elif (group := self._known(key.group_id)) is not None and key.member_id in group.members:
            group.set_standing(key.member_id, Standing())

    def _pattern(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is not None:
            resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
            self._made(key.group_id).patterns[key.regular_expression] = resolved
        elif (group := self._known(key.group_id)) is not None:
            group.patterns.pop(key.regular_expression, None)


def _reading(key_type: type[K], value_type: type[V], change: Callable[[K, V | None], None]) -> Replayer:
    def replay(key: bytes, value: bytes | None, _offset: int, _producer_id: int) -> None:
        change(key_of(key_type, key), None if value is None else value_of(value_type, value))

    return replay
