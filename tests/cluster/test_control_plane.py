"""Requests that only the controller may send, from somebody else; admin requests to a broker that is not the
controller; configs and log directories of all brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeVar

import pytest

from ottla import Admin, Producer
from ottla.base.error_codes import ErrorCode
from ottla.base.errors import OttlaError
from ottla.base.ids import random_uuid
from ottla.broker.links.broker_peer import BrokerPeer
from ottla.client.administer.configs import ConfigResource
from ottla.net.client_connection import Address, ConnectionOptions
from ottla.testing.broker import Broker, Setting
from ottla.testing.cluster import Cluster
from ottla.testing.server_process import BrokerFailedError
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeletableTopic, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopic,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from ottla.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.wire.schema import Request, Response
from support.cluster.traffic import numbered, read, write

pytestmark = pytest.mark.xdist_group("cluster")

R = TypeVar("R", bound=Response)
FAR_FUTURE = 2**62


def ask(cluster: Cluster, broker: int, request: Request, response: type[R]) -> R:
    """As a client of the broker's only listener."""

    async def work() -> R:
        host, port = cluster.brokers[broker].bootstrap.split(":")
        peer = BrokerPeer(f"broker {broker}", lambda: Address(host, int(port)), ConnectionOptions(client_id="forger"))
        try:
            return await peer.send(request, response, timeout_s=30)
        finally:
            peer.close()

    return asyncio.run(work())


def controller_epoch(cluster: Cluster) -> int:
    node = cluster.view.ask(lambda tree: tree.get("/controller_epoch"))
    assert node is not None
    return int(node.data)


def broker_epoch(cluster: Cluster, broker: int) -> int:
    node = cluster.view.ask(lambda tree: tree.get(f"/brokers/ids/{broker}"))
    assert node is not None
    return node.created_zxid


@pytest.mark.parametrize(
    ("controller", "broker", "error"),
    [
        (0, -1, ErrorCode.STALE_BROKER_EPOCH),
        (0, 0, ErrorCode.STALE_BROKER_EPOCH),
        (-1, FAR_FUTURE, ErrorCode.STALE_CONTROLLER_EPOCH),
        (1000, FAR_FUTURE, ErrorCode.STALE_CONTROLLER_EPOCH),
    ],
)
def test_forged_control_requests(cluster: Cluster, topic: str, controller: int, broker: int, error: ErrorCode) -> None:
    """`controller` is added to the controller's epoch."""
    write(cluster, topic, numbered(0, 5))
    leader = cluster.wait_for_leader(topic)
    epoch = controller_epoch(cluster) + controller
    role = LeaderAndIsrPartition(
        partition_index=0, leader=leader % 3 + 1, leader_epoch=1000, isr=[1], replicas=[1, 2, 3]
    )
    roles = LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=epoch,
        broker_epoch=broker,
        topic_states=[LeaderAndIsrTopic(topic_name=topic, topic_id=random_uuid(), partition_states=[role])],
    )
    assert ask(cluster, leader, roles, LeaderAndIsrResponse).error_code == error
    stopped = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    stop = StopReplicaRequest(
        controller_id=1,
        controller_epoch=epoch,
        broker_epoch=broker,
        topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=[stopped])],
    )
    assert ask(cluster, leader, stop, StopReplicaResponse).error_code == error
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=epoch, broker_epoch=broker)
    assert ask(cluster, leader, update, UpdateMetadataResponse).error_code == error
    assert f"with {error.name}" in cluster.brokers[leader].output
    write(cluster, topic, numbered(5, 10))
    assert read(cluster, topic, 10) == numbered(0, 10)


def test_isr_changes_of_an_earlier_process_are_refused(cluster: Cluster) -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=broker_epoch(cluster, 1) - 1)
    answer = ask(cluster, cluster.wait_for_controller(), request, AlterPartitionResponse)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_brokers_that_are_not_the_controller_say_so(cluster: Cluster, topic: str) -> None:
    controller = cluster.wait_for_controller()
    other = next(broker for broker in cluster.brokers if broker != controller)
    create = CreateTopicsRequest(topics=[CreatableTopic(name="x", num_partitions=1, replication_factor=1)])
    (created,) = ask(cluster, other, create, CreateTopicsResponse).topics
    assert created.error_code == ErrorCode.NOT_CONTROLLER
    delete = DeleteTopicsRequest(topics=[DeletableTopic(name=topic)])
    (deleted,) = ask(cluster, other, delete, DeleteTopicsResponse).responses
    assert deleted.error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("factor", "assignment", "error"),
    [
        (4, None, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, None, ErrorCode.INVALID_REPLICATION_FACTOR),
        (-1, [1, 99], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_topics_that_cannot_be_placed(
    cluster: Cluster, factor: int, assignment: list[int] | None, error: ErrorCode
) -> None:

    topic = CreatableTopic(
        name="impossible",
        num_partitions=-1 if assignment else 1,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=assignment)] if assignment else [],
    )
    request = CreateTopicsRequest(topics=[topic])
    (created,) = ask(cluster, cluster.wait_for_controller(), request, CreateTopicsResponse).topics
    assert created.error_code == error


def test_every_broker_knows_all_brokers_and_leaders(cluster: Cluster, topic: str) -> None:
    leader = cluster.wait_for_leader(topic)
    controller = cluster.wait_for_controller()
    for broker in cluster.brokers:
        request = MetadataRequest(topics=[MetadataTopic(name=topic)], allow_auto_topic_creation=False)
        answer = ask(cluster, broker, request, MetadataResponse)
        assert {each.node_id for each in answer.brokers} == set(cluster.brokers)
        assert answer.controller_id == controller
        (found,) = answer.topics
        (partition,) = found.partitions
        assert (partition.leader_id, sorted(partition.isr_nodes)) == (leader, sorted(cluster.brokers))
        assert partition.offline_replicas == []


def test_topic_configs_reach_all_brokers(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, numbered(0, 5))
    resource = ConfigResource.topic(topic)
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.incremental_alter_configs({resource: {"min.insync.replicas": "3"}})
        follower = next(each for each in cluster.brokers if each != cluster.wait_for_leader(topic))
        cluster.brokers[follower].stop()
        try:
            with (
                Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0}) as producer,
                pytest.raises(OttlaError, match="NOT_ENOUGH_REPLICAS"),
            ):
                producer.send(topic, value=b"too few").result(30)
            admin.incremental_alter_configs({resource: {"min.insync.replicas": "2"}})
            write(cluster, topic, numbered(5, 10))
        finally:
            cluster.brokers[follower].start()
    cluster.wait_for_isr(topic, 0, cluster.brokers)
    assert read(cluster, topic, 10) == numbered(0, 10)


def test_a_second_broker_with_the_same_id(cluster: Cluster, tmp_path: Path) -> None:
    settings: dict[str, Setting] = {"broker.id": 1, "zookeeper.connect": cluster.zookeeper_connect}
    with pytest.raises(BrokerFailedError, match="another running broker is registered with the id 1"):
        Broker(settings, directory=tmp_path / "twin").start()
    assert cluster.view.brokers() == set(cluster.brokers)


def test_a_directory_of_another_cluster(cluster: Cluster, tmp_path: Path) -> None:
    logs = tmp_path / "stranger" / "data" / "logs"
    logs.mkdir(parents=True)
    (logs / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=another-cluster-12345\n")
    settings: dict[str, Setting] = {"broker.id": 7, "zookeeper.connect": cluster.zookeeper_connect}
    with pytest.raises(BrokerFailedError, match="the directory belongs to cluster another-cluster-12345"):
        Broker(settings, directory=tmp_path / "stranger").start()
    assert cluster.view.brokers() == set(cluster.brokers)
