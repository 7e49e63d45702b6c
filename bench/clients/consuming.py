"""Consumers that read a partition from its beginning for some seconds, or to its end, and look at every value.

Each reads for a while before the clock starts, and begins again with the first record; the clock starts when the first
of these came: how a client finds its place, and loads what it needs, is not what is measured. Clients are asked for
many records at once, as their documentation recommends; and of an answer only the values are looked at, though some
would have to be asked for errors as well.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import uvloop
from bench.clients import conditions
from bench.clients.conditions import POLL_RECORDS
from bench.clients.forms import HEADERS
from bench.clients.measuring import WARM_S, cost

_POLL_S: Final = 5.0
Taken = tuple[int, int]
"""Records, and the bytes of their values."""


def ottla(address: str, pid: int, topic: str, value_bytes: int, count: int, seconds: float) -> dict[str, float]:
    from ottla import Consumer, TopicPartition

    with Consumer(conditions.ottla_consumer(address)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def take() -> Taken:
            records = consumer.poll(_POLL_S)
            return len(records), sum([len(record.value or b"") for record in records])

        return _measured(take, consumer.seek_to_beginning, pid, value_bytes, count, seconds)


def ottla_headers(address: str, pid: int, topic: str, value_bytes: int, count: int, seconds: float) -> dict[str, float]:
    from ottla import Consumer, TopicPartition

    with Consumer(conditions.ottla_consumer(address)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def take() -> Taken:
            records = consumer.poll(_POLL_S)
            _check_headers(len(records), sum([len(record.headers) for record in records]))
            return len(records), sum([len(record.value or b"") for record in records])

        return _measured(take, consumer.seek_to_beginning, pid, value_bytes, count, seconds)


def ottla_asyncio(address: str, pid: int, topic: str, value_bytes: int, count: int, seconds: float) -> dict[str, float]:
    from ottla import AsyncConsumer, TopicPartition

    async def run() -> dict[str, float]:
        async with AsyncConsumer(conditions.ottla_consumer(address)) as consumer:
            consumer.assign([TopicPartition(topic, 0)])

            async def take() -> Taken:
                records = await consumer.poll(_POLL_S)
                return len(records), sum([len(record.value or b"") for record in records])

            return await _measured_async(take, consumer.seek_to_beginning, pid, value_bytes, count, seconds)

    return uvloop.run(run())


def ottla_arrow(address: str, pid: int, topic: str, value_bytes: int, count: int, seconds: float) -> dict[str, float]:
    import pyarrow.compute

    from ottla import Consumer, TopicPartition

    with Consumer(conditions.ottla_consumer(address)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def take() -> Taken:
            table = consumer.poll_arrow(_POLL_S)
            return len(table), pyarrow.compute.sum(pyarrow.compute.binary_length(table["value"])).as_py() or 0

        return _measured(take, consumer.seek_to_beginning, pid, value_bytes, count, seconds)


def confluent(address: str, pid: int, topic: str, value_bytes: int, count: int, seconds: float) -> dict[str, float]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(conditions.confluent_consumer(address))
    beginning = confluent_kafka.TopicPartition(topic, 0, 0)
    consumer.assign([beginning])

    def take() -> Taken:
        messages = consumer.consume(POLL_RECORDS, _POLL_S)
        return len(messages), sum([len(message.value() or b"") for message in messages])

    try:
        return _measured(take, lambda: consumer.seek(beginning), pid, value_bytes, count, seconds)
    finally:
        consumer.close()


def confluent_headers(
    address: str, pid: int, topic: str, value_bytes: int, count: int, seconds: float
) -> dict[str, float]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(conditions.confluent_consumer(address))
    beginning = confluent_kafka.TopicPartition(topic, 0, 0)
    consumer.assign([beginning])

    def take() -> Taken:
        messages = consumer.consume(POLL_RECORDS, _POLL_S)
        _check_headers(len(messages), sum([len(message.headers() or ()) for message in messages]))
        return len(messages), sum([len(message.value() or b"") for message in messages])

    try:
        return _measured(take, lambda: consumer.seek(beginning), pid, value_bytes, count, seconds)
    finally:
        consumer.close()


def aiokafka(address: str, pid: int, topic: str, value_bytes: int, count: int, seconds: float) -> dict[str, float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> dict[str, float]:
        consumer = AIOKafkaConsumer(**conditions.aiokafka_consumer(address))
        await consumer.start()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])

        async def take() -> Taken:
            polled = await consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=POLL_RECORDS)
            sizes = [len(record.value) for records in polled.values() for record in records]
            return len(sizes), sum(sizes)

        try:
            return await _measured_async(take, lambda: consumer.seek(partition, 0), pid, value_bytes, count, seconds)
        finally:
            await consumer.stop()

    return uvloop.run(run())


def kafka_python(address: str, pid: int, topic: str, value_bytes: int, count: int, seconds: float) -> dict[str, float]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(**conditions.kafka_python_consumer(address))
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])

    def take() -> Taken:
        polled = consumer.poll(int(_POLL_S * 1000), max_records=POLL_RECORDS)
        sizes = [len(record.value) for records in polled.values() for record in records]
        return len(sizes), sum(sizes)

    try:
        return _measured(take, lambda: consumer.seek(partition, 0), pid, value_bytes, count, seconds)
    finally:
        consumer.close(autocommit=False)


def _measured(
    take: Callable[[], Taken], rewind: Callable[[], None], pid: int, value_bytes: int, count: int, seconds: float
) -> dict[str, float]:
    last, read, read_bytes = _whole_polls(count), 0, 0
    until_s = time.perf_counter() + WARM_S
    while time.perf_counter() < until_s:
        read += _came(take())[0]
        if read >= last:
            read = 0
            rewind()
    rewind()
    _came(take())
    read, until_s = 0, time.perf_counter() + seconds
    with cost(pid) as spent:
        while read < last and time.perf_counter() < until_s:
            records, size = _came(take())
            read += records
            read_bytes += size
    return _checked(read, read_bytes, value_bytes, spent.of_records(read, value_bytes))


async def _measured_async(
    take: Callable[[], Awaitable[Taken]],
    rewind: Callable[[], None],
    pid: int,
    value_bytes: int,
    count: int,
    seconds: float,
) -> dict[str, float]:
    last, read, read_bytes = _whole_polls(count), 0, 0
    until_s = time.perf_counter() + WARM_S
    while time.perf_counter() < until_s:
        read += _came(await take())[0]
        if read >= last:
            read = 0
            rewind()
    rewind()
    _came(await take())
    read, until_s = 0, time.perf_counter() + seconds
    with cost(pid) as spent:
        while read < last and time.perf_counter() < until_s:
            records, size = _came(await take())
            read += records
            read_bytes += size
    return _checked(read, read_bytes, value_bytes, spent.of_records(read, value_bytes))


def _check_headers(records: int, headers: int) -> None:
    if headers != records * HEADERS:
        raise RuntimeError(f"{records} records came with {headers} headers, and not {HEADERS} each")


def _whole_polls(count: int) -> int:
    """How far to read: who waits for as many records as it asks for must never wait for what is not there."""
    return count - 3 * POLL_RECORDS


def _came(taken: Taken) -> Taken:
    if not taken[0]:
        raise RuntimeError(f"no record came within {_POLL_S:g} s")
    return taken


def _checked(read: int, read_bytes: int, value_bytes: int, figures: dict[str, float]) -> dict[str, float]:
    if read_bytes != read * value_bytes:
        raise RuntimeError(f"{read} records of {value_bytes} bytes came with {read_bytes} bytes")
    return figures
