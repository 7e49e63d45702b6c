"""The topics that both sides read, and what they must make of them.

Keys decide the partitions, as usual, so that Kafka Streams can join topics.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from bench.spark.session import PARTITIONS, VALUE_BYTES, SparkSession
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla import Producer

COMPACTED: Final = {"cleanup.policy": "compact"}
KEY_BYTES: Final = 8
_LAST: Final = b"L"
"""After the foreign key of the last value of a left row. `KafkaStreamsWork` looks for it."""
_FIRST: Final = b"F"
_BATCH_ROWS: Final = 100_000
_AGO_MS: Final = 10 * 60 * 1000
_DISTINCT: Final = 10_000
"""Values that differ, apart from what is written into them."""


@dataclass(frozen=True, slots=True)
class Input:
    topic: str
    records: int


def clicks_and_users(session: SparkSession, clicks: int, users: int) -> tuple[Input, Input]:
    """A stream whose keys are all in a table, which is older."""
    chance = random.Random(clicks)
    now_ms = time.time_ns() // 10**6
    values = _values(chance, VALUE_BYTES)

    def fill_users(topic: str) -> None:
        _fill(session, topic, list(range(users)), values, [now_ms - _AGO_MS] * users)

    def fill_clicks(topic: str) -> None:
        keys = [chance.randrange(users) for _ in range(clicks)]
        _fill(session, topic, keys, values[::-1], _evenly(now_ms, clicks))

    return (
        Input(session.filled(f"clicks-{clicks}-{users}", fill_clicks), clicks),
        Input(session.filled(f"users-{users}", fill_users, COMPACTED), users),
    )


def orders_and_customers(session: SparkSession, orders: int, customers: int) -> tuple[Input, Input]:
    """Two tables. Left rows have two values, whose foreign keys differ; both tables come at the same pace."""
    chance = random.Random(orders)
    now_ms = time.time_ns() // 10**6
    values = _values(chance, VALUE_BYTES - KEY_BYTES - 1)
    keys = [number % (orders // 2) for number in range(orders)]

    def fill_orders(topic: str) -> None:
        kinds = (_FIRST if number < orders // 2 else _LAST for number in range(orders))
        rows = [
            _key(chance.randrange(customers)) + kind + values[number % _DISTINCT] for number, kind in enumerate(kinds)
        ]
        _fill(session, topic, keys, rows, _evenly(now_ms, orders))

    def fill_customers(topic: str) -> None:
        _fill(session, topic, chance.sample(range(customers), customers), values, _evenly(now_ms, customers))

    return (
        Input(session.filled(f"orders-{orders}-{customers}", fill_orders, COMPACTED), orders),
        Input(session.filled(f"customers-{customers}", fill_customers, COMPACTED), customers),
    )


@dataclass(frozen=True, slots=True)
class Output:
    """Records of a topic, its rows as a table, and checksums of both that do not depend on the order of keys."""

    records: int
    rows: int
    records_sum: int
    rows_sum: int


def output_of(address: str, topic: str) -> Output:
    table: dict[bytes, int] = {}
    records = records_sum = 0
    for key, value in _committed(address, topic):
        records += 1
        if value is None:
            table.pop(key, None)
            continue
        table[key] = zlib.crc32(value, zlib.crc32(key))
        records_sum += table[key]
    return Output(records, len(table), records_sum, sum(table.values()))


def total_of_counts(address: str, topic: str) -> int:
    """The sum of the last values of all keys, which are numbers."""
    return sum({key: int(value or b"0") for key, value in _committed(address, topic)}.values())


def _committed(address: str, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    settings = {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ended = 0
    try:
        while ended < PARTITIONS:
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error is None:
                    yield message.key() or b"", message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise RuntimeError(f"the consumer was told: {error}")
    finally:
        consumer.close()


def _fill(session: SparkSession, topic: str, keys: Sequence[int], values: Sequence[bytes], at_ms: list[int]) -> None:
    send(session.running.address, topic, keys, values, at_ms)


def send(address: str, topic: str, keys: Sequence[int], values: Sequence[bytes], at_ms: list[int]) -> None:
    settings = {"bootstrap.servers": address, "acks": "all", "batch.size": 256 * 1024}
    with Producer(settings) as producer:
        for first in range(0, len(keys), _BATCH_ROWS):
            part = keys[first : first + _BATCH_ROWS]
            rows = [values[number % len(values)] for number in range(first, first + len(part))]
            table = {
                "key": pa.array([_key(key) for key in part], pa.binary()),
                "value": pa.array(rows, pa.binary()),
                "timestamp": pa.array(at_ms[first : first + len(part)], pa.int64()),
            }
            producer.send_batch(topic, table)
        producer.flush()


def _key(number: int) -> bytes:
    return b"%0*d" % (KEY_BYTES, number)


def _values(chance: random.Random, length: int) -> list[bytes]:
    return [chance.randbytes(length) for _ in range(_DISTINCT)]


def _evenly(until_ms: int, records: int) -> list[int]:
    return [until_ms - _AGO_MS + 1 + number * (_AGO_MS - 1) // records for number in range(records)]
