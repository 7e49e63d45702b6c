"""Our own client on a running broker, where a command line does not reach: restarts, and company of other clients."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as ConfluentProducer

from ottla.base.ids import TopicPartition
from ottla.client.admin import Admin, TopicSpec
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.offsets import EARLIEST
from ottla.client.producer import Producer, ProducerOptions
from ottla.testing.broker import Broker

TIMEOUT_S = 90


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


async def read(cluster: Cluster, partitions: list[TopicPartition], count: int) -> dict[TopicPartition, list[bytes]]:
    """The values of so many records, by partition."""
    values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
    async with Consumer(cluster) as consumer:
        await consumer.assign(dict.fromkeys(partitions, EARLIEST))
        async for fetched in consumer:
            values[fetched.partition] += [record.value or b"" for record in fetched.records]
            if sum(map(len, values.values())) >= count:
                return values
    raise AssertionError("a consumer with partitions does not end")


def test_keys_go_to_the_partitions_where_other_clients_send_them(broker: Broker) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    keys = [f"key {number}".encode() for number in range(100)]

    async def scenario() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await Admin(cluster).create_topics([TopicSpec(topic, 7, 1)])
            async with Producer(cluster) as producer:
                for key in keys:
                    await producer.send(topic, key, key=key)
            peer = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
            for key in keys:
                peer.produce(topic, value=key, key=key)
            assert peer.flush(TIMEOUT_S) == 0
            partitions = [TopicPartition(topic, index) for index in range(7)]
            found = await read(cluster, partitions, 2 * len(keys))
            for values in found.values():
                assert len(values) == 2 * len(set(values))
            assert sum(map(len, found.values())) == 2 * len(keys)

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_a_broker_that_goes_and_comes_back_costs_no_record_and_doubles_none(end: str) -> None:
    topic = "survivors"
    count = 3000

    async def scenario(broker: Broker) -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await Admin(cluster).create_topics([TopicSpec(topic, 1, 1)])
            partition = TopicPartition(topic, 0)
            reading = asyncio.create_task(read(cluster, [partition], count))
            async with Producer(cluster, ProducerOptions(linger_s=0, batch_bytes=2000)) as producer:
                for number in range(count):
                    delivery = await producer.send(topic, b"%d" % number)
                    if number % 50 == 0:
                        await delivery.acknowledged()
                    if number == count // 3:
                        interruption.start()
            interruption.join()
            assert await reading == {partition: [b"%d" % number for number in range(count)]}

    with Broker() as broker:

        def interrupt() -> None:
            if end == "kill":
                broker.kill()
                broker.start()
            else:
                broker.restart()

        interruption = threading.Thread(target=interrupt)
        asyncio.run(asyncio.wait_for(scenario(broker), TIMEOUT_S))
