"""Members with group.protocol=zookeeper that poll all the time, and remember what they were told and given."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ottla import AsyncConsumer, AsyncProducer
from ottla.base.ids import TopicPartition
from ottla.client.administer import AsyncAdmin, NewTopic
from ottla.client.errors import OttlaError
from ottla.client.membership.zookeeper.member import ZooKeeperMembership
from ottla.client.subscriptions.listeners import RebalanceListener
from ottla.testing.broker import Broker
from ottla.testing.server_process import unused_port
from ottla.zookeeper.client.tree import ZooKeeperTree
from support import kafka_process
from support.clients.peers import WITH_ZOOKEEPER, chosen_peer
from support.controllers import admin_of

WAIT_S = 30


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await scenario()

    asyncio.run(bounded())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.005)


class Site(NamedTuple):
    """Where clients find it."""

    bootstrap: str
    zookeeper: str


@contextmanager
def running_site(place: Path) -> Iterator[Site]:
    """A broker of ours with its own tree, or Apache Kafka with Apache ZooKeeper (`OTTLA_TEST_PEER`)."""
    settings = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
    if chosen_peer() == WITH_ZOOKEEPER:
        with kafka_process.zookeeper(place / "zookeeper") as zookeeper:
            kafka = kafka_process.zookeeper_mode_broker(place / "kafka", zookeeper, 1, settings)
            try:
                admin_of(kafka)
                yield Site(kafka.address, zookeeper)
            finally:
                kafka_process.kill(kafka.process)
    else:
        port = unused_port()
        with Broker({"ottla.zookeeper.port": port, **settings}) as broker:
            yield Site(broker.bootstrap, f"127.0.0.1:{port}")


class Member(RebalanceListener):
    """Belongs to the running loop."""

    def __init__(self, site: Site, group: str, **settings: Any) -> None:
        self.settings: dict[str, Any] = {
            "bootstrap_servers": site.bootstrap,
            "group_id": group,
            "group_protocol": "zookeeper",
            "zookeeper_connect": site.zookeeper,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 20,
            "retry_backoff_ms": 10,
            **settings,
        }
        self.consumer: AsyncConsumer[Any, Any] = AsyncConsumer(self.settings)
        self.told: list[tuple[str, list[int]]] = []
        self.values: list[bytes] = []
        self.failures: list[OttlaError] = []
        self.is_polling = True
        self.is_idle = False
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, topics: str | re.Pattern[str]) -> None:
        self.consumer.subscribe(topics, self)
        if self._task is None:
            self._task = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            self.is_idle = not self.is_polling
            if self.is_idle:
                await asyncio.sleep(0.005)
                continue
            try:
                self.values += [record.value for record in await self.consumer.poll(0.05)]
            except OttlaError as error:
                self.failures.append(error)

    async def pause(self) -> None:
        """Returns when no poll is under way."""
        self.is_polling = False
        await until(lambda: self.is_idle)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        await self.stop()
        await self.consumer.close()

    def _tell(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.told.append((what, [one.partition for one in partitions]))

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._tell("assigned", partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._tell("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._tell("lost", partitions)

    @property
    def indexes(self) -> list[int]:
        return sorted(one.partition for one in self.consumer.assignment())

    @property
    def membership(self) -> ZooKeeperMembership:
        assert isinstance(self.consumer.membership, ZooKeeperMembership)
        return self.consumer.membership

    @property
    def id(self) -> str:
        return self.consumer.group_metadata().member_id

    @property
    def tree(self) -> ZooKeeperTree:
        tree = self.membership._tree._tree
        assert tree is not None
        return tree


@asynccontextmanager
async def members(
    site: Site, group: str, topics: str | re.Pattern[str], count: int, **settings: Any
) -> AsyncIterator[list[Member]]:
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            member = Member(site, group, **settings)
            stack.push_async_callback(member.close)
            member.subscribe(topics)
            made.append(member)
        yield made


async def create_topic(site: Site, topic: str, partitions: int) -> None:
    async with AsyncAdmin(bootstrap_servers=site.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])


async def send(site: Site, topic: str, values: dict[int, list[bytes]]) -> None:
    async with AsyncProducer(bootstrap_servers=site.bootstrap) as producer:
        for partition, some in values.items():
            for value in some:
                await producer.send(topic, value, partition=partition)
        await producer.flush()


def shares(some: Collection[Member]) -> list[list[int]]:
    """In the order of their ids, by which ranges are assigned."""
    return [member.indexes for member in sorted(some, key=lambda one: one.id)]
