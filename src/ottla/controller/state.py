"""The controller's state of topics and partitions, and the interface to the broker that carries it out.

In a cluster these decisions are sent as LeaderAndIsr, UpdateMetadata and StopReplica requests; the controller's own
broker gets them as method calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ottla.base.ids import Uuid

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The replicas and leader of a partition. `version` is the version of its node, and counts changes."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] | None = None
    """Replicas on brokers that are down or in failed log directories, if the controller has told."""


UNKNOWN_PARTITION: Final = PartitionState((), NO_LEADER, -1, (), 0, -1)
"""In the place of a partition that has never had a leader: other brokers are not told of it."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic, its partitions in order, and its own configs. Immutable."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)


class ReplicaHost(Protocol):
    """A broker, as the controller sees it."""

    async def apply_topic(self, topic: TopicState, *, new_partitions: frozenset[int]) -> None:
        """Applies a new or changed topic; `new_partitions` did not exist before. Afterwards every response to a client
        agrees with it, and every partition can be used, even if its files are created later."""
        ...

    def forget_topics(self, topics: Sequence[TopicState]) -> None:
        """The topics are deleted: clients get errors from now on, including those that wait for something."""
        ...

    async def delete_replicas(self, topics: Sequence[TopicState]) -> None:
        """Deletes the replicas of topics that are forgotten. When it returns, their names can be used again."""
        ...
