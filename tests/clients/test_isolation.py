"""Transactions of our and of librdkafka's clients on one broker, while clients are killed and replaced."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin
from ottla.client.administer import NewTopic
from support.clients.peers import Peer, running_peer
from support.isolation.anomalies import Anomaly
from support.isolation.checker import check
from support.isolation.client import INPUT, OUTPUT
from support.isolation.libraries import CONFLUENT, OTTLA
from support.isolation.run import IsolationRun

SEED = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
PARTITIONS = 2


@pytest.fixture
def lone_broker(tmp_path: Path) -> Iterator[Peer]:
    with running_peer(tmp_path / "broker", {"auto.create.topics.enable": "false"}) as peer:
        with Admin(bootstrap_servers=peer.bootstrap) as admin:
            admin.create_topics([NewTopic(INPUT, PARTITIONS), NewTopic(OUTPUT, PARTITIONS)])
        yield peer


def test_transactions_of_clients_that_die(lone_broker: Peer, tmp_path: Path) -> None:
    run = IsolationRun(
        lone_broker.bootstrap,
        tmp_path / "run",
        SEED,
        inputs=PARTITIONS,
        outputs=PARTITIONS,
        writers=(OTTLA, CONFLUENT),
        processors=(OTTLA,),
        readers=(OTTLA, CONFLUENT),
    )
    with run:
        run.wait_for_more(100)
        run.kill_client()
        run.pause_client()
        run.wait_for_more(100)
    assert run.judge(), run.report


def test_readers_of_uncommitted_records_are_caught(lone_broker: Peer, tmp_path: Path) -> None:
    """The checker judges what happened, not what should have: these readers see what is aborted later."""
    run = IsolationRun(
        lone_broker.bootstrap,
        tmp_path / "run",
        SEED,
        inputs=PARTITIONS,
        outputs=PARTITIONS,
        writers=(OTTLA,),
        processors=(),
        readers=(OTTLA,),
        isolation_level="read_uncommitted",
    )
    with run:
        run.wait_for_more(50)
    assert not run.judge()
    assert Anomaly.ABORTED_READ in {finding.anomaly for finding in run.findings}
    assert {finding.anomaly for finding in run.findings} <= {Anomaly.ABORTED_READ, Anomaly.DIRTY_READ}
    assert check(pickle.loads(run.saved.read_bytes())) == run.findings
