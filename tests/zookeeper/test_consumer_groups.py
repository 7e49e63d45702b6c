"""Consumers with group.protocol=zookeeper against a real broker and its tree: as Kafka 0.8's, seen by kazoo."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla import Consumer
from ottla.base.ids import TopicPartition
from ottla.client.administer import AsyncAdmin
from ottla.client.errors import CommitFailedError, ConfigError, OttlaError, RebalanceFailedError
from ottla.client.offsets import OffsetAndMetadata
from ottla.testing.server_process import unused_port
from ottla.zookeeper.client.session import end_session
from support.groups.zookeeper_members import (
    WAIT_S,
    Member,
    Site,
    create_topic,
    members,
    run,
    running_site,
    send,
    shares,
    until,
)
from support.trees.servers import connected, expire_session, kill_client


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def kazoo(site: Site) -> Iterator[KazooClient]:
    client = KazooClient(hosts=site.zookeeper)
    client.start(timeout=WAIT_S)
    yield client
    client.stop()
    client.close()


def test_one_member_has_all_and_its_nodes_are_those_of_kafka(
    site: Site, group: str, topic: str, kazoo: KazooClient
) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 2)
        await send(site, topic, {0: [b"a", b"b"], 1: [b"c"]})
        async with members(site, group, topic, 1) as [member]:
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


def test_members_share_and_a_joining_one_takes_only_its_part(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 7)
        async with members(site, group, topic, 2) as pair:
            await until(lambda: shares(pair) == [[0, 1, 2, 3], [4, 5, 6]])
            before = {member: (set(member.indexes), len(member.told)) for member in pair}
            async with members(site, group, topic, 1) as [third]:
                trio = [*pair, third]
                await until(lambda: shares(trio) == [[0, 1, 2], [3, 4], [5, 6]])
                for member, (had, told) in before.items():  # only what went was revoked
                    revoked = {index for what, some in member.told[told:] if what == "revoked" for index in some}
                    assert revoked == had - set(member.indexes)
            await until(lambda: shares(pair) == [[0, 1, 2, 3], [4, 5, 6]])
            assert not pair[0].failures + pair[1].failures + third.failures

    run(scenario)


def test_round_robin_deals_all_topics(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, f"{topic}-a", 3)
        await create_topic(site, f"{topic}-b", 3)
        pattern = re.compile(f"{topic}-[ab]")
        settings = {"partition_assignment_strategy": "roundrobin"}
        async with members(site, group, pattern, 2, **settings) as pair:
            await until(lambda: [len(one.consumer.assignment()) for one in pair] == [3, 3])
            assert len(pair[0].consumer.assignment() | pair[1].consumer.assignment()) == 6
            assert pair[0].consumer.subscription() == {f"{topic}-a", f"{topic}-b"}

    run(scenario)


def test_the_partitions_of_a_dead_member_go_to_the_others(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 4)
        async with members(site, group, topic, 1) as [survivor]:
            dead = Member(site, group)
            dead.subscribe(topic)
            await until(lambda: shares([survivor, dead]) == [[0, 1], [2, 3]])
            await send(site, topic, {index: [b"%d" % index] for index in range(4)})
            await until(lambda: len(survivor.values) + len(dead.values) == 4)
            await dead.stop()
            tree = dead.tree
            kill_client(tree)
            assert len(survivor.indexes) == 2
            assert await end_session(tree.session.servers, tree.session.token, 10_000, WAIT_S)  # as its timeout does
            await until(lambda: survivor.indexes == [0, 1, 2, 3])
            await until(lambda: sorted(set(survivor.values)) == [b"0", b"1", b"2", b"3"])
            assert not survivor.failures
            await dead.membership.end()
            await dead.consumer._tear_down()

    run(scenario)


def test_a_member_whose_session_expires_registers_again(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 2)
        async with members(site, group, topic, 1, enable_auto_commit=False) as [member]:
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


def test_partitions_added_to_a_topic_are_assigned(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 1)
        async with members(site, group, topic, 2) as pair:
            await until(lambda: shares(pair) == [[0], []] and all(one.told for one in pair))
            async with AsyncAdmin(bootstrap_servers=site.bootstrap) as admin:
                await admin.create_partitions({topic: 3})
            await until(lambda: shares(pair) == [[0, 1], [2]])
            await send(site, topic, {2: [b"new"]})
            await until(lambda: b"new" in pair[0].values + pair[1].values)

    run(scenario)


def test_topics_that_come_and_go_are_found_by_a_pattern(site: Site, group: str, topic: str, kazoo: KazooClient) -> None:
    async def scenario() -> None:
        pattern = re.compile(f"{topic.upper()}-.*", re.IGNORECASE)
        async with members(site, group, pattern, 1) as [member]:
            await until(lambda: bool(member.told))
            assert member.told == [("assigned", [])]
            data, _ = await asyncio.to_thread(kazoo.get, f"/consumers/{group}/ids/{member.id}")
            registered = json.loads(data)
            assert registered["pattern"] == "white_list"
            assert registered["subscription"] == {f"(?i){topic.upper()}-.*": 1}
            await create_topic(site, f"{topic}-a", 1)
            await until(lambda: member.consumer.assignment() == {TopicPartition(f"{topic}-a", 0)})
            await create_topic(site, f"{topic}-b", 1)
            await until(lambda: len(member.consumer.assignment()) == 2)
            assert member.consumer.subscription() == {f"{topic}-a", f"{topic}-b"}
            async with AsyncAdmin(bootstrap_servers=site.bootstrap) as admin:
                await admin.delete_topics([f"{topic}-a"])
            await until(lambda: member.consumer.assignment() == {TopicPartition(f"{topic}-b", 0)})

    run(scenario)


STORAGES: dict[str, dict[str, Any]] = {
    "zookeeper": {},
    "kafka": {"offsets_storage": "kafka", "dual_commit_enabled": False},
    "both": {"offsets_storage": "kafka"},
}


@pytest.mark.parametrize("storage", STORAGES)
def test_a_group_goes_on_where_it_was(site: Site, group: str, topic: str, storage: str, kazoo: KazooClient) -> None:
    path = f"/consumers/{group}/offsets/{topic}/0"

    async def scenario() -> None:
        await create_topic(site, topic, 1)
        await send(site, topic, {0: [b"1", b"2"]})
        async with members(site, group, topic, 1, **STORAGES[storage]) as [first]:
            await until(lambda: first.values == [b"1", b"2"])
        await send(site, topic, {0: [b"3"]})
        async with members(site, group, topic, 1, **STORAGES[storage]) as [second]:
            await until(lambda: bool(second.values))
            assert second.values == [b"3"]
            await second.consumer.commit()
            in_tree = await asyncio.to_thread(kazoo.exists, path)
            assert bool(in_tree) == (storage != "kafka")
            if in_tree:
                assert (await asyncio.to_thread(kazoo.get, path))[0] == b"3"
            async with AsyncAdmin(bootstrap_servers=site.bootstrap) as admin:
                listed = await admin.list_consumer_group_offsets(group)
            assert bool(listed) == (storage != "zookeeper")

    run(scenario)


def test_an_offset_that_did_not_change_is_not_written_again(
    site: Site, group: str, topic: str, kazoo: KazooClient
) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 1)
        one = TopicPartition(topic, 0)
        path = f"/consumers/{group}/offsets/{topic}/0"

        async def written() -> tuple[bytes, int]:
            data, stat = await asyncio.to_thread(kazoo.get, path)
            return data, stat.version

        async with members(site, group, topic, 1, enable_auto_commit=False) as [member]:
            await until(lambda: member.indexes == [0])
            for _ in range(3):
                await member.consumer.commit({one: 5})
            assert await written() == (b"5", 0)
            await member.consumer.commit({one: 6})
            await member.consumer.commit({one: 5})
            assert await written() == (b"5", 2)
            by_hand = Member(site, group).consumer  # owns nothing, so others may write as well
            for _ in range(2):
                await by_hand.commit({one: 7})
            assert await written() == (b"7", 4)
            await by_hand.close()

    run(scenario)


def test_offsets_in_kafka_need_a_group_of_zookeeper_alone(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 1)
        classic = {"group_protocol": "classic", "zookeeper_connect": None}
        async with (
            members(site, group, topic, 1, **classic) as [other],
            members(site, group, topic, 1, **STORAGES["kafka"]) as [member],
        ):
            await until(lambda: other.indexes == [0] and member.indexes == [0])
            with pytest.raises(CommitFailedError, match=r"consumers with another group\.protocol are in the group"):
                await member.consumer.commit({TopicPartition(topic, 0): 1})

    run(scenario)


def test_with_both_the_larger_offset_counts(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        in_tree, in_kafka, both = (
            Member(site, group, **STORAGES[name]).consumer for name in ("zookeeper", "kafka", "both")
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


def test_offsets_that_another_program_wrote(site: Site, group: str, topic: str, kazoo: KazooClient) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 1)
        await send(site, topic, {0: [b"1", b"2", b"3"]})
        path = f"/consumers/{group}/offsets/{topic}/0"
        await asyncio.to_thread(kazoo.create, path, b"2", makepath=True)
        async with members(site, group, topic, 1) as [member]:
            await until(lambda: member.values == [b"3"])
        await asyncio.to_thread(kazoo.set, path, b"two")
        reader = Member(site, group).consumer
        with pytest.raises(OttlaError, match=r"the node must hold an offset, and it holds b'two'"):
            await reader.committed([TopicPartition(topic, 0)])
        await reader.close()

    run(scenario)


def test_a_partition_of_another_program_is_waited_for(site: Site, group: str, topic: str, kazoo: KazooClient) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 2)
        path = f"/consumers/{group}/owners/{topic}/0"
        await asyncio.to_thread(kazoo.create, path, b"someone-0", ephemeral=True, makepath=True)
        settings = {"rebalance_backoff_ms": 20, "rebalance_max_retries": 3}
        async with members(site, group, topic, 1, **settings) as [member]:
            await until(lambda: bool(member.failures))
            assert isinstance(member.failures[0], RebalanceFailedError)
            assert f"other consumers still own {topic}-0 after 3 attempts" in str(member.failures[0])
            assert member.indexes == [1]  # what is free is used meanwhile
            await asyncio.to_thread(kazoo.delete, path)
            await until(lambda: member.indexes == [0, 1])
        assert await asyncio.to_thread(kazoo.get_children, f"/consumers/{group}/owners/{topic}") == []

    run(scenario)


def test_a_released_partition_is_claimed_at_once(site: Site, group: str, topic: str, kazoo: KazooClient) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 1)
        path = f"/consumers/{group}/owners/{topic}/0"
        await asyncio.to_thread(kazoo.create, path, b"someone-0", ephemeral=True, makepath=True)
        async with members(site, group, topic, 1, rebalance_backoff_ms=3_600_000) as [member]:
            await until(lambda: member.membership._rebalance.failures == 1)
            await asyncio.to_thread(kazoo.delete, path)
            await until(lambda: member.indexes == [0])

    run(scenario)


def test_a_consumer_of_kafka_in_the_group_gets_its_share(
    site: Site, group: str, topic: str, kazoo: KazooClient
) -> None:
    """One with two threads, as Kafka 0.8 registers it: ours leaves the partitions to it that it computes itself."""

    async def scenario() -> None:
        await create_topic(site, topic, 5)
        text = json.dumps({"version": 1, "subscription": {topic: 2}, "pattern": "static", "timestamp": "1417964160024"})
        path = f"/consumers/{group}/ids/{group}_0-jvm"
        await asyncio.to_thread(kazoo.create, path, text.encode(), ephemeral=True, makepath=True)
        async with members(site, group, topic, 1) as [member]:
            await until(lambda: bool(member.told))
            assert member.indexes == [4]
            await asyncio.to_thread(kazoo.delete, path)
            await until(lambda: member.indexes == [0, 1, 2, 3, 4])

    run(scenario)


def test_changing_the_subscription_and_unsubscribing(site: Site, group: str, topic: str, kazoo: KazooClient) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 2)
        await create_topic(site, f"{topic}-2", 1)
        async with members(site, group, topic, 2) as pair:
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


def test_a_member_that_does_not_poll_leaves(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 2)
        async with (
            members(site, group, topic, 1) as [other],
            members(site, group, topic, 1, max_poll_interval_ms=300) as [slow],
        ):
            await until(lambda: shares([other, slow]) in ([[0], [1]], [[1], [0]]))
            await slow.pause()
            await until(lambda: other.indexes == [0, 1])
            slow.is_polling = True
            await until(lambda: ("lost" in [what for what, _ in slow.told]) and len(slow.indexes) == 1)

    run(scenario)


def test_the_blocking_consumer(site: Site, group: str, topic: str) -> None:
    async def prepare() -> None:
        await create_topic(site, topic, 1)
        await send(site, topic, {0: [b"1", b"2"]})

    asyncio.run(prepare())
    settings = {
        "bootstrap.servers": site.bootstrap,
        "group.id": group,
        "group.protocol": "zookeeper",
        "zookeeper.connect": site.zookeeper,
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


def test_a_zookeeper_that_is_not_there(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        nobody = f"127.0.0.1:{unused_port()}"
        settings = {"zookeeper_connect": nobody, "zookeeper_connection_timeout_ms": 100}
        async with members(site, group, topic, 1, **settings) as [member]:
            await until(lambda: len(member.failures) > 1)
            assert f"No ZooKeeper server answered at {nobody}" in str(member.failures[0])

    run(scenario)


def test_a_wrong_connect_string(site: Site, group: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match=r"zookeeper.connect: 'h:x': 'h:x' is not the address"):
            Member(site, group, zookeeper_connect="h:x")

    run(scenario)


def test_zookeeper_keeps_no_metadata(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 1)
        consumer = Member(site, group).consumer
        with pytest.raises(OttlaError, match="ZooKeeper keeps no metadata with an offset"):
            await consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "mine")})
        await consumer.close()

    run(scenario)


def test_no_node_is_left_in_the_tree_by_many_that_come_and_go(site: Site, group: str, topic: str) -> None:
    async def scenario() -> None:
        await create_topic(site, topic, 6)
        async with AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(members(site, group, topic, 1))
                await asyncio.sleep(0.01)  # each meets the others in another phase
        async with connected(site.zookeeper) as tree:
            assert await tree.children(f"/consumers/{group}/ids") == []
            assert await tree.children(f"/consumers/{group}/owners/{topic}") == []

    run(scenario)
