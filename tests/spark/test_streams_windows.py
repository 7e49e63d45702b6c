"""Sliding windows and last results in queries of Spark, which continue from their checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark import decode_json, encode_json
from ottla.spark.streams import (
    SlidingWindows,
    StreamError,
    aggregate,
    aggregate_table,
    cogroup,
    count,
    reduce,
    table,
    until_window_closes,
)
from ottla.testing.streams import StreamsDriver
from support.clients.peers import Peer
from support.topic_data import WAIT_S

TEN_S = SlidingWindows(timedelta(seconds=10), timedelta(seconds=5))
KEY = "key STRING, window STRUCT<start: TIMESTAMP, end: TIMESTAMP>"


@pytest.fixture
def driver(spark: SparkSession, broker: Peer) -> Iterator[StreamsDriver]:
    with StreamsDriver(spark, broker.bootstrap) as driver:
        yield driver


def encoded(frame: DataFrame) -> DataFrame:
    """With keys as JSON, and values as text."""
    return encode_json(frame, "key", into="key").withColumn("value", F.col("value").cast("string"))


def place(key: str | None) -> tuple[str, str, str]:
    """The key and the ends of its window, as seconds of the first hour of 2026."""
    found = json.loads(key or "")
    ends = (found["window"][end].replace("2026-01-01T00:", "").removesuffix("Z") for end in ("start", "end"))
    return (found["key"], *ends)


def progress_of(frame: DataFrame, checkpoint: Path) -> list[Any]:
    """Runs a query until it has processed everything; it writes nothing."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    return list(query.recentProgress)


def test_a_table_of_windows_and_its_last_results(driver: StreamsDriver) -> None:
    """A query writes updates to a compacted topic, another one reads it; each act is a restart. Windows of a key
    without further rows close because another key moves time."""
    inputs, updates, finals = driver.topic("in"), driver.topic("updates", compacted=True), driver.topic("finals")

    def updating() -> DataFrame:
        return encoded(reduce(driver.stream(inputs), "{0}{1}".format, windows=TEN_S))

    def closing() -> DataFrame:
        options = {"kafka.bootstrap.servers": driver.bootstrap, "commitOffsets": "false"}
        rows = decode_json(table(driver.spark, updates, options, value="CAST(value AS STRING)"), KEY, column="key").good
        return encoded(until_window_closes(rows, grace=timedelta(seconds=5)))

    def run(*records: tuple[str | None, str | None, float]) -> tuple[dict[Any, str], dict[Any, str]]:
        driver.send(inputs, *records)
        driver.run(updating, updates)
        driver.run(closing, finals)
        closed = [(place(one.key), one.value or "") for one in driver.read(finals)]
        assert len(dict(closed)) == len(closed)
        return {place(key): value for key, value in driver.table(updates).items()}, dict(closed)

    table_1, closed = run(("a", "1", 20.0), ("a", "2", 24.0), ("b", "x", 21.0), ("a", "0", 17.5), (None, "?", 20.0))
    assert table_1 == {
        ("a", "00:07.500", "00:17.500"): "0",
        ("a", "00:10.000", "00:20.000"): "10",
        ("a", "00:14.000", "00:24.000"): "120",
        ("a", "00:17.501", "00:27.501"): "12",
        ("a", "00:20.001", "00:30.001"): "2",
        ("b", "00:11.000", "00:21.000"): "x",
    }
    assert closed == {("a", "00:07.500", "00:17.500"): "0"}  # time is 24 - 5 seconds
    table_2, closed = run(("a", "9", 16.0), ("c", "y", 30.0))
    late = {
        ("a", "00:10.000", "00:20.000"): "109",
        ("a", "00:14.000", "00:24.000"): "1209",
        ("a", "00:16.001", "00:26.001"): "120",
        ("c", "00:20.000", "00:30.000"): "y",
    }
    assert table_2 == table_1 | late  # windows that closed before 19 have not changed
    assert closed == {where: total for where, total in table_2.items() if where[2] < "00:25"}
    table_3, closed = run(("c", "z", 60.0), ("a", "?", 5.0))
    assert closed.items() <= table_3.items()
    assert table_3.keys() - closed.keys() == {("c", "00:50.000", "01:00.000")}


def test_final_results_metrics_and_state(driver: StreamsDriver, tmp_path: Path) -> None:
    """Of two streams. Records without key or value, and late ones, are counted; state is removed in the end."""
    inputs, others, finals = driver.topic("in"), driver.topic("others"), driver.topic("finals")
    windows = SlidingWindows(timedelta(seconds=10), timedelta(seconds=5), "final")

    def closing() -> DataFrame:
        first = driver.stream(inputs), lambda _, value, total: [*total, value]
        second = driver.stream(others), lambda _, value, total: [*total, value.upper()]
        return encoded(cogroup([first, second], list, "ARRAY<STRING>", windows=windows))

    driver.send(inputs, *((f"k{number}", "v", 100.0) for number in range(40)), (None, "v", 100.0), ("k", None, 100.0))
    driver.send(others, ("k0", "w", 101.0))
    (first, *_) = progress_of(closing(), tmp_path)
    assert first["observedMetrics"]["ottla.windows.sliding.skipped"]["skipped"] == 2
    assert first["stateOperators"][0]["numRowsTotal"] > 40
    driver.send(inputs, ("late", "v", 1.0), ("k1", "v", 101.0), ("end", "v", 10_000.0))
    driver.send(others, ("end", "v", 10_000.0))
    progress = progress_of(closing(), tmp_path)
    assert sum(one["observedMetrics"]["ottla.windows.sliding"]["dropped_late"] for one in progress) == 1
    assert progress[-1]["stateOperators"][0]["numRowsTotal"] < 10
    driver.run(closing, finals)  # from the beginning
    found = {place(one.key): one.value for one in driver.read(finals)}
    assert found["k0", "01:31.000", "01:41.000"] == "[v, W]"
    assert found["k0", "01:40.001", "01:50.001"] == "[W]"
    assert len(found) == 40 + 2 + 2 + 1


def test_windows_compose_within_a_query(driver: StreamsDriver) -> None:
    """A table of windows is grouped by key, and its last results are taken, by the watermark of the same query."""
    inputs, longest, finals = driver.topic("in"), driver.topic("longest"), driver.topic("finals")

    def windows() -> DataFrame:
        stream = driver.stream(inputs).withWatermark("timestamp", "5 seconds")
        return aggregate(stream, dict, counted, "MAP<STRING, INT>", windows=SlidingWindows(timedelta(seconds=10)))

    def counted(key: str, value: str, total: dict[str, int]) -> dict[str, int]:  # noqa: ARG001
        total[value] = total.get(value, 0) + 1
        return total

    def grouped() -> DataFrame:
        return aggregate_table(
            windows(), "key.key", int, lambda _, value, n: n + len(value), lambda _, value, n: n - len(value), "INT"
        ).withColumn("value", F.col("value").cast("string"))

    def closing() -> DataFrame:
        return encoded(until_window_closes(windows()).withColumn("value", F.to_json("value")))

    driver.send(inputs, ("a", "x", 20.0), ("a", "x", 24.0), ("a", "y", 23.0), ("b", "x", 21.0))
    driver.run(grouped, longest)
    assert driver.table(longest) == {"a": "8", "b": "1"}
    driver.run(closing, finals)
    assert driver.read(finals) == []
    driver.send(inputs, ("c", "x", 70.0))
    driver.run(closing, finals)
    found = {place(one.key): one.value for one in driver.read(finals)}
    assert found["a", "00:14.000", "00:24.000"] == '{"x":2,"y":1}'
    assert found["a", "00:20.001", "00:30.001"] == '{"x":1,"y":1}'
    assert len(found) == 6


def test_another_size_does_not_fit_a_checkpoint(driver: StreamsDriver) -> None:
    inputs, results = driver.topic("in"), driver.topic("results")
    seconds = 10

    def query() -> DataFrame:
        windows = SlidingWindows(timedelta(seconds=seconds), timedelta(seconds=5))
        return encoded(count(driver.stream(inputs), windows=windows))

    driver.send(inputs, ("a", "1", 20.0))
    driver.run(query, results)
    seconds = 20
    driver.send(inputs, ("a", "1", 21.0))
    with pytest.raises(StreamingQueryException, match=r"sliding windows of 10000 ms.*sliding windows of 20000 ms"):
        driver.run(query, results)


def test_arguments_that_do_not_fit(driver: StreamsDriver) -> None:
    second = timedelta(seconds=1)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: SlidingWindows(-second), "difference must not be negative, but is -1 day"),
        (lambda: SlidingWindows(second, -second), "grace must not be negative"),
        (lambda: SlidingWindows(timedelta(microseconds=1500)), "difference must be a whole number of milliseconds"),
        (lambda: SlidingWindows(10), "difference must be a timedelta, not 10"),  # type: ignore[arg-type]
        (lambda: SlidingWindows(second, emit="last"), "emit must be 'updates' or 'final', not 'last'"),  # type: ignore[arg-type]
        (lambda: SlidingWindows(second, name=""), "the name of windows must be a non-empty string"),
    ]
    stream = driver.stream(driver.topic("in"))
    watched = stream.withWatermark("timestamp", "1 second")
    batch = driver.spark.createDataFrame([], stream.schema)
    refused += [
        (lambda: count(batch, windows=TEN_S), "stream must be a streaming DataFrame"),
        (lambda: count(stream.drop("offset"), windows=TEN_S), "stream has no column offset"),
        (lambda: count(stream, windows=SlidingWindows(second)), "stream has no watermark, so its windows would never"),
        (lambda: count(watched, windows=TEN_S), "stream has a watermark, and Spark does not allow two"),
        (lambda: count(stream, windows=second), "windows must be SlidingWindows, not datetime"),  # type: ignore[arg-type]
        (lambda: until_window_closes(stream, second), "the key of table is string, and has no field window"),
        (lambda: until_window_closes(stream), "table has no watermark"),
        (lambda: until_window_closes(stream, -second), "grace must not be negative"),
    ]
    for call, words in refused:
        with pytest.raises(StreamError, match=words):
            call()
