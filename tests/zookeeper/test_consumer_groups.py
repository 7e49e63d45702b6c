"""Consumers with group.protocol=zookeeper against a real broker and its tree: as Kafka 0.8's, seen by kazoo."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla import AsyncConsumer, AsyncProducer, Consumer
from ottla.base.ids import TopicPartition
from ottla.client.administer import AsyncAdmin, NewTopic
from ottla.client.errors import CommitFailedError, ConfigError, OttlaError, RebalanceFailedError
from ottla.client.membership.zookeeper.member import ZooKeeperMembership
from ottla.client.offsets import OffsetAndMetadata
from ottla.client.subscriptions.listeners import RebalanceListener
from ottla.testing.broker import Broker
from ottla.testing.server_process import unused_port
from ottla.zookeeper.client.tree import ZooKeeperTree
from support.trees.servers import connected, expire_session, kill_client

WAIT_S = 30
ZOOKEEPER = "ottla.zookeeper.port"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({ZOOKEEPER: unused_port(), "offsets.topic.num.partitions": 1}) as broker:
        yield broker


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def kazoo(broker: Broker) -> Iterator[KazooClient]:
    client = KazooClient(hosts=address(broker))
    client.start(timeout=WAIT_S)
    yield client
    client.stop()
    client.close()


def address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.overrides[ZOOKEEPER]}"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await scenario()

    asyncio.run(bounded())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await asyncio.sleep(0.005)


class Member(RebalanceListener):
    """Polls all the time, and remembers what it was told and given."""

    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        self.settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap,
            "group_id": group,
            "group_protocol": "zookeeper",
            "zookeeper_connect": address(broker),
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
    broker: Broker, group: str, topics: str | re.Pattern[str], count: int, **settings: Any
) -> AsyncIterator[list[Member]]:
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            member = Member(broker, group, **settings)
            stack.push_async_callback(member.close)
            member.subscribe(topics)
            made.append(member)
        yield made


async def create_topic(broker: Broker, topic: str, partitions: int) -> None:
    async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])


async def send(broker: Broker, topic: str, values: dict[int, list[bytes]]) -> None:
    async with AsyncProducer(bootstrap_servers=broker.bootstrap) as producer:
        for partition, some in values.items():
            for value in some:
                await producer.send(topic, value, partition=partition)
        await producer.flush()


def shares(some: Collection[Member]) -> list[list[int]]:
    """In the order of their ids, by which ranges are assigned."""
    return [member.indexes for member in sorted(some, key=lambda one: one.id)]


def test_one_member_has_all_and_its_nodes_are_those_of_kafka(
    broker: Broker, group: str, topic: str, kazoo: KazooClient
) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 2)
        await send(broker, topic, {0: [b"a", b"b"], 1: [b"c"]})
        async with members(broker, group, topic, 1) as [member]:
            await until(lambda: len(member.values) == 3)
            assert member.told == [("assigned", [0, 1])]
            assert re.fullmatch(rf"{group}_.+-[0-9]{{13}}-[0-9a-f]{{8}}", member.id)
            await asyncio.to_thread(look, member.id)
            await member.consumer.commit()
            assert await asyncio.to_thread(kazoo.get_children, f"/consumers/{group}/offsets/{topic}") == ["0", "1"]
            data, stat = await asyncio.to_thread(kazoo.get, f"/consumers/{group}/offsets/{topic}/0")
            assert (data, stat.ephemeralOwner) == (b"2", 0)
        assert member.told[1:] == [("revoked", [0, 1])]
        await asyncio.to_thread(look_after)

    def look(member_id: str) -> None:
        data, stat = kazoo.get(f"/consumers/{group}/ids/{member_id}")
        assert re.fullmatch(
            rb'\{"version":1,"subscription":\{"%s":1\},"pattern":"static","timestamp":"[0-9]{13}"\}' % topic.encode(),
            data,
        )
        assert stat.ephemeralOwner
        for index in (0, 1):
            data, owner = kazoo.get(f"/consumers/{group}/owners/{topic}/{index}")
            assert (data.decode(), owner.ephemeralOwner) == (f"{member_id}-0", stat.ephemeralOwner)

    def look_after() -> None:
        assert kazoo.get_children(f"/consumers/{group}/ids") == []
        assert kazoo.get_children(f"/consumers/{group}/owners/{topic}") == []

    run(scenario)


def test_members_share_and_a_joining_one_takes_only_its_part(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 7)
        async with members(broker, group, topic, 2) as pair:
            await until(lambda: sorted(map(len, shares(pair))) == [3, 4])
            assert shares(pair) == [[0, 1, 2, 3], [4, 5, 6]]
            before = {member: set(member.indexes) for member in pair}
            async with members(broker, group, topic, 1) as [third]:
                trio = [*pair, third]
                await until(lambda: sorted(map(len, shares(trio))) == [2, 2, 3])
                assert shares(trio) == [[0, 1, 2], [3, 4], [5, 6]]
                for member in pair:  # what stayed was not revoked
                    revoked = {index for what, some in member.told if what == "revoked" for index in some}
                    assert not before[member] & set(member.indexes) & revoked or len(revoked) < 4
            await until(lambda: shares(pair) == [[0, 1, 2, 3], [4, 5, 6]])
            assert not pair[0].failures + pair[1].failures + third.failures

    run(scenario)


def test_round_robin_deals_all_topics(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, f"{topic}-a", 3)
        await create_topic(broker, f"{topic}-b", 3)
        pattern = re.compile(f"{topic}-[ab]")
        settings = {"partition_assignment_strategy": "roundrobin"}
        async with members(broker, group, pattern, 2, **settings) as pair:
            await until(lambda: [len(one.consumer.assignment()) for one in pair] == [3, 3])
            assert len(pair[0].consumer.assignment() | pair[1].consumer.assignment()) == 6
            assert pair[0].consumer.subscription() == {f"{topic}-a", f"{topic}-b"}

    run(scenario)


def test_the_partitions_of_a_dead_member_go_to_the_others(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 4)
        async with members(broker, group, topic, 1) as [survivor]:
            dead = Member(broker, group)
            dead.subscribe(topic)
            await until(lambda: shares([survivor, dead]) == [[0, 1], [2, 3]])
            await send(broker, topic, {index: [b"%d" % index] for index in range(4)})
            await until(lambda: len(survivor.values) + len(dead.values) == 4)
            await dead.stop()
            tree = dead.tree
            kill_client(tree)
            assert len(survivor.indexes) == 2
            await expire_session(tree)  # as its timeout does
            await until(lambda: survivor.indexes == [0, 1, 2, 3])
            await until(lambda: sorted(set(survivor.values)) == [b"0", b"1", b"2", b"3"])
            assert not survivor.failures
            await dead.membership.end()
            await dead.consumer._tear_down()

    run(scenario)


def test_a_member_whose_session_expires_registers_again(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 2)
        async with members(broker, group, topic, 1, enable_auto_commit=False) as [member]:
            await until(lambda: member.indexes == [0, 1])
            member_id, generation = member.id, member.consumer.group_metadata().generation_id
            await member.pause()
            asked = {TopicPartition(topic, 0): 7}
            await expire_session(member.tree)
            await until(lambda: member.membership._is_lost)
            with pytest.raises(CommitFailedError, match="currently not a member"):
                await member.consumer.commit(asked)
            member.is_polling = True
            await until(lambda: member.told[1:] == [("lost", [0, 1]), ("assigned", [0, 1])])
            assert member.id == member_id
            assert member.consumer.group_metadata().generation_id > generation
            await member.consumer.commit(asked)
            assert await member.consumer.committed(list(asked)) == {TopicPartition(topic, 0): OffsetAndMetadata(7)}

    run(scenario)


def test_a_topic_that_grows_is_shared_anew(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 1)
        async with members(broker, group, topic, 2) as pair:
            await until(lambda: shares(pair) == [[0], []] and all(one.told for one in pair))
            async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
                await admin.create_partitions({topic: 3})
            await until(lambda: shares(pair) == [[0, 1], [2]])
            await send(broker, topic, {2: [b"new"]})
            await until(lambda: b"new" in pair[0].values + pair[1].values)

    run(scenario)


def test_topics_that_come_and_go_are_found_by_a_pattern(
    broker: Broker, group: str, topic: str, kazoo: KazooClient
) -> None:
    async def scenario() -> None:
        pattern = re.compile(f"{topic.upper()}-.*", re.IGNORECASE)
        async with members(broker, group, pattern, 1) as [member]:
            await until(lambda: bool(member.told))
            assert member.told == [("assigned", [])]
            data, _ = await asyncio.to_thread(kazoo.get, f"/consumers/{group}/ids/{member.id}")
            registered = json.loads(data)
            assert registered["pattern"] == "white_list"
            assert registered["subscription"] == {f"(?i){topic.upper()}-.*": 1}
            await create_topic(broker, f"{topic}-a", 1)
            await until(lambda: member.consumer.assignment() == {TopicPartition(f"{topic}-a", 0)})
            await create_topic(broker, f"{topic}-b", 1)
            await until(lambda: len(member.consumer.assignment()) == 2)
            assert member.consumer.subscription() == {f"{topic}-a", f"{topic}-b"}
            async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
                await admin.delete_topics([f"{topic}-a"])
            await until(lambda: member.consumer.assignment() == {TopicPartition(f"{topic}-b", 0)})

    run(scenario)


STORAGES: dict[str, dict[str, Any]] = {
    "zookeeper": {},
    "kafka": {"offsets_storage": "kafka", "dual_commit_enabled": False},
    "both": {"offsets_storage": "kafka"},
}


@pytest.mark.parametrize("storage", STORAGES)
def test_a_group_goes_on_where_it_was(broker: Broker, group: str, topic: str, storage: str, kazoo: KazooClient) -> None:
    path = f"/consumers/{group}/offsets/{topic}/0"

    async def scenario() -> None:
        await create_topic(broker, topic, 1)
        await send(broker, topic, {0: [b"1", b"2"]})
        async with members(broker, group, topic, 1, **STORAGES[storage]) as [first]:
            await until(lambda: first.values == [b"1", b"2"])
        await send(broker, topic, {0: [b"3"]})
        async with members(broker, group, topic, 1, **STORAGES[storage]) as [second]:
            await until(lambda: bool(second.values))
            assert second.values == [b"3"]
            await second.consumer.commit()
            in_tree = await asyncio.to_thread(kazoo.exists, path)
            assert bool(in_tree) == (storage != "kafka")
            if in_tree:
                assert (await asyncio.to_thread(kazoo.get, path))[0] == b"3"
            async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
                listed = await admin.list_consumer_group_offsets(group)
            assert bool(listed) == (storage != "zookeeper")

    run(scenario)


def test_with_both_the_larger_offset_counts(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        in_tree, in_kafka, both = (
            Member(broker, group, **STORAGES[name]).consumer for name in ("zookeeper", "kafka", "both")
        )
        await in_tree.commit({first: 5, second: 3})
        await in_kafka.commit({first: 4, second: OffsetAndMetadata(6, "mine")})
        assert await both.committed([first, second]) == {
            first: OffsetAndMetadata(5),
            second: OffsetAndMetadata(6, "mine"),
        }
        for consumer in (in_tree, in_kafka, both):
            await consumer.close()

    run(scenario)


def test_offsets_that_another_program_wrote(broker: Broker, group: str, topic: str, kazoo: KazooClient) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 1)
        await send(broker, topic, {0: [b"1", b"2", b"3"]})
        path = f"/consumers/{group}/offsets/{topic}/0"
        await asyncio.to_thread(kazoo.create, path, b"2", makepath=True)
        async with members(broker, group, topic, 1) as [member]:
            await until(lambda: member.values == [b"3"])
        await asyncio.to_thread(kazoo.set, path, b"two")
        reader = Member(broker, group).consumer
        with pytest.raises(OttlaError, match=r"the node must hold an offset, and it holds b'two'"):
            await reader.committed([TopicPartition(topic, 0)])
        await reader.close()

    run(scenario)


def test_a_partition_of_another_program_is_waited_for(
    broker: Broker, group: str, topic: str, kazoo: KazooClient
) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 2)
        path = f"/consumers/{group}/owners/{topic}/0"
        await asyncio.to_thread(kazoo.create, path, b"someone-0", ephemeral=True, makepath=True)
        settings = {"rebalance_backoff_ms": 20, "rebalance_max_retries": 3}
        async with members(broker, group, topic, 1, **settings) as [member]:
            await until(lambda: bool(member.failures))
            assert isinstance(member.failures[0], RebalanceFailedError)
            assert f"other consumers still own {topic}-0 after 3 attempts" in str(member.failures[0])
            assert member.indexes == [1]  # what is free is used meanwhile
            await asyncio.to_thread(kazoo.delete, path)
            await until(lambda: member.indexes == [0, 1])
        assert await asyncio.to_thread(kazoo.get_children, f"/consumers/{group}/owners/{topic}") == []

    run(scenario)


def test_a_released_partition_is_claimed_at_once(broker: Broker, group: str, topic: str, kazoo: KazooClient) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 1)
        path = f"/consumers/{group}/owners/{topic}/0"
        await asyncio.to_thread(kazoo.create, path, b"someone-0", ephemeral=True, makepath=True)
        async with members(broker, group, topic, 1, rebalance_backoff_ms=3_600_000) as [member]:
            await until(lambda: member.membership._rebalance.failures == 1)
            await asyncio.to_thread(kazoo.delete, path)
            await until(lambda: member.indexes == [0])

    run(scenario)


def test_a_consumer_of_kafka_in_the_group_gets_its_share(
    broker: Broker, group: str, topic: str, kazoo: KazooClient
) -> None:
    """One with two threads, as Kafka 0.8 registers it: ours leaves the partitions to it that it computes itself."""

    async def scenario() -> None:
        await create_topic(broker, topic, 5)
        text = json.dumps({"version": 1, "subscription": {topic: 2}, "pattern": "static", "timestamp": "1417964160024"})
        path = f"/consumers/{group}/ids/{group}_0-jvm"
        await asyncio.to_thread(kazoo.create, path, text.encode(), ephemeral=True, makepath=True)
        async with members(broker, group, topic, 1) as [member]:
            await until(lambda: bool(member.told))
            assert member.indexes == [4]
            await asyncio.to_thread(kazoo.delete, path)
            await until(lambda: member.indexes == [0, 1, 2, 3, 4])

    run(scenario)


def test_subscribing_anew_and_unsubscribing(broker: Broker, group: str, topic: str, kazoo: KazooClient) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 2)
        await create_topic(broker, f"{topic}-2", 1)
        async with members(broker, group, topic, 2) as pair:
            await until(lambda: [len(one.indexes) for one in pair] == [1, 1])
            pair[0].subscribe(f"{topic}-2")
            await until(lambda: pair[0].consumer.assignment() == {TopicPartition(f"{topic}-2", 0)})
            await until(lambda: pair[1].indexes == [0, 1])
            await pair[0].pause()
            await pair[0].consumer.unsubscribe()
            ids = f"/consumers/{group}/ids"
            await until(lambda: kazoo.get_children(ids) == [pair[1].id])
            pair[0].subscribe(topic)
            pair[0].is_polling = True
            await until(lambda: [len(one.indexes) for one in pair] == [1, 1])

    run(scenario)


def test_a_member_that_does_not_poll_leaves(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 2)
        async with (
            members(broker, group, topic, 1) as [other],
            members(broker, group, topic, 1, max_poll_interval_ms=300) as [slow],
        ):
            await until(lambda: shares([other, slow]) in ([[0], [1]], [[1], [0]]))
            await slow.pause()
            await until(lambda: other.indexes == [0, 1])
            slow.is_polling = True
            await until(lambda: ("lost" in [what for what, _ in slow.told]) and len(slow.indexes) == 1)

    run(scenario)


def test_the_blocking_consumer(broker: Broker, group: str, topic: str) -> None:
    async def prepare() -> None:
        await create_topic(broker, topic, 1)
        await send(broker, topic, {0: [b"1", b"2"]})

    asyncio.run(prepare())
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "group.protocol": "zookeeper",
        "zookeeper.connect": address(broker),
        "auto.offset.reset": "earliest",
    }
    with Consumer(settings) as consumer:
        consumer.subscribe(topic)
        seen: list[bytes] = []
        while len(seen) < 2:
            seen += [record.value for record in consumer.poll(5)]
    with Consumer(settings) as consumer:
        committed = consumer.committed([TopicPartition(topic, 0)])
    assert (seen, committed) == ([b"1", b"2"], {TopicPartition(topic, 0): OffsetAndMetadata(2)})


def test_a_zookeeper_that_is_not_there(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        nobody = f"127.0.0.1:{unused_port()}"
        settings = {"zookeeper_connect": nobody, "zookeeper_connection_timeout_ms": 100}
        async with members(broker, group, topic, 1, **settings) as [member]:
            await until(lambda: len(member.failures) > 1)
            assert f"No ZooKeeper server answered at {nobody}" in str(member.failures[0])

    run(scenario)


def test_a_wrong_connect_string(broker: Broker, group: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match=r"zookeeper.connect: 'h:x': 'h:x' is not the address"):
            Member(broker, group, zookeeper_connect="h:x")

    run(scenario)


def test_zookeeper_keeps_no_metadata(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 1)
        consumer = Member(broker, group).consumer
        with pytest.raises(OttlaError, match="ZooKeeper keeps no metadata with an offset"):
            await consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "mine")})
        await consumer.close()

    run(scenario)


def test_no_node_is_left_in_the_tree_by_many_that_come_and_go(broker: Broker, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(broker, topic, 6)
        async with AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(members(broker, group, topic, 1))
                await asyncio.sleep(0.01)  # each meets the others in another phase
        async with connected(address(broker)) as tree:
            assert await tree.children(f"/consumers/{group}/ids") == []
            assert await tree.children(f"/consumers/{group}/owners/{topic}") == []

    run(scenario)
