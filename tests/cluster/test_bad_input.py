"""What a user can get wrong in a cluster is refused with Kafka's error and a clear line."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import Admin, NewPartitions, NewTopic
from ottla.client.errors import RefusedError
from ottla.testing.broker import Broker, BrokerFailedError
from ottla.testing.cluster import Cluster
from support.clients.command_line import caller

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture
def admin(ottla_cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=ottla_cluster.bootstrap) as admin:
        yield admin


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def test_a_replication_factor_above_the_number_of_brokers(
    ottla_cluster: Cluster, admin: Admin, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(RefusedError) as caught:
        admin.create_topics([NewTopic(topic, 1, 4)])
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    ottla = caller(ottla_cluster.bootstrap, capfdbinary)
    told = ottla("topics", "create", topic, "--replication-factor", "4", code=1)
    assert "A replication factor of 4 needs as many brokers; there are 3 (INVALID_REPLICATION_FACTOR)." in told
    assert topic not in ottla("topics", "list")


def test_an_unknown_broker_in_the_assignment_of_a_new_topic(admin: Admin, topic: str) -> None:
    with pytest.raises(RefusedError, match="9") as caught:
        admin.create_topics([NewTopic(topic, assignments={0: [1, 9]})])
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_unknown_broker_in_the_assignment_of_new_partitions(admin: Admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 2)])
    with pytest.raises(RefusedError, match="9") as caught:
        admin.create_partitions({topic: NewPartitions(2, [[1, 9]])})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_unknown_broker_in_a_reassignment(admin: Admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 2)])
    with pytest.raises(RefusedError, match="9") as caught:
        admin.alter_partition_reassignments({TopicPartition(topic, 0): [1, 9]})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert admin.list_partition_reassignments() == {}


def test_two_live_brokers_with_one_id(ottla_cluster: Cluster, tmp_path: Path) -> None:
    second = Broker({"broker.id": 2, "zookeeper.connect": ottla_cluster.zookeeper_connect}, directory=tmp_path)
    with pytest.raises(BrokerFailedError, match="another running broker is registered with the id 2") as caught:
        second.start()
    assert "stop it, or choose another id" in str(caught.value)
    assert ottla_cluster.brokers[2].is_running
    assert ottla_cluster.view.brokers() == {1, 2, 3}


def test_a_directory_of_another_cluster(ottla_cluster: Cluster, tmp_path: Path) -> None:
    with Broker({"broker.id": 7}, directory=tmp_path):
        pass
    moved = Broker({"broker.id": 7, "zookeeper.connect": ottla_cluster.zookeeper_connect}, directory=tmp_path)
    with pytest.raises(
        BrokerFailedError, match=r"the directory belongs to cluster \S+, this is cluster \S+; check"
    ) as caught:
        moved.start()
    assert "zookeeper.connect" in str(caught.value)
    assert ottla_cluster.view.brokers() == {1, 2, 3}


def test_a_directory_of_another_broker(ottla_cluster: Cluster, tmp_path: Path) -> None:
    connect = {"zookeeper.connect": ottla_cluster.zookeeper_connect}
    with Broker({"broker.id": 7, **connect}, directory=tmp_path):
        ottla_cluster.wait_for_brokers({1, 2, 3, 7})
    ottla_cluster.wait_for_brokers({1, 2, 3})
    with pytest.raises(BrokerFailedError, match="the directory belongs to broker 7, this is broker 8"):
        Broker({"broker.id": 8, **connect}, directory=tmp_path).start()
