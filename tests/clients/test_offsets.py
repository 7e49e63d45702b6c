"""Finding a place in a partition: seeks, bounds, times, and offsets that are not there."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from ottla.base.error_codes import ErrorCode
from support.clients.confluent_client import ConfluentClient, only_result
from support.clients.dialect import Client, ConsumerSettings, Record, refused
from support.clients.expectations import START_MS, as_seen, numbered
from support.clients.kafka_python_client import KafkaPythonClient
from support.waiting import wait_until


def test_a_consumer_reads_on_from_where_it_is_sent(client: Client, topic: str) -> None:
    records = numbered(30)
    with client.producer() as producer:
        # Two batches: a seek into the middle of one must not show what is before it.
        producer.send(topic, records[:20])
        producer.send(topic, records[20:])
    with client.consumer(topic) as consumer:
        assert consumer.take(5) == as_seen(records[:5])
        for offset in (17, 0, 29, 20):
            consumer.seek(0, offset)
            assert consumer.take(1) == as_seen(records[offset : offset + 1], offset)


def test_bounds_follow_what_is_written_and_deleted(client: Client, topic: str) -> None:
    with client.admin() as admin:
        admin.create_topic(topic, partitions=2)
        with client.consumer(topic, (0, 1)) as consumer:
            assert (consumer.bounds(0), consumer.bounds(1)) == ((0, 0), (0, 0))
            client.produce(topic, numbered(10, partition=1))
            assert (consumer.bounds(0), consumer.bounds(1)) == ((0, 0), (0, 10))
            assert admin.delete_records(topic, 1, before=4) == 4
            assert consumer.bounds(1) == (4, 10)
            # -1 stands for the end.
            assert admin.delete_records(topic, 1, before=-1) == 10
            assert consumer.bounds(1) == (10, 10)


def test_deleted_records_are_not_read_and_the_rest_is(client: Client, topic: str) -> None:
    records = numbered(10)
    client.produce(topic, records)
    with client.admin() as admin:
        admin.delete_records(topic, 0, before=6)
        assert client.consume(topic, 4) == as_seen(records[6:], 6)
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            admin.delete_records(topic, 0, before=11)


def test_the_first_record_that_is_late_enough(client: Client, topic: str) -> None:
    with client.producer() as producer:
        producer.send(topic, [Record(b"", timestamp_ms=START_MS + late) for late in (0, 10, 5)])
        producer.send(topic, [Record(b"", timestamp_ms=START_MS + late) for late in (20, 30)])
    with client.consumer(topic) as consumer:
        found = {late: consumer.offset_for_time(0, START_MS + late) for late in (-5, 0, 1, 10, 11, 30, 31)}
    assert found == {-5: 0, 0: 0, 1: 1, 10: 1, 11: 3, 30: 4, 31: None}


def test_an_offset_that_is_not_there(client: Client, topic: str) -> None:
    records = numbered(3)
    client.produce(topic, records)
    with client.consumer(topic, settings=ConsumerSettings(reset="none")) as consumer:
        assert consumer.take(3) == as_seen(records)
        consumer.seek(0, 100)
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            consumer.take(1)
    with client.consumer(topic, settings=ConsumerSettings(reset="earliest")) as consumer:
        assert consumer.take(1) == as_seen(records[:1])
        consumer.seek(0, 100)
        assert consumer.take(3) == as_seen(records)


SPECS: Any = OffsetSpec
"""Its factories carry no types."""

TIMES = (0, 50, 30)
"""Of three records: the latest is not the last."""


@pytest.fixture
def three_times(confluent: ConfluentClient, topic: str) -> str:
    confluent.produce(topic, [Record(b"", timestamp_ms=START_MS + late) for late in TIMES])
    return topic


@pytest.mark.parametrize("isolation", IsolationLevel)
def test_confluent_asks_for_offsets_by_what_they_are(
    isolation: IsolationLevel, confluent: ConfluentClient, three_times: str
) -> None:
    wanted = {
        SPECS.earliest(): (0, -1),
        SPECS.latest(): (3, -1),
        SPECS.max_timestamp(): (1, START_MS + 50),
        SPECS.for_timestamp(START_MS + 1): (1, START_MS + 50),
        SPECS.for_timestamp(START_MS + 51): (-1, -1),
    }
    with confluent.admin() as admin:
        for spec, expected in wanted.items():
            asked = {TopicPartition(three_times, 0): spec}
            found = only_result(admin.library.list_offsets(asked, isolation_level=isolation))
            assert (found.offset, found.timestamp) == expected


def test_kafka_python_asks_for_offsets_by_what_they_are(kafka_python: KafkaPythonClient, three_times: str) -> None:
    wanted = {
        kafka_python.offset_specs.EARLIEST: (0, -1),
        kafka_python.offset_specs.LATEST: (3, -1),
        kafka_python.offset_specs.MAX_TIMESTAMP: (1, START_MS + 50),
        kafka_python.offset_specs.EARLIEST_LOCAL: (0, -1),
        # Nothing is stored away from this broker.
        kafka_python.offset_specs.LATEST_TIERED: (-1, -1),
        START_MS + 1: (1, START_MS + 50),
        START_MS + 51: (-1, -1),
    }
    with kafka_python.admin() as admin:
        found = {spec: admin.offset(three_times, 0, spec) for spec in wanted}
    assert found == wanted


@pytest.mark.parametrize("kind", ["max_timestamp", "earliest", "latest"])
def test_offsets_of_a_partition_that_is_empty(kind: str, confluent: ConfluentClient, topic: str) -> None:
    with confluent.admin() as admin:
        admin.create_topic(topic)
        wait_until(lambda: topic in admin.topics(), "the new topic is not listed")
        found = only_result(admin.library.list_offsets({TopicPartition(topic, 0): getattr(SPECS, kind)()}))
    assert (found.offset, found.timestamp) == ((-1, -1) if kind == "max_timestamp" else (0, -1))
