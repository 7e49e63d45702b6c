"""Topics, their partitions and the cluster, as admin clients create, describe and delete them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.cimpl import NewTopic

from ottla.base.error_codes import ErrorCode
from support.clients.confluent_client import ConfluentClient, only_result
from support.clients.dialect import Admin, Client, ProducerSettings, Refused, refused
from support.clients.expectations import as_seen, numbered
from support.clients.kafka_python_client import KafkaPythonClient, KafkaTimeoutError
from support.clients.peers import Peer
from support.waiting import wait_until


def test_the_cluster_is_this_broker(client: Client, broker: Peer) -> None:
    with client.admin() as admin:
        seen = admin.cluster()
    assert list(seen.brokers.values()) == [broker.bootstrap]
    assert seen.controller in seen.brokers


def test_a_topic_lives_and_ends(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, partitions=3)
        wait_until(lambda: topic in admin.topics(), "the new topic is not listed")
        me = admin.cluster().controller
        described = admin.describe_topic(topic)
        assert sorted(described) == [0, 1, 2]
        for partition in described.values():
            assert (partition.leader, partition.replicas, partition.isr) == (me, (me,), (me,))
        admin.delete_topic(topic)
        wait_until(lambda: topic not in admin.topics(), "the deleted topic is still listed")


def test_a_topic_of_the_same_name_starts_empty(client: Client, topic: str) -> None:
    with client.admin() as admin:
        for round_ in range(3):
            admin.create_topic(topic)
            records = numbered(3, first=10 * round_)
            assert client.produce(topic, records) == [0, 1, 2]
            assert client.consume(topic, 3) == as_seen(records)
            admin.delete_topic(topic)
            _wait_until_gone(admin, topic)


def test_partitions_are_added_and_used(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, partitions=1)
        client.produce(topic, numbered(2, partition=0))
        admin.create_partitions(topic, 4)
        wait_until(lambda: len(admin.describe_topic(topic)) == 4, "the new partitions are not there")
    assert client.produce(topic, numbered(1, partition=3)) == [0]
    assert client.consume(topic, 1, [3]) == as_seen(numbered(1, partition=3))
    assert client.consume(topic, 2) == as_seen(numbered(2, partition=0))


def test_a_topic_of_many_partitions(client: Client, topic: str) -> None:
    count = 100
    with client.admin() as admin:
        admin.create_topic(topic, partitions=count)
        wait_until(lambda: len(admin.describe_topic(topic)) == count, "not all partitions are there")
    sent = [record for partition in range(count) for record in numbered(2, partition)]
    # Idempotent, because otherwise a retry may change the order.
    client.produce(topic, sent, ProducerSettings(idempotent=True))
    seen = client.consume(topic, 2 * count, range(count))
    assert sorted(seen, key=lambda each: (each.partition, each.offset)) == [
        each for partition in range(count) for each in as_seen(numbered(2, partition))
    ]


def test_a_topic_that_exists_already(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic)
        with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
            admin.create_topic(topic)


@pytest.mark.parametrize("name", ["no spaces", "no/slash", "..", "x" * 250])
def test_a_name_that_no_topic_can_have(name: str, client: Client) -> None:
    with client.admin() as admin, refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        admin.create_topic(name)


def test_names_that_would_collide(client: Client, topic: str) -> None:
    """Dots and underscores are the same in the names of metrics."""
    with client.admin() as admin:
        admin.create_topic(f"{topic}.a_b")
        with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
            admin.create_topic(f"{topic}_a.b")


def test_more_replicas_than_brokers(client: Client, topic: str) -> None:
    with client.admin() as admin:
        with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
            admin.create_topic(topic, replicas=2)
        assert topic not in admin.topics()


def test_a_topic_without_partitions(client: Client, topic: str) -> None:
    with client.admin() as admin, refused(ErrorCode.INVALID_PARTITIONS):
        admin.create_topic(topic, partitions=0)


def test_partitions_cannot_be_taken_away(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, partitions=2)
        for total in (1, 2):
            with refused(ErrorCode.INVALID_PARTITIONS):
                admin.create_partitions(topic, total)


def test_a_topic_that_is_only_validated_is_not_created(
    confluent: ConfluentClient, kafka_python: KafkaPythonClient, topic: str
) -> None:
    with confluent.admin() as admin:
        only_result(admin.library.create_topics([NewTopic(topic, 3, 1)], validate_only=True))
        with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
            only_result(admin.library.create_topics([NewTopic(topic, 3, 2)], validate_only=True))
        assert topic not in admin.topics()
    with kafka_python.admin() as admin:
        (answer,) = admin.library.create_topics({topic: {"num_partitions": 3}}, validate_only=True)["topics"]
        assert (answer["error_code"], answer["num_partitions"]) == (ErrorCode.NONE, 3)
        assert topic not in admin.topics()


def test_a_topic_that_is_not_there(client_type: type[Client], topic: str, strict_broker: Peer) -> None:
    with client_type(strict_broker.bootstrap).admin() as admin:
        for asked in (
            lambda: admin.delete_topic(topic),
            lambda: admin.describe_topic(topic),
            lambda: admin.create_partitions(topic, 3),
            lambda: admin.topic_config(topic),
            lambda: admin.replace_topic_config(topic, {"retention.ms": "1"}),
        ):
            with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                asked()
        assert topic not in admin.topics()


def test_producing_to_a_topic_that_is_not_there(client_type: type[Client], topic: str, strict_broker: Peer) -> None:
    client = client_type(strict_broker.bootstrap)
    with pytest.raises((Refused, KafkaTimeoutError)) as caught:
        client.produce(topic, numbered(1), ProducerSettings(hope_ms=500))
    # kafka-python says no more than that it has waited in vain.
    if isinstance(caught.value, Refused):
        assert caught.value.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaError._UNKNOWN_TOPIC)
    with client.admin() as admin:
        assert topic not in admin.topics()
        admin.create_topic(topic)
    assert client.produce(topic, numbered(1)) == [0]


def _wait_until_gone(admin: Admin, topic: str) -> None:
    wait_until(lambda: topic not in admin.topics(), "the deleted topic is still listed")
