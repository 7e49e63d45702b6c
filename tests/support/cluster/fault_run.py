"""A run of faults under load, and its verdict.

    run = FaultRun(cluster, seed)
    with run:
        run.step(["kill leader"], hold_s=4)
    print(run.summary)
    assert not run.wrong, run.report

Leaving the block ends all faults, waits until the cluster is whole, ends the load, reads everything with two kinds of
clients, stops the cluster and judges: records, consumers, replicas, the tree's journal, and the brokers' output.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.testing.server_process import BrokerFailedError
from support.cluster import checker, tree_audit
from support.cluster.checker import Place, Run
from support.cluster.churn import Churn, left_on_disk
from support.cluster.fault_cluster import OFFSETS_PARTITIONS, FaultCluster
from support.cluster.kafka_members import OTTLA
from support.cluster.nemesis import Nemesis
from support.cluster.workload import (
    Commits,
    GroupMember,
    Load,
    OttlaLoad,
    OttlaWatcher,
    RdkafkaLoad,
    RdkafkaWatcher,
    Watcher,
    end_offsets,
    read_to_end,
)

_logger = logging.getLogger(__name__)

_TOPIC_CONFIGS: Final[Mapping[str, str]] = {"min.insync.replicas": "2", "segment.bytes": "300000"}
_RECOVER_S: Final = 90.0
_LOOK_AGAIN_S: Final = 0.1
_RENEW_S: Final = 5.0
_OUTPUT_CHARS: Final = 6000


@dataclass(frozen=True, slots=True)
class Step:
    """Something that was done to the cluster."""

    kinds: tuple[str, ...]
    what: str
    began_s: float
    ended_s: float
    whole_s: float
    """When all replicas were in sync again."""


class FaultRun:
    """See the module. `rate` is for each producer, in records a second."""

    def __init__(
        self,
        cluster: FaultCluster,
        seed: int,
        *,
        topics: Mapping[str, int] | None = None,
        topic_configs: Mapping[str, str] | None = None,
        rate: int = 100,
    ) -> None:
        self.cluster = cluster
        self.seed = seed
        self.chance = random.Random(seed)
        self.steps: list[Step] = []
        self.wrong: list[str] = []
        self.summary = ""
        self._topics = dict(topics or {"orders": 3, "payments": 2})
        self.places = [Place(topic, index) for topic, count in self._topics.items() for index in range(count)]
        self.nemesis = Nemesis(cluster, self.places, self.chance)
        self._rate = rate
        self._topic_configs = {**_TOPIC_CONFIGS, **(topic_configs or {})}
        self._loads: list[Load] = []
        self._watchers: list[Watcher] = []
        self._members: list[Watcher] = []
        self._churn: Churn | None = None
        self._began_s = 0.0
        self._doubled = 0
        """Records that librdkafka sent twice in different epochs."""
        self._strays: list[str] = []
        """Replicas that were moved away while their broker was down: as in Kafka, they stay on its disk."""
        self._lost: list[Watcher] = []
        """Consumers of librdkafka that it has locked up: they stand still through no fault of brokers."""
        self._is_finished = False

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> FaultRun:
        self._create_topics()
        bootstrap, names = self.cluster.bootstrap, list(self._topics)
        small = {"max.in.flight.requests.per.connection": 1, "batch.size": 2000}
        chances = [random.Random(self.chance.random()) for _ in range(3)]
        self._loads = [
            OttlaLoad(0, bootstrap, names, self._rate, chances[0]),
            RdkafkaLoad(1, bootstrap, names, self._rate, chances[1]),
            OttlaLoad(2, bootstrap, names, self._rate, chances[2], small, renew_s=_RENEW_S),
        ]
        self._watchers = [
            OttlaWatcher("reader", bootstrap, self.places, {}),
            OttlaWatcher("follower reader", bootstrap, self.places, {"client.rack": "rack-2"}),
            RdkafkaWatcher("reader", bootstrap, self.places, {}),
        ]
        commits = Commits()
        self._members = [GroupMember(f"member {number}", bootstrap, names, commits, {}) for number in (1, 2)]
        self._began_s = time.monotonic()
        self._churn = Churn(bootstrap, random.Random(self.chance.random()))
        for each in (*self._loads, *self._watchers, *self._members, self._churn):
            each.start()
        self._wait_for(lambda: self.acknowledged > 100 or self._is_broken(), "no records were acknowledged at first")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None or issubclass(kind, BrokerFailedError):
                if error is not None:
                    self.wrong.append(f"a step failed: {str(error)[:2000]}")
                self._finish()
        finally:
            for load in [] if self._is_finished else self._loads:
                load.finish(0.0)
            for watcher in (*self._watchers, *self._members):
                watcher.close()
            if self._churn is not None:
                self._churn.end()
        if isinstance(error, BrokerFailedError):
            raise AssertionError(self.report) from error

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        new = [NewTopic(name, count, 3, config=self._topic_configs) for name, count in self._topics.items()]
        deadline_s = time.monotonic() + _RECOVER_S
        while not self._are_created(admin, new):
            if time.monotonic() > deadline_s:
                raise BrokerFailedError(f"topics were not created in {_RECOVER_S:.0f} s:\n{self.cluster.output}")
        self.nemesis.wait_until_in_sync()

    @staticmethod
    def _are_created(admin: AdminClient, topics: list[NewTopic]) -> bool:
        """Asks for them; a cluster that has just started may need another try."""
        for each in admin.create_topics(topics, request_timeout=10.0).values():
            try:
                each.result(15)
            except (KafkaException, TimeoutError) as error:
                code = error.args[0].code() if isinstance(error, KafkaException) else None
                if code != KafkaError.TOPIC_ALREADY_EXISTS:
                    _logger.warning("creating topics: %s", error)
                    time.sleep(_LOOK_AGAIN_S)
                    return False
        return True

    @property
    def acknowledged(self) -> int:
        return sum(load.sent.counts()[0] for load in self._loads)

    def wait_for_more(self, count: int) -> None:
        """Until that many more records are acknowledged."""
        wanted = self.acknowledged + count
        self._wait_for(lambda: self.acknowledged >= wanted or self._is_broken(), f"no {count} more records came")

    def _is_broken(self) -> bool:
        return any(each.failure is not None for each in (*self._loads, *self._watchers, *self._members))

    def _wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float = _RECOVER_S) -> bool:
        if self._comes_true(condition, timeout_s):
            return True
        self.wrong.append(f"{what} after {timeout_s:.0f} s")
        return False

    @staticmethod
    def _comes_true(condition: Callable[[], bool], timeout_s: float = _RECOVER_S) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_LOOK_AGAIN_S)
        return True

    # --- faults -------------------------------------------------------------------------------------------------------

    def step(self, kinds: Sequence[str], hold_s: float) -> None:
        """Begins faults, holds them, ends them and waits until the cluster is whole."""
        began_s = time.monotonic()
        whats = []
        for kind in kinds:
            whats.append(self.nemesis.begin(kind))
            _logger.warning("%7.1f s: %s: %s", time.monotonic() - self._began_s, kind, whats[-1])
        time.sleep(hold_s)  # how long the fault lasts, not a wait for something
        self.nemesis.end()
        ended_s = time.monotonic()
        self.nemesis.wait_until_in_sync(_RECOVER_S)
        self.wait_for_more(1)
        whole_s = time.monotonic()
        self.steps.append(Step(tuple(kinds), "; ".join(whats), began_s, ended_s, whole_s))
        _logger.warning("%7.1f s: whole again, %.1f s after the end", whole_s - self._began_s, whole_s - ended_s)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self.nemesis.end()
        try:
            self.nemesis.wait_until_in_sync(_RECOVER_S)
        except BrokerFailedError as error:
            self.wrong.append(f"the cluster did not recover: {error}")
            self._summarise(None)
            return
        for load in self._loads:
            left = load.finish(_RECOVER_S)
            if left:
                self.wrong.append(f"{load.name}: {left} records had no outcome {_RECOVER_S:.0f} s after the last fault")
        self._is_finished = True
        if self._churn is not None:
            self.wrong += self._churn.finish(self.cluster, _RECOVER_S)
        stored = self._read_everything()
        if stored is not None:
            self._judge(stored)
        self._summarise(stored)

    def _read_everything(self) -> dict[Place, Run] | None:
        bootstrap = self.cluster.bootstrap
        ends = end_offsets(bootstrap, self.places)
        for watcher in self._watchers:
            self._follow_to(ends, watcher)
        seen = [member.seen for member in self._members]
        final = OttlaWatcher("final reader", bootstrap, self.places, {})
        stored = read_to_end(final, ends, _RECOVER_S)
        short = [
            f"{place} ends at {run.end}, not {ends[place]}" for place, run in stored.items() if run.end < ends[place]
        ]
        if short:
            self.wrong += [f"the final read is not complete: {each}" for each in short]
            return None
        self.wrong += final.seen.jumps
        again = RdkafkaWatcher("final reader", bootstrap, self.places, {})
        if read_to_end(again, ends, _RECOVER_S) != stored:
            self.wrong.append("two final reads differ")
        self._wait_for(
            lambda: not checker.judge_complete(seen, stored, "") or self._is_broken(),
            "the group did not see everything",
        )
        return stored

    def _follow_to(self, ends: Mapping[Place, int], watcher: Watcher) -> None:
        if self._comes_true(lambda: watcher.has_reached(ends) or watcher.failure is not None):
            return
        watcher.close()
        self._lost.append(watcher)
        if not watcher.is_deadlocked:
            self.wrong.append(f"{watcher.name} did not reach the end in {_RECOVER_S:.0f} s")

    def _judge(self, stored: Mapping[Place, Run]) -> None:
        for each in (*self._watchers, *self._members):
            if each not in self._lost:
                each.close()
        sent = [load.sent for load in self._loads]
        seen = [watcher.seen for watcher in self._watchers]
        whole = [watcher.seen for watcher in self._watchers if watcher not in self._lost]
        members = [member.seen for member in self._members]
        internal = [Place("__consumer_offsets", index) for index in range(OFFSETS_PARTITIONS)]
        assigned = {place: self.cluster.assignment(place).replicas for place in (*stored, *internal)}
        self.cluster.stop()
        replicas = {place: self.cluster.replicas(place, brokers) for place, brokers in assigned.items()}

        def is_of_new_epoch(producer: int, one: checker.Spot, other: checker.Spot) -> bool:
            first, second = (replicas[place][0].producer_at(offset) for place, offset in (one, other))
            is_excused = self._loads[producer].renumbers and first != second
            self._doubled += is_excused
            return is_excused

        self.wrong += checker.judge_records(sent, stored, is_of_new_epoch)
        self.wrong += checker.judge_offsets(sent)
        self.wrong += checker.judge_seen([*seen, *members], stored)
        self.wrong += checker.judge_complete(members, stored, "the group")
        for reader in whole:
            self.wrong += checker.judge_complete([reader], stored, reader.consumer)
        for place, run in stored.items():
            self.wrong += checker.judge_replicas(place, replicas[place], run.end)
        for place in internal:  # written by coordinators to the end, so only what is committed counts
            high_watermark = min(each.high_watermark for each in replicas[place])
            self.wrong += checker.judge_replicas(place, replicas[place], high_watermark)
        for broker in self.cluster.brokers:
            for directory in self.cluster.log_directories(broker):
                self.wrong += left_on_disk(broker, directory)
            self._strays += [
                f"{place} on {broker}"
                for place, brokers in assigned.items()
                if broker not in brokers and self.cluster.log_directory_of(broker, place) is not None
            ]
        self.wrong += tree_audit.judge_journal(self.cluster.journal())

    def _summarise(self, stored: Mapping[Place, Run] | None) -> None:
        for each in (*self._loads, *self._watchers, *self._members):
            if each.failure is not None:
                self.wrong.append(f"{each.name} failed: {each.failure!r}")
        for broker, member in self.cluster.brokers.items():
            if self.cluster.kind(broker) == OTTLA and "Traceback (most recent call last)" in member.output:
                at = member.output.index("Traceback (most recent call last)")
                self.wrong.append(f"broker {broker} logged a traceback: {member.output[max(0, at - 300) : at + 2500]}")
        self.summary = self._words(stored)
        _logger.warning("%s", self.summary)

    def _words(self, stored: Mapping[Place, Run] | None) -> str:
        counts = [load.sent.counts() for load in self._loads]
        lines = [
            f"OTTLA_SEED={self.seed}, {time.monotonic() - self._began_s:.0f} s",
            f"records: {sum(each[0] for each in counts)} acknowledged, {sum(each[1] for each in counts)} failed, "
            f"{sum(each[2] for each in counts)} unknown",
        ]
        if stored is not None:
            if self._churn is not None:
                lines.append(f"topics created and deleted: {self._churn.created}")
            lines.append(f"stored: {sum(len(run.marks) for run in stored.values())} in {len(stored)} partitions")
            if self._doubled:
                causes = Counter(cause for load in self._loads for cause in load.renumberings)
                lines.append(f"sent twice by librdkafka in a new producer epoch: {self._doubled}, after {dict(causes)}")
            if deadlocked := [each.name for each in self._watchers if each.is_deadlocked]:
                lines.append(f"locked up in librdkafka: {', '.join(deadlocked)}")
            if self._strays:
                lines.append(f"replicas that moved away, and are still on a disk: {', '.join(sorted(self._strays))}")
            if not self.cluster.zookeeper.is_running:
                lines.append(f"leader changes: {tree_audit.leader_changes(self.cluster.journal())}")
        times = Counter(kind for step in self.steps for kind in step.kinds)
        for kind, count in sorted(times.items()):
            of_kind = [step for step in self.steps if kind in step.kinds]
            wait_s = max(self.longest_wait_s(step.began_s, step.ended_s) for step in of_kind)
            whole_s = max(step.whole_s - step.ended_s for step in of_kind)
            lines.append(
                f"  {kind}: {count}x, longest wait for an answer {wait_s:.1f} s, whole again in {whole_s:.1f} s"
            )
        waits = ", ".join(
            f"{each.name} {each.sent.longest_wait_s(0.0, time.monotonic()):.1f} s" for each in self._loads
        )
        lines.append(f"longest wait for an answer: {waits}")
        lines.append(f"verdict: {'PASS' if not self.wrong else f'FAIL ({len(self.wrong)} findings)'}")
        return "\n".join(lines)

    def longest_wait_s(self, from_s: float, until_s: float) -> float:
        """The longest that a producer waited for an acknowledgement of what it sent in that time."""
        return max((load.sent.longest_wait_s(from_s, until_s) for load in self._loads), default=0.0)

    @property
    def report(self) -> str:
        """Everything that a failed run should tell."""
        steps = "\n".join(f"{step.began_s - self._began_s:7.1f} s: {step.what}" for step in self.steps)
        errors = "\n".join(f"{each.name}: {len(each.errors)} errors, {each.errors[-2:]}" for each in self._loads)
        outputs = "\n".join(
            f"--- broker {broker}\n{member.output[-_OUTPUT_CHARS:]}" for broker, member in self.cluster.brokers.items()
        )
        findings = checker.in_brief(self.wrong)
        return f"{findings}\n\n{self.summary}\n\n{steps}\n\n{errors}\n\n{outputs}"
