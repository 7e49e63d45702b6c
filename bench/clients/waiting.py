"""Producers that wait for each record to be acknowledged before they send the next: how long that takes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop
from bench.clients import conditions
from bench.clients.conditions import WAIT_S
from bench.clients.measuring import cost, values_of

_WARM: Final = 200


def ottla(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    from ottla import Producer

    with Producer(conditions.ottla_producer(address, linger_ms=0)) as producer:
        return _measured(lambda value: producer.send(topic, value).result(WAIT_S), pid, value_bytes, seconds)


def ottla_asyncio(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    from ottla import AsyncProducer

    async def run() -> dict[str, float]:
        async with AsyncProducer(conditions.ottla_producer(address, linger_ms=0)) as producer:
            return await _measured_async(lambda value: producer.send_and_wait(topic, value), pid, value_bytes, seconds)

    return uvloop.run(run())


def confluent(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    import confluent_kafka

    producer = confluent_kafka.Producer(conditions.confluent_producer(address, linger_ms=0))

    def send(value: bytes) -> None:
        producer.produce(topic, value)
        producer.flush(WAIT_S)

    return _measured(send, pid, value_bytes, seconds)


def aiokafka(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async def run() -> dict[str, float]:
        producer = AIOKafkaProducer(**conditions.aiokafka_producer(address, linger_ms=0))
        await producer.start()
        try:
            return await _measured_async(lambda value: producer.send_and_wait(topic, value), pid, value_bytes, seconds)
        finally:
            await producer.stop()

    return uvloop.run(run())


def kafka_python(address: str, pid: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(**conditions.kafka_python_producer(address, linger_ms=0))
    try:
        return _measured(lambda value: producer.send(topic, value).get(WAIT_S), pid, value_bytes, seconds)
    finally:
        producer.close()


def _measured(send: Callable[[bytes], Any], pid: int, value_bytes: int, seconds: float) -> dict[str, float]:
    (value, *_), clock, taken_s = values_of(value_bytes), time.perf_counter, []
    for _ in range(_WARM):
        send(value)
    until_s = clock() + seconds
    with cost(pid) as spent:
        while (begun_s := clock()) < until_s:
            send(value)
            taken_s.append(clock() - begun_s)
    return {**spent.of_records(len(taken_s), value_bytes), **_percentiles(taken_s)}


async def _measured_async(
    send: Callable[[bytes], Awaitable[Any]], pid: int, value_bytes: int, seconds: float
) -> dict[str, float]:
    (value, *_), clock, taken_s = values_of(value_bytes), time.perf_counter, []
    for _ in range(_WARM):
        await send(value)
    until_s = clock() + seconds
    with cost(pid) as spent:
        while (begun_s := clock()) < until_s:
            await send(value)
            taken_s.append(clock() - begun_s)
    return {**spent.of_records(len(taken_s), value_bytes), **_percentiles(taken_s)}


def _percentiles(taken_s: list[float]) -> dict[str, float]:
    taken_s.sort()
    return {
        "p50_ms": taken_s[len(taken_s) // 2] * 1e3,
        "p99_ms": taken_s[len(taken_s) * 99 // 100] * 1e3,
    }
