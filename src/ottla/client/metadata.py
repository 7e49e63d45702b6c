"""What a client knows of topics: their partitions, and who leads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.base.ids import Uuid
from ottla.wire.messages.metadata import MetadataTopicResponse

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition and its replicas, by the ids of their brokers."""

    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; its partitions stand in the order of their indexes."""

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
                )
                for one in topic.partitions
            ),
            key=lambda partition: partition.index,
        )
        return cls(topic.name or "", topic.topic_id, topic.is_internal, tuple(partitions))
