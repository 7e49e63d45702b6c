"""The broker that the tools talk to: ours, or a real Kafka of the tools' version with OTTLA_TEST_PEER=kafka."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.controllers import admin_of
from support.kafka_process import kraft_broker, stop, zookeeper, zookeeper_mode_broker

BROKER_ID = 1
DIRECTORIES = ("first", "second")

# The same for all, so that descriptions of configs can be compared.
_SETTINGS = {
    # Records carry fixed times of long ago.
    "log.retention.ms": "-1",
    "log.roll.ms": str(2**62),
    "num.network.threads": "2",
    "num.io.threads": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """A running broker with two log directories, named as DIRECTORIES says, or a cluster."""

    bootstrap: str
    place: Path
    zookeeper: str = ""
    """Where it is, if it is not the broker's own."""


def is_kafka() -> bool:
    return os.environ.get("OTTLA_TEST_PEER") == "kafka"


@contextmanager
def peer(version: str, place: Path, more: Mapping[str, str] | None = None) -> Iterator[Peer]:
    """With more settings, if told."""
    place.mkdir(parents=True, exist_ok=True)
    settings = {
        "log.dirs": ",".join(str(place / name) for name in DIRECTORIES),
        **_SETTINGS,
        **(more or {}),
    }
    if is_kafka():
        with _kafka(version, place, settings) as bootstrap:
            yield Peer(bootstrap, place)
    else:
        # Not before it is asked for: a run beside real Kafka does without it.
        from ottla.testing.broker import Broker

        with Broker(overrides={**settings, "broker.id": str(BROKER_ID)}) as broker:
            yield Peer(broker.bootstrap, place)


@contextmanager
def _kafka(version: str, place: Path, settings: dict[str, str]) -> Iterator[str]:
    if version == "4.3.1":
        broker = kraft_broker(place / "broker", settings)
        try:
            admin_of(broker)
            yield broker.address
        finally:
            stop(broker.process)
        return
    with zookeeper(place / "zookeeper") as address:
        broker = zookeeper_mode_broker(place / "broker", address, BROKER_ID, settings)
        try:
            admin_of(broker)
            yield broker.address
        finally:
            stop(broker.process)
