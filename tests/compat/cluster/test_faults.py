"""The harness of fault tests on three brokers of Apache Kafka 3.9.1: it passes what Kafka does, and it finds the loss
that an unclean election brings. Without this, a harness that sees nothing would pass everything."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path
from typing import Final

import pytest

from support.cluster.fault_cluster import SESSION_S, FaultCluster
from support.cluster.fault_run import FaultRun
from support.cluster.kafka_members import KAFKA

_logger = logging.getLogger(__name__)

SEED: Final = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
HOLD_S: Final = SESSION_S + 2.0

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600), pytest.mark.xdist_group("cluster faults")]


@pytest.mark.soak  # three JVMs for minutes, and it is about the harness, not about Ottla
def test_kafka_passes(tmp_path: Path) -> None:
    _logger.warning("OTTLA_SEED=%d", SEED)
    cluster = FaultCluster(tmp_path / "cluster", (KAFKA, KAFKA, KAFKA), zookeeper="apache")
    try:
        cluster.start()
        run = FaultRun(cluster, SEED)
        with run:
            for kind in ("kill leader", "cut off", "pause controller"):
                run.step([kind], HOLD_S)
        assert not run.wrong, run.report
    finally:
        cluster.close(stop=False)


@pytest.mark.soak  # it takes minutes: a lost record is awaited until the clients give up
def test_the_loss_of_an_unclean_election_is_found(tmp_path: Path) -> None:
    """A leader that is cut off commits alone, and dies; a follower that has nothing of that takes over."""
    cluster = FaultCluster(tmp_path / "cluster", (KAFKA, KAFKA, KAFKA))
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    try:
        cluster.start()
        run = FaultRun(cluster, SEED, topic_configs=configs)
        with run:
            leader = cluster.wait_for_leader("orders", 0)
            cluster.isolate(leader)
            cluster.wait_for_isr("orders", 0, [leader])
            run.wait_for_more(200)
            cluster.brokers[leader].kill()
            cluster.heal()
            cluster.wait_for_leader("orders", 0, other_than=leader)
        for what in ("is LOST", "now there is", "was acknowledged for"):
            assert any(what in each for each in run.wrong), f"{what!r} was not found"
    finally:
        cluster.close(stop=False)
