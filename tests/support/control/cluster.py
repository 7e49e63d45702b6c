"""A cluster of controllers and brokers in one loop: the real controllers, a tree in memory, and brokers that only
remember what they were told. Nothing waits for time: `settle` runs until nothing moves."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from ottla.base.coordination import Create, SessionState
from ottla.base.ids import TopicPartition
from ottla.controller.cluster_controller import ClusterController
from ottla.controller.settings import ControllerSettings
from ottla.controller.wanted_topics import WantedTopic
from ottla.testing.manual_clock import ManualClock
from ottla.wire.messages.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionPartition,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionTopic,
)
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import BrokerRegistration, Endpoint, PartitionLeader, TopicAssignment
from support.control.brokers import FakeLinks, FencedBroker
from support.trees.memory_tree import MemorySession, MemoryTree, RenewedSession

SETTINGS = ControllerSettings(auto_rebalance=False)


class Member:
    """One broker: its session, its controller, and what it was told."""

    def __init__(self, cluster: ControlCluster, broker_id: int, rack: str | None) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.rack = rack
        self.has_crashed = False
        """Its machine went down: what was not flushed may be lost."""
        self.clock = ManualClock()
        self.host = cluster.hosts.setdefault(broker_id, FencedBroker(broker_id))
        self.session: MemorySession
        self.coordination: RenewedSession
        self.links: FakeLinks
        self.controller: ClusterController

    async def start(self) -> None:
        self.host.restart()
        self.session = self.cluster.tree.connect()
        self.links = FakeLinks(self.cluster.hosts)
        self.register()
        for each in self.cluster.members.values():
            each.links.wake()
        self.coordination = RenewedSession(self.session)
        self.controller = ClusterController(
            self.coordination, self.links, self.broker_id, self.cluster.settings, self.clock
        )
        await self.controller.start()

    def register(self) -> None:
        registration = BrokerRegistration(
            (Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),),
            self.clock.now_ms(),
            self.rack,
            may_have_lost_data=self.has_crashed,
        )
        path = paths.broker(self.broker_id)
        self.cluster.tree.apply([Create(path, registration.encode(), ephemeral=True)], self.session.session_id)
        self.host.epoch = self.cluster.tree.zxid

    def reconnect(self) -> None:
        """A new session, as the client of the tree begins by itself, and a new registration."""
        self.session = self.cluster.tree.connect()
        self.coordination.session = self.session
        self.register()

    async def kill(self) -> None:
        """The process is gone, and its session expires at once."""
        self.host.is_running = False
        self.cluster.tree.expire(self.session)
        self.controller.session_state(SessionState.EXPIRED)
        await self.controller.close()

    async def lose_session(self) -> None:
        """The session expires, but the process goes on: it registers again."""
        self.cluster.tree.expire(self.session)
        self.controller.session_state(SessionState.EXPIRED)


class ControlCluster:
    """Use `on_cluster`."""

    def __init__(self, settings: ControllerSettings = SETTINGS) -> None:
        self.tree = MemoryTree()
        self.settings = settings
        self.hosts: dict[int, FencedBroker] = {}
        self.members: dict[int, Member] = {}

    async def prepare(self) -> None:
        session = self.tree.connect()
        await paths.ensure_persistent_paths(session)
        await session.close()

    async def start(self, *broker_ids: int, racks: dict[int, str] | None = None) -> None:
        for broker_id in broker_ids:
            self.members[broker_id] = Member(self, broker_id, (racks or {}).get(broker_id))
            await self.members[broker_id].start()
        await self.settle()

    async def restart(self, broker_id: int) -> None:
        await self.members[broker_id].start()
        await self.settle()

    async def kill(self, broker_id: int) -> None:
        await self.members[broker_id].kill()
        await self.settle()

    async def settle(self) -> None:
        """Runs until no controller has events and no request is under way."""
        rests = 0
        for _ in range(400):
            for _ in range(25):
                await asyncio.sleep(0)
            running = [each for each in self.members.values() if each.host.is_running]
            if all(each.controller.is_idle for each in running):
                rests += 1
                if rests == 3:
                    return
            else:
                rests = 0
                await asyncio.sleep(0.005)  # an event waits to try again
        raise AssertionError("the cluster does not come to rest")

    @property
    def active(self) -> Member:
        (member,) = [each for each in self.members.values() if each.controller.is_active]
        return member

    @property
    def controller(self) -> ClusterController:
        return self.active.controller

    async def create(self, topic: str, *assignments: tuple[int, ...], configs: dict[str, str] | None = None) -> None:
        wanted = WantedTopic(topic, assignments=list(enumerate(assignments)), configs=configs or {})
        await self.controller.create_topic(wanted)
        await self.settle()

    def state(self, topic: str, partition: int = 0) -> PartitionLeader:
        path = paths.partition_state(topic, partition)
        data = self.tree.data(path)
        assert data is not None, path
        return PartitionLeader.decode(path, data)

    def version(self, topic: str, partition: int = 0) -> int:
        node = self.tree.nodes[paths.partition_state(topic, partition)]
        assert node is not None
        return node.version

    def assignment(self, topic: str) -> TopicAssignment:
        data = self.tree.data(paths.topic(topic))
        assert data is not None, topic
        return TopicAssignment.decode(paths.topic(topic), data)

    async def alter_isr(
        self, topic: str, isr: tuple[int, ...], *, partition: int = 0, sender: int | None = None, **changes: Any
    ) -> AlterPartitionPartitionResponse | int:
        """A leader proposes an ISR. Returns the answer, or the error of the whole request."""
        state = self.state(topic, partition)
        leader = state.leader if sender is None else sender
        topic_id = self.assignment(topic).topic_id
        assert topic_id is not None
        proposal = {
            "partition_index": partition,
            "leader_epoch": state.leader_epoch,
            "partition_epoch": self.version(topic, partition),
            "new_isr_with_epochs": [
                AlterPartitionBrokerState(broker_id=each, broker_epoch=self.hosts[each].epoch) for each in isr
            ],
        }
        broker_epoch = changes.pop("broker_epoch", self.hosts[leader].epoch)
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=broker_epoch,
            topics=[
                AlterPartitionTopic(topic_id=topic_id, partitions=[AlterPartitionPartition(**{**proposal, **changes})])
            ],
        )
        response = await self.controller.alter_partition(request, 3)
        await self.settle()
        return response.error_code or response.topics[0].partitions[0]

    def leader_in_metadata(self, broker_id: int, topic: str, partition: int = 0) -> int | None:
        known = self.hosts[broker_id].metadata.get(TopicPartition(topic, partition))
        return None if known is None else known.leader

    async def close(self) -> None:
        for member in self.members.values():
            if member.host.is_running:
                await member.controller.close()


def on_cluster(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a test with an empty cluster."""

    @wraps(test)
    def wrapper(**parameters: Any) -> None:
        async def run() -> None:
            cluster = ControlCluster()
            await cluster.prepare()
            try:
                await test(cluster, **parameters)
            finally:
                await cluster.close()

        asyncio.run(run())

    wrapper.__signature__ = _without_first(test)  # type: ignore[attr-defined]
    return wrapper


def _without_first(test: Callable[..., Any]) -> Any:
    signature = inspect.signature(test)
    return signature.replace(parameters=list(signature.parameters.values())[1:])
