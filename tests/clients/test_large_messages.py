"""Messages as large as a broker takes, and one byte larger."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode
from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import Client, ConsumerSettings, ProducerSettings, Record, refused
from support.clients.expectations import START_MS, as_seen, numbered

DEFAULT_LIMIT = 1_048_588
BATCH_OVERHEAD = 61 + 3 + 8
"""Of a batch with one record of about a megabyte, without key and headers: header, length and fields of the record."""

GENEROUS = ProducerSettings(max_bytes=20_000_000)


def _of_size(size: int) -> Record:
    return Record(b"x" * size, timestamp_ms=START_MS)


def test_the_limit_counts_the_bytes_of_a_batch(client: Client, topic: str) -> None:
    largest = _of_size(DEFAULT_LIMIT - BATCH_OVERHEAD)
    with client.producer(GENEROUS) as producer:
        assert producer.send(topic, [largest]) == [0]
        with refused(ErrorCode.MESSAGE_TOO_LARGE):
            producer.send(topic, [_of_size(DEFAULT_LIMIT - BATCH_OVERHEAD + 1)])
        # What was refused has left nothing behind.
        assert producer.send(topic, numbered(1)) == [1]
    assert client.consume(topic, 2) == as_seen([largest, *numbered(1)])


def test_an_idempotent_producer_goes_on_after_a_message_that_is_too_large(
    confluent: ConfluentClient, topic: str
) -> None:
    """librdkafka asks for a new epoch then. The other two give up, whatever the broker does."""
    with confluent.producer(ProducerSettings(max_bytes=20_000_000, idempotent=True)) as producer:
        producer.send(topic, numbered(2))
        with refused(ErrorCode.MESSAGE_TOO_LARGE):
            producer.send(topic, [_of_size(2_000_000)])
        assert producer.send(topic, numbered(2, first=2)) == [2, 3]
    assert confluent.consume(topic, 4) == as_seen(numbered(4))


def test_a_topic_has_a_limit_of_its_own(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, config={"max.message.bytes": "10000"})
        with client.producer(GENEROUS) as producer:
            producer.send(topic, [_of_size(9_900)])
            with refused(ErrorCode.MESSAGE_TOO_LARGE):
                producer.send(topic, [_of_size(10_000)])
            admin.replace_topic_config(topic, {"max.message.bytes": "8000000"})
            large = _of_size(7_000_000)
            assert producer.send(topic, [large]) == [1]
    assert client.consume(topic, 2) == as_seen([_of_size(9_900), large])


def test_a_message_larger_than_a_fetch_is_read_all_the_same(client: Client, topic: str) -> None:
    records = [*numbered(1), _of_size(900_000), *numbered(1)]
    with client.producer(GENEROUS) as producer:
        for record in records:
            producer.send(topic, [record])
    settings = ConsumerSettings(max_partition_bytes=10_000)
    assert client.consume(topic, 3, settings=settings) == as_seen(records)


def test_messages_larger_than_a_fetch_are_read_from_every_partition(client: Client, topic: str) -> None:
    """Clients give up on a partition that begins with a part of a batch: the broker sends none of it then."""
    records = [Record(b"%d" % n + b"x" * 150_000, timestamp_ms=START_MS, partition=n % 3) for n in range(9)]
    with client.admin() as admin:
        admin.create_topic(topic, partitions=3)
    with client.producer(GENEROUS) as producer:
        for record in records:  # a batch each
            producer.send(topic, [record])
    found = client.consume(topic, 9, range(3), ConsumerSettings(max_partition_bytes=40_000))
    assert sorted((each.partition, each.offset, each.value) for each in found) == sorted(
        (record.partition, n // 3, record.value) for n, record in enumerate(records)
    )


def test_what_compresses_below_the_limit_is_taken(client: Client, topic: str) -> None:
    large = _of_size(5_000_000)
    client.produce(topic, [large], ProducerSettings(codec="gzip", max_bytes=20_000_000))
    assert client.consume(topic, 1) == as_seen([large])
