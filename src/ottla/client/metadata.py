"""Topic metadata: partitions and their leaders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.wire.messages.metadata import MetadataTopicResponse

NO_LEADER: Final = -1
_NO_EPOCH: Final = -1
_GAPS_MAX: Final = 10_000
"""How many partitions a broker may leave out: an absurd index in a response must not cost gigabytes."""


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
    """A topic. Its partitions are at their indexes: those that the broker left out have no leader."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]

    @classmethod
    def of(cls, topic: MetadataTopicResponse) -> TopicInfo:
        found = {
            one.partition_index: PartitionInfo(
                one.partition_index,
                one.leader_id,
                one.leader_epoch,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                tuple(one.offline_replicas),
            )
            for one in topic.partitions
        }
        # A broker leaves out partitions that have never had a leader; one that has just started, or is cut off, also
        # those that the controller has not told it of yet.
        count = min(max(found, default=-1) + 1, len(found) + _GAPS_MAX)
        partitions = (found.get(index) or PartitionInfo(index, NO_LEADER, _NO_EPOCH, (), ()) for index in range(count))
        return cls(topic.name or "", topic.topic_id, topic.is_internal, tuple(partitions))

    def has_partitions_of(self, known: TopicInfo | None) -> bool:
        """Whether this is the known topic with the same number of partitions, or no topic was known."""
        if known is None:
            return True
        return self.topic_id == known.topic_id and len(self.partitions) == len(known.partitions)

    def not_older_than(self, known: TopicInfo | None) -> TopicInfo:
        """This metadata; but partitions with a lower leader epoch than in `known` keep the known metadata, because the
        broker that answered is behind (KIP-320). So do partitions that it left out: a topic never loses partitions."""
        if known is None or self.topic_id == ZERO_UUID or self.topic_id != known.topic_id:
            return self
        partitions = [
            old if old.leader_epoch > new.leader_epoch else new
            for old, new in zip(known.partitions, self.partitions, strict=False)
        ]
        more = max(known.partitions[len(partitions) :], self.partitions[len(partitions) :], key=len)
        return replace(self, partitions=(*partitions, *more))
