"""Two brokers in one loop, with a ZooKeeper beside them: how they join, take over from each other, and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ottla.base.coordination import SessionExpiredError, Watch, Znode
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, random_uuid
from ottla.broker.broker import Broker
from ottla.broker.cluster_member import ClusterMember
from ottla.broker.configs.change_listener import ConfigChangeListener
from ottla.controller.errors import ControllerError
from ottla.controller.state import PartitionState, TopicState
from ottla.controller.topic_names import OFFSETS_TOPIC
from ottla.controller.wanted_topics import WantedTopic
from ottla.log.config import LogConfig
from ottla.replication.partition import Partition
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from ottla.wire.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.paths import ConfigKind
from support.brokers import Client, batch_of, broker_in_loop
from support.trees.servers import embedded_server, expire_session
from support.waiting import until

ORDERS = TopicPartition("orders", 0)


def with_pair(place: Path, work: Callable[[Broker, Broker], Coroutine[Any, Any, None]], *, disks: int = 1) -> None:
    """The first is the controller. Each broker has that many log directories."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(embedded_server(place / "zookeeper"))
            pair = []
            for number in (1, 2):
                log_dirs = ",".join(str(place / f"disk-{number}-{disk}") for disk in range(disks))
                settings = {
                    "broker_id": str(number),
                    "zookeeper_connect": server.address,
                    "log_dirs": log_dirs,
                    "controlled_shutdown_retry_backoff_ms": "10",
                }
                pair.append(await stack.enter_async_context(broker_in_loop(place / f"broker-{number}", **settings)))
            first, second = pair
            await until(lambda: set(first.metadata.brokers) == set(second.metadata.brokers) == {1, 2})
            await asyncio.wait_for(work(first, second), 60)

    asyncio.run(run())


def member(broker: Broker) -> ClusterMember:
    assert broker.cluster is not None
    return broker.cluster


async def create(broker: Broker, leader: int, *others: int, name: str = "orders", **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    wanted = WantedTopic(name, assignments=[(0, (leader, *others))], configs=settings)
    (outcome,) = await broker.controller.create_topics([wanted])
    assert not isinstance(outcome, ControllerError), outcome


async def orders(broker: Broker, *, leads: bool) -> Partition:
    """The broker's replica, as soon as it has the role."""
    partitions = broker.replicas.partitions
    await until(lambda: ORDERS in partitions and partitions[ORDERS].is_leader == leads)
    return partitions[ORDERS]


async def produce(broker: Broker, topic: str = "orders", acks: int = -1) -> ErrorCode:
    data = [ProducePartition(index=0, records=batch_of(b"a record"))]
    request = ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[ProduceTopic(name=topic, partition_data=data)])
    response = await Client(broker).ask(request, ProduceResponse, 9)
    return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


def test_a_broker_that_starts_knows_what_the_controller_will_tell(tmp_path: Path) -> None:
    async def work(first: Broker, second: Broker) -> None:
        await create(first, 1, 2)
        await create(first, 1, name="gone")
        await first.coordination.create(paths.deleted_topic("gone"))
        assert await member(second)._partitions_in_tree() == {"orders": {0}}

    with_pair(tmp_path, work)


def test_one_is_the_controller_and_both_know_it(tmp_path: Path) -> None:
    async def work(first: Broker, second: Broker) -> None:
        assert member(first).controller.is_active
        assert not member(second).controller.is_active
        assert member(second).controller_id == second.metadata.controller_id == 1
        with pytest.raises(ControllerError) as refused:
            await second.controller.create_topics([WantedTopic("orders", 1, 1)])
        assert refused.value.code is ErrorCode.NOT_CONTROLLER

    with_pair(tmp_path, work)


def test_records_are_committed_when_both_have_them(tmp_path: Path) -> None:
    async def work(first: Broker, second: Broker) -> None:
        await create(first, 2, 1, min_insync_replicas="2", retention_ms="12345")
        leader, follower = await orders(second, leads=True), await orders(first, leads=False)
        assert await produce(second) is ErrorCode.NONE
        assert await produce(first) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert leader.high_watermark == 1
        assert follower.log is not None
        assert follower.log.next_offset == 1
        assert follower.log.config.retention_ms == 12345
        await until(lambda: follower.high_watermark == 1)

    with_pair(tmp_path, work)


@pytest.mark.parametrize("reads", [1, 1000])
def test_the_configs_of_a_topic_are_read_when_the_broker_s_zookeeper_server_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """The server is behind that of the controller, for a moment or for long."""
    monkeypatch.setattr("ottla.broker.cluster_member._TREE_LAG_S", 0.02)
    monkeypatch.setattr("ottla.broker.cluster_member._LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr("ottla.broker.cluster_member._RETRY_S", 0.01)
    hidden = {paths.topic("orders"), paths.config(ConfigKind.TOPICS, "orders")}

    async def work(first: Broker, second: Broker) -> None:
        get_many, left = second.coordination.get_many, [reads]

        async def some(asked: Sequence[str], watch: Watch | None = None) -> list[Znode | None]:
            found = await get_many(asked, watch)
            if left[0] > 0 and not hidden.isdisjoint(asked):
                left[0] -= 1
                return [None if path in hidden else node for path, node in zip(asked, found, strict=True)]
            return found

        monkeypatch.setattr(second.coordination, "get_many", some)
        await create(first, 2, 1, retention_ms="12345")
        leader = await orders(second, leads=True)
        if reads > 1:
            assert leader.log is not None
            assert leader.log.config.retention_ms != 12345
            left[0] = 1
        await until(lambda: leader.log is not None and leader.log.config.retention_ms == 12345)

    with_pair(tmp_path, work)


@pytest.mark.parametrize("configs", [{}, {"retention_ms": "12345"}], ids=str)
def test_a_topic_does_not_get_the_configs_of_a_former_one_whose_deletion_was_not_told(
    tmp_path: Path, configs: dict[str, str]
) -> None:
    """The controller died before it told this broker."""

    async def work(first: Broker, second: Broker) -> None:
        state = PartitionState((1,), 1, 0, (1,), 1, 0)
        second.metadata.put_topic(TopicState("orders", random_uuid(), (state,)))
        second.configs.note_topic("orders", {"retention.ms": "1"})
        await create(first, 2, 1, **configs)
        leader = await orders(second, leads=True)
        wanted = int(configs.get("retention_ms", LogConfig().retention_ms))
        await until(lambda: leader.log is not None and leader.log.config.retention_ms == wanted)

    with_pair(tmp_path, work)


def test_what_is_in_the_tree_exists_unless_it_is_to_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.cluster_member._TREE_LAG_S", 0.02)

    async def work(first: Broker, second: Broker) -> None:
        is_in_tree, get_many, behind = member(second).is_in_tree, second.coordination.get_many, [True]
        await create(first, 1)
        await create(first, 1, name="gone")

        async def late(asked: Sequence[str], watch: Watch | None = None) -> list[Znode | None]:
            return [None] * len(asked) if behind and behind.pop() else await get_many(asked, watch)

        monkeypatch.setattr(second.coordination, "get_many", late)
        assert await is_in_tree(ORDERS)
        assert not behind
        assert not await is_in_tree(TopicPartition("orders", 1))
        await first.coordination.create(paths.deleted_topic("gone"))
        assert not await is_in_tree(TopicPartition("gone", 0))

    with_pair(tmp_path, work)


def test_configs_change_before_a_replica_gets_its_role(tmp_path: Path) -> None:
    """The logs were opened with the configs of before, which may be long ago if they had to be recovered."""

    async def work(first: Broker, _: Broker) -> None:
        await create(first, 1, 2)
        partition = await orders(first, leads=True)
        log = partition.log
        assert log is not None
        del first.replicas.partitions[ORDERS]
        await first.configs.alter_topics({"orders": lambda before: {**before, "retention.ms": "5"}})
        await until(lambda: log.config.retention_ms == 5)
        first.replicas.partitions[ORDERS] = partition

    with_pair(tmp_path, work)


def test_partitions_of_coordinators_are_counted_when_the_broker_s_zookeeper_server_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(first: Broker, second: Broker) -> None:
        get, is_behind, reads = second.coordination.get, True, [0, 0]
        coordinator = second.coordinators[OFFSETS_TOPIC].log

        async def old(path: str, watch: Watch | None = None) -> Znode | None:
            if path != paths.topic(OFFSETS_TOPIC):
                return await get(path, watch)
            reads[0] += 1
            found = await get(path, watch)
            reads[1] += 1
            return None if is_behind else found

        monkeypatch.setattr(second.coordination, "get", old)
        await create(first, 2, 1, name=OFFSETS_TOPIC)
        partitions, name = second.replicas.partitions, TopicPartition(OFFSETS_TOPIC, 0)
        await until(lambda: name in partitions and len(partitions[name].isr) == 2)
        controller = member(first).controller
        await until(lambda: controller.is_idle and not controller.request_queue_size)  # no more news of the topic
        await until(lambda: 0 < reads[0] == reads[1])
        assert second.metadata.topic(OFFSETS_TOPIC) is not None
        assert not coordinator.partition_count
        is_behind = False
        await until(lambda: coordinator.partition_count == 1)

    with_pair(tmp_path, work)


@pytest.mark.parametrize("of", ["the topic", "all brokers"])
def test_records_are_committed_when_fewer_replicas_are_enough(tmp_path: Path, of: str) -> None:
    """Without another append, which would come only from producers that do not wait for these records."""
    key = "min.insync.replicas"

    async def work(first: Broker, second: Broker) -> None:
        if of == "all brokers":
            await first.configs.alter_broker(None, lambda before: {**before, key: "2"})
            await create(first, 1, 2)
        else:
            await create(first, 1, 2, min_insync_replicas="2")
        leader = await orders(first, leads=True)
        await until(lambda: len(leader.isr) == 2)
        await member(second).leave()
        await until(lambda: leader.isr == (1,))
        assert await produce(first, acks=1) is ErrorCode.NONE
        assert leader.high_watermark == 0
        if of == "all brokers":
            await first.configs.alter_broker(None, lambda before: {**before, key: "1"})
        else:
            await first.configs.alter_topics({"orders": lambda before: {**before, key: "1"}})
        await until(lambda: leader.high_watermark == 1)

    with_pair(tmp_path, work)


def test_a_topic_is_created_through_any_broker(tmp_path: Path) -> None:
    async def work(_: Broker, second: Broker) -> None:
        request = MetadataRequest(topics=[MetadataTopic(name="orders")], allow_auto_topic_creation=True)
        response = await Client(second).ask(request, MetadataResponse, 12)
        (topic,) = response.topics
        assert topic.error_code == ErrorCode.NONE
        assert [each.leader_id in (1, 2) for each in topic.partitions] == [True]

    with_pair(tmp_path, work)


def test_a_broker_that_stops_hands_over_first(tmp_path: Path) -> None:
    async def work(first: Broker, second: Broker) -> None:
        await create(first, 1, 2)
        await orders(first, leads=True)
        await until(lambda: len(first.replicas.partitions[ORDERS].isr) == 2)
        assert await produce(first) is ErrorCode.NONE
        await member(first).leave()
        partition = await orders(second, leads=True)
        assert partition.leader_epoch == 1
        await until(lambda: partition.isr == (2,))
        assert await produce(second) is ErrorCode.NONE
        assert len(member(first).fetchers) == 0  # it stops

    with_pair(tmp_path, work)


def test_an_expired_session_is_followed_by_a_new_registration(tmp_path: Path) -> None:
    async def work(first: Broker, second: Broker) -> None:
        await create(first, 1, 2)
        await orders(first, leads=True)
        before = first.registrar.epoch
        assert isinstance(first.coordination, ZooKeeperTree)
        await expire_session(first.coordination)
        await until(lambda: first.registrar.epoch > before)
        await until(lambda: member(second).controller.is_active)
        await until(lambda: member(first).controller_id == 2)
        assert member(first).session_expiry_count == 1
        await until(lambda: set(first.metadata.brokers) == set(second.metadata.brokers) == {1, 2})
        # Who leads depends on whether the new controller sees the first broker before or after its new registration.
        while ErrorCode.NONE not in [await produce(each) for each in (first, second)]:
            await asyncio.sleep(0.01)
        partitions = [each.replicas.partitions[ORDERS] for each in (first, second)]
        await until(lambda: [set(each.isr) for each in partitions if each.is_leader] == [{1, 2}])

    with_pair(tmp_path, work)


def test_a_session_that_expires_during_the_start_is_followed_by_another_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow, failures = ConfigChangeListener.start, [SessionExpiredError("/config/changes", "the session is over")] * 2

    async def start(listener: ConfigChangeListener) -> None:
        if failures:
            raise failures.pop()
        await follow(listener)

    monkeypatch.setattr(ConfigChangeListener, "start", start)

    async def work(first: Broker, second: Broker) -> None:
        assert not failures
        await create(first, 2, 1)
        await orders(second, leads=True)

    with_pair(tmp_path, work)


def test_a_failed_log_directory_is_reported(tmp_path: Path) -> None:
    async def work(first: Broker, second: Broker) -> None:
        await create(first, 1, 2)
        leader = await orders(first, leads=True)
        assert leader.log is not None
        await until(lambda: len(leader.isr) == 2)
        directory = first.directories.directory_of(ORDERS)
        assert directory is not None
        first.directories.take_offline(directory, "a test")
        partition = await orders(second, leads=True)
        await until(lambda: partition.isr == (2,))
        assert not first.has_failed.is_set()  # another directory is left

    with_pair(tmp_path, work, disks=2)


def test_forged_controller_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.cluster_member._TREE_LAG_S", 0.2)

    async def work(first: Broker, _: Broker) -> None:
        node = await first.coordination.get(paths.CONTROLLER_EPOCH)
        assert node is not None
        epoch = int(node.data)
        assert await member(first)._is_elected(epoch)
        assert not await member(first)._is_elected(epoch + 1)

    with_pair(tmp_path, work)
