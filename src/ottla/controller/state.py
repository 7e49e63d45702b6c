"""What the controller decides of topics and partitions, and whom it tells.

In a cluster these decisions travel as LeaderAndIsr, UpdateMetadata and StopReplica requests; to the controller's own
broker they are handed as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ottla.base.ids import Uuid

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who has a partition, and who leads it. `version` is that of its node: it counts the changes."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic, its partitions in order, and the configs that it sets itself. Replaced as a whole, never changed."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)


class ReplicaHost(Protocol):
    """A broker, as the controller sees it."""

    async def apply_topic(self, topic: TopicState, *, new_partitions: frozenset[int]) -> None:
        """The topic is as it is said, from now on; those partitions did not exist before. Everything a client is told
        afterwards agrees with it, and every partition can be used, also if its files are made later."""
        ...

    def forget_topics(self, topics: Sequence[TopicState]) -> None:
        """The topics are gone: clients are told so from now on, also those who wait for something of them."""
        ...

    async def delete_replicas(self, topics: Sequence[TopicState]) -> None:
        """Deletes the replicas of topics that are forgotten. When it returns, their names can be used again."""
        ...
