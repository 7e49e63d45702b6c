"""Producers that send records of one size to one partition for some seconds, and then until all are acknowledged.

Records are sent as the client's documentation shows it for many of them: nobody waits for, or looks at, the outcome of
each; that all have arrived is checked by the partition's end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop
from bench.broker.control import check_end_offset
from bench.clients import conditions
from bench.clients.conditions import WAIT_S
from bench.clients.measuring import BURST, WARM_S, cost, values_of

_BATCH: Final = 10 * BURST
"""Records of a call that takes many."""


def ottla(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    from ottla import Producer

    values = values_of(value_bytes)
    with Producer(conditions.ottla_producer(address)) as producer:
        send = producer.send

        def burst() -> None:
            for value in values:
                send(topic, value)

        return measured(burst, producer.flush, address, pid, topic, value_bytes, seconds)


def ottla_asyncio(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    from ottla import AsyncProducer

    values = values_of(value_bytes)

    async def run() -> dict[str, float]:
        async with AsyncProducer(conditions.ottla_producer(address)) as producer:

            async def burst() -> None:
                for value in values:
                    await producer.send(topic, value)

            return await measured_async(burst, producer.flush, address, pid, topic, value_bytes, seconds)

    return uvloop.run(run())


def ottla_arrow(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    import pyarrow

    from ottla import Producer

    values = values_of(value_bytes) * (_BATCH // BURST)
    table = pyarrow.table({"value": pyarrow.array(values, pyarrow.binary())})
    with Producer(conditions.ottla_producer(address)) as producer:

        def burst() -> None:
            producer.send_batch(topic, table)

        return measured(burst, producer.flush, address, pid, topic, value_bytes, seconds, per_burst=_BATCH)


def confluent(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    import confluent_kafka

    values = values_of(value_bytes)
    producer = confluent_kafka.Producer(conditions.confluent_producer(address))
    produce, poll = producer.produce, producer.poll

    def burst() -> None:
        for value in values:
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    poll(0.005)
        poll(0)

    return measured(burst, lambda: producer.flush(WAIT_S), address, pid, topic, value_bytes, seconds)


def confluent_batch(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    """By its call for many records, which it copies from dictionaries that are made beforehand."""
    import confluent_kafka

    messages = [{"value": value} for value in values_of(value_bytes)] * (_BATCH // BURST)
    producer = confluent_kafka.Producer(conditions.confluent_producer(address))
    queued_max = max(2 * _BATCH, conditions.BUFFER_BYTES // 2 // value_bytes)

    def burst() -> None:
        while len(producer) > queued_max:
            producer.poll(0.005)
        taken = producer.produce_batch(topic, messages)
        if taken != _BATCH:
            raise RuntimeError(f"of {_BATCH} records confluent-kafka took {taken}")

    flush = lambda: producer.flush(WAIT_S)  # noqa: E731
    return measured(burst, flush, address, pid, topic, value_bytes, seconds, per_burst=_BATCH)


def aiokafka(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    values = values_of(value_bytes)

    async def run() -> dict[str, float]:
        producer = AIOKafkaProducer(**conditions.aiokafka_producer(address))
        await producer.start()
        try:

            async def burst() -> None:
                for value in values:
                    await producer.send(topic, value)

            return await measured_async(burst, producer.flush, address, pid, topic, value_bytes, seconds)
        finally:
            await producer.stop()

    return uvloop.run(run())


def kafka_python(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    from kafka import KafkaProducer

    values = values_of(value_bytes)
    producer = KafkaProducer(**conditions.kafka_python_producer(address))
    send = producer.send

    def burst() -> None:
        for value in values:
            send(topic, value)

    try:
        return measured(burst, lambda: producer.flush(WAIT_S), address, pid, topic, value_bytes, seconds)
    finally:
        producer.close()


def measured(
    burst: Callable[[], None],
    flush: Callable[[], Any],
    address: str,
    pid: int,
    topic: str,
    value_bytes: int,
    seconds: float,
    per_burst: int = BURST,
) -> dict[str, float]:
    warm, until_s = 0, time.perf_counter() + WARM_S
    while time.perf_counter() < until_s:
        burst()
        warm += 1
    flush()
    bursts, until_s = 0, time.perf_counter() + seconds
    with cost(pid) as spent:
        while time.perf_counter() < until_s:
            burst()
            bursts += 1
        flush()
    check_end_offset(address, topic, 0, (warm + bursts) * per_burst)
    return spent.of_records(bursts * per_burst, value_bytes)


async def measured_async(
    burst: Callable[[], Awaitable[None]],
    flush: Callable[[], Awaitable[Any]],
    address: str,
    pid: int,
    topic: str,
    value_bytes: int,
    seconds: float,
) -> dict[str, float]:
    warm, until_s = 0, time.perf_counter() + WARM_S
    while time.perf_counter() < until_s:
        await burst()
        # Where nothing ever waits, a loop of sends would leave the client no time to send.
        await asyncio.sleep(0)
        warm += 1
    await flush()
    bursts, until_s = 0, time.perf_counter() + seconds
    with cost(pid) as spent:
        while time.perf_counter() < until_s:
            await burst()
            await asyncio.sleep(0)
            bursts += 1
        await flush()
    check_end_offset(address, topic, 0, (warm + bursts) * BURST)
    return spent.of_records(bursts * BURST, value_bytes)
