"""Members of consumer groups may commit with us what they may commit with Kafka, and with whatever epoch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from compat.commit_dialogue import SETTINGS, CommitDialogue
from ottla.testing.broker import Broker
from support.kafka_process import kraft_broker, stop

pytestmark = pytest.mark.compat


def test_every_answer_is_that_of_kafka(tmp_path: Path) -> None:
    with Broker(SETTINGS) as broker:
        ours = asyncio.run(CommitDialogue(broker.bootstrap).run())
    kafka = kraft_broker(tmp_path / "kafka", SETTINGS)
    try:
        assert ours == asyncio.run(CommitDialogue(kafka.address).run())
    finally:
        stop(kafka.process)
