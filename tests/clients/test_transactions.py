"""Transactional producers, and consumers of committed records, against one broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.clients.peers import Peer, running_peer
from support.waiting import wait_until

WAIT_S = 30
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with running_peer(tmp_path_factory.mktemp("transactions"), SETTINGS) as peer:
        yield peer


@pytest.fixture
def orders(broker: Peer, topic: str) -> str:
    create(broker, topic)
    return topic


def create(broker: Peer, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, 2, 1, config=settings)])[topic].result()


def producer_of(broker: Peer, transactional_id: str, **settings: int | str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 500,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert not producer.flush(WAIT_S)


def transaction(producer: Producer, topic: str, *values: bytes, commit: bool = True) -> None:
    producer.begin_transaction()
    send(producer, topic, *values)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def values_in(broker: Peer, topic: str, partition: int = 0, *, isolation: str = "read_committed") -> list[bytes]:
    """Everything up to the end, which is the last stable offset for a consumer of committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return values
            values.append(message.value() or b"")
    finally:
        consumer.close()


def eventually(broker: Peer, topic: str, expected: list[bytes], partition: int = 0) -> None:
    """Markers are written after the producer is answered."""
    wait_until(lambda: values_in(broker, topic, partition) == expected, f"{topic} does not have {expected}")


def refusal(attempt: object) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        attempt()  # type: ignore[operator]
    error: KafkaError = caught.value.args[0]
    return error


def test_a_commit_spans_partitions_and_an_abort_leaves_nothing(broker: Peer, orders: str) -> None:
    producer = producer_of(broker, orders)
    producer.begin_transaction()
    send(producer, orders, b"a", partition=0)
    send(producer, orders, b"b", partition=1)
    assert values_in(broker, orders) == []  # an open transaction holds the last stable offset back
    assert values_in(broker, orders, isolation="read_uncommitted") == [b"a"]
    producer.commit_transaction(WAIT_S)
    eventually(broker, orders, [b"a"])
    eventually(broker, orders, [b"b"], partition=1)
    transaction(producer, orders, b"c", commit=False)
    transaction(producer, orders, b"d")
    eventually(broker, orders, [b"a", b"d"])
    assert values_in(broker, orders, isolation="read_uncommitted") == [b"a", b"c", b"d"]


def test_an_open_transaction_hides_what_others_commit_after_it(broker: Peer, orders: str) -> None:
    slow, quick = producer_of(broker, f"{orders}-slow"), producer_of(broker, f"{orders}-quick")
    slow.begin_transaction()
    send(slow, orders, b"slow")
    transaction(quick, orders, b"quick")
    assert values_in(broker, orders) == []
    slow.abort_transaction(WAIT_S)
    eventually(broker, orders, [b"quick"])


def test_offsets_count_when_the_transaction_commits(broker: Peer, orders: str) -> None:
    producer = producer_of(broker, orders)
    transaction(producer, orders, b"a", b"b", b"c")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": orders,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    here = TopicPartition(orders, 0)

    def committed() -> int:
        (found,) = consumer.committed([here], WAIT_S)
        return int(found.offset)

    try:
        consumer.subscribe([orders])
        assert consumer.poll(WAIT_S) is not None
        for offset, commit, expected in ((1, False, confluent_kafka.OFFSET_INVALID), (2, True, 2)):
            producer.begin_transaction()
            send(producer, orders, b"out", partition=1)
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(orders, 0, offset)], metadata, WAIT_S)
            if commit:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
            wait_until(lambda expected=expected: committed() == expected, "the offset is not committed")  # type: ignore[misc]
    finally:
        consumer.close()


def test_a_member_that_left_cannot_commit_in_a_transaction(broker: Peer, orders: str) -> None:
    producer = producer_of(broker, orders)
    transaction(producer, orders, b"a")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": orders, "auto.offset.reset": "earliest"}
    former = Consumer(settings)
    former.subscribe([orders])
    assert former.poll(WAIT_S) is not None
    metadata = former.consumer_group_metadata()
    former.close()
    producer.begin_transaction()
    error = refusal(lambda: producer.send_offsets_to_transaction([TopicPartition(orders, 0, 1)], metadata, WAIT_S))
    assert error.txn_requires_abort()
    producer.abort_transaction(WAIT_S)


def test_a_new_producer_fences_the_former_one(broker: Peer, orders: str) -> None:
    zombie = producer_of(broker, orders)
    zombie.begin_transaction()
    send(zombie, orders, b"zombie")
    current = producer_of(broker, orders)
    assert refusal(lambda: zombie.commit_transaction(WAIT_S)).fatal()
    transaction(current, orders, b"current")
    eventually(broker, orders, [b"current"])


def test_a_transaction_that_takes_too_long_is_aborted(broker: Peer, orders: str) -> None:
    producer = producer_of(broker, orders, transaction_timeout_ms=1000)
    transaction(producer, orders, b"a")
    producer.begin_transaction()
    send(producer, orders, b"late")
    other = producer_of(broker, f"{orders}-other")
    transaction(other, orders, b"b")
    eventually(broker, orders, [b"a", b"b"])
    error = refusal(lambda: producer.commit_transaction(WAIT_S))
    assert error.fatal() or error.txn_requires_abort()


def test_transactions_outlast_a_restart(tmp_path: Path, topic: str) -> None:
    with running_peer(tmp_path, SETTINGS) as broker:
        create(broker, topic)
        producer = producer_of(broker, topic)
        transaction(producer, topic, b"a")
        transaction(producer, topic, b"b", commit=False)
        producer.begin_transaction()
        send(producer, topic, b"c")
        broker.stop()
        broker.start()
        assert values_in(broker, topic) == [b"a"]
        send(producer, topic, b"d")
        producer.commit_transaction(WAIT_S)
        eventually(broker, topic, [b"a", b"c", b"d"])
        producer.begin_transaction()
        send(producer, topic, b"e")
        broker.kill()
        broker.start()
        producer_of(broker, topic)  # aborts what the former one left
        eventually(broker, topic, [b"a", b"c", b"d"])


def test_kafka_python(broker: Peer, orders: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=orders)
    try:
        producer.init_transactions()
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            producer.send(orders, value, partition=0).get(WAIT_S)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    finally:
        producer.close()
    eventually(broker, orders, [b"a", b"c"])


def test_aiokafka(broker: Peer, orders: str) -> None:
    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=orders) as producer:
            async with producer.transaction():
                await producer.send_and_wait(orders, b"a", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait(orders, b"b", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(orders, b"c", partition=0)

    asyncio.run(asyncio.wait_for(produce(), WAIT_S))
    eventually(broker, orders, [b"a", b"c"])


def test_compaction_removes_what_was_aborted(tmp_path: Path, topic: str) -> None:
    with running_peer(tmp_path, {**SETTINGS, "log.cleaner.backoff.ms": "100"}) as broker:
        create(broker, topic, cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01")
        producer = producer_of(broker, topic)

        def keyed(key: bytes, value: bytes, *, commit: bool) -> None:
            producer.begin_transaction()
            producer.produce(topic, value, key=key, partition=0)
            assert not producer.flush(WAIT_S)
            if commit:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)

        keyed(b"k", b"kept", commit=True)
        keyed(b"k", b"aborted", commit=False)

        def is_clean() -> bool:
            keyed(b"other", b"rolls the segment", commit=True)
            return b"aborted" not in values_in(broker, topic, isolation="read_uncommitted")

        wait_until(is_clean, "the aborted record stays")
        found = values_in(broker, topic)
        assert found[0] == b"kept"
        assert set(found[1:]) == {b"rolls the segment"}
