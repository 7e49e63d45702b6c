"""Columns sent to a running broker by our producer, in both its faces."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from clients.own.test_producer import WAIT_S, make, records_of
from ottla import AsyncProducer, Consumer, Producer, TopicPartition
from ottla.client.errors import PartlySentError, RecordTooLargeError, SerializationError
from ottla.client.produce import BatchMetadata
from ottla.client.produce.partitioners import partition_of_key
from support.clients.peers import Peer

COUNT = 50_000


@pytest.fixture
def table() -> pa.Table:
    keys = [b"key %d" % (index % 101) if index % 5 else None for index in range(COUNT)]
    return pa.table({"key": pa.array(keys), "value": pa.array([b"%d" % index for index in range(COUNT)])})


def check(broker: Peer, topic: str, told: list[BatchMetadata], total: int = COUNT) -> None:
    assert sum(one.record_count for one in told) == total
    records = {(one.partition, one.offset): one for one in records_of(broker, topic, total, 3)}
    assert {
        (one.partition, offset) for one in told for offset in range(one.offset, one.offset + one.record_count)
    } == set(records)
    latest: dict[bytes, int] = {}
    for (partition, _), record in sorted(records.items()):
        if record.key is not None:
            assert partition == partition_of_key(record.key, 3)
            assert latest.get(record.key, -1) < int(record.value or b"")
            latest[record.key] = int(record.value or b"")
    assert {int(one.value or b"") for one in records.values()} == set(range(total))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_table_is_sent(broker: Peer, topic: str, table: pa.Table, codec: str) -> None:
    make(broker, topic, 3)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
        delivery = producer.send_batch(topic, table)
        assert len(delivery) == COUNT
        check(broker, topic, delivery.result(WAIT_S))
        assert delivery.done()
        assert delivery.exception() is None


def test_a_table_is_sent_by_a_coroutine(broker: Peer, topic: str, table: pa.Table) -> None:
    make(broker, topic, 3)

    async def scenario() -> list[BatchMetadata]:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap) as producer:
            return await (await producer.send_batch(topic, table))

    check(broker, topic, asyncio.run(scenario()))


def test_a_table_larger_than_the_buffer_is_sent(broker: Peer, topic: str, table: pa.Table) -> None:
    make(broker, topic, 3)
    with Producer(bootstrap_servers=broker.bootstrap, buffer_memory=600_000) as producer:
        check(broker, topic, producer.send_batch(topic, table).result(WAIT_S))


def test_columns_and_records_stay_in_the_order_of_their_sending(broker: Peer, topic: str) -> None:
    make(broker, topic)
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=10_000) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % (2 * number))
            producer.send_batch(topic, {"value": [b"%d" % (2 * number + 1)]})
    assert [one.value for one in records_of(broker, topic, 40)] == [b"%d" % number for number in range(40)]


def test_batches_above_the_topics_limit_are_split(broker: Peer, topic: str) -> None:
    make(broker, topic, max_message_bytes="5000")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        told = producer.send_batch(topic, {"value": [b"%4d" % number * 100 for number in range(200)]}).result(WAIT_S)
        assert [one.offset for one in told] == [sum(part.record_count for part in told[:at]) for at in range(len(told))]
        delivery = producer.send_batch(topic, {"value": [b"x" * 10_000]})
        with pytest.raises(RecordTooLargeError):
            delivery.result(WAIT_S)
    assert [one.value[:4] for one in records_of(broker, topic, 200) if one.value] == [b"%4d" % n for n in range(200)]


def test_columns_of_something_else_are_refused(broker: Peer, topic: str) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap) as producer,
        pytest.raises(SerializationError, match="number: no part of a record"),
    ):
        producer.send_batch(topic, {"number": [1]})


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_what_fails_after_some_rows_were_sent_leaves_a_handle_on_those(broker: Peer, topic: str, face: str) -> None:
    count = 20_000
    table = pa.table({"value": [b"%1000d" % index for index in range(count)] + [bytes(2_000_000)]})
    settings = {"bootstrap_servers": broker.bootstrap}

    async def send() -> list[BatchMetadata]:
        async with AsyncProducer(settings) as producer:
            with pytest.raises(RecordTooLargeError):
                await producer.send_batch(topic, table.slice(count))
            with pytest.raises(PartlySentError) as caught:
                await producer.send_batch(topic, table)
            assert isinstance(caught.value.__cause__, RecordTooLargeError)
            return await caught.value.sent

    if face == "asyncio":
        places = asyncio.run(send())
    else:
        with Producer(settings) as producer:
            with pytest.raises(PartlySentError, match=r"max\.request\.size.* rows were sent before") as caught:
                producer.send_batch(topic, table)
            places = caught.value.sent.result(60)
    sent = sum(place.record_count for place in places)
    assert 0 < sent <= count
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        assert consumer.end_offsets([partition]) == {partition: sent}
