"""A query from topic to topic with state, while its tasks, workers, drivers and the brokers are killed at random.

`OTTLA_SEED` repeats the choices, not every moment. `OTTLA_KILLS` says how many there are.
"""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.testing.cluster import Cluster
from support.exactly_once.fire import FireOfIds
from support.exactly_once.standalone import standalone_spark
from support.exactly_once.streams_fire import FireOfStreams

_logger = logging.getLogger(__name__)

SEED = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
KILLS = int(os.environ.get("OTTLA_KILLS", "32"))
KINDS = ("driver", "broker", "worker", "raise", "die")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    _logger.info("OTTLA_SEED=%d", SEED)
    settings = {"transaction.state.log.num.partitions": 8, "offsets.topic.num.partitions": 4, "min.insync.replicas": 2}
    with Cluster(3, settings=settings, directory=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.soak
def test_every_id_is_there_once(cluster: Cluster, tmp_path: Path) -> None:
    check(FireOfIds(cluster, tmp_path, SEED, exactly_once=True), KILLS, KINDS)


@pytest.mark.soak
def test_every_id_is_there_once_with_executors(cluster: Cluster, tmp_path: Path) -> None:
    """A standalone master with two workers."""
    with standalone_spark(tmp_path / "spark") as spark:
        master, conf, sessions = spark
        fire = FireOfIds(cluster, tmp_path, SEED, exactly_once=True, master=master, conf=conf, sessions=sessions)
        check(fire, KILLS // 2, ("executor", *KINDS))


def check(fire: FireOfIds, kills: int, kinds: Sequence[str]) -> None:
    try:
        fire.burn(kills, kinds)
        found = fire.result()
    finally:
        fire.job.kill()
        _logger.info("exactly once, OTTLA_SEED=%d: %s", SEED, fire.story)
    assert found - fire.expected == Counter()
    assert fire.expected - found == Counter()
    assert fire.story.kills.total() >= kills - 2  # an order may find no task


@pytest.mark.soak
def test_without_exactly_once_ids_are_there_twice(cluster: Cluster, tmp_path: Path) -> None:
    fire = FireOfIds(cluster, tmp_path, SEED, exactly_once=False)
    try:
        fire.burn(KILLS // 3, ("driver", "worker", "die"))
        found = fire.visible()
    finally:
        fire.job.kill()
    twice = found - fire.expected
    _logger.info("at least once: %s; %d of %d ids too often", fire.story, twice.total(), fire.expected.total())
    assert fire.expected - found == Counter()
    assert twice


@pytest.mark.soak
def test_stateful_operators_give_each_result_once(cluster: Cluster, tmp_path: Path) -> None:
    """Joins, aggregations, `process` and windows of `ottla.spark.streams`, with other shuffle partitions each start."""
    fire = FireOfStreams(cluster, tmp_path, SEED)
    try:
        fire.burn(KILLS // 2, ("driver", "worker", "broker", "worker"))
        fire.end()
        fire.check()
    finally:
        fire.job.kill()
        _logger.info("stateful operators, OTTLA_SEED=%d: %s", SEED, fire.story)
    assert fire.story.kills.total() >= KILLS // 2
