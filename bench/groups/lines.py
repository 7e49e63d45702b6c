"""What is measured of groups, each line with its targets: never slower than Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bench.broker.control import Control
from bench.broker.lines import Contender, Contenders, Figures, Line, Metric
from bench.broker.session import Effort, Session, started
from bench.broker.sides import Running, Side
from bench.broker.usage import rss_mb
from bench.groups import driver
from bench.groups.load import await_coordinators, await_offsets
from bench.groups.session import DEFAULT_SIDES, PARTITIONS, PROMPT_SIDES, SESSION_TIMEOUT_MS, TOPIC

HEARTBEAT_S: Final = 0.5
"""Shorter than by default, so that less of the time is spent before members hear what there is to do."""
_EQUAL: Final = 1.0
_EQUAL_WAITS: Final = 1.05
"""Where most of the time is a wait that is equally long on both sides: of timers, and until members are heard."""
_MANY_MEMBERS: Final = 50
_HEARD_S: Final = 1.1 * HEARTBEAT_S
"""The target where only a few of many members take over from a dead one: chance decides which, and so when they hear of
it, but it is to be done when all have heard."""
_COMMITTERS: Final = 50


@dataclass(frozen=True, slots=True)
class Amounts:
    sizes: tuple[int, ...] = (1, 20, 100, 500)
    warm_up_sizes: tuple[int, ...] = (100, 500)
    groups: int = 1000
    """That commit in turn."""
    loaded_groups: int = 10_000
    loaded_partitions: int = 100


QUICK: Final = Amounts(sizes=(1, 20), warm_up_sizes=(5,), groups=100, loaded_groups=1_000, loaded_partitions=20)
Open = Callable[[Session, Effort], AbstractContextManager[Contenders]]


def on_both(
    sides: tuple[Side, Side],
    turn: Callable[[Running, Effort], Figures],
    warm_up: Callable[[Running], object] | None = None,
) -> Open:
    """Turns on brokers that stay up. One warm-up is for Kafka's compiler, and is done to both."""

    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        brokers = [session.broker(side) for side in sides]
        if warm_up is not None:
            for running in brokers:
                warm_up(running)
        names = (side.name for side in DEFAULT_SIDES)
        ours, kafka = (Contender(name, partial(turn, running)) for name, running in zip(names, brokers, strict=True))
        yield ours, kafka

    return contenders


# --- members come and go ----------------------------------------------------------------------------------------------


def scene(protocol: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    return {
        "topic": TOPIC,
        "protocol": protocol,
        "sizes": sizes,
        "partitions": PARTITIONS,
        "heartbeat_s": HEARTBEAT_S,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
    }


def rebalances(protocol: str, amounts: Amounts) -> Line:
    def warm_up(running: Running) -> None:
        few = scene(protocol, amounts.warm_up_sizes)
        driver.run("rebalances", address=running.address, pid=running.pid, deaths=False, **few)

    def turn(running: Running, _: Effort) -> Figures:
        all_sizes = scene(protocol, amounts.sizes)
        found = driver.run("rebalances", address=running.address, pid=running.pid, deaths=True, **all_sizes)
        for size in amounts.sizes:
            found[f"kept_paused_{size}"] = found[f"join_kept_paused_{size}"] + found[f"death_kept_paused_{size}"]
        return found

    def metrics(size: int) -> Iterator[Metric]:
        yield Metric(f"form_s_{size}", f"s to form, {size}", False, _EQUAL_WAITS)
        yield Metric(f"join_s_{size}", f"s after a join, {size}", False, _EQUAL_WAITS)
        yield Metric(f"join_late_{size}", f"records late by it, {size}", False)
        by_chance = protocol == "consumer" and size > _MANY_MEMBERS
        target, limit = (None, _HEARD_S) if by_chance else (_EQUAL_WAITS, None)
        yield Metric(f"death_s_{size}", f"s after a session, {size}", False, target, limit)
        yield Metric(f"death_late_{size}", f"records late by it, {size}", False)
        if protocol == "consumer":
            yield Metric(f"kept_paused_{size}", f"kept but paused, {size}", False, limit=0)

    return Line(
        f"rebalance-{protocol}",
        f"{PARTITIONS:,} partitions consumed again, {protocol} protocol",
        (*(metric for size in amounts.sizes for metric in metrics(size)), Metric("cpu_s", "CPU s for all", False)),
        on_both(PROMPT_SIDES, turn, warm_up),
        warms_up=False,
    )


def formations(amounts: Amounts) -> Line:
    def turn(running: Running, _: Effort) -> Figures:
        all_sizes = scene("classic", amounts.sizes)
        return driver.run("formations", address=running.address, pid=running.pid, **all_sizes)

    return Line(
        "form",
        "classic groups form, with the delay that is the default",
        tuple(Metric(f"form_s_{size}", f"s to form, {size}", False, _EQUAL_WAITS) for size in amounts.sizes),
        on_both(DEFAULT_SIDES, turn),
        warms_up=False,
    )


# --- offsets ----------------------------------------------------------------------------------------------------------


def commits(key: str, title: str, connections: int, groups: int, partitions: int) -> Line:
    def turn(running: Running, effort: Effort) -> Figures:
        return driver.run(
            "commits",
            address=running.address,
            pid=running.pid,
            topic=TOPIC,
            connections=connections,
            groups=groups,
            partitions=partitions,
            seconds=effort.seconds / 2,
        )

    metrics = (
        Metric("requests_per_s", "commits/s", True, _EQUAL),
        Metric("cpu_us_per_request", "CPU µs/commit", False, _EQUAL),
    )
    return Line(f"commits-{key}", f"offset commits, {title}", metrics, on_both(DEFAULT_SIDES, turn))


def load(amounts: Amounts) -> Line:
    groups, partitions = amounts.loaded_groups, amounts.loaded_partitions

    def contender(session: Session, side: Side) -> Contender:
        place, topic = session.new_place(), "loaded"
        side.prepare(place)
        with started(side, place) as (running, _), Control(running.address) as control:
            control.create_topic(topic, partitions)
            await_coordinators(control, topic)
            written = driver.run(
                "write_offsets", address=running.address, topic=topic, groups=groups, partitions=partitions
            )

        def turn(_: Effort) -> Figures:
            begun_s = time.perf_counter()
            running = side.start(place)
            try:
                loaded = await_offsets(running.address, topic, groups, partitions, running.alive)
                return {
                    "start_s": loaded.all_answered_s - begun_s,
                    "listening_s": loaded.all_answered_s - loaded.listening_s,
                    "rss_mb": rss_mb(running.pid),
                    "offsets_written_per_s": written["offsets"] / written["seconds"],
                }
            finally:
                running.stop()

        return Contender(side.name, turn)

    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        ours, kafka = (contender(session, side) for side in DEFAULT_SIDES)
        yield ours, kafka

    metrics = (
        Metric("start_s", "s from the start of the process", False, _EQUAL),
        Metric("listening_s", "s from the first connection", False, _EQUAL),
        Metric("rss_mb", "MB", False),
        # Without a target: it is the first work of a broker, which Kafka's compiler has not seen yet.
        Metric("offsets_written_per_s", "offsets/s written before, cold", True),
    )
    title = f"{groups * partitions:,} offsets of {groups:,} groups, until all are known again"
    return Line("load", title, metrics, contenders, warms_up=False)


def lines_of(amounts: Amounts) -> tuple[Line, ...]:
    return (
        rebalances("classic", amounts),
        rebalances("consumer", amounts),
        formations(amounts),
        commits("alone", "one consumer", 1, 1, 1),
        commits("one-group", f"one group, {_COMMITTERS} consumers", _COMMITTERS, 1, 1),
        commits("groups", f"{amounts.groups:,} groups, {_COMMITTERS} at a time", _COMMITTERS, amounts.groups, 1),
        commits("wide", f"100 partitions each, {_COMMITTERS} at a time", _COMMITTERS, _COMMITTERS, 100),
        load(amounts),
    )
