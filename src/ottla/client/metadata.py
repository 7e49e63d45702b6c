"""Topic metadata: partitions and their leaders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.wire.messages.metadata import MetadataTopicResponse

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition and its replicas, by broker id."""

    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()
    """Replicas whose broker or disk is down. Old brokers do not report them."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; its partitions are ordered by index."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]

    @classmethod
    def of(cls, topic: MetadataTopicResponse) -> TopicInfo:
        partitions = sorted(
            (
                PartitionInfo(
                    one.partition_index,
                    one.leader_id,
                    one.leader_epoch,
                    tuple(one.replica_nodes),
                    tuple(one.isr_nodes),
                    tuple(one.offline_replicas),
                )
                for one in topic.partitions
            ),
            key=lambda partition: partition.index,
        )
        return cls(topic.name or "", topic.topic_id, topic.is_internal, tuple(partitions))

    def has_partitions_of(self, known: TopicInfo | None) -> bool:
        """Whether this is the known topic with the same number of partitions, or no topic was known."""
        if known is None:
            return True
        return self.topic_id == known.topic_id and len(self.partitions) == len(known.partitions)

    def not_older_than(self, known: TopicInfo | None) -> TopicInfo:
        """This metadata; but partitions with a lower leader epoch than in `known` keep the known metadata, because the
        broker that answered is behind (KIP-320)."""
        if known is None or self.topic_id == ZERO_UUID or self.topic_id != known.topic_id:
            return self
        partitions = [
            old if old.leader_epoch > new.leader_epoch else new
            for old, new in zip(known.partitions, self.partitions, strict=False)
        ]
        return replace(self, partitions=(*partitions, *self.partitions[len(partitions) :]))
