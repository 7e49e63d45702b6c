"""Consumers with group.protocol=zookeeper while ZooKeeper comes and goes: a server of its own, with nodes of ours."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.errors import ClientError
from ottla.client.offsets import OffsetAndMetadata
from ottla.testing.broker import Broker
from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.znodes import ReplicaAssignment, TopicAssignment
from support.groups.zookeeper_members import Member, Site, create_topic, members, run, send, shares, until
from support.trees.servers import EmbeddedServer, connected, embedded_server, kill_client

SESSION_MS = 500


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"offsets.topic.num.partitions": 1}) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


class Place:
    """A ZooKeeper in which we say what there is, and a broker that has the records."""

    def __init__(self, server: EmbeddedServer, tree: ZooKeeperTree, broker: Broker) -> None:
        self.server = server
        self.tree = tree
        self.site = Site(broker.bootstrap, server.address)

    async def add_topic(self, name: str, partitions: int) -> None:
        await create_topic(self.site, name, partitions)
        replicas = {index: ReplicaAssignment((1,)) for index in range(partitions)}
        await self.tree.create(paths.topic(name), TopicAssignment(None, replicas).encode(), parents=True)

    async def add_broker(self) -> None:
        await self.tree.create(paths.broker(1), b"{}", parents=True)


@asynccontextmanager
async def place(directory: Path, broker: Broker) -> AsyncIterator[Place]:
    async with embedded_server(directory) as server, connected(server.address) as tree:
        yield Place(server, tree, broker)


def test_a_server_that_restarts_is_not_noticed(tmp_path: Path, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with place(tmp_path, broker) as here:
            await here.add_topic(topic, 2)
            await here.add_broker()
            async with members(here.site, "g", topic, 1, zookeeper_session_timeout_ms=20_000) as [member]:
                await until(lambda: member.indexes == [0, 1])
                for index in (0, 1):
                    await member.consumer.position(TopicPartition(topic, index))
                session_id = member.tree.session_id
                await here.server.stop()
                await send(here.site, topic, {0: [b"meanwhile"]})
                await until(lambda: member.values == [b"meanwhile"])
                committing = asyncio.create_task(member.consumer.commit())
                await asyncio.sleep(0.05)
                assert not committing.done()
                await here.server.start()
                await committing
                assert member.tree.session_id == session_id
                assert member.told == [("assigned", [0, 1])]
                one = TopicPartition(topic, 0)
                assert await member.consumer.committed([one]) == {one: OffsetAndMetadata(1)}

    run(scenario)


def test_a_session_that_ran_out_while_the_server_was_away(tmp_path: Path, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with place(tmp_path, broker) as here:
            await here.add_topic(topic, 2)
            await here.add_broker()
            settings = {"zookeeper_session_timeout_ms": SESSION_MS, "offsets_storage": "kafka"}
            async with members(here.site, "g", topic, 1, **settings) as [member]:
                await until(lambda: member.indexes == [0, 1])
                ledger = member.membership.ledger
                assert ledger.ask({}).member is not None
                await here.server.stop()
                await until(lambda: member.membership._tree.may_be_expired)
                # Another may have the partitions: nothing is committed on suspicion.
                assert ledger.ask({}).member is None
                await here.server.start()
                # The same session if the client was back in time, else the next one.
                await until(lambda: member.indexes == [0, 1] and ledger.ask({}).member is not None)

    run(scenario)


def test_a_killed_member_is_replaced_when_its_session_runs_out(tmp_path: Path, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with place(tmp_path, broker) as here:
            await here.add_topic(topic, 2)
            await here.add_broker()
            async with members(here.site, "g", topic, 1) as [survivor]:
                dead = Member(here.site, "g", zookeeper_session_timeout_ms=SESSION_MS)
                dead.subscribe(topic)
                await until(lambda: sorted(shares([survivor, dead])) == [[0], [1]])
                await dead.stop()
                kill_client(dead.tree)
                await until(lambda: survivor.indexes == [0, 1])
                assert not survivor.failures
                await dead.consumer._tear_down()

    run(scenario)


def test_without_brokers_nothing_is_claimed(
    tmp_path: Path, broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with place(tmp_path, broker) as here:
            await here.add_topic(topic, 1)
            async with members(here.site, "g", topic, 1) as [member]:
                await until(lambda: member.told == [("assigned", [])])
                assert "no brokers are registered in ZooKeeper at" in caplog.text
                await here.add_broker()
                await until(lambda: member.indexes == [0])
                await here.tree.delete(paths.broker(1))
                await until(lambda: caplog.text.count("no brokers are registered") == 2)
                assert member.indexes == [0]

    run(scenario)


def test_a_node_that_makes_no_sense_is_reported(tmp_path: Path, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with place(tmp_path, broker) as here:
            await here.add_topic(topic, 1)
            await here.add_broker()
            wrong = paths.consumer_id("g", "g_wrong")
            await here.tree.create(wrong, b"nonsense", parents=True)
            async with members(here.site, "g", topic, 1) as [member]:
                await until(lambda: bool(member.failures))
                assert f"{wrong}: the node must hold JSON, and it holds b'nonsense'" in str(member.failures[0])
                await here.tree.delete(wrong)
                await until(lambda: member.indexes == [0])

    run(scenario)


def test_a_removed_registration_is_made_again(tmp_path: Path, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with place(tmp_path, broker) as here:
            await here.add_topic(topic, 1)
            await here.add_broker()
            async with members(here.site, "g", topic, 1) as [member]:
                await until(lambda: member.indexes == [0])
                node = paths.consumer_id("g", member.id)
                before = await here.tree.get(node)
                await here.tree.delete(node)
                async with asyncio.timeout(10):
                    while (after := await here.tree.get(node)) is None or after == before:
                        await asyncio.sleep(0.005)
                await until(lambda: member.membership._rebalance.is_settled)
                assert member.told == [("assigned", [0])]

    run(scenario)


def test_closing_without_a_server_takes_no_longer_than_asked(tmp_path: Path, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with place(tmp_path, broker) as here:
            await here.add_topic(topic, 1)
            await here.add_broker()
            await send(here.site, topic, {0: [b"1"]})
            member = Member(here.site, "g", zookeeper_session_timeout_ms=20_000)
            member.subscribe(topic)
            await until(lambda: member.values == [b"1"])
            await member.stop()
            await here.server.stop()
            began_s = time.monotonic()
            with pytest.raises(ClientError, match=r"was not closed cleanly within 0\.3 s"):
                await member.consumer.close(timeout=0.3)
            assert time.monotonic() - began_s < 3
            await here.server.start()

    run(scenario)


def test_a_chroot(tmp_path: Path, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with place(tmp_path, broker) as here, connected(f"{here.site.zookeeper}/some/where") as below:
            await create_topic(here.site, topic, 1)
            assignment = TopicAssignment(None, {0: ReplicaAssignment((1,))}).encode()
            await below.create(paths.topic(topic), assignment, parents=True)
            await below.create(paths.broker(1), b"{}", parents=True)
            site = Site(here.site.bootstrap, f"{here.site.zookeeper}/some/where")
            async with members(site, "g", topic, 1) as [member]:
                await until(lambda: member.indexes == [0])
                found = await here.tree.children("/some/where/consumers/g/ids")
                assert found == [member.id]

    run(scenario)
