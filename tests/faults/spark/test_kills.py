"""A streaming job from topic to topic while its workers, its driver and its broker are killed: every record arrives,
and again only what was interrupted.

`OTTLA_KILLS` says how often, `OTTLA_SEED` with which chance.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from faults.client.traffic import Sending, check_partition, seeded
from faults.load import create_topic, read_all
from faults.spark.checkpoint import Checkpoint, read_places
from faults.spark.driver import WAIT_S, Driver
from faults.spark.history import History, Interruption, check, repeated
from faults.spark.job import Job
from faults.spark.watching import Watching
from ottla.testing.broker import Broker
from support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-kills")]

_logger = logging.getLogger(__name__)

KILLS = int(os.environ.get("OTTLA_KILLS", "6"))
KILLS_LONG = 40
SOURCE, TARGET, GROUP = "sent", "written", "job"
PARTITIONS = 3
LATEST_S = 5.0
"""After the begin of a batch: one that was interrupted may have taken long."""
AWAY_S = 3.0
"""Longer than a trigger, and than a batch usually takes."""


def plan_kills(chance: random.Random, kills: int) -> list[str]:
    """Mostly what costs little: starting a driver takes as long as all the rest. The last is of a driver."""
    seldom = max(1, kills // 20)
    others = kills - 4 * seldom
    drivers = ["driver", "driver, gracefully"] * seldom
    chance.shuffle(drivers)
    plan = ["planner", "broker, for a while", "broker, then workers"] * seldom + drivers[1:]
    plan += ["worker", "broker"] * (others // 2) + ["worker"] * (others % 2)
    chance.shuffle(plan)
    return [*plan, drivers[0]]


class Killing:
    """A job, what it reads and writes, and what is done to it."""

    def __init__(self, broker: Broker, place: Path, chance: random.Random) -> None:
        self.broker = broker
        self.chance = chance
        self.interruptions: list[Interruption] = []
        self.checkpoint = Checkpoint(place / "checkpoint", SOURCE, PARTITIONS)
        self.results = place / "results"
        job = Job(broker.bootstrap, SOURCE, TARGET, str(self.checkpoint.folder), GROUP, str(self.results))
        self.driver = Driver(job, place)
        self.sending = Sending(broker.bootstrap, SOURCE, PARTITIONS, chance, {}, pause_s=0.03)
        self.watching = Watching(broker.bootstrap, GROUP, TARGET, PARTITIONS, self.checkpoint)

    def close(self) -> None:
        self.driver.close()
        self.watching.close()
        self.sending.close()

    # The job.

    def wait_for_batch(self) -> None:
        """Until one more is done than now."""
        done = self.checkpoint.committed

        def is_done() -> bool:
            assert self.driver.is_alive(), f"the job has ended:\n{self.driver.log()}"
            return self.checkpoint.committed > done

        wait_until(is_done, "another batch is done", WAIT_S)

    def wait_for_moment(self) -> None:
        """Some time after a batch was begun, and before it is done, if it takes as long as the last."""
        wait_until(lambda: self.checkpoint.planned > self.checkpoint.committed, "a batch is begun", WAIT_S)
        time.sleep(self.chance.uniform(0, min(self.checkpoint.last_took_s(), LATEST_S)))

    def drain(self) -> None:
        self.driver.start(drains=True)
        self.driver.wait()

    # Kills.

    def kill(self, what: str) -> None:
        since_s = time.time()
        match what:
            case "worker":
                self._kill_one(self.driver.task_workers)
                self._interrupted(since_s, is_of_all=False)
            case "planner":
                starts = self.driver.said("started")
                self._kill_one(self.driver.planners)
                wait_until(lambda: self.driver.said("started") > starts, "the query is started again", WAIT_S)
                self._interrupted(since_s)
            case "driver":
                self.driver.kill()
                self._interrupted(since_s)
            case "driver, gracefully":
                self.driver.terminate()
                self._interrupted(since_s)
            case "broker":
                self.broker.kill()
                self.broker.start()
            case "broker, for a while":
                self.broker.kill()
                time.sleep(AWAY_S)
                self.broker.start()
            case "broker, then workers":
                # What is not acknowledged is in the workers alone, and goes with them.
                self.broker.kill()
                time.sleep(AWAY_S)
                since_s = time.time()
                for worker in self.driver.task_workers():
                    with suppress(psutil.NoSuchProcess):
                        worker.kill()
                self._interrupted(since_s)
                self.broker.start()

    def _kill_one(self, find: Callable[[], list[psutil.Process]]) -> None:
        def is_killed() -> bool:
            found = find()
            if not found:
                return False
            try:
                self.chance.choice(found).kill()
            except psutil.NoSuchProcess:  # it has ended by itself meanwhile
                return False
            return True

        wait_until(is_killed, "there is one to be killed", WAIT_S)

    def _interrupted(self, since_s: float, *, is_of_all: bool = True) -> None:
        self.interruptions.append(Interruption(since_s, time.time(), is_of_all))

    # What came of it.

    def history(self) -> History:
        sent = {index: read_all(self.broker.bootstrap, SOURCE, index) for index in range(PARTITIONS)}
        for index, records in sent.items():
            check_partition(self.sending.outcomes(index), records, f"{SOURCE}-{index}")
        output: dict[int, list[tuple[int, bytes]]] = {}
        for index in range(PARTITIONS):
            told = (value.split(b" ", 1) for _, value in read_all(self.broker.bootstrap, TARGET, index))
            output[index] = [(int(offset), value) for offset, value in told]
        return History(
            {index: [value for _, value in records] for index, records in sent.items()},
            output,
            self.checkpoint.batches(),
            self.interruptions,
            self.watching.claims,
            read_places(self.results),
        )


@pytest.fixture
def killing(tmp_path: Path) -> Iterator[Killing]:
    with Broker() as broker:
        for topic in (SOURCE, TARGET):
            create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
        running = Killing(broker, tmp_path, seeded())
        try:
            yield running
        finally:
            running.close()


@pytest.mark.parametrize("kills", [KILLS, pytest.param(KILLS_LONG, marks=pytest.mark.soak)])
def test_every_record_arrives_and_again_only_what_was_interrupted(killing: Killing, kills: int) -> None:
    plan = plan_kills(killing.chance, kills)
    killing.driver.start()
    killing.wait_for_batch()
    for number, what in enumerate(plan, 1):
        killing.wait_for_moment()
        _logger.warning("%d: %s, at batch %d", number, what, killing.checkpoint.planned - 1)
        killing.kill(what)
        if number == len(plan):
            break
        if what.startswith("driver"):
            killing.driver.start()
        # Others may be killed before the job has got over it.
        if what not in ("worker", "broker") or killing.chance.random() < 0.5:
            killing.wait_for_batch()
    killing.sending.stop()
    killing.drain()
    killing.watching.stop()
    killing.watching.look()

    history = killing.history()
    again, batches = repeated(history), len(history.batches)
    sys.stdout.write(f"{dict(Counter(plan))}: {batches} batches, {again} records again, {len(history.claims)} claims\n")
    check(history)
    ends = {index: len(records) for index, records in history.sent.items()}
    assert killing.watching.shown() == ends, "the group does not show the end"
    assert history.places.keys() == {batch.number for batch in history.batches}
    assert (killing.sending.failures(), killing.sending.not_taken) == ([], [])
    failures = [event["failed"] for event in killing.driver.events() if "failed" in event]
    assert len(failures) <= plan.count("planner"), f"queries failed for no reason: {failures}"
