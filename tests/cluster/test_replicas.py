"""What replicas do for clients beside keeping records: deletions on all of them, reads from the closest, and limits for
a replica that is copied."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.base.config_descriptions import ResourceType
from ottla.client.administer.configs import ConfigResource
from ottla.client.administer.topics import NewTopic
from ottla.client.offsets import EARLIEST
from ottla.testing.broker import Setting
from ottla.testing.cluster import Cluster
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("cluster")

BROKERS = {1, 2, 3}
_DELIVERY_S = 60


class RackedCluster(Cluster):
    """Each broker is in its own rack."""

    def broker_settings(self, broker: int) -> dict[str, Setting]:
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        return {
            **super().broker_settings(broker),
            "broker.rack": f"rack-{broker}",
            "replica.selector.class": selector,
            "leader.imbalance.check.interval.seconds": 1,
        }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with RackedCluster(3) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        yield admin


def new_topic(cluster: Cluster, admin: Admin, name: str, assignment: Mapping[int, list[int]]) -> TopicPartition:
    admin.create_topics([NewTopic(name, assignments=assignment)])
    cluster.wait_for_isr(name, 0, assignment[0])
    return TopicPartition(name, 0)


def write(cluster: Cluster, partition: TopicPartition, values: list[bytes]) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer:
        for sent in [producer.send(partition.topic, value=value, partition=0) for value in values]:
            sent.result(_DELIVERY_S)


def test_records_are_deleted_on_all_replicas(cluster: Cluster, admin: Admin) -> None:
    partition = new_topic(cluster, admin, "deleted", {0: [1, 2, 3]})
    write(cluster, partition, [b"a", b"b", b"c"])
    started_s = time.monotonic()
    assert admin.delete_records({partition: 2}) == {partition: 2}
    assert time.monotonic() - started_s < 5
    leader = cluster.wait_for_leader("deleted")
    cluster.brokers[leader].kill()
    try:
        cluster.wait_for_leader("deleted", other_than=leader)
        assert admin.list_offsets({partition: EARLIEST})[partition].offset == 2
    finally:
        cluster.start()
    assert leader == 1, "the first replica is preferred"
    cluster.wait_for_isr("deleted", 0, BROKERS)
    wait_until(lambda: cluster.wait_for_leader("deleted") == leader, "leaders are not balanced")


def test_a_consumer_reads_from_the_replica_in_its_rack(
    cluster: Cluster, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower, which tells what is committed and what was aborted."""
    partition = new_topic(cluster, admin, "near", {0: [1, 2, 3]})
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "client.rack": "rack-3",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    values = [b"%d" % number for number in range(10)]
    with closing(Consumer(settings)) as consumer:
        consumer.assign([partition])
        write(cluster, partition, values)
        assert read(consumer, 10) == values
        with Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "near"}) as producer:
            producer.init_transactions()
            for commits in (False, True, False, True):
                producer.begin_transaction()
                value = b"committed" if commits else b"aborted"
                producer.send(partition.topic, value, partition=0).result(_DELIVERY_S)
                assert consumer.poll(0.3) == [], "the transaction is open"
                if commits:
                    producer.commit_transaction()
                    assert read(consumer, 1) == [b"committed"]
                else:
                    producer.abort_transaction()
        with caplog.at_level(logging.INFO):
            cluster.brokers[3].kill()
            try:
                write(cluster, partition, [b"after"])
                assert read(consumer, 1) == [b"after"], "it does not go back to the leader"
            finally:
                cluster.start()
        assert "fetching from broker 3 failed" in caplog.text


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline_s = time.monotonic() + _DELIVERY_S
    while len(found) < count and time.monotonic() < deadline_s:
        found += [record.value for record in consumer.poll(1.0)]
    return found


def test_a_throttled_replica_is_copied_slowly(cluster: Cluster, admin: Admin) -> None:
    partition = new_topic(cluster, admin, "throttled", {0: [1, 2]})
    write(cluster, partition, [bytes(10_000)] * 300)
    rates = {
        ConfigResource(ResourceType.BROKER, str(each)): {"leader.replication.throttled.rate": "500000"}
        for each in BROKERS
    }
    listed = {ConfigResource(ResourceType.TOPIC, "throttled"): {"leader.replication.throttled.replicas": "0:1,0:2"}}
    admin.incremental_alter_configs({**rates, **listed})
    started_s = time.monotonic()
    admin.alter_partition_reassignments({partition: [1, 2, 3]})
    cluster.wait_for_isr("throttled", 0, BROKERS)
    # Three megabytes at half a megabyte a second; the last response may exceed the limit.
    assert time.monotonic() - started_s > 2
