"""Transactions on three brokers under faults: no aborted read, no torn transaction, nothing lost or doubled, no record
skipped, no circular information flow, and every input processed exactly once.

`OTTLA_SEED` repeats a run: which faults, whom they hit, and what clients do. `OTTLA_MINUTES` says how long the soak
lasts. It comes in chapters, each with a cluster and a seed of its own, so that what fails can be run again in minutes.
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

from support.cluster.fault_cluster import SESSION_S
from support.isolation.faults import FaultyRun, new_cluster
from support.isolation.libraries import CONFLUENT, OTTLA
from support.isolation.run import IsolationRun

_logger = logging.getLogger(__name__)

SEED: Final = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
MINUTES: Final = float(os.environ.get("OTTLA_MINUTES", "10"))
CHAPTER_S: Final = 240.0
_ALWAYS: Final = ("kill leader", "kill client", "zombie client")

pytestmark = pytest.mark.xdist_group("cluster faults")


def _new_run(bootstrap: str, directory: Path, seed: int) -> IsolationRun:
    return IsolationRun(
        bootstrap,
        directory,
        seed,
        latest=2,
        preparers=1,
        writers=(OTTLA, CONFLUENT),
        processors=(OTTLA, CONFLUENT),
        readers=(OTTLA, CONFLUENT),
        pause_s=0.05,
    )


@pytest.mark.timeout(300)
def test_transactions_under_faults(tmp_path: Path) -> None:
    _logger.warning("OTTLA_SEED=%d", SEED)
    cluster = new_cluster(tmp_path / "cluster", SEED)
    try:
        cluster.start()
        faulty = FaultyRun(cluster, _new_run(cluster.bootstrap, tmp_path / "run", SEED))
        chance = faulty.run.chance
        with faulty:
            others = sorted(set(faulty.kinds) - {*_ALWAYS, "kill ZooKeeper", "pause ZooKeeper", "rolling restart"})
            for kind in [*_ALWAYS, chance.choice(others)]:
                faulty.step([kind], chance.uniform(0.5, 2.0))
        assert faulty.is_well, faulty.run.report
    finally:
        cluster.close(stop=False)


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 1800)
def test_transactions_under_faults_for_long(tmp_path: Path) -> None:
    """Several faults at once too. The summaries of all chapters are logged."""
    end_s = time.monotonic() + MINUTES * 60
    seeds = random.Random(SEED)
    seed = SEED
    while time.monotonic() < end_s:
        faulty = _chapter(tmp_path / f"chapter-{seed}", seed, min(end_s, time.monotonic() + CHAPTER_S))
        assert faulty.is_well, faulty.run.report
        seed = seeds.randrange(1, 2**32)


def _chapter(directory: Path, seed: int, end_s: float) -> FaultyRun:
    cluster = new_cluster(directory / "cluster", seed)
    try:
        cluster.start()
        faulty = FaultyRun(cluster, _new_run(cluster.bootstrap, directory / "run", seed))
        chance = faulty.run.chance
        with faulty:
            while time.monotonic() < end_s:
                kinds = chance.sample(sorted(faulty.kinds), chance.choice([1, 1, 2, 3]))
                hold_s = chance.choice([chance.uniform(0.2, 2.0), chance.uniform(SESSION_S + 0.5, SESSION_S + 2.5)])
                faulty.step(kinds, hold_s)
    finally:
        cluster.close(stop=False)
    if faulty.is_well:
        shutil.rmtree(directory, ignore_errors=True)
    return faulty
