"""What is measured: the lines of the design's table that one broker can answer, each with its targets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.broker import driver
from bench.broker.control import Control
from bench.broker.session import Effort, Session, started
from bench.broker.sides import KAFKA_VERSION, Kafka, Ottla, Running, Side
from bench.broker.usage import pss_mb, rss_mb

Figures = Mapping[str, float]
Turn = Callable[[Effort], Figures]
CONNECTIONS: Final = 2
KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a line. A target is of the ratio of ours to what is beside it; a limit is for ours alone."""

    key: str
    unit: str
    more_is_better: bool
    target: float | None = None
    limit: float | None = None
    may_be_client_bound: bool = False

    def met(self, ours: float, ratio: float) -> bool:
        if self.limit is not None:
            return ours <= self.limit
        if self.target is None:
            return True
        return ratio >= self.target if self.more_is_better else ratio <= self.target


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    turn: Turn


Contenders = tuple[Contender, Contender]
"""Ours, and what is beside it."""


@dataclass(frozen=True, slots=True)
class Line:
    key: str
    title: str
    metrics: tuple[Metric, ...]
    contenders: Callable[[Session, Effort], AbstractContextManager[Contenders]]
    warms_up: bool = True


def on_both(
    measure: Callable[[Session, Running, Effort], Figures],
) -> Callable[[Session, Effort], AbstractContextManager[Contenders]]:
    """Turns on the brokers of the session, ours and Kafka's."""

    def contender(session: Session, side: Side) -> Contender:
        return Contender(side.name, partial(measure, session, session.broker(side)))

    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        yield contender(session, Ottla()), contender(session, Kafka())

    return contenders


# --- start and memory -------------------------------------------------------------------------------------------------


def start_and_idle(session: Session, side: Side, effort: Effort) -> Figures:
    place = session.new_place()
    side.prepare(place)
    with started(side, place) as (running, start_s):
        after_start_mb = rss_mb(running.pid)
        time.sleep(effort.idle_s)
        return {
            "start_s": start_s,
            "rss_after_start_mb": after_start_mb,
            "rss_idle_mb": rss_mb(running.pid),
            "pss_idle_mb": pss_mb(running.pid),
        }


@contextmanager
def fresh_brokers(session: Session, _: Effort) -> Iterator[Contenders]:
    ours, kafka = (Contender(side.name, partial(start_and_idle, session, side)) for side in (Ottla(), Kafka()))
    yield ours, kafka


# --- many of a thing, beside few of it --------------------------------------------------------------------------------


def reopened(side: Side, session: Session, partitions: int) -> Turn:
    """Turns on a broker that finds a topic of so many partitions when it starts, and serves all of them."""
    place, topic = session.new_place(), "wide"
    side.prepare(place)
    with started(side, place) as (running, _), Control(running.address) as control:
        control.create_topic(topic, partitions)

    def turn(effort: Effort) -> Figures:
        with started(side, place) as (running, start_s), Control(running.address) as control:
            asked_s = time.perf_counter()
            control.wait_for_leaders(topic, partitions)
            metadata_ms = (time.perf_counter() - asked_s) * 1e3
            found = driver.run(
                "one_record",
                address=running.address,
                pid=running.pid,
                topic=topic,
                partitions=partitions,
                value_bytes=100,
                in_flight=50,
                seconds=effort.seconds,
            )
            return {"start_s": start_s, "metadata_ms": metadata_ms, "rss_mb": rss_mb(running.pid), **found}

    return turn


@contextmanager
def many_partitions(session: Session, effort: Effort) -> Iterator[Contenders]:
    side, many, few = Ottla(), effort.many_partitions, 10
    yield (
        Contender(f"{many:,} partitions", reopened(side, session, many)),
        Contender(f"ottla, {few} partitions", reopened(side, session, few)),
    )


def among_connections(connections: int, session: Session, running: Running, effort: Effort) -> Figures:
    """One busy connection beside others that were used once and are idle."""
    with ExitStack() as stack:
        for _ in range(connections):
            stack.enter_context(Control(running.address)).brokers()
        return {**one_record(50, session, running, effort), "rss_mb": rss_mb(running.pid)}


@contextmanager
def many_connections(session: Session, effort: Effort) -> Iterator[Contenders]:
    running, many = session.broker(Ottla()), effort.many_connections
    yield (
        Contender(f"{many:,} connections", partial(among_connections, many, session, running)),
        Contender("ottla, no others", partial(among_connections, 0, session, running)),
    )


# --- produce, fetch, both ---------------------------------------------------------------------------------------------


def one_record(in_flight: int, session: Session, running: Running, effort: Effort) -> Figures:
    with session.topic(running) as topic:
        return driver.run(
            "one_record",
            address=running.address,
            pid=running.pid,
            topic=topic,
            partitions=1,
            value_bytes=100,
            in_flight=in_flight,
            seconds=effort.seconds,
        )


def raw_big_batches(value_bytes: int, session: Session, running: Running, effort: Effort) -> Figures:
    with session.topic(running, CONNECTIONS) as topic:
        return fill(running, topic, value_bytes, effort.raw_mb)


def fill(running: Running, topic: str, value_bytes: int, total_mb: int) -> Figures:
    figures = driver.run(
        "big_batches",
        address=running.address,
        pid=running.pid,
        topic=topic,
        value_bytes=value_bytes,
        connections=CONNECTIONS,
        total_mb=total_mb,
    )
    return {**figures, "rss_mb": rss_mb(running.pid)}


def client_big_batches(client: str, value_bytes: int, session: Session, running: Running, effort: Effort) -> Figures:
    more = {"version": KAFKA_VERSION} if client == "java" else {}
    with session.topic(running) as topic:
        return driver.run(
            client,
            address=running.address,
            pid=running.pid,
            topic=topic,
            value_bytes=value_bytes,
            total_mb=effort.client_total_mb(value_bytes),
            **more,
        )


@contextmanager
def catch_up(session: Session, effort: Effort) -> Iterator[Contenders]:
    """What is read was written once, and is in the page cache on both sides."""
    with ExitStack() as stack:

        def contender(side: Side) -> Contender:
            running = session.broker(side)
            topic = stack.enter_context(session.topic(running, CONNECTIONS))
            fill(running, topic, KIB, effort.raw_mb)
            arguments = {"address": running.address, "pid": running.pid, "topic": topic, "value_bytes": KIB}

            def turn(effort: Effort) -> Figures:
                return driver.run(
                    "catch_up", **arguments, connections=CONNECTIONS, in_flight=4, passes=effort.fetch_passes
                )

            return Contender(side.name, turn)

        ours, kafka = contender(Ottla()), contender(Kafka())
        os.sync()
        yield ours, kafka


def end_to_end(rate: int, session: Session, running: Running, effort: Effort) -> Figures:
    with session.topic(running) as topic:
        arguments = {"address": running.address, "topic": topic, "value_bytes": KIB, "count": rate * effort.latency_s}
        follower = driver.Load("follow", **arguments, skip=rate)
        sent = driver.run("send_steadily", **arguments, rate=rate)
        return {**follower.result(), **sent}


# --- the table --------------------------------------------------------------------------------------------------------


def volume(target: float, cpu_target: float, *, client: bool = False) -> tuple[Metric, ...]:
    return (
        Metric("mb_per_s", "MB/s", True, target, may_be_client_bound=client),
        Metric("cpu_s_per_gb", "CPU s/GB", False, cpu_target),
    )


def requests(target: float | None, cpu_target: float | None) -> tuple[Metric, ...]:
    return (
        Metric("requests_per_s", "requests/s", True, target),
        Metric("cpu_us_per_request", "CPU µs/request", False, cpu_target),
    )


def latency() -> tuple[Metric, ...]:
    return (Metric("p50_ms", "ms p50", False, 1 / 2), Metric("p99_ms", "ms p99", False, 1 / 2))


BIG_BATCH_TARGETS: Final = (1.5, 1 / 3)
FLAT: Final = (0.8, 1.25)
"""Of something that must not depend on how many there are."""

LINES: Final = (
    Line(
        "start",
        "start to first acknowledged record, and idle",
        (
            Metric("start_s", "s", False, 1 / 6),
            Metric("rss_after_start_mb", "MB after start", False),
            Metric("rss_idle_mb", "MB idle", False, limit=64),
            Metric("pss_idle_mb", "MB idle, proportional", False),
        ),
        fresh_brokers,
        warms_up=False,
    ),
    Line(
        "partitions",
        "a broker of many partitions, started again; produce to each in turn",
        (
            Metric("start_s", "s to the first record", False),
            Metric("metadata_ms", "ms for all metadata", False),
            Metric("first_us", "µs, first request to each", False),
            *requests(*FLAT),
            Metric("rss_mb", "MB", False),
        ),
        many_partitions,
        warms_up=False,
    ),
    *(
        Line(
            f"one-record-{in_flight}",
            f"produce, one record a request, {in_flight} in flight",
            requests(target, 1 / 5),
            on_both(partial(one_record, in_flight)),
        )
        for in_flight, target in ((1, 1.0), (5, 2.0), (50, 5.0))
    ),
    *(
        Line(
            f"raw-{value_bytes}",
            f"produce, {title}, big batches, raw",
            (*volume(*BIG_BATCH_TARGETS), Metric("rss_mb", "MB behind it", False)),
            on_both(partial(raw_big_batches, value_bytes)),
        )
        for value_bytes, title in ((100, "100 B"), (KIB, "1 KiB"))
    ),
    *(
        Line(
            f"{client}-{value_bytes}",
            f"produce, {title}, big batches, {name}",
            volume(*BIG_BATCH_TARGETS, client=True),
            on_both(partial(client_big_batches, client, value_bytes)),
        )
        for client, name in (("librdkafka", "librdkafka"), ("java", "Java perf client"))
        for value_bytes, title in ((100, "100 B"), (KIB, "1 KiB"))
    ),
    Line("fetch", "catch-up fetch, raw", volume(1.3, 0.7), catch_up),
    *(
        Line(
            f"latency-{rate}",
            f"end to end, {rate:,} records/s of 1 KiB",
            latency(),
            on_both(partial(end_to_end, rate)),
        )
        for rate in (1000, 5000)
    ),
    Line(
        "connections",
        "produce, one record a request, 50 in flight, beside idle connections",
        (*requests(*FLAT), Metric("rss_mb", "MB", False)),
        many_connections,
    ),
)
