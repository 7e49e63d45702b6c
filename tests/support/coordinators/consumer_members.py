"""Members of consumer groups, driven by hand: what clients send, over a coordinator whose log and time a test holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.group import GroupSettings
from ottla.coordinator.groups.service import GroupCoordinatorService
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from support.coordinators.classic_members import ClassicMembers, FakeCaller
from support.coordinators.fake_log import FakeLog
from support.coordinators.simulated_time import SimulatedTime
from support.coordinators.topics import FakeTopics

Partition = tuple[Uuid, int]


def told(partitions: set[Partition]) -> list[HeartbeatTopicPartitions]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [HeartbeatTopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]


class Coordinated:
    """A coordinator of one partition, whose commits are done at once, so that every answer is there at once."""

    def __init__(
        self,
        settings: GroupSettings | None = None,
        log: FakeLog | None = None,
        topics: FakeTopics | None = None,
        *,
        beside: ClassicMembers | None = None,
    ) -> None:
        """`beside` members of the classic protocol: the same coordinator."""
        if beside is not None:
            self.time, self.log, self.topics, self.coordinator = (
                beside.time,
                beside.log,
                FakeTopics(t=4, u=4),
                beside.coordinator,
            )
            return
        self.time = SimulatedTime()
        self.log = log or FakeLog()
        self.topics = topics or FakeTopics(t=4, u=4)
        self.coordinator = GroupCoordinatorService(
            self.log, self.time, self.time, settings or GroupSettings(), self.topics
        )
        asyncio.run(self._lead())

    async def _lead(self) -> None:
        self.coordinator.lead(0, 0)
        while self.coordinator.runtime.is_loading:
            await asyncio.sleep(0)

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.coordinator.runtime.active_shards()[0].groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def has_group(self, group_id: str = "g") -> bool:
        return group_id in self.coordinator.runtime.active_shards()[0].groups

    def heartbeat(
        self, *, version: int = 1, client_id: str = "c", group_id: str = "g", **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id=group_id, **fields)
        answer = self.coordinator.consumer.heartbeat(request, FakeCaller(version, client_id))
        assert not isinstance(answer, Coroutine)
        return answer

    def loaded_again(self) -> Coordinated:
        """Another coordinator, of what the log holds now."""
        return Coordinated(self.coordinator.settings, self.log.copy(), self.topics)

    def state(self) -> dict[str, Any]:
        """All hard state of all consumer groups, to be compared."""
        return {
            group_id: (
                group.epoch,
                group.target_epoch,
                {each.member_id: (each.subscription, each.standing) for each in group.members.values()},
                dict(group.targets),
                dict(group.owners),
                dict(group.topics),
                dict(group.patterns),
                dict(group.static_members),
                +group.kinds,
                +group.assignor_votes,
                (group.classic_member_count, +group.classic_protocols),
            )
            for group_id, group in self.coordinator.runtime.active_shards()[0].groups.items()
            if isinstance(group, ConsumerGroup)
        }


class Consumer:
    """A client as it should be: owns what it was told, gives up what it was told to, and says so."""

    def __init__(
        self,
        coordinated: Coordinated,
        member_id: str,
        topics: Sequence[str] | None = ("t",),
        *,
        pattern: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 60_000,
        group_id: str = "g",
    ) -> None:
        self.coordinated = coordinated
        self.member_id = member_id
        self.topics = None if topics is None else list(topics)
        self.pattern = pattern
        self.instance_id = instance_id
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.group_id = group_id
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.interval_ms = 0

    @property
    def indexes(self) -> list[int]:
        """Of the partitions that it owns, of whatever topic."""
        return sorted(index for _, index in self.owned)

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.epoch, self.owned = 0, set()
        return self._send(
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.pattern,
            server_assignor=self.assignor,
            topic_partitions=[],
        )

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        """Says what it owns, as a client does whose last answer changed that."""
        return self._send(topic_partitions=told(self.owned))

    def idle_beat(self) -> ConsumerGroupHeartbeatResponse:
        """Says nothing new."""
        return self._send()

    def subscribe(self, *topics: str) -> ConsumerGroupHeartbeatResponse:
        self.topics = list(topics)
        return self._send(subscribed_topic_names=self.topics, topic_partitions=told(self.owned))

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        response = self._send(member_epoch=epoch)
        self.epoch, self.owned = 0, set()
        return response

    def _send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        said: dict[str, Any] = {
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
        }
        response = self.coordinated.heartbeat(group_id=self.group_id, **said | fields)
        if response.error_code == ErrorCode.NONE:
            self.take(response)
        return response

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Does as it is told."""
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self.owned = {
                (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
            }


def settle(*consumers: Consumer, rounds: int = 20) -> None:
    """Heartbeats of all until nothing changes any more."""
    for _ in range(rounds):
        before = [(each.epoch, frozenset(each.owned)) for each in consumers]
        for each in consumers:
            assert each.beat().error_code == ErrorCode.NONE
        if [(each.epoch, frozenset(each.owned)) for each in consumers] == before:
            return
    raise AssertionError("the group does not become stable")
