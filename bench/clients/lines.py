"""What is measured, of whom, and against which target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bench.broker import driver as broker_driver
from bench.broker.control import Control
from bench.broker.session import Session
from bench.broker.sides import Running
from bench.clients import driver
from bench.clients.conditions import KIB
from bench.clients.forms import FORMS

Figures = Mapping[str, float]
Turn = Callable[[str], Figures]
"""Of the load of that name."""

OURS: Final = ("ottla", "ottla, asyncio", "ottla, Arrow")
BLOCKING, ASYNCIO, ARROW = OURS


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure, and how much there is to read."""

    seconds: float = 3.0
    stored_mb: int = 1200


QUICK: Final = Effort(seconds=1.0, stored_mb=400)


@dataclass(frozen=True, slots=True)
class Metric:
    key: str
    unit: str
    more_is_better: bool = True


RATE: Final = Metric("records_per_s", "records/s")
ELAPSED: Final = Metric("elapsed_s", "s, whole process", False)
LATENCIES: Final = (Metric("p50_ms", "ms, median", False), Metric("p99_ms", "ms, 99 %", False))


@dataclass(frozen=True, slots=True)
class Line:
    key: str
    title: str
    loads: Mapping[str, str]
    """By the name of whose they are; those of others than ours are the peers."""
    opened: Callable[[Session, Running, Effort], AbstractContextManager[Turn]]
    metrics: tuple[Metric, ...] = (RATE,)
    targets: Mapping[str, float] = field(default_factory=dict)
    """Of ours: how many times the rate of the best peer."""

    @property
    def peers(self) -> list[str]:
        return [name for name in self.loads if name not in OURS]


@contextmanager
def into_new_topics(
    value_bytes: int, session: Session, running: Running, effort: Effort, **more: str
) -> Iterator[Turn]:
    def turn(load: str) -> Figures:
        with session.topic(running) as topic:
            which = {"address": running.address, "pid": running.pid, "topic": topic}
            return driver.run(load, **which, value_bytes=value_bytes, seconds=effort.seconds, **more)

    yield turn


@contextmanager
def from_one_topic(
    value_bytes: int, session: Session, running: Running, effort: Effort, *, has_headers: bool = False
) -> Iterator[Turn]:
    """Which is in the page cache when they read it."""
    with session.topic(running) as topic:
        which = {"address": running.address, "pid": running.pid, "topic": topic, "value_bytes": value_bytes}
        if has_headers:
            stored = {"address": running.address, "topic": topic, "value_bytes": value_bytes}
            driver.run("forms.store_headers", **stored, total_mb=effort.stored_mb // 4)
        else:
            broker_driver.run("big_batches", **which, connections=1, total_mb=effort.stored_mb)
        with Control(running.address) as control:
            count = control.end_offset(topic, 0)

        def turn(load: str) -> Figures:
            return driver.run(load, **which, count=count, seconds=effort.seconds)

        yield turn


@contextmanager
def whole_processes(value_bytes: int, is_stored: bool, session: Session, running: Running, _: Effort) -> Iterator[Turn]:
    """By the clock outside of the process. What there is to read is sent before."""

    def timed(load: str, topic: str) -> Figures:
        begun_s = time.perf_counter()
        driver.run(load, address=running.address, topic=topic, value_bytes=value_bytes)
        return {"elapsed_s": time.perf_counter() - begun_s}

    if is_stored:
        with session.topic(running) as topic:
            driver.run("whole.ottla_produce", address=running.address, topic=topic, value_bytes=value_bytes)
            yield lambda load: timed(load, topic)
    else:

        def turn(load: str) -> Figures:
            with session.topic(running) as topic:
                return timed(load, topic)

        yield turn


def _loads(module: str, **more: str) -> dict[str, str]:
    common = {
        BLOCKING: "ottla",
        ASYNCIO: "ottla_asyncio",
        "confluent-kafka": "confluent",
        "aiokafka": "aiokafka",
        "kafka-python": "kafka_python",
    }
    return {name: f"{module}.{function}" for name, function in {**common, **more}.items()}


def _producing(value_bytes: int, size: str) -> Line:
    return Line(
        f"produce-{value_bytes}",
        f"produce {size}",
        _loads("producing", **{ARROW: "ottla_arrow", "confluent-kafka, produce_batch": "confluent_batch"}),
        partial(into_new_topics, value_bytes),
        targets={BLOCKING: 1.5, ARROW: 1.5},
    )


def _form(form: str) -> Line:
    words = {"partition": "a partition", "timestamp": "a timestamp", "key": "a key", "key-headers": "a key and headers"}
    return Line(
        f"produce-{form}",
        f"produce 100 B with {words.get(form, form)}",
        {BLOCKING: "forms.ottla", ASYNCIO: "forms.ottla_asyncio", "confluent-kafka": "forms.confluent"},
        partial(into_new_topics, 100, form=form),
        targets={BLOCKING: 1.2},
    )


def _consuming(value_bytes: int, size: str) -> Line:
    return Line(
        f"consume-{value_bytes}",
        f"consume {size}",
        _loads("consuming", **{ARROW: "ottla_arrow"}),
        partial(from_one_topic, value_bytes),
        targets={BLOCKING: 1.2, ARROW: 5.0},
    )


LINES: Final = (
    _producing(100, "100 B"),
    _producing(KIB, "1 KiB"),
    *(_form(form) for form in FORMS),
    _consuming(100, "100 B"),
    _consuming(KIB, "1 KiB"),
    Line(
        "consume-headers",
        "consume 100 B with headers",
        {BLOCKING: "consuming.ottla_headers", "confluent-kafka": "consuming.confluent_headers"},
        partial(from_one_topic, 100, has_headers=True),
        targets={BLOCKING: 1.2},
    ),
    Line(
        "whole-produce",
        "send 1,000,000 x 100 B and end",
        {BLOCKING: "whole.ottla_produce", "confluent-kafka": "whole.confluent_produce"},
        partial(whole_processes, 100, False),
        metrics=(ELAPSED,),
    ),
    Line(
        "whole-consume",
        "read 1,000,000 x 100 B and end",
        {BLOCKING: "whole.ottla_consume", "confluent-kafka": "whole.confluent_consume"},
        partial(whole_processes, 100, True),
        metrics=(ELAPSED,),
    ),
    Line(
        "wait-100",
        "send 100 B and wait",
        _loads("waiting"),
        partial(into_new_topics, 100),
        metrics=LATENCIES,
    ),
)
