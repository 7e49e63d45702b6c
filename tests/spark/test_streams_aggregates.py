"""Aggregations, branches, and topics between queries."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark.streams import (
    StreamError,
    aggregate_table,
    branch,
    cogroup,
    count,
    join_stream_table,
    join_tables,
    merge,
    reduce,
    stream,
    through,
)
from ottla.spark.streams.python_values import PythonValues
from ottla.spark.streams.values import packed, unpacked
from support.clients.peers import Peer
from support.stream_plays import Play, Record, Topics, updated
from support.topic_data import WAIT_S

TEXT: dict[str, Any] = {"key": "CAST(key AS STRING)", "value": "CAST(value AS STRING)"}
NUMBER: dict[str, Any] = {"key": "CAST(key AS STRING)", "value": "CAST(CAST(value AS STRING) AS BIGINT)"}


@pytest.fixture
def topics(broker: Peer) -> Topics:
    return Topics(broker.bootstrap)


def test_operators_follow_each_other(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Four stateful operators in one query: a count, a cogroup, their join, and an aggregation of its rows."""
    topics.create("buys", "sells", policy="delete")

    def volumes() -> DataFrame:
        buys = stream(spark, topics.name("buys"), topics.options, **NUMBER)
        sells = stream(spark, topics.name("sells"), topics.options, **NUMBER)
        both = cogroup(
            [(buys, lambda _, value, total: total + value), (sells, lambda _, value, total: total - value)],
            lambda: 0,
            "BIGINT",
        )
        joined = join_tables(count(buys), both, "outer")
        return aggregate_table(
            joined,
            "coalesce(value.left, 0) % 2",
            lambda: {"names": [], "sum": 0},
            lambda _, row, total: {"names": total["names"], "sum": total["sum"] + row["right"]},
            lambda _, row, total: {"names": total["names"], "sum": total["sum"] - row["right"]},
            "names ARRAY<STRING>, sum BIGINT",
        )

    play, found = Play(volumes, tmp_path), dict[object, Any]()
    topics.send("buys", [Record("a", "5"), Record("a", "7"), Record("b", "1"), Record("c", None)])
    topics.send("sells", [Record("a", "2"), Record("d", "9")])
    updated(found, play.act())
    assert found == {0: ([], 10 - 9), 1: ([], 1)}
    topics.send("buys", [Record("a", "1"), Record("b", "1")])
    updated(found, play.act())
    assert found == {0: ([], 2 - 9), 1: ([], 11)}


def test_reduce_behind_branch_and_merge(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("numbers", policy="delete")

    def longest() -> DataFrame:
        words = stream(spark, topics.name("numbers"), topics.options, **TEXT)
        short, medium, _ = branch(words, F.length("value") < 3, "length(value) < 5")
        return reduce(merge(short, medium), lambda total, value: max(total, value, key=len))

    play, found = Play(longest, tmp_path), dict[object, Any]()
    topics.send("numbers", [Record("a", "x"), Record("a", "xyz"), Record("a", "too long"), Record("b", "no")])
    updated(found, play.act())
    assert found == {"a": "xyz", "b": "no"}


def test_results_with_new_keys_are_merged_by_time(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topics.create("left", "right", "table", policy="delete", partitions=1)

    def ordered() -> DataFrame:
        users = stream(spark, topics.name("table"), topics.options, **TEXT)
        sides = [stream(spark, topics.name(name), topics.options, **TEXT) for name in ("left", "right")]
        merged = merge(*[join_stream_table(side, users, "left") for side in sides])
        return reduce(merged.selectExpr("'all' AS key", "value.left AS value", *merged.columns[2:]), "{} {}".format)

    times = random.Random(3).sample(range(1000, 9000), 60)
    for number, name in enumerate(("left", "right")):
        topics.send(name, [Record(f"k{at % 4}", f"{at}", at) for at in sorted(times[number::2])])
    (row,) = Play(ordered, tmp_path).act()
    assert row.value == " ".join(map(str, sorted(times)))


@pytest.mark.parametrize("exactly_once", [True, False])
def test_through_a_topic(spark: SparkSession, topics: Topics, tmp_path: Path, exactly_once: bool) -> None:
    topics.create("in", policy="delete")
    numbers = stream(spark, topics.name("in"), topics.options, **NUMBER).withColumn("key", F.col("value") % 3)
    internal = topics.name("internal")
    routed = through(numbers, internal, topics.options, partitions=3, exactly_once=exactly_once)
    topics.send("in", [Record("k", str(number), 1000 + number) for number in range(20)])
    query = routed.writer.option("checkpointLocation", str(tmp_path / "one")).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    assert dict(routed.frame.dtypes) == dict(numbers.dtypes)
    rows = Play(lambda: routed.frame, tmp_path).act()
    assert sorted((row.key, row.value, round(row.timestamp.timestamp() * 1000)) for row in rows) == sorted(
        (number % 3, number, 1000 + number) for number in range(20)
    )
    assert len({(row.key, row.partition) for row in rows}) == 3
    through(numbers, internal, topics.options, partitions=3)
    with pytest.raises(StreamError, match=rf"internal topic '{internal}' has 3 partitions, not 4: rows of a key"):
        through(numbers, internal, topics.options, partitions=4)


def test_values_of_all_types_are_packed(spark: SparkSession) -> None:
    """By Spark and read back by it and by Python; and the other way round."""
    rows: dict[str, Any] = {
        "BINARY": bytearray(b"\xff\x00"),
        "STRING": "č",
        "BIGINT": 2**62,
        "DOUBLE": float("-inf"),
        "DATE": dt.date(1582, 1, 2),
        "TIMESTAMP": dt.datetime(2024, 10, 27, 1, 30, 0, 123456),
        "TIMESTAMP_NTZ": dt.datetime(2024, 10, 27, 1, 30, 0, 5),
        "ARRAY<TIMESTAMP>": [dt.datetime(2024, 10, 27, 1, 30)],
        "ARRAY<TIMESTAMP_NTZ>": [dt.datetime(2024, 10, 27, 1, 30)],
        "DECIMAL(38,9)": Decimal("12345678901234567890.123456789"),
        "ARRAY<INT>": [1, None],
        "MAP<STRING,BINARY>": {"a": bytearray(b"x"), "b": None},
    }
    fields = ", ".join(f"c{number}: {kind}" for number, kind in enumerate(rows))
    frame = spark.createDataFrame([(tuple(rows.values()),)], f"all STRUCT<{fields}>")
    kind = frame.schema["all"].dataType
    both = frame.select("all", packed(F.col("all"), kind, "it").alias("data")).collect()[0]
    values = PythonValues(kind)
    found = values.loads(bytes(both.data))
    assert found["c5"] == rows["TIMESTAMP"].replace(tzinfo=dt.UTC)
    assert (found["c0"], found["c9"], found["c11"]) == (b"\xff\x00", rows["DECIMAL(38,9)"], {"a": b"x", "b": None})
    again = spark.createDataFrame([(values.dumps(found),), (bytes(both.data),)], "data BINARY")
    assert [row[0] for row in again.select(unpacked(F.col("data"), kind)).collect()] == [both["all"]] * 2


def test_arguments_that_do_not_fit(spark: SparkSession) -> None:
    def frame(columns: str) -> DataFrame:
        return spark.createDataFrame([], f"{columns}, timestamp TIMESTAMP, topic STRING, partition INT, offset BIGINT")

    texts = frame("key STRING, value STRING")
    with pytest.raises(StreamError, match="the value of frame 2 is int, but that of the first one string: cast it"):
        merge(texts, frame("key STRING, value INT"))
    with pytest.raises(StreamError, match="the key of stream 2 is int, but that of the first one string: cast one"):
        cogroup([(texts, max), (frame("key INT, value INT"), max)], int, "INT")
    with pytest.raises(StreamError, match="the key of stream contains a map, whose entries have no order"):
        count(frame("key ARRAY<STRUCT<a: MAP<STRING, INT>>>, value INT"))
    with pytest.raises(StreamError, match="the schema of totals contains map<int,int>"):
        cogroup([(texts, max)], int, "MAP<INT, INT>")
