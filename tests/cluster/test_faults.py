"""Three brokers under load and faults: nothing acknowledged is lost, doubled or reordered, no consumer sees what was
not committed, replicas end equal, and leadership only ever moves as it may.

`OTTLA_SEED` repeats a run: which faults, whom they hit, and for how long. The timing within the cluster is not up to
the seed, so it repeats the story, not every message. `OTTLA_MINUTES` says how long the soak lasts. It comes in
chapters, each with a cluster and a seed of its own, so that what fails can be run again in minutes. Some clusters have
five brokers, where replicas move too, or two log directories in each broker, one of which fails.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import time
from pathlib import Path
from typing import Final

import pytest

from support.cluster.fault_cluster import SESSION_S, FaultCluster
from support.cluster.fault_run import FaultRun
from support.cluster.kafka_members import OTTLA
from support.cluster.nemesis import ALONE

_logger = logging.getLogger(__name__)

SEED: Final = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
MINUTES: Final = float(os.environ.get("OTTLA_MINUTES", "10"))
CHAPTER_S: Final = 300.0
_DISK_BYTES: Final = 64 * 2**20
_ALWAYS: Final = ("kill leader", "kill all", "pause leader", "cut off")
_MORE: Final = 3
_SIZES: Final = (3, 3, 5)
_WHILE_MOVING: Final = (
    *("kill leader", "kill follower", "kill controller", "kill two", "kill all", "bounce", "rolling restart"),
    *("pause leader", "pause controller", "cut pair", "cut from ZooKeeper", "cut off", "slow network"),
    *("kill ZooKeeper", "pause ZooKeeper"),
)

pytestmark = pytest.mark.xdist_group("cluster faults")


def _hold_s(chance: random.Random) -> float:
    """Some faults are over before a session expires, others not."""
    return chance.choice([chance.uniform(0.2, 2.0), chance.uniform(SESSION_S + 0.5, SESSION_S + 2.5)])


@pytest.mark.timeout(600)
def test_faults_one_after_the_other(tmp_path: Path) -> None:
    _logger.warning("OTTLA_SEED=%d", SEED)
    cluster = FaultCluster(tmp_path / "cluster", small_disk_bytes=_DISK_BYTES)
    try:
        cluster.start()
        run = FaultRun(cluster, SEED)
        with run:
            others = sorted(set(run.nemesis.kinds) - set(_ALWAYS))
            kinds = [*_ALWAYS, *run.chance.sample(others, _MORE)]
            run.chance.shuffle(kinds)
            for kind in kinds:
                run.step([kind], _hold_s(run.chance))
        assert not run.wrong, run.report
    finally:
        cluster.close(stop=False)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_replicas_move_and_log_directories_fail(tmp_path: Path) -> None:
    """Five brokers with two log directories each; replicas move while each kind of fault happens."""
    _logger.warning("OTTLA_SEED=%d", SEED)
    cluster = FaultCluster(tmp_path / "cluster", (OTTLA,) * 5, log_directories=2)
    try:
        cluster.start()
        run = FaultRun(cluster, SEED)
        with run:
            steps = [["move replicas", kind] for kind in _WHILE_MOVING] + [["lose directory"]] * 3
            run.chance.shuffle(steps)
            for kinds in steps:
                run.step(kinds, _hold_s(run.chance))
        assert not run.wrong, run.report
    finally:
        cluster.close(stop=False)


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 1800)
def test_faults_for_long(tmp_path: Path) -> None:
    """Several faults at once too. The summaries of all chapters are logged."""
    end_s = time.monotonic() + MINUTES * 60
    seeds = random.Random(SEED)
    seed = SEED
    while time.monotonic() < end_s:
        run = _chapter(tmp_path / f"cluster-{seed}", seed, min(end_s, time.monotonic() + CHAPTER_S))
        assert not run.wrong, run.report
        seed = seeds.randrange(1, 2**32)


def _chapter(directory: Path, seed: int, end_s: float) -> FaultRun:
    shape = random.Random(seed)
    size, log_directories = shape.choice(_SIZES), shape.choice((1, 2))
    _logger.warning("OTTLA_SEED=%d: %d brokers with %d log directories", seed, size, log_directories)
    cluster = FaultCluster(
        directory, (OTTLA,) * size, small_disk_bytes=4 * _DISK_BYTES, log_directories=log_directories
    )
    try:
        cluster.start()
        run = FaultRun(cluster, seed)
        chance = run.chance
        with run:
            while time.monotonic() < end_s:
                kinds = chance.sample(sorted(run.nemesis.kinds), chance.choice([1, 1, 2]))
                if doomed := ALONE.intersection(kinds):
                    kinds = sorted(doomed)[:1]
                kinds.sort(key=lambda kind: kind != "move replicas")  # first, so that the others come while they move
                hold_s = _hold_s(chance)
                if "kill ZooKeeper" in kinds and chance.random() < 0.1:
                    hold_s = 60.0
                run.step(kinds, hold_s)
    finally:
        cluster.close(stop=False)
    if not run.wrong:
        shutil.rmtree(directory, ignore_errors=True)
    return run
