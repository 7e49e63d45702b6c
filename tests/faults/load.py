"""Producers that go on while something happens, and know afterwards what was acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

WAIT_S = 60.0


def create_topic(bootstrap: str, name: str, configs: Mapping[str, str] | None = None, *, partitions: int = 1) -> None:
    topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept: its end is the end of what it was asked
    admin.create_topics([topic])[name].result(WAIT_S)


class Load:
    """One producer of numbered values. `acknowledged` are those the broker said it has, in order."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self.acknowledged: list[tuple[int, int]] = []
        """Offset and number."""
        self.errors: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0, "message.timeout.ms": 60_000, **settings}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(20):
                self._produce(number)
                number += 1
            self._producer.poll(0.002)

    def _produce(self, number: int) -> None:
        def told(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(str(error))
            else:
                self.acknowledged.append((message.offset(), number))

        try:
            self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=told)
        except BufferError:
            self._producer.poll(0.1)

    def start(self) -> None:
        self._thread.start()

    def stop(self, flush_s: float = WAIT_S) -> int:
        """How many were never answered."""
        self._stop.set()
        self._thread.join()
        return int(self._producer.flush(flush_s))

    def abandon(self) -> None:
        """The broker is gone: what was not answered stays so."""
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(1)


@contextmanager
def load(bootstrap: str, topic: str, **settings: Any) -> Iterator[Load]:
    running = Load(bootstrap, topic, **settings)
    running.start()
    try:
        yield running
    finally:
        if not running._stop.is_set():
            running.stop()


def read_all(bootstrap: str, topic: str, partition: int = 0) -> list[tuple[int, bytes]]:
    """Every record's offset and value, up to where the partition ends now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        place = TopicPartition(topic, partition, 0)
        low, high = consumer.get_watermark_offsets(place, timeout=WAIT_S)
        consumer.assign([TopicPartition(topic, partition, low)])
        found: list[Any] = []
        deadline_s = time.monotonic() + WAIT_S
        while not found or found[-1][0] < high - 1:
            if low == high:
                break
            assert time.monotonic() < deadline_s, f"{len(found)} records of {high - low} came in {WAIT_S:.0f} s"
            for message in consumer.consume(10_000, 0.5):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.value()))
        return found
    finally:
        consumer.close()
