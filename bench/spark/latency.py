"""How long a record is under way: from a producer, through a streaming query and a second topic, to a consumer."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Final

from bench.broker import driver
from bench.spark.session import VALUE_BYTES, SparkSession, SparkSide
from confluent_kafka import Consumer, TopicPartition

RATE: Final = 200
"""Records a second, one a request."""
_TIME: Final = struct.Struct(">q")
_WAIT_S: Final = 120.0


def through_a_query(side: SparkSide, session: SparkSession, seconds: int, skip_s: int) -> dict[str, float]:
    """Percentiles over the records behind the first ones, which find the query cold."""
    count, address = RATE * seconds, session.running.address
    with session.topic(session.running) as source, session.topic(session.running) as target:
        side.tell(
            "start_copying",
            connector=side.connector.format,
            source=side.addressed({"subscribe": source, "startingOffsets": "earliest"}),
            sink=side.addressed({"topic": target}),
            checkpoint=str(session.new_place()),
        )
        try:
            sending = driver.Load(
                "send_steadily", address=address, topic=source, value_bytes=VALUE_BYTES, rate=RATE, count=count
            )
            # The first record of a sender has no time in it.
            arrived_ns = follow(address, target, count)[1:]
            sending.result()
        finally:
            side.tell("stop_copying")
    return percentiles(arrived_ns[skip_s * RATE :])


def follow(address: str, topic: str, count: int) -> list[int]:
    """How old each record was when it came, in the order of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False, "fetch.error.backoff.ms": 10}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    ages_ns: list[int] = []
    until_s = time.monotonic() + _WAIT_S
    try:
        while len(ages_ns) < count:
            messages = consumer.consume(count - len(ages_ns), 0.001)
            now_ns = time.monotonic_ns()
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(f"the consumer was told: {message.error()}")
                ages_ns.append(now_ns - _TIME.unpack_from(message.value() or b"")[0])
            if time.monotonic() > until_s:
                raise TimeoutError(f"{len(ages_ns)} of {count} records came through the query in {_WAIT_S:.0f} s")
    finally:
        consumer.close()
    return ages_ns


def percentiles(ages_ns: Sequence[int]) -> dict[str, float]:
    counted = sorted(ages_ns)
    return {"p50_ms": counted[len(counted) // 2] / 1e6, "p99_ms": counted[len(counted) * 99 // 100] / 1e6}
