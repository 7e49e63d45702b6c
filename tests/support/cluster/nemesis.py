"""The faults of a cluster, each with a beginning and an end; which broker, which way and how long is up to chance.

| fault | what happens |
| --- | --- |
| kill leader, follower, controller | `kill -9`; started again at the end |
| kill two, kill all | the same to several at once |
| pause leader, follower, controller | SIGSTOP for longer than the session: a zombie that knows nothing of its end |
| kill, pause ZooKeeper | no elections, no ISR changes; sessions expire or not |
| cut pair | two brokers do not hear each other, also one way, hanging or with resets |
| isolate broker | the same for one broker and all others; clients still reach it |
| cut from ZooKeeper | one broker, also one way: its session expires while it serves |
| cut off | from brokers and ZooKeeper: a leader that clients still reach |
| slow network | everything that brokers send each other is late |
| rolling restart | every broker stops cleanly and starts again, one after the other |
| bounce | kill -9 and start at once, before the session expires |
| full disk | no room on one broker's disk |
| lose directory | one of a broker's log directories is gone; a new one, or the old one, is there when it starts again |
| move replicas | partitions move to other brokers, under whatever else happens; some moves are cancelled |
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.client.administer import Admin
from support.cluster.checker import Place
from support.cluster.fault_cluster import SESSION_S, FaultCluster, fill_up
from support.cluster.kafka_members import OTTLA

LONGEST_HOLD_S: Final = SESSION_S + 4.0
ALONE: Final = frozenset({"lose directory"})
"""Faults that lose replicas: with another one, committed records could be lost."""
_REPLICAS: Final = 3
_NOTICED_S: Final = 30.0
_MOVE_MS: Final = 5000
_CANCELLED: Final = 0.3
"""So many of all moves."""
_Undo = Callable[[], None]


class Nemesis:
    """Belongs to one thread. `begin` returns what it did, in words; `end` takes everything back."""

    def __init__(self, cluster: FaultCluster, places: Sequence[Place], chance: random.Random) -> None:
        self._cluster = cluster
        self._places = places
        self._chance = chance
        self._undo: list[_Undo] = []
        self._healing: list[_Undo] = []
        self.kinds: dict[str, Callable[[], str]] = {
            "kill leader": lambda: self._kill([self._leader()]),
            "kill follower": lambda: self._kill([self._follower()]),
            "kill controller": lambda: self._kill([self._controller()]),
            "kill two": lambda: self._kill(self._chance.sample(sorted(self._cluster.brokers), 2)),
            "kill all": lambda: self._kill(list(self._cluster.brokers)),
            "pause leader": lambda: self._pause(self._leader()),
            "pause follower": lambda: self._pause(self._follower()),
            "pause controller": lambda: self._pause(self._controller()),
            "kill ZooKeeper": self._kill_zookeeper,
            "pause ZooKeeper": self._pause_zookeeper,
            "cut pair": self._cut_pair,
            "isolate broker": self._isolate,
            "cut from ZooKeeper": self._cut_from_zookeeper,
            "cut off": self._cut_off,
            "slow network": self._slow,
            "rolling restart": self._rolling_restart,
        }
        if all(cluster.kind(broker) == OTTLA for broker in cluster.brokers):
            self.kinds["bounce"] = self._bounce
            if cluster.small_disk is not None:
                self.kinds["full disk"] = self._fill_disk
            if cluster.log_directory_count > 1:
                self.kinds["lose directory"] = self._lose_directory
            if len(cluster.brokers) > _REPLICAS:
                self.kinds["move replicas"] = self._move_replicas

    def begin(self, kind: str) -> str:
        return self.kinds[kind]()

    def end(self) -> None:
        """ZooKeeper and the network first, because a broker does not start without ZooKeeper."""
        healing, self._healing = self._healing, []
        undo, self._undo = self._undo, []
        self._chance.shuffle(undo)
        for each in (*healing, *undo):
            each()
        for broker, member in self._cluster.brokers.items():
            member.resume()
            self._start(broker)

    # --- who ----------------------------------------------------------------------------------------------------------

    def _leader(self) -> int:
        place = self._chance.choice(self._places)
        return self._ask(lambda: self._leader_of(place))

    def _leader_of(self, place: Place) -> int | None:
        state = self._cluster.view.partition(*place)
        return None if state is None else state.leader

    def _follower(self) -> int:
        leader = self._leader()
        return self._chance.choice([each for each in self._cluster.brokers if each != leader])

    def _controller(self) -> int:
        return self._ask(self._cluster.view.controller)

    def _ask(self, question: Callable[[], int | None]) -> int:
        """Any broker, where ZooKeeper does not answer or there is none of the kind."""
        fallback = self._chance.choice(sorted(self._cluster.brokers))
        try:
            found = question()
        except TimeoutError:
            return fallback
        return fallback if found is None or found < 0 else found

    # --- processes ----------------------------------------------------------------------------------------------------

    def _kill(self, brokers: list[int]) -> str:
        for broker in brokers:
            self._cluster.brokers[broker].kill()
        self._undo.append(lambda: self._cluster._at_once(self._start, brokers))
        return f"kill -9 of {brokers}"

    def _start(self, broker: int) -> None:
        """Without ZooKeeper it would not start; `end` starts it then."""
        if not self._healing:
            self._cluster._start_if_down(broker)

    def _bounce(self) -> str:
        broker = self._leader()
        self._cluster.brokers[broker].kill()
        self._start(broker)
        return f"kill -9 and start of {broker}"

    def _pause(self, broker: int) -> str:
        member = self._cluster.brokers[broker]
        if not member.is_running:
            return f"{broker} is down already"
        member.pause()
        self._undo.append(member.resume)
        return f"SIGSTOP of {broker}"

    def _kill_zookeeper(self) -> str:
        server = self._cluster.zookeeper
        server.kill()
        self._healing.append(lambda: None if server.is_running else server.start())
        return "kill -9 of ZooKeeper"

    def _pause_zookeeper(self) -> str:
        server = self._cluster.zookeeper
        if not server.is_running:
            return "ZooKeeper is down already"
        server.pause()
        self._healing.append(server.resume)
        return "SIGSTOP of ZooKeeper"

    def _rolling_restart(self) -> str:
        order = sorted(self._cluster.brokers)
        self._chance.shuffle(order)
        for broker in order:
            member = self._cluster.brokers[broker]
            if member.is_running and not member.is_paused:
                member.stop()
            self._start(broker)
            if not self._undo and not self._healing:  # else another fault keeps it from that
                self.wait_until_in_sync()
        return f"clean restart of {order}"

    def wait_until_in_sync(self, timeout_s: float = 90.0) -> None:
        for place in self._places:
            self._cluster.wait_until_in_sync(place, timeout_s=timeout_s)

    # --- network ------------------------------------------------------------------------------------------------------

    def _way(self) -> dict[str, bool]:
        return self._chance.choice([{}, {}, {"one_way": True}, {"one_way": True}, {"reset": True}])

    def _heal_later(self) -> None:
        self._healing.append(self._cluster.heal)

    def _cut_pair(self) -> str:
        one, other = self._chance.sample(sorted(self._cluster.brokers), 2)
        way = self._way()
        self._heal_later()
        self._cluster.cut(one, other, **way)
        return f"cut {one} from {other} {_words(way)}"

    def _isolate(self) -> str:
        broker, way = self._leader(), self._way()
        self._heal_later()
        self._cluster.isolate(broker, **way)
        return f"isolate {broker} from brokers {_words(way)}"

    def _cut_from_zookeeper(self) -> str:
        broker, way = self._chance.choice([self._leader, self._controller])(), self._way()
        self._heal_later()
        self._cluster.cut_zookeeper(broker, **way)
        return f"cut {broker} from ZooKeeper {_words(way)}"

    def _cut_off(self) -> str:
        broker, way = self._chance.choice([self._leader, self._controller])(), self._way()
        self._heal_later()
        self._cluster.isolate(broker, **way)
        self._cluster.cut_zookeeper(broker, **way)
        return f"cut {broker} off from all {_words(way)}"

    def _slow(self) -> str:
        delay_s = self._chance.choice([0.02, 0.1, 0.4])
        self._heal_later()
        brokers = sorted(self._cluster.brokers)
        for one in brokers:
            for other in brokers:
                if one < other:
                    self._cluster.delay(one, other, delay_s)
        return f"delay of {delay_s} s between brokers"

    # --- disk ---------------------------------------------------------------------------------------------------------

    def _fill_disk(self) -> str:
        disk = self._cluster.small_disk
        if disk is None:
            raise RuntimeError("no broker has a small disk")
        filling: Path = fill_up(disk)
        self._undo.append(lambda: filling.unlink(missing_ok=True))
        return f"the disk of {self._cluster.small_disk_broker} is full"

    def _lose_directory(self) -> str:
        place = self._chance.choice(self._places)
        broker = self._ask(lambda: self._leader_of(place))
        lost = self._cluster.log_directory_of(broker, place)
        if lost is None:
            return f"broker {broker} has no replica of {place}"
        gone = lost.with_name(f"{lost.name}.gone")
        is_replaced = self._chance.random() < 0.5
        places = [each for each in self._places if (lost / str(each)).exists()]
        lost.rename(gone)  # at once: the broker goes on writing checkpoints there

        def end() -> None:
            for each in places:
                self._cluster.wait_until_not_in_sync(each, broker, timeout_s=_NOTICED_S)
            self._cluster.brokers[broker].stop()
            if is_replaced:
                shutil.rmtree(gone)
            else:
                gone.rename(lost)
            self._start(broker)

        self._undo.append(end)
        return f"{lost.name} of {broker} is gone, with {len(places)} replicas{' for ever' if is_replaced else ''}"

    # --- replicas -----------------------------------------------------------------------------------------------------

    def _move_replicas(self) -> str:
        moved = self._chance.sample(self._places, self._chance.randint(1, len(self._places)))
        brokers = sorted(self._cluster.brokers)
        wanted = {TopicPartition(*place): self._chance.sample(brokers, _REPLICAS) for place in moved}
        if self._chance.random() < _CANCELLED:
            self._undo.append(lambda: self._cancel(list(wanted)))
        refusal = _put(self._cluster, wanted)
        return refusal or ", ".join(f"{partition} to {replicas}" for partition, replicas in wanted.items())

    def _cancel(self, moved: Sequence[TopicPartition]) -> None:
        """Those that are not over yet."""
        _put(self._cluster, dict.fromkeys(moved))


def _put(cluster: FaultCluster, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> str:
    """Moves replicas, or cancels that. Returns what went wrong: another fault may be in the way."""
    with Admin(
        bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=_MOVE_MS, request_timeout_ms=_MOVE_MS
    ) as admin:
        try:
            admin.alter_partition_reassignments(wanted)
        except OttlaError as error:
            return f"replicas were not moved: {error}"
    return ""


def _words(way: dict[str, bool]) -> str:
    return f"({', '.join(way)})" if way else ""
