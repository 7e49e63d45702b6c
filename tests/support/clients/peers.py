"""The broker under test: Ottla, or Apache Kafka, to show that tests are right, and that our client is.

`OTTLA_TEST_PEER` chooses: `ottla`; `kafka-4.3.1`, or `kafka` for short; `kafka-3.9.1`, which keeps its metadata in a
ZooKeeper.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from ottla.testing.broker import Broker
from support import kafka_process
from support.clients.dialect import WAIT_S
from support.controllers import admin_of
from support.kafka_process import Ports
from support.waiting import wait_until

KAFKA = "kafka"
OTTLA = "ottla"
WITH_ZOOKEEPER = "kafka-3.9.1"
_KAFKAS = (KAFKA, "kafka-4.3.1", WITH_ZOOKEEPER)
_BROKER_ID = 1
_SESSION_MS = 4_000
"""After this long, ZooKeeper believes that a broker is dead."""
_OF_KAFKA_4 = {
    # A restarted broker cannot register before the session of the killed one has ended: 9 s by default.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
}


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


def chosen_peer() -> str:
    return os.environ.get("OTTLA_TEST_PEER", OTTLA)


@contextmanager
def running_peer(place: Path, settings: Mapping[str, str], ports: Ports | None = None) -> Iterator[Peer]:
    """A broker that keeps records of any age. `ports`, where clients shall reach it through something else."""
    peer = chosen_peer()
    settings = {"log.retention.ms": "-1", **settings}
    if peer == OTTLA:
        if ports is not None:
            settings["listeners"] = f"PLAINTEXT://127.0.0.1:{ports.listening}"
            settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{ports.advertised}"
        with Broker(overrides=settings) as broker:
            yield broker
    elif peer == WITH_ZOOKEEPER:
        with kafka_process.zookeeper(place / "zookeeper") as zookeeper:
            yield from _until_done(_ZooKeeperModePeer(place, settings, ports, zookeeper))
    elif peer in _KAFKAS:
        settings = {**_OF_KAFKA_4, **settings}
        yield from _until_done(_KafkaPeer(kafka_process.kraft_broker(place / "kafka", settings, ports)))
    else:
        raise ValueError(f"OTTLA_TEST_PEER is {peer!r}; it can be {OTTLA!r} or one of {_KAFKAS}")


def _until_done(kafka: _KafkaPeer) -> Iterator[Peer]:
    try:
        yield kafka
    finally:
        kafka.kill()  # nobody looks at what it leaves, and a lone broker tries for seconds to hand over what it leads


class _KafkaPeer:
    def __init__(self, broker: kafka_process.Broker) -> None:
        self._broker = broker
        self._process = broker.process
        admin_of(broker)

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


class _ZooKeeperModePeer(_KafkaPeer):
    def __init__(self, place: Path, settings: Mapping[str, str], ports: Ports | None, zookeeper: str) -> None:
        self._zookeeper = zookeeper
        settings = {"zookeeper.session.timeout.ms": str(_SESSION_MS), **settings}
        super().__init__(kafka_process.zookeeper_mode_broker(place / "kafka", zookeeper, _BROKER_ID, settings, ports))

    def start(self) -> None:
        tree = KazooClient(self._zookeeper)
        tree.start()
        try:
            # It would end at once while ZooKeeper takes the one that was killed to be alive.
            wait_until(lambda: not tree.exists(f"/brokers/ids/{_BROKER_ID}"), "ZooKeeper keeps the killed broker")
            topics = set(tree.get_children("/brokers/topics"))
        finally:
            tree.stop()
            tree.close()
        super().start()
        # It serves before it is told by the controller what there is.
        admin = admin_of(self._broker)
        wait_until(lambda: _led(admin) >= topics, "the broker does not lead all its topics")


def _led(admin: AdminClient) -> set[str]:
    """Topics all of whose partitions have leaders."""
    topics = admin.list_topics(timeout=WAIT_S).topics.values()
    return {str(each.topic) for each in topics if all(one.leader >= 0 for one in each.partitions.values())}
