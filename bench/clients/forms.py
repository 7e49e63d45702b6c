"""Producers that send records of each form: with a key, a partition, headers, a timestamp, serializers, callbacks.

Blocking clients run the same loop: their calls take the same arguments. Keys are among 10,000. Headers are two, one of
which is different for each record. Serializers are each client's own for text, of key and value. A callback is told of
each record.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import uvloop
from bench.broker.raw import MB
from bench.clients import conditions
from bench.clients.conditions import WAIT_S
from bench.clients.measuring import BURST, values_of
from bench.clients.producing import measured, measured_async

FORMS: Final = ("key", "partition", "headers", "timestamp", "key-headers", "serializers", "callbacks")
HEADERS: Final = 2
"""Of each record that has any."""
_KEYS: Final = 10_000


class _Columns(NamedTuple):
    """What a burst is made of."""

    values: list[Any]
    keys: list[Any]
    headers: list[list[tuple[str, bytes]]]
    times_ms: list[int]


def _columns(form: str, value_bytes: int) -> _Columns:
    chance, now_ms = random.Random(7), int(time.time() * 1000)
    keys = [b"key-%05d" % chance.randrange(_KEYS) for _ in range(BURST)]
    values = values_of(value_bytes)
    headers = [[("trace", chance.randbytes(16)), ("source", b"bench")] for _ in range(BURST)]
    times_ms = [now_ms + index // 100 for index in range(BURST)]
    if form == "serializers":
        texts = [value.hex()[:value_bytes] for value in values]
        return _Columns(texts, [key.decode() for key in keys], headers, times_ms)
    return _Columns(values, keys, headers, times_ms)


def _burst(form: str, send: Callable[..., Any], topic: str, columns: _Columns) -> Callable[[], None]:
    """A loop of sends, written out as a program would."""
    values, keys, headers, times_ms = columns

    def with_key() -> None:
        for value, key in zip(values, keys, strict=True):
            send(topic, value=value, key=key)

    def with_partition() -> None:
        for value in values:
            send(topic, value, partition=0)

    def with_headers() -> None:
        for value, pairs in zip(values, headers, strict=True):
            send(topic, value, headers=pairs)

    def with_timestamp() -> None:
        for value, time_ms in zip(values, times_ms, strict=True):
            send(topic, value, timestamp=time_ms)

    def with_key_and_headers() -> None:
        for value, key, pairs in zip(values, keys, headers, strict=True):
            send(topic, value=value, key=key, headers=pairs)

    return {
        "key": with_key,
        "partition": with_partition,
        "headers": with_headers,
        "timestamp": with_timestamp,
        "key-headers": with_key_and_headers,
        "serializers": with_key,
    }[form]


def ottla(address: str, pid: int, topic: str, value_bytes: int, seconds: float, form: str) -> dict[str, float]:
    from ottla import Producer

    columns = _columns(form, value_bytes)
    settings = conditions.ottla_producer(address)
    if form == "serializers":
        settings |= {"key.serializer": "string", "value.serializer": "string"}
    told = 0

    def tell(_: Any) -> None:
        nonlocal told
        told += 1

    with Producer(settings) as producer:
        send = producer.send

        def with_callback() -> None:
            for value in columns.values:
                send(topic, value).add_done_callback(tell)

        burst = with_callback if form == "callbacks" else _burst(form, send, topic, columns)
        return measured(burst, producer.flush, address, pid, topic, value_bytes, seconds)


def ottla_asyncio(address: str, pid: int, topic: str, value_bytes: int, seconds: float, form: str) -> dict[str, float]:
    from ottla import AsyncProducer

    columns = _columns(form, value_bytes)
    values, keys, headers, times_ms = columns
    settings = conditions.ottla_producer(address)
    if form == "serializers":
        settings |= {"key.serializer": "string", "value.serializer": "string"}
    told = 0

    def tell(_: Any) -> None:
        nonlocal told
        told += 1

    async def run() -> dict[str, float]:
        async with AsyncProducer(settings) as producer:
            send = producer.send

            async def with_key() -> None:
                for value, key in zip(values, keys, strict=True):
                    await send(topic, value=value, key=key)

            async def with_partition() -> None:
                for value in values:
                    await send(topic, value, partition=0)

            async def with_headers() -> None:
                for value, pairs in zip(values, headers, strict=True):
                    await send(topic, value, headers=pairs)

            async def with_timestamp() -> None:
                for value, time_ms in zip(values, times_ms, strict=True):
                    await send(topic, value, timestamp=time_ms)

            async def with_key_and_headers() -> None:
                for value, key, pairs in zip(values, keys, headers, strict=True):
                    await send(topic, value=value, key=key, headers=pairs)

            async def with_callback() -> None:
                for value in values:
                    (await send(topic, value)).add_done_callback(tell)

            bursts = {
                "key": with_key,
                "partition": with_partition,
                "headers": with_headers,
                "timestamp": with_timestamp,
                "key-headers": with_key_and_headers,
                "serializers": with_key,
                "callbacks": with_callback,
            }
            return await measured_async(bursts[form], producer.flush, address, pid, topic, value_bytes, seconds)

    return uvloop.run(run())


def confluent(address: str, pid: int, topic: str, value_bytes: int, seconds: float, form: str) -> dict[str, float]:
    import confluent_kafka
    from confluent_kafka.serialization import StringSerializer

    columns = _columns(form, value_bytes)
    settings = conditions.confluent_producer(address)
    producer: Any
    if form == "serializers":
        text = StringSerializer()
        producer = confluent_kafka.SerializingProducer(settings | {"key.serializer": text, "value.serializer": text})
    else:
        producer = confluent_kafka.Producer(settings)
    produce, poll = producer.produce, producer.poll
    queued_max = conditions.BUFFER_BYTES // 2 // value_bytes
    told = 0

    def tell(_error: Any, _message: Any) -> None:
        nonlocal told
        told += 1

    def with_callback() -> None:
        for value in columns.values:
            produce(topic, value, on_delivery=tell)

    send_all = with_callback if form == "callbacks" else _burst(form, produce, topic, columns)

    def burst() -> None:
        while len(producer) > queued_max:
            poll(0.005)
        send_all()
        poll(0)

    return measured(burst, lambda: producer.flush(WAIT_S), address, pid, topic, value_bytes, seconds)


def store_headers(address: str, topic: str, value_bytes: int, total_mb: int) -> dict[str, float]:
    """Sends so much, for consumers to read."""
    from ottla import Producer

    columns = _columns("headers", value_bytes)
    with Producer(conditions.ottla_producer(address)) as producer:
        burst = _burst("headers", producer.send, topic, columns)
        for _ in range(total_mb * MB // value_bytes // BURST):
            burst()
    return {}
