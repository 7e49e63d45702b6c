"""What is measured on a cluster, each line with its targets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from bench.broker import driver
from bench.broker.control import Control
from bench.broker.lines import Contender, Contenders, Figures, Line, Metric
from bench.broker.session import Effort, Session
from bench.broker.usage import cpu_s, pss_mb
from bench.cluster import load, topics
from bench.cluster.sides import BROKERS, BenchCluster, ClusterSide, KafkaSide, OttlaSide, running_cluster

KIB: Final = 1024
PARTITIONS: Final = 6
_WARM_MB: Final = 300


class ClusterSession(Session):
    """Both clusters stay up through a run: one is idle while the other has its turn."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._clusters: dict[str, BenchCluster] = {}
        self._topic_numbers = count()

    def cluster(self, side: ClusterSide) -> BenchCluster:
        if side.name not in self._clusters:
            cluster = self._exits.enter_context(running_cluster(side, self.new_place()))
            self._clusters[side.name] = cluster
            topics.controller(cluster)
            self._warm_up_cluster(cluster)
        return self._clusters[side.name]

    def _warm_up_cluster(self, cluster: BenchCluster) -> None:
        """For Kafka's compiler."""
        name = self.new_topic()
        with topics.topic(cluster, name, PARTITIONS) as found:
            load.produce(cluster.pids, leaders_of(cluster, found), name, KIB, _WARM_MB)
            load.one_at_a_time(cluster.address(found[0].leader), name, 2.0)

    def new_topic(self) -> str:
        return f"bench-{next(self._topic_numbers)}"


def leaders_of(cluster: BenchCluster, found: dict[int, topics.PartitionView]) -> dict[int, str]:
    return {partition: cluster.address(view.leader) for partition, view in sorted(found.items())}


Measure = Callable[[ClusterSession, BenchCluster, Effort], Figures]


def on_both(measure: Measure) -> Callable[[Session, Effort], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        if not isinstance(session, ClusterSession):
            raise TypeError(f"a cluster needs a ClusterSession, not {type(session).__name__}")
        ours, kafka = (
            Contender(side.name, partial(measure, session, session.cluster(side)))
            for side in (OttlaSide(), KafkaSide())
        )
        yield ours, kafka

    return contenders


def produce(session: ClusterSession, cluster: BenchCluster, effort: Effort) -> Figures:
    name = session.new_topic()
    with topics.topic(cluster, name, PARTITIONS) as found:
        return load.produce(cluster.pids, leaders_of(cluster, found), name, KIB, effort.raw_mb // 2)


def consume(session: ClusterSession, cluster: BenchCluster, effort: Effort) -> Figures:
    name = session.new_topic()
    with topics.topic(cluster, name, PARTITIONS) as found:
        leaders = leaders_of(cluster, found)
        load.produce(cluster.pids, leaders, name, KIB, effort.raw_mb // 2)
        ends = {}
        for partition, address in leaders.items():
            with Control(address) as control:
                ends[partition] = control.end_offset(name, partition)
        return load.consume(cluster.pids, leaders, ends, name, KIB, effort.fetch_passes)


def acknowledged(session: ClusterSession, cluster: BenchCluster, effort: Effort) -> Figures:
    name = session.new_topic()
    with topics.topic(cluster, name, 1) as found:
        return load.one_at_a_time(cluster.address(found[0].leader), name, effort.seconds)


def end_to_end(rate: int, session: ClusterSession, cluster: BenchCluster, effort: Effort) -> Figures:
    """A consumer sees a record when it is replicated."""
    name = session.new_topic()
    with topics.topic(cluster, name, 1) as found:
        address = cluster.address(found[0].leader)
        arguments = {"address": address, "topic": name, "value_bytes": KIB, "count": rate * effort.latency_s}
        follower = driver.Load("follow", **arguments, skip=rate)
        sent = driver.run("send_steadily", **arguments, rate=rate)
        return {**follower.result(), **sent}


# --- brokers that die -------------------------------------------------------------------------------------------------


def leader_killed(session: ClusterSession, cluster: BenchCluster, _: Effort) -> Figures:
    """The leader is not the controller: that is another line."""
    name = session.new_topic()
    with topics.topic(cluster, name, PARTITIONS) as found:
        controller = topics.controller(cluster)
        partition, view = next((at, view) for at, view in sorted(found.items()) if view.leader != controller)
        return {"next_ack_s": _kill_and_go_on(cluster, name, partition, view.leader)}


def controller_killed(session: ClusterSession, cluster: BenchCluster, _: Effort) -> Figures:
    """Until partitions that it led take records again, and until a topic can be created."""
    name = session.new_topic()
    with topics.topic(cluster, name, PARTITIONS) as found:
        controller = topics.controller(cluster)
        partition = next(at for at, view in sorted(found.items()) if view.leader == controller)
        created = session.new_topic()
        with load.SteadyProducer(cluster.bootstrap, name, PARTITIONS) as producer:
            producer.wait_for_acknowledged(partition, time.monotonic())
            killed_s = time.monotonic()
            cluster.kill(controller)
            next_ack_s = producer.wait_for_acknowledged(partition, killed_s) - killed_s
            topics.wait_for("a topic", lambda: topics.try_create(cluster, created, 1, {}, replicas=2) or None)
            created_s = time.monotonic() - killed_s
        _bring_back(cluster, controller, name, PARTITIONS)
        topics.delete(cluster, created)
        return {"next_ack_s": next_ack_s, "created_s": created_s}


def _kill_and_go_on(cluster: BenchCluster, name: str, partition: int, broker: int) -> float:
    with load.SteadyProducer(cluster.bootstrap, name, PARTITIONS) as producer:
        producer.wait_for_acknowledged(partition, time.monotonic())
        killed_s = time.monotonic()
        cluster.kill(broker)
        taken_s = producer.wait_for_acknowledged(partition, killed_s) - killed_s
    _bring_back(cluster, broker, name, PARTITIONS)
    return taken_s


def _bring_back(cluster: BenchCluster, broker: int, name: str, partition_count: int) -> None:
    """Kafka refuses to start while the session of the killed process lives."""

    def look() -> bool | None:
        if broker not in cluster.running:
            cluster.begin(broker)
            time.sleep(1.0)
        return True if set(topics.brokers(cluster)) == set(BROKERS) and broker in cluster.running else None

    topics.wait_for(f"{cluster.name}: broker {broker} back", look)
    topics.wait_for_isr(cluster, name, partition_count)


def failover_of_many(partition_count: int, session: ClusterSession, cluster: BenchCluster, _: Effort) -> Figures:
    """The controller is killed: until every partition has a live leader in the view of another broker."""
    sizes = topics.create_many(cluster, session.new_topic(), partition_count)
    victim = topics.controller(cluster)
    witness = next(broker for broker in BROKERS if broker != victim)
    killed_s = time.monotonic()
    cluster.kill(victim)

    def look() -> bool | None:
        for name in sizes:
            found = topics.metadata(cluster, [name], ask=witness).topics[0].partitions
            if any(each.leader_id in (-1, victim) for each in found):
                return None
        return True

    topics.wait_for(f"{cluster.name}: leaders of {partition_count} partitions", look)
    taken_s = time.monotonic() - killed_s
    for name, size in sizes.items():
        _bring_back(cluster, victim, name, size)
        topics.delete(cluster, name)
    return {"all_led_s": taken_s}


def catch_up(session: ClusterSession, cluster: BenchCluster, effort: Effort) -> Figures:
    """A follower is away while records are written, and starts again: until it is in sync."""
    name = session.new_topic()
    with topics.topic(cluster, name, PARTITIONS) as found:
        controller = topics.controller(cluster)
        away = next(broker for broker in BROKERS if broker != controller)
        cluster.stop_broker(away)
        found = topics.wait_for("leaders", lambda: _led_by_others(topics.partitions(cluster, name), PARTITIONS, away))
        load.produce(cluster.pids, leaders_of(cluster, found), name, KIB, effort.raw_mb // 2)
        begun_s = time.monotonic()
        cluster.begin(away)
        topics.wait_for_isr(cluster, name, PARTITIONS)
        taken_s = time.monotonic() - begun_s
        return {"in_sync_s": taken_s, "mb_per_s": effort.raw_mb // 2 / taken_s}


def _led_by_others(
    found: dict[int, topics.PartitionView], partition_count: int, away: int
) -> dict[int, topics.PartitionView] | None:
    is_so = len(found) == partition_count and all(
        away not in view.isr and view.leader != away for view in found.values()
    )
    return found if is_so else None


def rolling_restart(session: ClusterSession, cluster: BenchCluster, _: Effort) -> Figures:
    name = session.new_topic()
    with topics.topic(cluster, name, PARTITIONS):
        begun_s = time.monotonic()
        with load.SteadyProducer(cluster.bootstrap, name, PARTITIONS) as producer:
            for broker in BROKERS:
                cluster.stop_broker(broker)
                cluster.begin(broker)
                topics.wait_for_isr(cluster, name, PARTITIONS)
        return {"restart_s": time.monotonic() - begun_s, "errors": float(len(producer.errors))}


def memory(_: ClusterSession, cluster: BenchCluster, effort: Effort) -> Figures:
    """After all the work before it; and what three brokers use while nothing happens."""
    used_s = sum(map(cpu_s, cluster.pids))
    time.sleep(effort.idle_s)
    used_s = sum(map(cpu_s, cluster.pids)) - used_s
    return {"pss_mb": sum(map(pss_mb, cluster.pids)), "idle_cores": used_s / effort.idle_s}


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Amounts:
    partitions: int = 2000


QUICK_AMOUNTS: Final = Amounts(partitions=200)
_HALF: Final = 1 / 2


def lines_of(amounts: Amounts) -> tuple[Line, ...]:
    def line(key: str, title: str, metrics: tuple[Metric, ...], measure: Measure, *, warms_up: bool = False) -> Line:
        return Line(key, title, metrics, on_both(measure), warms_up=warms_up)

    volume = (Metric("mb_per_s", "MB/s", True, 1.5), Metric("cpu_s_per_gb", "CPU s/GB", False, _HALF))
    latency = (Metric("p50_ms", "ms p50", False, _HALF), Metric("p99_ms", "ms p99", False, _HALF))
    acks = (Metric("ack_p50_ms", "ms p50", False, _HALF), Metric("ack_p99_ms", "ms p99", False, _HALF))
    gone = Metric("next_ack_s", "s to the next acknowledged record", False, 1 / 10)
    return (
        line("produce", "produce, acks=all, 1 KiB, big batches, raw", volume, produce, warms_up=True),
        line("consume", "catch-up fetch from the leaders, raw", volume, consume),
        line("acknowledged", "produce, acks=all, one record at a time", acks, acknowledged, warms_up=True),
        line("latency-1000", "end to end, 1,000 records/s of 1 KiB", latency, partial(end_to_end, 1000), warms_up=True),
        line("leader-killed", "kill -9 of a leader", (gone,), leader_killed),
        line(
            "controller-killed",
            "kill -9 of the controller",
            (gone, Metric("created_s", "s until a topic is created", False, 1 / 10)),
            controller_killed,
        ),
        line(
            "failover",
            f"kill -9 of the controller, {amounts.partitions:,} partitions",
            (Metric("all_led_s", "s until all have leaders", False, 1 / 10),),
            partial(failover_of_many, amounts.partitions),
        ),
        line(
            "catch-up",
            "a follower returns, from its start",
            (Metric("in_sync_s", "s until in sync", False), Metric("mb_per_s", "MB/s", True, 1.5)),
            catch_up,
        ),
        line(
            "rolling",
            "rolling restart under load",
            (Metric("errors", "errors of the client", False, limit=0), Metric("restart_s", "s", False)),
            rolling_restart,
        ),
        line(
            "memory",
            "three brokers, idle after all this",
            (Metric("pss_mb", "MB", False, 1 / 5), Metric("idle_cores", "cores", False)),
            memory,
        ),
    )
