"""Brokers of Ottla and of Apache Kafka 3.9.1 in one cluster on Apache ZooKeeper.

The same work is done while the controller is on either side: replicas follow leaders of the other make, topics are
created, grown, moved and deleted, groups go on, brokers leave in a controlled way and come back.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer as RdkafkaConsumer

from ottla import Admin, Producer, TopicPartition
from ottla.client.administer import ElectionType, NewTopic
from ottla.coordinator.partitioning import partition_for
from ottla.testing.broker import Setting
from ottla.zookeeper import paths
from support.cluster.fault_cluster import FaultCluster
from support.cluster.fault_run import FaultRun
from support.cluster.kafka_members import KAFKA, OTTLA, MixedCluster
from support.waiting import wait_until

_logger = logging.getLogger(__name__)

SEED: Final = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
OURS: Final = 1
ALL: Final = {1, 2, 3}
PARTITIONS: Final = 6
STATES: Final = "__transaction_state"

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600), pytest.mark.xdist_group("mixed cluster")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MixedCluster]:
    """One broker of ours, which starts first and is the controller at first, and two of Kafka's."""
    settings: dict[str, Setting] = {"replica.lag.time.max.ms": 5000, "transaction.state.log.num.partitions": 4}
    cluster = MixedCluster((OTTLA, KAFKA, KAFKA), zookeeper="apache", settings=settings)
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: MixedCluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        yield admin


@pytest.fixture(scope="module", params=[OTTLA, KAFKA])
def controller(request: pytest.FixtureRequest, cluster: MixedCluster) -> str:
    """The make of the controller, which is moved there."""
    while (current := cluster.wait_for_controller()) and cluster.kind(current) != request.param:
        cluster.brokers[current].stop()
        cluster.wait_for_controller(other_than=current)
        if cluster.kind(current) == KAFKA:  # the other one of Kafka's may win: then it leaves as well
            second = cluster.wait_for_controller(other_than=current)
            if second != OURS:
                cluster.brokers[second].stop()
                cluster.wait_for_controller(other_than=second)
                cluster.brokers[second].start()
        cluster.brokers[current].start()
        cluster.wait_for_brokers()
    make: str = request.param
    return make


def create(admin: Admin, cluster: MixedCluster, name: str, partitions: int = PARTITIONS) -> None:
    admin.create_topics([NewTopic(name, partitions, 3, configs={"min.insync.replicas": "2"})])
    in_sync(cluster, name, range(partitions))


def in_sync(cluster: MixedCluster, name: str, partitions: range = range(PARTITIONS)) -> None:
    for partition in partitions:
        cluster.wait_for_isr(name, partition, ALL)


def are_known(cluster: MixedCluster, topic: str, partitions: int) -> bool:
    """Whether each broker tells clients of all partitions."""
    for broker in cluster.brokers.values():
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            if len(admin.describe_topics([topic])[topic].partitions) != partitions:
                return False
    return True


def produce(cluster: MixedCluster, topic: str, first: int, count: int, partitions: int = PARTITIONS) -> None:
    """With acks=all, to every partition in turn."""
    with Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer:
        sent = [
            producer.send(topic, b"%d" % number, partition=number % partitions)
            for number in range(first, first + count)
        ]
        for each in sent:
            each.result(60)


def consume(cluster: MixedCluster, topic: str, count: int, group: str) -> set[bytes]:
    """Everything, as a member of a group that then commits."""
    consumer = RdkafkaConsumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    seen: set[bytes] = set()

    def enough() -> bool:
        seen.update(each.value() or b"" for each in consumer.consume(1000, 0.2) if each.error() is None)
        return len(seen) >= count

    try:
        wait_until(enough, f"{count} records of {topic}")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return seen


def test_records_and_groups(cluster: MixedCluster, admin: Admin, controller: str) -> None:
    topic = f"records-{controller}"
    create(admin, cluster, topic)
    # A broker of Kafka's registers before it listens, and is not trusted with leadership until it does.
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    leaders = {cluster.wait_for_leader(topic, partition) for partition in range(PARTITIONS)}
    assert leaders == ALL, "leaders are not spread over all brokers"
    produce(cluster, topic, 0, 600)
    assert consume(cluster, topic, 600, f"group-{controller}") == {b"%d" % number for number in range(600)}
    produce(cluster, topic, 600, 60)
    assert consume(cluster, topic, 60, f"group-{controller}") == {b"%d" % number for number in range(600, 660)}


def test_a_broker_of_either_make_leaves_and_comes_back(cluster: MixedCluster, admin: Admin, controller: str) -> None:
    topic = f"leaving-{controller}"
    create(admin, cluster, topic)
    sent = 0
    for broker in sorted(ALL):
        if broker == cluster.wait_for_controller():
            continue
        cluster.brokers[broker].stop()
        for partition in range(PARTITIONS):
            cluster.wait_for_isr(topic, partition, ALL - {broker})
        produce(cluster, topic, sent, 120)
        cluster.brokers[broker].start()
        in_sync(cluster, topic)
        sent += 120
    assert len(consume(cluster, topic, sent, f"leaving-{controller}")) == sent


def test_partitions_are_added_moved_and_led_again(cluster: MixedCluster, admin: Admin, controller: str) -> None:
    topic = f"moving-{controller}"
    create(admin, cluster, topic, 1)
    admin.create_partitions({topic: 3})
    in_sync(cluster, topic, range(3))
    wait_until(lambda: are_known(cluster, topic, 3), "every broker to know the new partitions")
    produce(cluster, topic, 0, 90, 3)
    partition = TopicPartition(topic, 0)
    admin.alter_partition_reassignments({partition: [2, 3]})
    wait_until(lambda: not admin.list_partition_reassignments(), "the reassignment to 2, 3")
    assert set(cluster.wait_for_isr(topic, 0, {2, 3}).isr) == {2, 3}
    admin.alter_partition_reassignments({partition: [OURS, 2, 3]})
    wait_until(lambda: not admin.list_partition_reassignments(), "the reassignment to 1, 2, 3")
    in_sync(cluster, topic, range(3))
    admin.elect_leaders(ElectionType.PREFERRED, [partition])
    wait_until(lambda: cluster.wait_for_leader(topic, 0) == OURS, "broker 1 to lead again")
    produce(cluster, topic, 90, 30, 3)
    assert len(consume(cluster, topic, 120, f"moving-{controller}")) == 120


def test_the_coordinator_of_open_transactions_moves(cluster: MixedCluster, admin: Admin, controller: str) -> None:
    """Each is begun with a coordinator of one make and ended by one of the other; its partitions are led by both."""
    topic, name = f"transactions-{controller}", f"mover-{controller}"
    create(admin, cluster, topic)
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "max.block.ms": 60_000}
    committed: set[bytes] = set()
    producer: Producer[bytes, bytes]
    with Producer(settings) as producer:
        producer.init_transactions()
        states = len(admin.describe_topics([STATES])[STATES].partitions)
        place = TopicPartition(STATES, partition_for(name, states))
        for number, leader in enumerate((2, OURS, 3, OURS)):
            values = {b"%s:%d:%d" % (name.encode(), number, index) for index in range(2 * PARTITIONS)}
            producer.begin_transaction()
            for index, value in enumerate(sorted(values)):
                if index == PARTITIONS:
                    producer.flush()
                    lead(cluster, admin, place, leader)
                producer.send(topic, value, partition=index % PARTITIONS)
            if number == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed |= values
            described = admin.describe_transactions([name])[name]
            assert described.coordinator_id == leader
    wait_until(lambda: not admin.describe_transactions([name])[name].partitions, "the last markers")
    assert (
        admin.find_hanging_transactions(
            [TopicPartition(topic, index) for index in range(PARTITIONS)], max_transaction_timeout=0.0
        )
        == []
    )
    assert consume(cluster, topic, len(committed), f"transactions-{controller}") == committed


def lead(cluster: MixedCluster, admin: Admin, place: TopicPartition, leader: int) -> None:
    """Has that broker lead the partition."""
    admin.alter_partition_reassignments({place: [leader, *sorted(ALL - {leader})]})
    wait_until(lambda: not admin.list_partition_reassignments([place]), "the reassignment")
    cluster.wait_for_isr(*place, ALL)
    admin.elect_leaders(ElectionType.PREFERRED, [place])
    wait_until(lambda: cluster.wait_for_leader(*place) == leader, f"broker {leader} to lead {place}")


def test_topics_are_deleted_everywhere(cluster: MixedCluster, admin: Admin, controller: str) -> None:
    topic = f"deleted-{controller}"
    create(admin, cluster, topic)
    produce(cluster, topic, 0, 60)
    admin.delete_topics([topic])
    marker = paths.deleted_topic(topic)
    wait_until(lambda: cluster.view.ask(lambda tree: tree.get(marker)) is None, "the end of the deletion")
    assert cluster.view.partition(topic, 0) is None
    places = [cluster.brokers[broker].directory / "data" / "logs" for broker in ALL]

    def folders() -> list[Path]:
        return [path for place in places for path in place.glob(f"{topic}-*") if not path.name.endswith("-delete")]

    wait_until(lambda: not folders(), "the logs of the topic to go")
    create(admin, cluster, topic)
    produce(cluster, topic, 0, 60)


def test_brokers_are_replaced_one_by_one_under_load(tmp_path: Path) -> None:
    """Each broker of ours takes over id, listeners, settings and data of one of Kafka's. Nothing acknowledged is lost,
    and all replicas are equal in the end."""
    _logger.warning("OTTLA_SEED=%d", SEED)
    cluster = FaultCluster(tmp_path / "cluster", (KAFKA, KAFKA, KAFKA), zookeeper="apache")
    try:
        cluster.start()
        run = FaultRun(cluster, SEED)
        with run:
            for broker in sorted(ALL):
                cluster.brokers[broker].stop()
                run.wait_for_more(50)
                cluster.replace(broker, OTTLA)
                cluster.brokers[broker].start()
                run.nemesis.wait_until_in_sync()
                run.wait_for_more(200)
        assert not run.wrong, run.report
    finally:
        cluster.close(stop=False)
