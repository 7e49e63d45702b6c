"""The controller's requests: fencing, order, roles, deletion, metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid, random_uuid
from ottla.broker.control.control_requests import ControlRequests
from ottla.broker.control.role_changes import RoleChanges
from ottla.broker.metadata.metadata_cache import BrokerEndpoint, MetadataCache
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.log.new_logs import NewLogs
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.testing.manual_clock import ManualClock
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopic,
)
from ottla.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopic,
    StopReplicaTopicState,
)
from ottla.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataTopic,
)

ME, OTHER, THIRD = 1, 2, 3
TOPIC_ID = Uuid(bytes(range(16)))
ORDERS = TopicPartition("orders", 0)
BROKER_EPOCH = 100


class Recorder:
    """The fetchers, the coordinators and the configs of the broker."""

    def __init__(self) -> None:
        self.following: dict[TopicPartition, int] = {}
        self.coordinates: dict[TopicPartition, int] = {}
        self.learnt: list[str] = []
        self.learning: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.config = LogConfig()

    def follow(self, partitions: Iterable[Partition]) -> None:
        self.following |= {each.name: each.leader_id for each in partitions}

    def stop(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            self.following.pop(name, None)

    def lead(self, name: TopicPartition, leader_epoch: int) -> None:
        self.coordinates[name] = leader_epoch

    def resign(self, name: TopicPartition) -> None:
        self.coordinates.pop(name, None)

    def log_config(self, _: str) -> LogConfig:
        return self.config

    async def learn(self, names: Iterable[str]) -> None:
        self.learnt += names
        if self.learning is not None:
            await self.learning()


class ControlledBroker:
    """A broker without a network."""

    def __init__(self, root: Path, directory_count: int = 1) -> None:
        paths = [root / f"logs{number}" for number in range(directory_count)]
        self.directories = LogDirectories(LocalDisk(), ManualClock(), paths, DirectoryOptions(ME))
        self.directories.open(lambda _: LogConfig())
        self.replicas = Replicas(ME, self.directories, asyncio.get_running_loop())
        self.metadata = MetadataCache("cluster", -1)
        for broker in (ME, OTHER):
            self.metadata.put_broker(BrokerEndpoint(broker, "host", 9092), listener="PLAINTEXT")
        self.parts = Recorder()
        self.epoch = BROKER_EPOCH
        self.elected = 10
        self.gone: list[str] = []
        roles = RoleChanges(self.replicas, self.parts, self.parts, self.parts, self.parts.learn, self.metadata.is_alive)
        self.control = ControlRequests(
            roles, self.metadata, lambda: self.epoch, self.is_elected, lambda _, gone: self.gone.extend(gone)
        )

    async def is_elected(self, epoch: int) -> bool:
        return epoch <= self.elected

    def close(self) -> None:
        self.replicas.close()
        self.directories.close()

    async def give(
        self,
        leader: int = ME,
        leader_epoch: int = 0,
        *,
        name: TopicPartition = ORDERS,
        topic_id: Uuid = TOPIC_ID,
        replicas: tuple[int, ...] = (ME, OTHER),
        controller_epoch: int = 1,
        broker_epoch: int = BROKER_EPOCH,
        is_new: bool = True,
    ) -> ErrorCode:
        """What is answered for the partition."""
        state = LeaderAndIsrPartition(
            partition_index=name.partition,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=list(replicas),
            partition_epoch=leader_epoch,
            replicas=list(replicas),
            is_new=is_new,
        )
        request = LeaderAndIsrRequest(
            controller_id=OTHER,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[LeaderAndIsrTopic(topic_name=name.topic, topic_id=topic_id, partition_states=[state])],
        )
        response = await self.control.leader_and_isr(request, 7)
        (topic,) = response.topics
        (partition,) = topic.partition_errors
        assert response.error_code in (0, partition.error_code)
        return ErrorCode.of(partition.error_code)

    async def stop(self, leader_epoch: int, *, delete: bool, name: TopicPartition = ORDERS) -> ErrorCode:
        state = StopReplicaPartitionState(
            partition_index=name.partition, leader_epoch=leader_epoch, delete_partition=delete
        )
        request = StopReplicaRequest(
            controller_epoch=1,
            broker_epoch=BROKER_EPOCH,
            topic_states=[StopReplicaTopicState(topic_name=name.topic, partition_states=[state])],
        )
        response = await self.control.stop_replica(request, 4)
        assert response.error_code == 0
        (partition,) = response.partition_errors
        assert (partition.topic_name, partition.partition_index) == name
        return ErrorCode.of(partition.error_code)

    @property
    def orders(self) -> Partition:
        return self.replicas.partitions[ORDERS]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[ControlledBroker], Coroutine[Any, Any, None]]], None]:
    def run(test: Callable[[ControlledBroker], Coroutine[Any, Any, None]]) -> None:
        async def within() -> None:
            broker = ControlledBroker(tmp_path, directory_count=2)
            try:
                await test(broker)
            finally:
                broker.close()

        asyncio.run(within())

    return run


Run = Callable[[Callable[[ControlledBroker], Coroutine[Any, Any, None]]], None]


# --- fencing --------------------------------------------------------------------------------------------------------


def test_requests_of_an_older_controller_are_refused(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        assert await broker.give(controller_epoch=3) == ErrorCode.NONE
        assert await broker.give(leader_epoch=1, controller_epoch=2) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert broker.orders.leader_epoch == 0
        stop = StopReplicaRequest(controller_epoch=2, broker_epoch=BROKER_EPOCH)
        assert (await broker.control.stop_replica(stop, 4)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        update = UpdateMetadataRequest(controller_id=OTHER, controller_epoch=2, broker_epoch=BROKER_EPOCH)
        assert (await broker.control.update_metadata(update, 8)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert broker.metadata.controller_id == -1

    run(test)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (BROKER_EPOCH - 1, ErrorCode.STALE_BROKER_EPOCH),
        (-1, ErrorCode.STALE_BROKER_EPOCH),
        (BROKER_EPOCH, ErrorCode.NONE),
        (BROKER_EPOCH + 1, ErrorCode.NONE),
    ],
)
def test_only_lower_broker_epochs_are_stale(run: Run, epoch: int, error: ErrorCode) -> None:
    async def test(broker: ControlledBroker) -> None:
        assert await broker.give(broker_epoch=epoch) == error
        assert (ORDERS in broker.replicas.partitions) == (error is ErrorCode.NONE)

    run(test)


def test_an_old_version_has_no_broker_epoch(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        state = LeaderAndIsrPartition(topic_name="orders", leader=ME, isr=[ME], replicas=[ME], is_new=True)
        request = LeaderAndIsrRequest(controller_epoch=1, ungrouped_partition_states=[state])
        response = await broker.control.leader_and_isr(request, 1)
        assert [(each.topic_name, each.error_code) for each in response.partition_errors] == [("orders", 0)]
        assert broker.orders.is_leader

    run(test)


def test_a_controller_that_was_never_elected_is_refused(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test(broker: ControlledBroker) -> None:
        assert await broker.give(controller_epoch=11) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert broker.control.controller_epoch == 0
        assert await broker.give(controller_epoch=10) == ErrorCode.NONE

    run(test)
    assert "refused LeaderAndIsr of controller 2 in epoch 11" in caplog.text


def test_fencing_is_checked_after_waiting(run: Run) -> None:
    """A request of an older controller waits behind one of a newer controller."""

    async def test(broker: ControlledBroker) -> None:
        go_on = asyncio.Event()
        broker.parts.learning = lambda: _wait(go_on)
        newer = asyncio.create_task(broker.give(controller_epoch=2, leader_epoch=5))
        await asyncio.sleep(0)
        broker.parts.learning = None
        older = asyncio.create_task(broker.give(controller_epoch=1, leader_epoch=6))
        for _ in range(5):
            await asyncio.sleep(0)
        go_on.set()
        assert await newer == ErrorCode.NONE
        assert await older == ErrorCode.STALE_CONTROLLER_EPOCH
        assert broker.orders.leader_epoch == 5

    run(test)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


# --- roles ----------------------------------------------------------------------------------------------------------


def test_leader_then_follower_then_leader(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        assert await broker.give(ME, 0) == ErrorCode.NONE
        assert broker.orders.is_leader
        assert broker.orders.isr == (ME, OTHER)
        assert broker.orders.log is not None
        assert broker.orders.log.topic_id == TOPIC_ID
        assert await broker.give(OTHER, 1) == ErrorCode.NONE
        assert not broker.orders.is_leader
        assert broker.parts.following == {ORDERS: OTHER}
        assert await broker.give(ME, 2) == ErrorCode.NONE
        assert broker.orders.is_leader
        assert broker.parts.following == {}
        assert broker.parts.learnt == ["orders"] * 3

    run(test)


@pytest.mark.parametrize("epoch", [3, 4])
def test_only_a_higher_leader_epoch_is_applied(run: Run, epoch: int) -> None:
    async def test(broker: ControlledBroker) -> None:
        await broker.give(ME, 4)
        assert await broker.give(OTHER, epoch) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert broker.orders.is_leader

    run(test)


def test_a_config_that_changes_while_the_log_is_created_applies(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(broker: ControlledBroker) -> None:
        make = NewLogs.make

        def make_and_change(logs: NewLogs) -> None:
            make(logs)
            broker.parts.config = LogConfig(retention_ms=5)

        monkeypatch.setattr(NewLogs, "make", make_and_change)
        assert await broker.give() == ErrorCode.NONE
        assert broker.orders.log is not None
        assert broker.orders.log.config.retention_ms == 5

    run(test)


def test_another_topic_of_that_name_does_not_touch_the_log(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        await broker.give(ME, 4)
        log = broker.orders.log
        assert await broker.give(ME, 5, topic_id=random_uuid()) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert broker.orders.log is log
        del broker.replicas.partitions[ORDERS]  # as after a restart: only the log is there
        assert await broker.give(ME, 5, topic_id=random_uuid()) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert broker.directories.get(ORDERS) is log

    run(test)


def test_a_topic_gets_its_id_in_the_same_epoch(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        assert await broker.give(ME, 4, topic_id=ZERO_UUID) == ErrorCode.NONE
        assert await broker.give(ME, 4, topic_id=ZERO_UUID) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert await broker.give(ME, 4) == ErrorCode.NONE
        assert broker.orders.topic_id == TOPIC_ID
        assert broker.orders.log is not None
        assert broker.orders.log.topic_id == TOPIC_ID
        assert await broker.give(ME, 4) == ErrorCode.STALE_CONTROLLER_EPOCH

    run(test)


def test_a_replica_that_is_not_assigned(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        assert await broker.give(OTHER, 1, replicas=(OTHER, THIRD)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ORDERS not in broker.replicas.partitions

    run(test)


def test_a_stopped_follower_returns_in_the_same_epoch(run: Run) -> None:
    """Its disk was full, and it was not in the ISR: nothing raised the leader epoch when it left."""

    async def test(broker: ControlledBroker) -> None:
        await broker.give(OTHER, 3)
        assert await broker.stop(3, delete=False) == ErrorCode.NONE
        assert broker.parts.following == {}
        assert await broker.give(OTHER, 2) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert await broker.give(ME, 3) == ErrorCode.STALE_CONTROLLER_EPOCH  # nobody leads in an epoch of another
        assert await broker.give(OTHER, 3) == ErrorCode.NONE
        assert broker.parts.following == {ORDERS: OTHER}
        assert await broker.give(OTHER, 3) == ErrorCode.STALE_CONTROLLER_EPOCH

    run(test)


def test_a_stopped_follower_waits_for_its_leader_to_be_known(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        everybody = (ME, OTHER, THIRD)
        broker.metadata.put_broker(BrokerEndpoint(THIRD, "host", 9092))
        await broker.give(THIRD, 3, replicas=everybody)
        await broker.stop(3, delete=False)
        await broker.control.update_metadata(update(brokers=(ME, OTHER)), 8)
        assert await broker.give(THIRD, 3, replicas=everybody) == ErrorCode.NONE
        assert broker.parts.following == {}
        await broker.control.update_metadata(update(brokers=everybody), 8)
        assert await broker.give(THIRD, 3, replicas=everybody) == ErrorCode.NONE
        assert broker.parts.following == {ORDERS: THIRD}

    run(test)


@pytest.mark.parametrize(
    "wanted",
    [
        {"name": TopicPartition("../outside", 0)},
        {"name": TopicPartition("", 0)},
        {"name": TopicPartition("orders", -1)},
        {"name": TopicPartition("orders", 2**31 - 1)},
        {"leader_epoch": -1},
        {"leader": THIRD},
        {"replicas": (ME, ME)},
        {"replicas": (ME, -5)},
    ],
    ids=str,
)
def test_what_no_controller_can_mean_is_refused(run: Run, wanted: dict[str, Any], tmp_path: Path) -> None:
    async def test(broker: ControlledBroker) -> None:
        before = sorted(tmp_path.rglob("*"))
        assert await broker.give(**wanted) == ErrorCode.INVALID_REQUEST
        assert not broker.replicas.partitions
        assert sorted(tmp_path.rglob("*")) == before

    run(test)


def test_a_leader_that_is_not_in_the_metadata_is_not_followed(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        await broker.give(OTHER, 1, replicas=(ME, OTHER, THIRD))
        assert await broker.give(THIRD, 2, replicas=(ME, OTHER, THIRD)) == ErrorCode.NONE
        assert broker.parts.following == {ORDERS: OTHER}
        assert broker.orders.leader_epoch == 1
        broker.metadata.put_broker(BrokerEndpoint(THIRD, "host", 9092))
        assert await broker.give(THIRD, 2, replicas=(ME, OTHER, THIRD)) == ErrorCode.NONE  # the epoch is still new
        assert broker.parts.following == {ORDERS: THIRD}

    run(test)


def test_an_offline_log_directory(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        await broker.give(ME, 1)
        directory = broker.directories.directory_of(ORDERS)
        assert directory is not None
        broker.directories.take_offline(directory, "a test")
        assert await broker.give(OTHER, 2) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await broker.stop(5, delete=True) == ErrorCode.KAFKA_STORAGE_ERROR
        old, new = TopicPartition("old", 0), TopicPartition("new", 0)
        # It may lie in the directory that is offline, unless it has just been created.
        assert await broker.give(ME, 2, name=old, is_new=False) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await broker.give(ME, 3, name=old, is_new=False) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await broker.give(ME, 2, name=new, is_new=True) == ErrorCode.NONE

    run(test)


def test_a_deletion_in_a_log_directory_that_is_gone(run: Run) -> None:
    """The replica is not deleted: it is there again when the directory is."""

    async def test(broker: ControlledBroker) -> None:
        await broker.give(ME, 1)
        directory = broker.directories.directory_of(ORDERS)
        assert directory is not None
        directory.path.rename(directory.path.with_name("gone"))
        for _ in range(2):
            assert await broker.stop(-2, delete=True) == ErrorCode.KAFKA_STORAGE_ERROR
        assert directory.failure is not None
        assert ORDERS not in broker.replicas.partitions

    run(test)


def test_coordinators_move(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        offsets = TopicPartition("__consumer_offsets", 7)
        await broker.give(ME, 3, name=offsets)
        assert broker.parts.coordinates == {offsets: 3}
        await broker.give(OTHER, 4, name=offsets)
        assert broker.parts.coordinates == {}
        await broker.give(ME, 5, name=offsets)
        await broker.stop(-2, delete=True, name=offsets)
        assert broker.parts.coordinates == {}

    run(test)


# --- stopping -------------------------------------------------------------------------------------------------------


def test_stopping_without_deleting_keeps_the_log(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        await broker.give(OTHER, 3)
        assert await broker.stop(3, delete=False) == ErrorCode.NONE
        assert broker.parts.following == {}
        assert broker.orders.log is not None

    run(test)


@pytest.mark.parametrize(("epoch", "is_deleted"), [(2, False), (3, True), (4, True), (-2, True), (-1, True)])
def test_epochs_of_deletions(run: Run, epoch: int, *, is_deleted: bool) -> None:
    async def test(broker: ControlledBroker) -> None:
        await broker.give(OTHER, 3)
        expected = ErrorCode.NONE if is_deleted else ErrorCode.FENCED_LEADER_EPOCH
        assert await broker.stop(epoch, delete=True) == expected
        assert (broker.directories.get(ORDERS) is None) == is_deleted
        assert (ORDERS not in broker.replicas.partitions) == is_deleted
        assert (ORDERS not in broker.parts.following) == is_deleted

    run(test)


def test_a_log_without_a_role_is_deleted_and_another_topic_takes_the_name(run: Run) -> None:
    """The topic was deleted while the broker was down."""

    async def test(broker: ControlledBroker) -> None:
        await broker.give(ME, 3)
        del broker.replicas.partitions[ORDERS]
        assert await broker.stop(-2, delete=True) == ErrorCode.NONE
        assert broker.directories.get(ORDERS) is None
        assert await broker.stop(-2, delete=True) == ErrorCode.NONE  # nothing is there: idempotent
        other_id = random_uuid()
        assert await broker.give(ME, 0, topic_id=other_id) == ErrorCode.NONE
        assert broker.orders.topic_id == other_id

    run(test)


def test_older_forms_of_stop_replica(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        await broker.give(OTHER, 3)
        topics = [StopReplicaTopic(name="orders", partition_indexes=[0])]
        request = StopReplicaRequest(
            controller_epoch=1, broker_epoch=BROKER_EPOCH, delete_partitions=True, topics=topics
        )
        response = await broker.control.stop_replica(request, 1)
        assert [each.error_code for each in response.partition_errors] == [0]
        assert broker.directories.get(ORDERS) is None

    run(test)


# --- metadata -------------------------------------------------------------------------------------------------------


def update(*partitions: UpdateMetadataPartition, brokers: Iterable[int] = (ME, OTHER)) -> UpdateMetadataRequest:
    topics = [UpdateMetadataTopic(topic_name="orders", topic_id=TOPIC_ID, partition_states=list(partitions))]
    return UpdateMetadataRequest(
        controller_id=OTHER,
        controller_epoch=1,
        broker_epoch=BROKER_EPOCH,
        topic_states=topics if partitions else [],
        live_brokers=[
            UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    UpdateMetadataEndpoint(port=9000 + broker, host="inside", listener="INTERNAL"),
                    UpdateMetadataEndpoint(port=9100 + broker, host="outside", listener="EXTERNAL"),
                ],
            )
            for broker in brokers
        ],
    )


def told(index: int, leader: int = OTHER, offline: Iterable[int] = ()) -> UpdateMetadataPartition:
    return UpdateMetadataPartition(
        partition_index=index,
        leader=leader,
        leader_epoch=4,
        isr=[OTHER],
        zk_version=6,
        replicas=[OTHER, THIRD],
        offline_replicas=list(offline),
    )


def test_metadata_of_brokers_and_partitions(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        cache = broker.metadata
        assert (await broker.control.update_metadata(update(told(2, offline=[THIRD])), 8)).error_code == 0
        assert cache.controller_id == OTHER
        assert cache.is_alive(OTHER)
        assert cache.brokers_of("EXTERNAL")[OTHER] == BrokerEndpoint(OTHER, "outside", 9102)
        assert cache.brokers_of("INTERNAL")[ME] == BrokerEndpoint(ME, "inside", 9001)
        assert cache.name_of(TOPIC_ID) == "orders"
        assert cache.partition("orders", 0) is None  # it has never had a leader
        state = cache.partition("orders", 2)
        assert state is not None
        assert (state.leader, state.leader_epoch, state.version, state.offline_replicas) == (OTHER, 4, 6, (THIRD,))
        await broker.control.update_metadata(update(brokers=[ME]), 8)
        assert not cache.is_alive(OTHER)
        assert cache.partition("orders", 2) == state

    run(test)


@pytest.mark.parametrize("index", [-1, 2**31 - 1])
def test_metadata_of_partitions_that_cannot_be_is_ignored(run: Run, index: int) -> None:
    async def test(broker: ControlledBroker) -> None:
        assert (await broker.control.update_metadata(update(told(0), told(index)), 8)).error_code == 0
        topic = broker.metadata.topic("orders")
        assert topic is not None
        assert len(topic.partitions) == 1
        assert broker.gone == []

    run(test)


def test_deleted_topics_leave_the_metadata(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        cache = broker.metadata
        await broker.control.update_metadata(update(told(0), told(1)), 8)
        await broker.control.update_metadata(update(told(0, leader=-2)), 8)
        assert cache.topic("orders") is not None
        assert broker.gone == []
        await broker.control.update_metadata(update(told(1, leader=-2)), 8)
        assert cache.topic("orders") is None
        assert cache.name_of(TOPIC_ID) is None
        assert broker.gone == ["orders"]

    run(test)


def test_waiting_for_metadata(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        cache = broker.metadata
        waiting = asyncio.create_task(cache.until(lambda: cache.has_leaders("orders") or None, 60))
        await asyncio.sleep(0)
        await broker.control.update_metadata(update(told(0, leader=THIRD)), 8)
        await asyncio.sleep(0)
        assert not waiting.done()
        await broker.control.update_metadata(update(told(0)), 8)
        assert await waiting is True
        assert await cache.until(lambda: cache.topic("other"), 0.001) is None

    run(test)


def test_the_oldest_forms_of_metadata(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        state = UpdateMetadataPartition(topic_name="orders", leader=OTHER, isr=[OTHER], replicas=[OTHER])
        request = UpdateMetadataRequest(
            controller_epoch=1,
            ungrouped_partition_states=[state],
            live_brokers=[
                UpdateMetadataBroker(id=ME, v0_host="old", v0_port=9092),
                UpdateMetadataBroker(id=OTHER, endpoints=[UpdateMetadataEndpoint(port=1, host="new")]),
            ],
        )
        assert (await broker.control.update_metadata(request, 0)).error_code == 0
        assert broker.metadata.brokers_of("PLAINTEXT") == {
            ME: BrokerEndpoint(ME, "old", 9092),
            OTHER: BrokerEndpoint(OTHER, "new", 1),
        }
        assert broker.metadata.partition("orders", 0) is not None

    run(test)


def test_every_partition_gets_the_error_of_a_refused_request(run: Run) -> None:
    async def test(broker: ControlledBroker) -> None:
        states = [LeaderAndIsrPartition(partition_index=index) for index in range(2)]
        topics = [LeaderAndIsrTopic(topic_name="orders", topic_id=TOPIC_ID, partition_states=states)]
        request = LeaderAndIsrRequest(controller_epoch=1, broker_epoch=1, topic_states=topics)
        response: LeaderAndIsrResponse = await broker.control.leader_and_isr(request, 7)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        (topic,) = response.topics
        assert [each.error_code for each in topic.partition_errors] == [ErrorCode.STALE_BROKER_EPOCH] * 2

    run(test)
