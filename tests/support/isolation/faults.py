"""Faults of a cluster and of clients while transactions run: who is hit, in which way, is up to chance.

Beside the faults of `support.cluster.nemesis`, which hit the leaders of the partitions that are written and of the
coordinators' topics, and those of `client_faults`, clients are killed, and paused while another one with their
transactional id takes over. The cleaner compacts a topic that is written, and those of the coordinators, all the time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ottla import Admin, TopicPartition
from ottla.client.administer import LATEST as LATEST_OFFSET
from ottla.client.administer import NewTopic
from ottla.client.errors import OttlaError
from ottla.testing.server_process import BrokerFailedError
from support.cluster.checker import Place
from support.cluster.fault_cluster import FaultCluster
from support.cluster.kafka_members import OTTLA
from support.cluster.nemesis import Nemesis
from support.isolation.client import INPUT, LATEST, OUTPUT
from support.isolation.client_faults import ClientFaults, CoordinatorMoves
from support.isolation.compaction import records_on_disk
from support.isolation.ending import markers_on_disk
from support.isolation.libraries import unpacked
from support.isolation.run import IsolationRun

_logger = logging.getLogger(__name__)

STATE_PARTITIONS: Final = 2
OFFSETS_PARTITIONS: Final = 1
SETTINGS: Final = {
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "transaction.state.log.segment.bytes": 40_000,
    "offsets.topic.segment.bytes": 40_000,
    "log.cleaner.backoff.ms": 200,
}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
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
        self._client_faults: list[ClientFaults | CoordinatorMoves] = []

    @property
    def kinds(self) -> dict[str, Callable[[], str]]:
        """What can be done, by name."""
        kinds = {} if self.nemesis is None else dict(self.nemesis.kinds)
        for faults in self._client_faults:
            kinds |= faults.kinds
        return {**kinds, "kill client": self.run.kill_client, "zombie client": self.run.pause_client}

    def __enter__(self) -> FaultyRun:
        sizes = Counter(place.topic for place in self.run.places)
        in_sync = {"min.insync.replicas": "2"}
        configs = {INPUT: in_sync, OUTPUT: in_sync, LATEST: in_sync | COMPACTED}
        self._admin.create_topics([NewTopic(topic, sizes[topic], 3, configs=configs[topic]) for topic in sizes])
        self.run.__enter__()
        self._wait_for_progress()
        internal = [Place("__transaction_state", index) for index in range(STATE_PARTITIONS)]
        internal += [Place("__consumer_offsets", index) for index in range(OFFSETS_PARTITIONS)]
        self.nemesis = Nemesis(self._cluster, [*self.run.places, *internal], self.run.chance)
        self.nemesis.wait_until_in_sync(_RECOVER_S)
        brokers, chance = sorted(self._cluster.brokers), self.run.chance
        if self._cluster.client_network is not None:
            self._client_faults.append(ClientFaults(self._cluster.client_network, brokers, chance))
        moving = [TopicPartition(*place) for place in internal]
        self._client_faults.append(CoordinatorMoves(self._admin, moving, brokers, chance))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None and self.nemesis is not None:
                self._end_faults()
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
            if kind not in ("kill client", "zombie client"):
                self.run.faults[kind] += 1
            _logger.warning("%s: %s", kind, self.kinds[kind]())
        self.run.let_pass(hold_s)
        self._end_faults()
        self.run.resume_clients()
        self.nemesis.wait_until_in_sync(_RECOVER_S)
        self._wait_for_progress()

    def _end_faults(self) -> None:
        """First those of the cluster, because moving partitions back needs it."""
        if self.nemesis is not None:
            self.nemesis.end()
        for faults in self._client_faults:
            faults.end()

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
        partitions = {TopicPartition(*place): LATEST_OFFSET for place in self.run.places}
        try:
            found = self._admin.list_offsets(partitions, isolation_level="read_committed")
        except OttlaError:
            return None
        return {Place(*partition): one.offset or 0 for partition, one in found.items()}

    def _judge(self) -> None:
        self._cluster.stop()
        logs = {broker: member.directory / "data" / "logs" for broker, member in self._cluster.brokers.items()}
        some = logs[self.run.chance.choice(sorted(logs))]
        replicas = {
            f"broker {broker}": {place: records_on_disk(each, place, unpacked) for place in self.run.compacted}
            for broker, each in logs.items()
        }
        self._is_well = self.run.judge({place: markers_on_disk(some, place) for place in self.run.places}, replicas)
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


def new_cluster(directory: Path, seed: int, kinds: Sequence[str] = (OTTLA, OTTLA, OTTLA)) -> FaultCluster:
    """`seed` is for what happens between clients and brokers."""
    return FaultCluster(directory, kinds, settings=SETTINGS, client_network_seed=seed)
