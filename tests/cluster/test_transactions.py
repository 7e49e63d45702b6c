"""Transactions across three brokers: decided once, whoever dies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import ottla
from ottla import Admin
from ottla.client.administer.brokers import VersionRange
from ottla.client.administer.topics import NewTopic
from ottla.coordinator.partitioning import partition_for
from ottla.testing.cluster import Cluster
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import BrokerRegistration, Endpoint
from support.cluster.traffic import DELIVERY_S, new_topic
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("cluster")

BROKERS = {1, 2, 3}
STATE_PARTITIONS = 3
OLDER = 9
VERSION_2 = {"transaction.version": VersionRange(2, 2)}


class Start(Protocol):
    def __call__(self, transactional_id: str, **settings: int) -> Producer: ...


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Start]:
    """Starts transactional producers."""
    producers = []

    def start(transactional_id: str, **settings: int) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 500,
                **settings,
            }
        )
        producer.init_transactions(DELIVERY_S)
        producers.append(producer)
        return producer

    yield start
    producers.clear()


def placed(cluster: Cluster, broker: int) -> str:
    """A topic with its only replica on that broker."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic(name, assignments={0: [broker]})])
    cluster.wait_for_leader(name)
    return name


def coordinator_of(cluster: Cluster, transactional_id: str) -> int:
    return cluster.wait_for_leader("__transaction_state", partition_for(transactional_id, STATE_PARTITIONS))


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert not producer.flush(DELIVERY_S)


def values_in(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes]:
    """Everything up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(DELIVERY_S)
            assert message is not None
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
    finally:
        consumer.close()


def eventually(cluster: Cluster, topic: str, expected: list[bytes], partition: int = 0) -> None:
    wait_until(
        lambda: values_in(cluster, topic, partition) == expected,
        f"{topic}-{partition} does not have {expected}: {cluster.output}",
        limit_s=DELIVERY_S,
    )


def test_a_transaction_spans_brokers(cluster: Cluster, start: Start) -> None:
    topic = new_topic(cluster, 3)
    producer = start(topic)
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        for partition in range(3):
            send(producer, topic, value, partition=partition)
        if commit:
            producer.commit_transaction(DELIVERY_S)
        else:
            producer.abort_transaction(DELIVERY_S)
    for partition in range(3):
        eventually(cluster, topic, [b"a", b"c"], partition)


def test_offsets_are_committed_with_records_of_other_brokers(cluster: Cluster, start: Start) -> None:
    topic = new_topic(cluster, 3)
    producer = start(topic)
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        for offset, commit in ((7, True), (9, False)):
            producer.begin_transaction()
            for partition in range(3):
                send(producer, topic, b"x", partition=partition)
            offsets = [TopicPartition(topic, 1, offset)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DELIVERY_S)
            if commit:
                producer.commit_transaction(DELIVERY_S)
            else:
                producer.abort_transaction(DELIVERY_S)

        def committed() -> int:
            (found,) = consumer.committed([TopicPartition(topic, 1)], DELIVERY_S)
            return int(found.offset)

        wait_until(lambda: committed() == 7, "the offset is not committed", limit_s=DELIVERY_S)
    finally:
        consumer.close()


def test_a_killed_leader_does_not_lose_the_transaction(cluster: Cluster, start: Start, topic: str) -> None:
    producer = start(topic)
    producer.begin_transaction()
    send(producer, topic, b"a")
    leader = cluster.wait_for_leader(topic)
    cluster.brokers[leader].kill()
    send(producer, topic, b"b")
    producer.commit_transaction(DELIVERY_S)
    eventually(cluster, topic, [b"a", b"b"])
    cluster.brokers[leader].start()
    cluster.wait_for_isr(topic, 0, BROKERS)
    producer.begin_transaction()
    send(producer, topic, b"c")
    producer.abort_transaction(DELIVERY_S)
    producer.begin_transaction()
    send(producer, topic, b"d")
    producer.commit_transaction(DELIVERY_S)
    eventually(cluster, topic, [b"a", b"b", b"d"])


def test_a_decision_outlasts_its_coordinator(cluster: Cluster, start: Start) -> None:
    """The markers of a committed transaction cannot be written, because the leader of a partition is down. Then the
    coordinator dies as well: the next one must write them."""
    start("chooses the broker")
    transactional_id = "outlasts"
    coordinator = coordinator_of(cluster, transactional_id)
    away = next(each for each in BROKERS if each != coordinator)
    topic = placed(cluster, away)
    producer = start(transactional_id)
    producer.begin_transaction()
    send(producer, topic, b"a")
    cluster.brokers[away].kill()
    producer.commit_transaction(DELIVERY_S)
    cluster.brokers[coordinator].kill()
    cluster.brokers[away].start()
    eventually(cluster, topic, [b"a"])
    cluster.brokers[coordinator].start()
    cluster.wait_for_isr("__transaction_state", partition_for(transactional_id, STATE_PARTITIONS), BROKERS)
    producer.begin_transaction()
    send(producer, topic, b"b")
    producer.commit_transaction(DELIVERY_S)
    eventually(cluster, topic, [b"a", b"b"])


def test_a_zombie_is_fenced_by_a_coordinator_that_it_has_never_met(cluster: Cluster, start: Start, topic: str) -> None:
    transactional_id = f"{topic}-id"
    zombie = start(transactional_id)
    zombie.begin_transaction()
    send(zombie, topic, b"zombie")
    first = coordinator_of(cluster, transactional_id)
    cluster.brokers[first].kill()
    try:
        current = start(transactional_id)
        assert coordinator_of(cluster, transactional_id) != first
        current.begin_transaction()
        send(current, topic, b"current")
        with pytest.raises(KafkaException) as caught:
            zombie.commit_transaction(DELIVERY_S)
        assert caught.value.args[0].fatal()
        current.commit_transaction(DELIVERY_S)
        eventually(cluster, topic, [b"current"])
    finally:
        cluster.start()


def test_the_next_coordinator_aborts_what_takes_too_long(cluster: Cluster, start: Start, topic: str) -> None:
    transactional_id = f"{topic}-id"
    slow = start(transactional_id, **{"transaction.timeout.ms": 4000})
    slow.begin_transaction()
    send(slow, topic, b"slow")
    first = coordinator_of(cluster, transactional_id)
    cluster.brokers[first].kill()
    try:
        quick = start(f"{topic}-quick")
        quick.begin_transaction()
        send(quick, topic, b"quick")
        quick.commit_transaction(DELIVERY_S)
        eventually(cluster, topic, [b"quick"])
        with pytest.raises(KafkaException) as caught:
            slow.commit_transaction(DELIVERY_S)
        assert caught.value.args[0].fatal() or caught.value.args[0].txn_requires_abort()
    finally:
        cluster.start()


def test_the_cluster_goes_back_to_version_1_and_forward_again_while_transactions_are_open(
    cluster: Cluster, start: Start
) -> None:
    """A broker of Kafka 3.9 joins and leaves: one that does not know transaction version 2."""
    topic = new_topic(cluster, 3)
    old = start(f"{topic}-old")
    expected: list[list[bytes]] = [[], [], []]
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "linger.ms": 0}
    with ottla.Producer(settings) as new, Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        new.init_transactions()

        def transactions(name: str, change: Callable[[], None] | None = None) -> None:
            """The first partition is written to before the change, the others after it."""
            new.begin_transaction()
            old.begin_transaction()
            for partition in range(3):
                for producer, value in ((new, b"new "), (old, b"old ")):
                    value += name.encode()
                    if producer is new:
                        new.send(topic, value, partition=partition).result(DELIVERY_S)
                    else:
                        send(old, topic, value, partition=partition)
                    if name != "aborted":
                        expected[partition].append(value)
                if change is not None and not partition:
                    change()
            if name == "aborted":
                new.abort_transaction()
                old.abort_transaction(DELIVERY_S)
            else:
                new.commit_transaction()
                old.commit_transaction(DELIVERY_S)

        def versions_are(wanted: dict[str, VersionRange]) -> None:
            wait_until(
                lambda: all(admin.describe_features(each).finalized == wanted for each in cluster.brokers),
                f"not all brokers say that {wanted} is in force",
                limit_s=DELIVERY_S,
            )

        def join() -> None:
            node = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1),), 0).encode()
            cluster.view.ask(lambda tree: tree.create(paths.broker(OLDER), node, ephemeral=True))
            versions_are({})

        def leave() -> None:
            cluster.view.ask(lambda tree: tree.delete(paths.broker(OLDER)))
            versions_are(VERSION_2)

        versions_are(VERSION_2)
        transactions("before")
        try:
            transactions("at the joining", join)
            transactions("with version 1")
            transactions("aborted")
            transactions("at the leaving", leave)
        finally:
            if OLDER in cluster.view.brokers():
                leave()
        transactions("aborted")
        transactions("after")
        for partition, values in enumerate(expected):
            eventually(cluster, topic, values, partition)
        places = [ottla.TopicPartition(topic, index) for index in range(3)]
        assert admin.find_hanging_transactions(places, max_transaction_timeout=0.0) == []
