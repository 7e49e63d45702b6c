"""The broker under test: Ottla, or with `OTTLA_TEST_PEER=kafka` Apache Kafka 4.3.1, to show that tests are right."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from compat.controllers import admin_of
from golden import kafka_process
from golden.kafka_process import Ports
from ottla.testing.broker import Broker

KAFKA = "kafka"
OTTLA = "ottla"


class Peer(Protocol):
    """A running broker."""

    @property
    def bootstrap(self) -> str: ...

    def kill(self) -> None:
        """As by `kill -9`."""

    def stop(self) -> None:
        """A clean stop; what it stored stays."""

    def start(self) -> None:
        """Starts it again at the same address, with what it kept."""


@contextmanager
def running_peer(place: Path, settings: Mapping[str, str], ports: Ports | None = None) -> Iterator[Peer]:
    """A broker that keeps records of any age. `ports`, where clients shall reach it through something else."""
    peer = os.environ.get("OTTLA_TEST_PEER", OTTLA)
    settings = {"log.retention.ms": "-1", **settings}
    if peer == OTTLA:
        if ports is not None:
            settings["listeners"] = f"PLAINTEXT://127.0.0.1:{ports.listening}"
            settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{ports.advertised}"
        with Broker(overrides=settings) as broker:
            yield broker
    elif peer == KAFKA:
        kafka = _KafkaPeer(place, settings, ports)
        try:
            yield kafka
        finally:
            kafka.stop()
    else:
        raise ValueError(f"OTTLA_TEST_PEER is {peer!r}; it can be {OTTLA!r} or {KAFKA!r}")


class _KafkaPeer:
    def __init__(self, place: Path, settings: Mapping[str, str], ports: Ports | None) -> None:
        self._broker = kafka_process.kraft_broker(place / "kafka", settings, ports)
        self._process = self._broker.process
        admin_of(self._broker)

    @property
    def bootstrap(self) -> str:
        return self._broker.address

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._broker.process.args,
            cwd=self._broker.data.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        admin_of(self._broker)

    def stop(self) -> None:
        kafka_process.stop(self._process)

    def kill(self) -> None:
        kafka_process.kill(self._process)
