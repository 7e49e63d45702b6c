"""Faults of a cluster and of clients while transactions run: who is hit, in which way, is up to chance.

Beside the faults of `support.cluster.nemesis`, which hit the leaders of the partitions that are written and of the
coordinators' topics, clients are killed, and paused while another one with their transactional id takes over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ottla import Admin, TopicPartition
from ottla.client.administer import LATEST, NewTopic
from ottla.client.errors import OttlaError
from ottla.testing.server_process import BrokerFailedError
from support.cluster.checker import Place
from support.cluster.fault_cluster import FaultCluster
from support.cluster.kafka_members import OTTLA
from support.cluster.nemesis import Nemesis
from support.isolation.client import INPUT, OUTPUT
from support.isolation.ending import markers_on_disk
from support.isolation.run import IsolationRun

_logger = logging.getLogger(__name__)

STATE_PARTITIONS: Final = 2
OFFSETS_PARTITIONS: Final = 1
SETTINGS: Final = {
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}
_RECOVER_S: Final = 90.0
_LOOK_AGAIN_S: Final = 0.1


class FaultyRun:
    """A run on a cluster. Enter it, `step`, leave it, and ask for `is_well`. The cluster is stopped by then."""

    def __init__(self, cluster: FaultCluster, run: IsolationRun) -> None:
        self._cluster = cluster
        self.run = run
        self.nemesis: Nemesis | None = None
        self._is_well = False
        self._admin = Admin({"bootstrap.servers": cluster.bootstrap, "default.api.timeout.ms": 10_000})

    @property
    def kinds(self) -> dict[str, Callable[[], str]]:
        """What can be done, by name."""
        cluster_kinds = {} if self.nemesis is None else self.nemesis.kinds
        return {**cluster_kinds, "kill client": self.run.kill_client, "zombie client": self.run.pause_client}

    def __enter__(self) -> FaultyRun:
        inputs = sum(place.topic == INPUT for place in self.run.places)
        configs = {"min.insync.replicas": "2"}
        self._admin.create_topics(
            [
                NewTopic(INPUT, inputs, 3, configs=configs),
                NewTopic(OUTPUT, len(self.run.places) - inputs, 3, configs=configs),
            ]
        )
        self.run.__enter__()
        self._wait_for_progress()
        internal = [Place("__transaction_state", index) for index in range(STATE_PARTITIONS)]
        internal += [Place("__consumer_offsets", index) for index in range(OFFSETS_PARTITIONS)]
        self.nemesis = Nemesis(self._cluster, [*self.run.places, *internal], self.run.chance)
        self.nemesis.wait_until_in_sync(_RECOVER_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None and self.nemesis is not None:
                self.nemesis.end()
                self.nemesis.wait_until_in_sync(_RECOVER_S)
            self.run.__exit__(kind, error, None)
        finally:
            self._admin.close()
        if kind is None:
            self._judge()

    def step(self, kinds: Sequence[str], hold_s: float) -> None:
        """Begins faults, lets the clients go on meanwhile, ends the faults and waits until there is progress again."""
        if self.nemesis is None:
            raise RuntimeError("the run was not entered")
        for kind in kinds:
            if kind in self.nemesis.kinds:
                self.run.faults[kind] += 1
            _logger.warning("%s: %s", kind, self.kinds[kind]())
        self.run.let_pass(hold_s)
        self.nemesis.end()
        self.run.resume_clients()
        self.nemesis.wait_until_in_sync(_RECOVER_S)
        self._wait_for_progress()

    def _wait_for_progress(self) -> None:
        """Until consumers with read_committed get more from an input and an output."""
        first = self._stable_ends()
        deadline_s = time.monotonic() + _RECOVER_S
        while True:
            self.run.let_pass(_LOOK_AGAIN_S)
            now = self._stable_ends()
            if first is None:
                first = now
            elif now is not None and all(
                any(now[place] > first[place] for place in now if place.topic == topic) for topic in (INPUT, OUTPUT)
            ):
                return
            if time.monotonic() > deadline_s:
                raise BrokerFailedError(
                    f"no transaction was committed for {_RECOVER_S:.0f} s: the last stable offsets are {now}\n"
                    f"{self._cluster.output}"
                )

    def _stable_ends(self) -> dict[Place, int] | None:
        """None while not all partitions can be asked."""
        partitions = {TopicPartition(*place): LATEST for place in self.run.places}
        try:
            found = self._admin.list_offsets(partitions, isolation_level="read_committed")
        except OttlaError:
            return None
        return {Place(*partition): one.offset or 0 for partition, one in found.items()}

    def _judge(self) -> None:
        self._cluster.stop()
        broker = self.run.chance.choice(sorted(self._cluster.brokers))
        logs = self._cluster.brokers[broker].directory / "data" / "logs"
        self._is_well = self.run.judge({place: markers_on_disk(logs, place) for place in self.run.places})
        for each, member in self._cluster.brokers.items():
            if self._cluster.kind(each) == OTTLA and "Traceback (most recent call last)" in member.output:
                at = member.output.index("Traceback (most recent call last)")
                self.run.wrong.append(
                    f"broker {each} logged a traceback: {member.output[max(0, at - 300) : at + 2500]}"
                )
                self._is_well = False

    @property
    def is_well(self) -> bool:
        return self._is_well


def new_cluster(directory: Path, kinds: Sequence[str] = (OTTLA, OTTLA, OTTLA)) -> FaultCluster:
    return FaultCluster(directory, kinds, settings=SETTINGS)
