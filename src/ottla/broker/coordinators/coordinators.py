"""The coordinators of this broker by their internal topic: each moves with the partitions of its topic.

Whoever changes the role of a partition calls `lead` or `resign`; partitions of other topics are ignored. Owned by the
loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from ottla.base.ids import TopicPartition
from ottla.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog


class MovingCoordinator(Protocol):
    """A coordinator that serves the partitions of its topic that this broker leads."""

    def lead(self, index: int, leader_epoch: int) -> None: ...
    def resign(self, index: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class HostedCoordinator:
    """A coordinator, and the log that it writes to."""

    log: ReplicatedCoordinatorLog
    service: MovingCoordinator
    purpose: str
    """What its topic is for, in log messages."""


class Coordinators:
    """See the module."""

    def __init__(self) -> None:
        self._by_topic: dict[str, HostedCoordinator] = {}

    def add(self, log: ReplicatedCoordinatorLog, service: MovingCoordinator, purpose: str) -> None:
        self._by_topic[log.topic] = HostedCoordinator(log, service, purpose)

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def __getitem__(self, topic: str) -> HostedCoordinator:
        return self._by_topic[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_topic)

    def of(self, topics: Collection[str]) -> list[HostedCoordinator]:
        """Those whose topic is among the given ones."""
        return [each for topic, each in self._by_topic.items() if topic in topics]

    def lead(self, name: TopicPartition, leader_epoch: int) -> None:
        """This broker leads the partition from now on."""
        found = self._by_topic.get(name.topic)
        if found is not None:
            found.service.lead(name.partition, leader_epoch)

    def resign(self, name: TopicPartition) -> None:
        """This broker no longer leads the partition, or it is gone."""
        found = self._by_topic.get(name.topic)
        if found is not None:
            found.service.resign(name.partition)

    def close(self) -> None:
        for each in self._by_topic.values():
            each.service.close()
