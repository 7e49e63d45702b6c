"""Streams and tables beside Kafka Streams 3.9.1: the same records through its TopologyTestDriver and through Spark.

Records of the stream are in the order of their timestamps, because for late ones the order against a table differs (see
docs/decisions/0018-streams.md). Changes of tables are late as often as not.

Kafka Streams closes windows as each record moves the time of its task, Spark when a micro-batch moves the watermark.
So micro-batches of windows begin with the records that are late, and have no others that Kafka Streams would call
late. The core of sliding windows is compared record by record.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from kafka_artifacts import streams_classpath
from ottla.spark.sessions import end, session
from ottla.spark.streams import (
    SlidingWindows,
    aggregate_table,
    count,
    join_foreign,
    join_stream_table,
    join_tables,
    stream,
    table,
)
from ottla.spark.streams.cores.changes import Change, Result
from ottla.spark.streams.cores.timed import TimedBucket
from ottla.spark.streams.cores.windows import SlidingStep
from ottla.spark.streams.windows import Emit
from ottla.testing.broker import Broker
from support.stream_plays import Play, Record, Topics

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("streams")]

PROGRAM = Path(__file__).parent / "java" / "Streams.java"
WINDOWS_PROGRAM = Path(__file__).parent / "java" / "SlidingWindowTables.java"
INPUTS = ("left", "right", "stream")
TEXT: dict[str, Any] = {"key": "CAST(key AS STRING)", "value": "CAST(value AS STRING)"}
Output = dict[str, list[tuple[str, str | None, int]]]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    running = session("local[2]", sql_shuffle_partitions=2)
    yield running
    end(running)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(overrides={"log.retention.ms": "-1"}) as broker:
        yield broker


def some_acts(chance: random.Random) -> list[dict[str, list[Record]]]:
    """Left values refer to right keys, or to nothing: `c2:7`, `:7`."""
    keys = [f"c{number}" for number in range(6)]
    acts = []
    for act in range(2):
        left = [
            Record(chance.choice(keys), chance.choice([None, *[f"{chance.choice(['', *keys])}:{n}"] * 4]), at_ms)
            for n, at_ms in enumerate(chance.choices(range(act * 1000, act * 1000 + 900), k=60))
        ]
        right = [
            Record(chance.choice(keys), chance.choice([None, f"r{n}", f"s{n}"]), at_ms)
            for n, at_ms in enumerate(chance.choices(range(act * 1000, act * 1000 + 900), k=25))
        ]
        at_ms = sorted(chance.sample(range(act * 1000, act * 1000 + 900), 60))
        clicks = [Record(chance.choice(keys), f"v{number}", when) for number, when in enumerate(at_ms)]
        right.sort(key=lambda one: one.at_ms)
        acts.append({"left": left, "right": right, "stream": clicks})
    return acts


def merged(act: dict[str, list[Record]]) -> Iterator[tuple[str, Record]]:
    """As a task takes records: by the timestamps of the heads, tables first."""
    waiting = {name: list(act[name]) for name in INPUTS}
    while any(waiting.values()):
        name = min((name for name in INPUTS if waiting[name]), key=lambda one: waiting[one][0].at_ms)
        yield name, waiting[name].pop(0)


def kafka_streams(acts: list[dict[str, list[Record]]], place: Path) -> Output:
    lines = [
        f"{name} {one.key} {'-' if one.value is None else one.value} {one.at_ms}\n"
        for act in acts
        for name, one in merged(act)
    ]
    command = ["java", "-cp", streams_classpath(), str(PROGRAM), str(place)]
    ran = subprocess.run(command, input="".join(lines), capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    output: Output = {}
    for line in ran.stdout.splitlines():
        operator, key, value, at_ms = line.split(" ")
        output.setdefault(operator, []).append((key, None if value == "-" else value, int(at_ms)))
    return output


def final(rows: list[tuple[str, str | None, int]]) -> dict[str, str]:
    values = {key: value for key, value, _ in rows}
    return {key: value for key, value in values.items() if value is not None}


def test_operators_give_what_kafka_streams_gives(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    acts = some_acts(random.Random(seed))
    expected = kafka_streams(acts, tmp_path / "streams")
    topics = Topics(broker.bootstrap, partitions=1)
    topics.create("left", "right")
    topics.create("stream", policy="delete")

    def side(name: str) -> DataFrame:
        read = stream if name == "stream" else table
        return read(spark, topics.name(name), topics.options, **TEXT)

    def shown(frame: DataFrame) -> DataFrame:
        """As the joiner of the program does; a null side is "null"."""
        both = F.concat_ws("|", *[F.coalesce(f"value.{side}", F.lit("null")) for side in ("left", "right")])
        return frame.withColumn("value", F.when(F.col("value").isNotNull(), both))

    reference = "nullif(split_part(value, ':', 1), '')"
    made: dict[str, Callable[[], DataFrame]] = {
        "table-inner": lambda: shown(join_tables(side("left"), side("right"))),
        "table-outer": lambda: shown(join_tables(side("left"), side("right"), "outer")),
        "stream-left": lambda: shown(join_stream_table(side("stream"), side("right"), "left")),
        "foreign-inner": lambda: shown(join_foreign(side("left"), side("right"), reference)),
        "foreign-left": lambda: shown(join_foreign(side("left"), side("right"), reference, "left")),
        "count": lambda: count(side("stream")),
        "sums": lambda: aggregate_table(
            side("left"),
            f"coalesce({reference}, 'null')",
            lambda: 0,
            lambda _, value, total: total + int(value.split(":")[1]),
            lambda _, value, total: total - int(value.split(":")[1]),
            "BIGINT",
        ),
    }
    plays = {name: Play(frame, tmp_path) for name, frame in made.items()}
    found: Output = {name: [] for name in made}
    for act in acts:
        for name in INPUTS:
            topics.send(name, act[name])
        for name, play in plays.items():
            found[name] += [plain(row) for row in sorted(play.act(), key=lambda row: row.offset)]
    for name in made:
        if name == "stream-left":  # every result, with its timestamp, in the order of its key
            assert sorted(found[name], key=lambda row: row[0]) == sorted(expected[name], key=lambda row: row[0]), seed
        ours, theirs = final(found[name]), final(expected[name])
        if name == "sums":  # a group that only had rows within a micro-batch has no total here, and zero there
            ours, theirs = ({key: total for key, total in one.items() if total != "0"} for one in (ours, theirs))
        assert ours == theirs, f"{name}, seed {seed}"


def plain(row: Row) -> tuple[str, str | None, int]:
    value = None if row.value is None else str(row.value)
    return row.key, value, round(row.timestamp.timestamp() * 1000)


# Sliding windows.

KEYS = ("a", "b", "c")
SIZES = ("10:0", "10:7", "100:25", "1:20", "40:1000")
LAST = Record("last", "end", 1_000_000)
"""Closes all windows."""


class Window(NamedTuple):
    """A result of Kafka Streams."""

    cause: int
    key: str
    start_ms: int
    end_ms: int
    value: str
    at_ms: int


Windows = dict[tuple[str, str], list[Window]]


def kafka_windows(records: Sequence[Record], sizes: Sequence[str], place: Path) -> Windows:
    """By sizes and operator."""
    lines = [f"{one.key} {one.value} {one.at_ms}\n" for one in records]
    command = ["java", "-cp", streams_classpath(), str(WINDOWS_PROGRAM), str(place), *sizes]
    ran = subprocess.run(command, input="".join(lines), capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    outputs: Windows = {}
    for line in ran.stdout.splitlines():
        size, operator, cause, key, start, until, value, at_ms = line.split(" ")
        one = Window(int(cause), key, int(start), int(until), value, int(at_ms))
        outputs.setdefault((size, operator), []).append(one)
    return outputs


class Texts:
    def loads(self, data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    def dumps(self, value: str | None) -> bytes | None:
        return None if value is None else value.encode()


def appended(key: str, value: str, total: str) -> str:  # noqa: ARG001
    return f"{total}{value};"


class Core:
    """The core with each record in a micro-batch of its own, and Kafka Streams' time: the newest record so far."""

    def __init__(self, size: str, *, is_final: bool) -> None:
        difference, grace = map(int, size.split(":"))
        self._step = SlidingStep(difference, str, (appended,), Texts(), (Texts(),), Texts(), is_final=is_final)
        self._grace_ms = grace
        self._newest_ms = 0
        self._stored: dict[bytes, bytes | None] = {}

    def take(self, one: Record) -> list[Result]:
        assert one.key is not None
        assert one.value is not None
        self._newest_ms = max(self._newest_ms, one.at_ms)
        change = Change(0, 0, 0, one.at_ms * 1000, one.value.encode())
        bucket = self._bucket()
        results = list(bucket.rows({one.key.encode(): [change]}))
        self._stored.update(bucket.changes())
        bucket = self._bucket()
        results += bucket.due()
        self._stored.update(bucket.changes())
        return results

    def _bucket(self) -> TimedBucket:
        return TimedBucket(self._step, self._newest_ms - self._grace_ms, lambda keys: [*map(self._stored.get, keys)])


def seen(one: Result) -> tuple[str, int, str, int]:
    start, value = one.fields
    return (one.key or b"").decode(), int(start or b""), (value or b"").decode(), one.at_us // 1000


def test_each_record_changes_the_same_windows(tmp_path: Path) -> None:
    """Out of order, late for some windows, and late for all; and each window is emitted once when it closes."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    now, records = 0, list[Record]()
    for number in range(600):
        now += chance.choice((0, 0, 1, 3, 15, 120 if number % 50 == 0 else 2))
        at_ms = max(0, now - chance.choice((0, 0, 0, 1, 5, 12, 30, 90, 200)))
        records.append(Record(chance.choice(KEYS), f"v{number}", at_ms))
    records.append(LAST)
    theirs = kafka_windows(records, SIZES, tmp_path)
    for size in SIZES:
        updating, closing = Core(size, is_final=False), Core(size, is_final=True)
        by_cause: dict[int, dict[tuple[str, int], Window]] = {}
        for one in theirs[size, "updates"]:
            by_cause.setdefault(one.cause, {})[one.key, one.start_ms] = one
        finals = []
        for number, record in enumerate(records):
            expected = {(one.key, one.start_ms, one.value, one.at_ms) for one in by_cause.get(number, {}).values()}
            assert {seen(one) for one in updating.take(record)} == expected, f"record {number}, {size}, seed {seed}"
            finals += [seen(one) for one in closing.take(record)]
        emitted = {
            operator: [one[1:3] + one[4:] for one in theirs[size, operator]] for operator in ("final", "suppressed")
        }
        assert sorted(finals) == sorted(emitted["final"]), f"{size}, seed {seed}"
        assert len(finals) > 100
        assert set(finals) <= set(emitted["suppressed"])  # which has values of windows that changed once more, too


def window_acts(chance: random.Random, grace_ms: int) -> list[list[Record]]:
    acts: list[list[Record]] = []
    newest = 0
    for act in range(3):
        late = [Record(chance.choice(KEYS), "late", max(0, newest - chance.randrange(250))) for _ in range(20 * act)]
        on_time, now = [], newest
        for _ in range(50):
            now += chance.choice((0, 1, 4, 9))
            on_time.append(Record(chance.choice(KEYS), "v", max(0, now - chance.randrange(grace_ms + 1))))
        acts.append(late + on_time)
        newest = max(one.at_ms for one in on_time)
    return [*acts, [LAST]]


def test_counts_in_windows_are_those_of_kafka_streams(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    acts = window_acts(random.Random(seed), grace_ms=25)
    theirs = kafka_windows([one for act in acts for one in act], ["100:25"], tmp_path / "streams")["100:25", "counts"]
    expected = {(one.key, one.start_ms, one.end_ms): int(one.value) for one in theirs}
    topics = Topics(broker.bootstrap, partitions=1)
    topics.create("clicks", policy="delete")

    def counts(emit: Emit) -> DataFrame:
        clicks = stream(spark, topics.name("clicks"), topics.options, key="CAST(key AS STRING)")
        return count(clicks, windows=SlidingWindows(timedelta(milliseconds=100), timedelta(milliseconds=25), emit))

    updating, closing = Play(lambda: counts("updates"), tmp_path), Play(lambda: counts("final"), tmp_path)
    updates, finals = list[Row](), list[Row]()
    for act in acts:
        topics.send("clicks", act)
        updates += updating.act()
        finals += closing.act()
    assert window_totals(updates) == expected, f"seed {seed}"
    del expected["last", LAST.at_ms - 100, LAST.at_ms]
    assert window_totals(finals) == expected, f"seed {seed}"
    assert len(finals) == len(expected)


def window_totals(rows: Sequence[Row]) -> dict[tuple[str, int, int], int]:
    return {(row.key.key, ms(row.key.window.start), ms(row.key.window.end)): row.value for row in rows}


def ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)
