"""Producers that send what they should not, or too late, are told with us what Kafka tells them, in every version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from support.clients.peers import WITH_ZOOKEEPER, running_peer
from support.transactions.dialogue import TransactionDialogue

pytestmark = pytest.mark.compat

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.mark.parametrize("peer", [WITH_ZOOKEEPER, "kafka-4.3.1"])
def test_every_answer_is_that_of_kafka(tmp_path: Path, peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has_version_2 = peer != WITH_ZOOKEEPER
    with Broker(SETTINGS) as broker:
        ours = asyncio.run(TransactionDialogue(broker.bootstrap, has_version_2=has_version_2).run())
    assert len(ours) == (10 if has_version_2 else 9)
    monkeypatch.setenv("OTTLA_TEST_PEER", peer)
    with running_peer(tmp_path, SETTINGS) as kafka:
        theirs = asyncio.run(TransactionDialogue(kafka.bootstrap, has_version_2=has_version_2).run())
    for scene, lines in theirs.items():
        assert ours[scene] == lines
