"""Members of classic groups hear from us what they hear from Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from compat.classic_dialogue import SETTINGS, Dialogue
from ottla.testing.broker import Broker
from support.kafka_process import kraft_broker, stop, zookeeper, zookeeper_mode_broker

pytestmark = pytest.mark.compat


def ours() -> list[str]:
    with Broker(SETTINGS) as broker:
        return asyncio.run(Dialogue(broker.bootstrap).run())


def kafkas(version: str, place: Path) -> list[str]:
    if version == "4.3.1":
        broker = kraft_broker(place / "kafka", SETTINGS)
        try:
            return asyncio.run(Dialogue(broker.address).run())
        finally:
            stop(broker.process)
    with zookeeper(place / "zookeeper") as address:
        broker = zookeeper_mode_broker(place / "kafka", address, 1, SETTINGS)
        try:
            return asyncio.run(Dialogue(broker.address).run())
        finally:
            stop(broker.process)


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_every_answer_is_that_of_kafka(version: str, tmp_path: Path) -> None:
    assert ours() == kafkas(version, tmp_path)
