"""What is measured, each line with its target: nothing is slower than nine tenths of Kafka's speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

from bench.broker.control import Control
from bench.broker.frames import BATCH_BYTES
from bench.broker.lines import Contender, Contenders, Figures, Line, Metric
from bench.broker.session import Effort, Session
from bench.broker.sides import Running, Side
from bench.forms import driver
from bench.forms.admin import creation, do
from bench.forms.session import SIDES

SPEED: Final = 0.9
TIME: Final = 1 / SPEED
KIB: Final = 1024
CONNECTIONS: Final = 2
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
Open = Callable[[Session, Effort], AbstractContextManager[Contenders]]
_numbers = count()


@dataclass(frozen=True, slots=True)
class Amounts:
    widths: tuple[int, ...] = (100, 1000)
    """Partitions a request."""
    topics: int = 300
    """That are created, changed and deleted at once."""
    partitions: int = 3
    known_topics: int = 1000
    """Whose metadata is asked for."""
    consumers: int = 8
    fan_out_mb: int = 300


QUICK: Final = Amounts(widths=(100,), topics=50, known_topics=100, consumers=4, fan_out_mb=50)


def on_both(measure: Callable[[Session, Running, Effort], Figures]) -> Open:
    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        ours, kafka = (Contender(side.name, partial(measure, session, session.broker(side))) for side in SIDES)
        yield ours, kafka

    return contenders


def on_topic(load: str, partitions: int, configs: Mapping[str, str], **arguments: Any) -> Open:
    """Turns of a load on a new topic with these configs; a callable argument is asked for its value by the effort."""

    def measure(session: Session, running: Running, effort: Effort) -> Figures:
        with session.topic(running, partitions, configs) as topic:
            given = {key: value(effort) if callable(value) else value for key, value in arguments.items()}
            return driver.run(load, address=running.address, pid=running.pid, topic=topic, **given)

    return on_both(measure)


def requests(unit: str = "requests") -> tuple[Metric, ...]:
    return (
        Metric("requests_per_s", f"{unit}/s", True, SPEED),
        Metric("cpu_us_per_request", f"CPU µs/{unit.removesuffix('s')}", False),
    )


def volume(*, client: bool = False) -> tuple[Metric, ...]:
    return (
        Metric("mb_per_s", "MB/s", True, SPEED, may_be_client_bound=client),
        Metric("cpu_s_per_gb", "CPU s/GB", False),
    )


# --- records ----------------------------------------------------------------------------------------------------------


def wide(key: str, verb: str, load: str, width: int) -> Line:
    title = f"{verb}, {width:,} partitions a request"
    return Line(f"{key}-{width}", title, requests(), on_topic(load, width, {}, width=width, seconds=_seconds))


def batches(key: str, title: str, configs: Mapping[str, str], compression: str, value_bytes: int = KIB) -> Line:
    """Big batches of text."""
    size = BATCH_BYTES // value_bytes
    work = {"value_bytes": value_bytes, "count": size, "compression": compression, "keys": 0, "seconds": _seconds}
    if configs.get("cleanup.policy") == "compact":
        work["keys"] = size
    open_both = on_topic("batches", CONNECTIONS, configs, **work, connections=CONNECTIONS, in_flight=5)
    return Line(key, f"produce, {title}", volume(), open_both)


def tiny() -> Line:
    work = {"value_bytes": 10, "count": 10, "compression": "none", "keys": 0, "seconds": _seconds}
    open_both = on_topic("batches", 1, {}, **work, connections=1, in_flight=50)
    return Line("tiny", "produce, batches of ten records of 10 B", requests(), open_both)


def from_client(key: str, title: str, configs: Mapping[str, str], compression: str, keys: int = 0) -> Line:
    work = {"value_bytes": KIB, "total_mb": lambda effort: effort.client_total_mb(KIB) // 2}
    open_both = on_topic("librdkafka", 1, configs, **work, compression=compression, keys=keys)
    return Line(key, f"produce, {title}, librdkafka", volume(client=True), open_both)


def fan_out(amounts: Amounts) -> Line:
    work = {"consumers": amounts.consumers, "total_mb": amounts.fan_out_mb}
    title = f"catch-up fetch, {amounts.consumers} consumers of one partition"
    return Line("fan-out", title, volume(), on_topic("fan_out", 1, {}, **work))


def _seconds(effort: Effort) -> float:
    return effort.seconds


# --- admin work and groups --------------------------------------------------------------------------------------------


def topics_live(amounts: Amounts) -> Line:
    def measure(_: Session, running: Running, __: Effort) -> Figures:
        which = {"address": running.address, "pid": running.pid, "prefix": f"live{next(_numbers)}"}
        return driver.run("topics_live", **which, topics=amounts.topics, partitions=amounts.partitions)

    steps = {
        "create": "to create",
        "list_offsets": "for their end offsets",
        "describe": "to describe configs",
        "alter": "to alter configs",
        "grow": "to double the partitions",
        "delete": "to delete",
    }
    metrics = (Metric(f"{key}_ms", f"ms {words}", False, TIME) for key, words in steps.items())
    title = f"{amounts.topics:,} topics of {amounts.partitions} partitions"
    return Line("admin", title, (*metrics, Metric("cpu_s", "CPU s for all", False)), on_both(measure))


def one_by_one() -> Line:
    def measure(_: Session, running: Running, effort: Effort) -> Figures:
        which = {"address": running.address, "pid": running.pid, "prefix": f"single{next(_numbers)}"}
        return driver.run("one_by_one", **which, seconds=effort.seconds)

    return Line("admin-single", "create and delete a topic, one after the other", requests(), on_both(measure))


def metadata(amounts: Amounts) -> Line:
    @contextmanager
    def contenders(session: Session, _: Effort) -> Iterator[Contenders]:
        with ExitStack() as stack:
            ours, kafka = (contender(stack, session, side) for side in SIDES)
            yield ours, kafka

    def contender(stack: ExitStack, session: Session, side: Side) -> Contender:
        running = session.broker(side)
        names = [f"known-{number:04}" for number in range(amounts.known_topics)]
        control = stack.enter_context(Control(running.address))
        do(control, creation(names, 1))
        for name in names:
            control.wait_for_leaders(name)

        def turn(effort: Effort) -> Figures:
            return driver.run("all_metadata", address=running.address, pid=running.pid, seconds=effort.seconds)

        return Contender(side.name, turn)

    return Line("metadata", f"metadata of {amounts.known_topics:,} topics", requests(), contenders)


def joins() -> Line:
    def measure(_: Session, running: Running, effort: Effort) -> Figures:
        which = {"address": running.address, "pid": running.pid, "prefix": f"joining{next(_numbers)}"}
        return driver.run("joins", **which, seconds=effort.seconds)

    return Line("joins", "groups of one member form and end", requests("groups"), on_both(measure))


# --- the table --------------------------------------------------------------------------------------------------------


def lines_of(amounts: Amounts) -> tuple[Line, ...]:
    compacted, stamped = {"cleanup.policy": "compact"}, {"message.timestamp.type": "LogAppendTime"}
    return (
        *(wide("produce-wide", "produce", "wide_produce", width) for width in amounts.widths),
        *(wide("fetch-wide", "fetch", "wide_fetch", width) for width in amounts.widths),
        tiny(),
        *(batches(f"codec-{codec}", f"{codec}, raw", {}, codec) for codec in CODECS),
        *(from_client(f"librdkafka-{codec}", codec, {}, codec) for codec in CODECS),
        *(
            batches(f"recompress-{theirs}-{ours}", f"{theirs} to {ours}, raw", {"compression.type": ours}, theirs)
            for theirs, ours in (
                ("none", "lz4"),
                ("none", "gzip"),
                ("lz4", "zstd"),
                ("zstd", "snappy"),
                ("gzip", "uncompressed"),
            )
        ),
        batches("stamped", "LogAppendTime, raw", stamped, "none"),
        batches("stamped-lz4", "LogAppendTime, lz4, raw", stamped, "lz4"),
        batches("compacted", "keys to a compacted topic, raw", compacted, "none"),
        batches("compacted-small", "keys to a compacted topic, 100 B, raw", compacted, "none", 100),
        batches("compacted-lz4", "keys to a compacted topic, lz4, raw", compacted, "lz4"),
        from_client("compacted-librdkafka", "keys to a compacted topic", compacted, "none", 1000),
        fan_out(amounts),
        topics_live(amounts),
        one_by_one(),
        metadata(amounts),
        joins(),
    )
