"""A producer that goes on while a group changes, and knows what was acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

from support.clients.dialect import WAIT_S
from support.groups.consumers import Partition


class Traffic:
    """A few hundred numbered records a second, over all partitions of a topic in turn."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged: dict[tuple[Partition, int], str] = {}
        """Values by where they are."""
        self.errors: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 1,
                "enable.idempotence": True,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.01):
            for partition in range(self._partitions):
                self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=self._told)
                number += 1
            self._producer.poll(0)

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        # A batch that was sent twice can be acknowledged as one that is there already, without a word where.
        elif message.offset() is not None:
            self.acknowledged[(message.topic(), message.partition()), message.offset()] = message.value().decode()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> dict[tuple[Partition, int], str]:
        """All that was acknowledged."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
        left = self._producer.flush(WAIT_S)
        assert left == 0, f"{left} records were not acknowledged in {WAIT_S:.0f} s"
        assert self.errors == []
        return self.acknowledged


@contextmanager
def traffic(bootstrap: str, topic: str, partitions: int) -> Iterator[Traffic]:
    running = Traffic(bootstrap, topic, partitions)
    running.start()
    try:
        yield running
    finally:
        running._stop.set()
        running._thread.join()
