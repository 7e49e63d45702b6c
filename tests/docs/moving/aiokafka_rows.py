"""Rows of the table for aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka

from docs.moving.rows import WAIT_S, Place, async_row
from ottla import AsyncConsumer, AsyncProducer


async def async_consumer(place: Place, *topics: str) -> Any:
    theirs = aiokafka.AIOKafkaConsumer(*topics, **place.keywords())
    await theirs.start()
    return theirs


def async_partition(place: Place) -> Any:
    return aiokafka.TopicPartition(place.topic, 0)


@async_row("`AIOKafkaProducer(…)`, `await AIOKafkaProducer.start()`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    await theirs.send_and_wait(place.topic, b"v")
    await theirs.stop()
    async with AsyncProducer(bootstrap_servers=place.bootstrap) as producer:
        assert (await producer.send_and_wait(place.topic, b"v")).offset == 4


@async_row("`await AIOKafkaProducer.stop()`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    await theirs.send(place.topic, b"v")
    await theirs.stop()
    producer = AsyncProducer(bootstrap_servers=place.bootstrap)
    await producer.send(place.topic, b"v")
    await producer.close()
    assert (await asyncio.to_thread(place.values))[3:] == [b"v", b"v"]


@async_row("`await AIOKafkaProducer.send_and_wait(topic, value)`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    metadata = await theirs.send_and_wait(place.topic, b"v")
    await theirs.stop()
    async with AsyncProducer(bootstrap_servers=place.bootstrap) as producer:
        assert (await producer.send_and_wait(place.topic, b"v")).offset == metadata.offset + 1


@async_row("`await AIOKafkaProducer.send(topic, value)`, a future")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    future = await theirs.send(place.topic, b"v")
    assert (await future).offset == 3
    await theirs.stop()
    async with AsyncProducer(bootstrap_servers=place.bootstrap) as producer:
        delivery = await producer.send(place.topic, b"v")
        assert (await delivery).offset == 4


@async_row("`AIOKafkaProducer.create_batch()`, `AIOKafkaProducer.send_batch(batch, topic, partition=0)`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    batch = theirs.create_batch()
    batch.append(key=None, value=b"a", timestamp=None)
    await (await theirs.send_batch(batch, place.topic, partition=0))
    await theirs.stop()
    async with AsyncProducer(bootstrap_servers=place.bootstrap) as producer:
        await (await producer.send_batch(place.topic, {"value": [b"a"]}, partition=0))
    assert (await asyncio.to_thread(place.values))[3:] == [b"a", b"a"]


@async_row('`AIOKafkaConsumer("orders", group_id=…)`, `await AIOKafkaConsumer.start()`')
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    message = await theirs.getone()
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        assert (await consumer.poll(WAIT_S))[0].value == message.value


@async_row("`await AIOKafkaConsumer.getone()`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    message = await theirs.getone()
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        (record,) = await consumer.poll(max_records=1)
    assert record.value == message.value == b"0"


@async_row("`await AIOKafkaConsumer.getmany(timeout_ms=1000)`, a dict")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    polled: dict[Any, list[Any]] = {}
    while not polled:
        polled = await theirs.getmany(timeout_ms=1000)
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        records = await consumer.poll(WAIT_S)
    ((_, messages),) = polled.items()
    assert [one.value for one in messages] == [one.value for one in records]


@async_row("`async for message in consumer`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    values: list[bytes] = []
    async for message in theirs:
        values.append(message.value)
        if len(values) == 3:
            break
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        async for record in consumer:
            assert record.value == values.pop(0)
            if not values:
                break


@async_row("`await AIOKafkaConsumer.commit()`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    await theirs.getone()
    await theirs.commit()
    assert await theirs.committed(async_partition(place)) == 1
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        await consumer.poll(WAIT_S, max_records=1)
        await consumer.commit()
        committed = (await consumer.committed([place.partition]))[place.partition]
        assert committed is not None
        assert committed.offset == 1


@async_row("`await AIOKafkaConsumer.committed(partition)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    assert await theirs.committed(async_partition(place)) is None
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        assert await consumer.committed([place.partition]) == {place.partition: None}


@async_row("`AIOKafkaConsumer.seek(partition, offset)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    theirs.assign([async_partition(place)])
    theirs.seek(async_partition(place), 2)
    message = await theirs.getone()
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 2)
        assert (await consumer.poll(WAIT_S))[0].offset == message.offset == 2


@async_row("`await AIOKafkaConsumer.seek_to_beginning(partition)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    theirs.assign([async_partition(place)])
    await theirs.seek_to_beginning(async_partition(place))
    message = await theirs.getone()
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 2)
        consumer.seek_to_beginning([place.partition])
        assert (await consumer.poll(WAIT_S))[0].offset == message.offset == 0


@async_row("`await AIOKafkaConsumer.position(partition)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    theirs.assign([async_partition(place)])
    await theirs.getone()
    found = await theirs.position(async_partition(place))
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.assign([place.partition])
        await consumer.poll(WAIT_S, max_records=1)
        assert await consumer.position(place.partition) == found == 1


@async_row("`await AIOKafkaConsumer.end_offsets([partition])`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    found = await theirs.end_offsets([async_partition(place)])
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        assert list((await consumer.end_offsets([place.partition])).values()) == list(found.values()) == [3]


@async_row("`AIOKafkaConsumer.highwater(partition)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    message = await theirs.getone()
    high = theirs.highwater(async_partition(place))
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        await consumer.poll(WAIT_S, max_records=1)
        assert consumer.lag(place.partition) == high - message.offset - 1 == 2


@async_row("`async with AIOKafkaProducer.transaction()`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap, transactional_id=place.topic)
    await theirs.start()
    async with theirs.transaction():
        await theirs.send(place.topic, b"theirs")
    await theirs.stop()
    ours = AsyncProducer(bootstrap_servers=place.bootstrap, transactional_id=place.topic)
    async with ours, ours.transaction():
        await ours.send(place.topic, b"ours")
    assert await asyncio.to_thread(place.values_of_transactions) == [b"theirs", b"ours"]
