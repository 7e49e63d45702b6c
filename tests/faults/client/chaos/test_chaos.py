"""Groups of our consumers, and a producer of ours, under chaos: members come, go, are killed, paused and interrupted,
while connections are cut, answers are delayed or lost, and the broker is killed, paused and restarted.

Afterwards a checker holds all of it to what was promised: nothing acknowledged is lost or doubled, no record is
skipped, commits never move back, and every consumer closes. `OTTLA_CHAOS_SECONDS` says how long each case goes on,
`OTTLA_SEED` what happens in it.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from faults.client.chaos.checker import check_commits, check_everything_seen
from faults.client.chaos.members import STARVED_TIMEOUT_S, Member, draw_orders
from faults.client.traffic import PATIENT, Sending, check_partition, seeded
from faults.load import create_topic, read_all
from ottla import Admin
from ottla.client.errors import OttlaError
from support.clients.interposer import FETCH, PRODUCE, Interposer, running_interposer
from support.clients.peers import KAFKA, OTTLA, Peer, running_peer
from support.kafka_process import Ports, free_port

_logger = logging.getLogger(__name__)

SECONDS = float(os.environ.get("OTTLA_CHAOS_SECONDS", "60"))
TOPIC = "numbers"
GROUP = "readers"
PARTITIONS = 5
MEMBERS_MAX = 4
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
}
COMMON = {
    "group.id": GROUP,
    "auto.offset.reset": "earliest",
    "default.api.timeout.ms": 5_000,
    "request.timeout.ms": 3_000,
    "metadata.max.age.ms": 2_000,
    **PATIENT,
}
CLASSIC = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 200}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range", **CLASSIC},
    "roundrobin": {"partition.assignment.strategy": "roundrobin", **CLASSIC},
    "sticky": {"partition.assignment.strategy": "sticky", **CLASSIC},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **CLASSIC},
    "uniform": {"group.protocol": "consumer", "group.remote.assignor": "uniform"},
    "server-side range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}
PRODUCERS: tuple[dict[str, Any], ...] = (
    {},
    {"linger.ms": 0, "batch.size": 500},
    {"max.in.flight.requests.per.connection": 1},
    {"compression.type": "zstd", "batch.size": 100_000},
)


class CommitWatch:
    """Looks at the group's committed offsets again and again, past all that disturbs the members."""

    def __init__(self, bootstrap: str) -> None:
        self.history: list[dict[int, int]] = []
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commit watch")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with Admin({"bootstrap.servers": self._bootstrap, "default.api.timeout.ms": 2_000, **PATIENT}) as admin:
                    while not self._stop.wait(0.1):
                        self.history.append(self.look(admin))
            except OttlaError:  # the broker is away
                self._stop.wait(0.1)

    @staticmethod
    def look(admin: Admin) -> dict[int, int]:
        return {place.partition: each.offset for place, each in admin.list_consumer_group_offsets(GROUP).items()}

    def latest(self) -> dict[int, int]:
        return dict(self.history[-1]) if self.history else {}

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Chaos:
    def __init__(self, peer: Peer, between: Interposer, protocol: Mapping[str, Any], chance: random.Random) -> None:
        self._peer, self._between, self._chance = peer, between, chance
        self._common = {**COMMON, **protocol, "bootstrap.servers": f"127.0.0.1:{between.port}"}
        self.members: list[Member] = []
        self.all_members: list[Member] = []
        self.done: Counter[str] = Counter()

    def start_member(self) -> None:
        member = Member(len(self.all_members), draw_orders(self._common, TOPIC, self._chance))
        self.members.append(member)
        self.all_members.append(member)

    def go_on(self, seconds: float) -> None:
        deeds: list[tuple[int, Callable[[], None]]] = [
            (6, self.join),
            (4, self.leave),
            (2, self.kill_member),
            (2, self.pause_member),
            (12, self.interrupt),
            (6, self.cut),
            (4, self.lose_answers),
            (4, self.slow_down),
            (1, self.kill_broker),
            (1, self.restart_broker),
        ]
        weights = [weight for weight, _ in deeds]
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            deed = self._chance.choices([each for _, each in deeds], weights)[0]
            deed()
            self.done[deed.__name__] += 1
            time.sleep(self._chance.uniform(0.05, 0.8))  # how often something happens, not a wait for it
            for member in self.members:
                member.check_alive()
        self._between.slow_down(lambda: 0.0)

    def join(self) -> None:
        if len(self.members) < MEMBERS_MAX:
            self.start_member()

    def leave(self) -> None:
        if len(self.members) > 1:
            member = self._taken()
            member.begin_to_close()
            if self._chance.random() < 0.5:
                member.signal(signal.SIGINT)
            member.wait_until_closed()

    def kill_member(self) -> None:
        if len(self.members) > 1:
            self._taken().kill()

    def pause_member(self) -> None:
        """Some pauses are longer than a session."""
        member = self._chance.choice(self.members)
        member.signal(signal.SIGSTOP)
        time.sleep(self._chance.choice((0.1, 1.0, 4.0)))
        member.signal(signal.SIGCONT)

    def interrupt(self) -> None:
        for _ in range(self._chance.randrange(1, 10)):
            self._chance.choice(self.members).signal(signal.SIGINT)
            time.sleep(self._chance.random() * 0.02)

    def cut(self) -> None:
        self._between.cut()

    def lose_answers(self) -> None:
        lose = self._chance.choice((self._between.lose_answer, self._between.tear_answer))
        lose(self._chance.choice((PRODUCE, FETCH, 8, 11, 12, 14, 68)))  # also of commits, joins, heartbeats and syncs

    def slow_down(self) -> None:
        pause_s = self._chance.choice((0.0, 0.0, 0.02, 0.3))
        self._between.slow_down(lambda: pause_s)

    def kill_broker(self) -> None:
        self._peer.kill()
        self._peer.start()

    def restart_broker(self) -> None:
        self._peer.stop()
        self._peer.start()

    def _taken(self) -> Member:
        return self.members.pop(self._chance.randrange(len(self.members)))


@contextmanager
def disturbed_peer(place: Path) -> Iterator[tuple[Peer, Interposer, str]]:
    """A broker that clients reach through an interposer, and its own address."""
    listening = free_port()
    with (
        running_interposer(listening) as between,
        running_peer(place, SETTINGS, Ports(listening, between.port)) as peer,
    ):
        yield peer, between, f"127.0.0.1:{between.port}"


@pytest.mark.soak
@pytest.mark.parametrize("peer_name", [OTTLA, KAFKA])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_under_chaos(tmp_path: Path, protocol: str, peer_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TEST_PEER", peer_name)
    chance = seeded()
    with disturbed_peer(tmp_path) as (peer, between, bootstrap):
        create_topic(bootstrap, TOPIC, partitions=PARTITIONS)
        watch = CommitWatch(bootstrap)
        settings = {**chance.choice(PRODUCERS), "delivery.timeout.ms": int(2_000 * STARVED_TIMEOUT_S)}
        sending = Sending(bootstrap, TOPIC, PARTITIONS, chance, settings, pause_s=0.01)
        chaos = Chaos(peer, between, PROTOCOLS[protocol], chance)
        try:
            chaos.start_member()
            chaos.start_member()
            chaos.go_on(SECONDS)
            sending.stop(STARVED_TIMEOUT_S)
            stored = {index: read_all(bootstrap, TOPIC, index) for index in range(PARTITIONS)}
            ends = {index: len(records) for index, records in stored.items()}
            _wait_until_committed(chaos, watch, {index: end for index, end in ends.items() if end})
        finally:
            for member in chaos.members:
                member.begin_to_close()
            try:
                for member in chaos.members:
                    member.wait_until_closed()
            finally:  # or their threads keep the process from ending
                watch.stop()
                with suppress(OttlaError):  # after a failure there may be records under way
                    sending.close()
        for index, records in stored.items():
            check_partition(sending.outcomes(index), records, f"{TOPIC}-{index}")
    for member in chaos.all_members:
        member.check()
    check_everything_seen([tenure for member in chaos.all_members for tenure in member.tenures], ends)
    check_commits(watch.history)
    _report(protocol, peer_name, chaos, sum(ends.values()))


def _wait_until_committed(chaos: Chaos, watch: CommitWatch, ends: Mapping[int, int]) -> None:
    """Until the members that are left have consumed and committed everything. Those with tiny limits take their time:
    only a group that makes no progress has failed."""
    chaos.start_member()
    last, deadline_s = watch.latest(), time.monotonic() + STARVED_TIMEOUT_S
    while (committed := watch.latest()) != ends:
        if committed != last:
            last, deadline_s = committed, time.monotonic() + STARVED_TIMEOUT_S
        assert time.monotonic() < deadline_s, _explain(chaos, watch, committed, ends)
        for member in chaos.members:
            member.check_alive()
        time.sleep(0.05)


def _explain(chaos: Chaos, watch: CommitWatch, committed: Mapping[int, int], ends: Mapping[int, int]) -> str:
    """Whether the group is stuck or slow: the watch goes on looking, and members say where they are."""
    looks = len(watch.history)
    members = "\n".join(member.explain() for member in chaos.members)
    return (
        f"no commit came in {STARVED_TIMEOUT_S:.0f} s: {committed} of {ends}; now {watch.latest()}, after "
        f"{len(watch.history) - looks} more looks; the machine's load is {os.getloadavg()[0]:.0f}\n{members}"
    )


def _report(protocol: str, peer_name: str, chaos: Chaos, records: int) -> None:
    seen = sum(len(offsets) for member in chaos.all_members for _, offsets in member.tenures)
    interrupted = sum(member.interrupted for member in chaos.all_members)
    refusals = Counter(reason.split(":")[0] for member in chaos.all_members for reason in member.refusals)
    _logger.warning(
        "%s on %s: %d records, seen %d times by %d members, %d interruptions; %s; refusals %s",
        protocol,
        peer_name,
        records,
        seen,
        len(chaos.all_members),
        interrupted,
        dict(chaos.done),
        dict(refusals),
    )
