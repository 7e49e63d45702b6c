"""Streams and tables beside Kafka Streams 3.9.1: the same records through its TopologyTestDriver and through Spark.

Records of the stream are in the order of their timestamps, because for late ones the order against a table differs (see
docs/decisions/0018-streams.md). Changes of tables are late as often as not.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from kafka_artifacts import streams_classpath
from ottla.spark.sessions import end, session
from ottla.spark.streams import (
    aggregate_table,
    count,
    join_foreign,
    join_stream_table,
    join_tables,
    stream,
    table,
)
from ottla.testing.broker import Broker
from support.stream_plays import Play, Record, Topics

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("streams")]

PROGRAM = Path(__file__).parent / "java" / "Streams.java"
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
