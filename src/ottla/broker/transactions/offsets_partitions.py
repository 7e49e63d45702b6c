"""The partitions of `__consumer_offsets`, as the transaction coordinator sees them."""

from __future__ import annotations

from ottla.base.ids import TopicPartition
from ottla.coordinator.groups.service import GroupCoordinatorService


class GroupOffsetsPartitions:
    """Implements `ottla.coordinator.transactions.seams.OffsetsPartitions` with the group coordinator's own choice."""

    def __init__(self, topic: str, groups: GroupCoordinatorService) -> None:
        self._topic = topic
        self._groups = groups

    def offsets_partition_of(self, group_id: str) -> TopicPartition:
        return TopicPartition(self._topic, self._groups.runtime.partition_of(group_id))
