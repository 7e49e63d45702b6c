"""A fetch that finds nothing waits at the broker, and a record that arrives answers it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from clients.conftest import InterposedPeer
from support.clients.dialect import WAIT_S, Client, Consumer, ConsumerSettings, Producer, ProducerSettings, Record
from support.clients.expectations import START_MS, as_seen, numbered
from support.clients.interposer import FETCH
from support.waiting import wait_until

FOREVER_MS = int(4 * WAIT_S * 1000)
"""Longer than a test waits for records: what arrives was brought by a fetch that was woken."""


def test_a_waiting_fetch_is_woken_by_each_record(
    client_type: type[Client], topic: str, interposed: InterposedPeer
) -> None:
    client = client_type(interposed.bootstrap)
    records = numbered(5)
    with client.admin() as admin:
        admin.create_topic(topic)
    with (
        client.producer(ProducerSettings(linger_ms=0)) as producer,
        client.consumer(topic, settings=ConsumerSettings(max_wait_ms=FOREVER_MS)) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        for position, record in enumerate(records):
            taken = pool.submit(consumer.take, 1)
            interposed.interposer.wait_for_request(FETCH)
            assert not taken.done()
            producer.send(topic, [record])
            assert taken.result() == as_seen([record], position)


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(
    client_type: type[Client], topic: str, interposed: InterposedPeer
) -> None:
    """The small record alone does not end the wait; when the large one does, both come."""
    client = client_type(interposed.bootstrap)
    small, large = Record(b"s", timestamp_ms=START_MS), Record(b"L" * 5000, timestamp_ms=START_MS)
    with client.admin() as admin:
        admin.create_topic(topic)
    settings = ConsumerSettings(min_bytes=2000, max_wait_ms=FOREVER_MS)
    with (
        client.producer(ProducerSettings(linger_ms=0)) as producer,
        client.consumer(topic, settings=settings) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        taken = pool.submit(consumer.take, 1)
        interposed.interposer.wait_for_request(FETCH)
        producer.send(topic, [small])
        # The producer has its answer; had the fetch been woken by the same record, it would have one as well by now.
        producer.send(topic, [Record(b"s", timestamp_ms=START_MS)])
        assert not taken.done()
        producer.send(topic, [large])
        assert taken.result() == as_seen([small])
        assert consumer.take(2) == as_seen([small, large], 1)


def test_a_fetch_of_many_partitions_is_woken_by_any(
    client_type: type[Client], topic: str, interposed: InterposedPeer
) -> None:
    client = client_type(interposed.bootstrap)
    partitions = range(20)
    with client.admin() as admin:
        admin.create_topic(topic, partitions=len(partitions))
    with (
        client.producer(ProducerSettings(linger_ms=0)) as producer,
        client.consumer(topic, partitions, ConsumerSettings(max_wait_ms=FOREVER_MS)) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        rounds = _wake_all(producer, consumer, topic, partitions)
        for partition in (19, 0, 7):
            taken = pool.submit(consumer.take, 1)
            interposed.interposer.wait_for_request(FETCH)
            producer.send(topic, numbered(1, partition))
            assert taken.result() == as_seen(numbered(1, partition), rounds)


def test_a_waiting_fetch_gets_an_error_when_its_topic_is_deleted(
    client_type: type[Client], topic: str, interposed: InterposedPeer
) -> None:
    """And the consumer goes on with the next topic of that name."""
    client = client_type(interposed.bootstrap)
    settings = ConsumerSettings(max_wait_ms=FOREVER_MS)
    with client.admin() as admin:
        admin.create_topic(topic)
        with client.consumer(topic, settings=settings) as consumer, ThreadPoolExecutor(1) as pool:
            taken = pool.submit(consumer.take, 1)
            interposed.interposer.wait_for_request(FETCH)
            admin.delete_topic(topic)
            wait_until(lambda: topic not in admin.topics(), "the deleted topic is still listed")
            admin.create_topic(topic)
            client.produce(topic, numbered(1))
            assert taken.result() == as_seen(numbered(1))


def _wake_all(producer: Producer, consumer: Consumer, topic: str, partitions: range) -> int:
    """Until the fetches of a consumer name all its partitions; returns how many records each partition got for it.

    librdkafka's first fetches name only the partitions whose beginning it has found by then, and it sends no other
    fetch while one waits.
    """
    seen: list[int] = []
    for rounds in range(1, 31):
        producer.send(topic, [record for partition in partitions for record in numbered(1, partition)])
        seen += [each.partition for each in consumer.take(len(partitions), timeout_s=1)]
        if set(seen) == set(partitions):
            left = rounds * len(partitions) - len(seen)
            assert len(consumer.take(left)) == left
            return rounds
    raise AssertionError(f"of {partitions}, only {sorted(set(seen))} are read")
