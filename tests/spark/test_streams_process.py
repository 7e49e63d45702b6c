"""`process`: state, timers, failed records; by the test driver for streams, which this tests as well."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla import Admin, TableView
from ottla.client.administer import ConfigResource
from ottla.spark.streams import aggregate
from ottla.spark.streams.frames import StreamError
from ottla.spark.streams.processors import Context, Processor, process, to_topics
from ottla.spark.streams.queryable import queryable
from ottla.spark.streams.states import List, Map, Value
from ottla.testing.streams import StreamsDriver
from support.clients.peers import Peer
from support.topic_data import WAIT_S


@pytest.fixture
def driver(spark: SparkSession, broker: Peer) -> Iterator[StreamsDriver]:
    with StreamsDriver(spark, broker.bootstrap) as driver:
        yield driver


def test_state_of_all_kinds_and_failed_records(driver: StreamsDriver) -> None:
    """A record that fails leaves no trace in the state, across micro-batches and restarts."""

    class Seen(Processor):
        total = Value[int]("BIGINT")
        numbers = List[int]("INT")
        counts = Map[str, int]("STRING", "INT")

        def process(self, record: Any, context: Context) -> Iterator[str]:  # noqa: ARG002
            self.numbers.append(-1)
            self.counts.set("all", (self.counts.get("all") or 0) + 1)
            number = json.loads(record.value)["n"]
            self.total.set((self.total.get() or 0) + number)
            self.numbers.set([one for one in self.numbers.get() if one >= 0] + [number])
            self.counts.set(str(number % 2), (self.counts.get(str(number % 2)) or 0) + 1)
            if number == 13:
                self.counts.clear()
                raise ValueError("13 is not served")
            yield json.dumps([self.total.get(), self.numbers.get(), sorted(self.counts.items().items())])

    inputs, results, dead = driver.topic("numbers", partitions=2), driver.topic("results"), driver.topic("dead")

    def query() -> DataFrame:
        processed = process(driver.stream(inputs), Seen(), "STRING", on_error="dead_letter")
        return to_topics(processed, results, dead)

    driver.send(inputs, ("a", '{"n": 1}', 1.0), ("a", '{"n": 13}', 3.0), ("b", "{", 4.0))
    driver.send(inputs, ("a", '{"n": 4}', 2.0), partition=1)  # between the two of partition 0
    driver.run(query)
    driver.send(inputs, ("a", '{"n": 5}', 0.5))
    driver.run(query)
    found = [(one.key, json.loads(one.value or ""), one.at_s) for one in driver.read(results)]
    assert found == [
        ("a", [1, [1], [["1", 1], ["all", 1]]], 1.0),
        ("a", [5, [1, 4], [["0", 1], ["1", 1], ["all", 2]]], 2.0),
        ("a", [10, [1, 4, 5], [["0", 1], ["1", 2], ["all", 3]]], 0.5),
    ]
    letters = sorted(driver.read(dead), key=lambda one: one.key or "")
    assert [(one.key, one.value, one.at_s) for one in letters] == [("a", '{"n": 13}', 3.0), ("b", "{", 4.0)]
    headers = letters[0].headers
    place = {"topic": inputs, "partition": "0", "offset": "1"}
    expected = {"exception": "ValueError", "message": "13 is not served", **place}
    assert {name: headers[f"__streams.errors.{name}"] for name in expected} == expected
    assert "in process" in headers["__streams.errors.stacktrace"]
    assert letters[1].headers["__streams.errors.exception"] == "JSONDecodeError"


def test_a_failure_stops_the_query_and_names_the_record(driver: StreamsDriver) -> None:
    class Strict(Processor):
        def process(self, record: Any, context: Context) -> Iterator[str]:  # noqa: ARG002
            yield str(int(record.value))

    inputs, results = driver.topic("numbers"), driver.topic("results")

    def query() -> DataFrame:
        return process(driver.stream(inputs), Strict(), "STRING")

    driver.send(inputs, ("a", "1", 0.0), ("a", "x", 0.0))
    with pytest.raises(
        StreamingQueryException, match=f"Strict failed at offset 1 of partition 0 of topic {inputs}: Value"
    ):
        driver.run(query, results)
    assert driver.read(results) == []


def test_timers_follow_event_time(driver: StreamsDriver) -> None:
    class Silence(Processor):
        """Says when a key has been silent for a minute."""

        last = Value[datetime]("TIMESTAMP")

        def process(self, record: Any, context: Context) -> Iterator[str]:
            at = record.timestamp.astimezone()
            previous = self.last.get()
            if previous is not None:
                context.delete_timer(previous.astimezone() + timedelta(minutes=1))
            self.last.set(record.timestamp)
            context.set_timer(at + timedelta(minutes=1))
            return iter(())

        def on_timer(self, key: Any, at: datetime, context: Context) -> Iterator[str]:
            assert context.now >= at
            self.last.clear()
            yield f"{key} is silent"

    inputs, results = driver.topic("pings"), driver.topic("results")

    def query() -> DataFrame:
        pings = driver.stream(inputs).withWatermark("timestamp", "0 seconds")
        return process(pings, Silence(), "STRING", time="event").select("key", "value", "timestamp")

    driver.send(inputs, ("a", "", 0.0), ("b", "", 10.0), ("a", "", 50.0))
    driver.run(query, results)
    assert driver.read(results) == []
    driver.send(inputs, ("c", "", 80.0))
    driver.run(query, results)
    assert [(one.key, one.value, one.at_s) for one in driver.read(results)] == [("b", "b is silent", 70.0)]


def test_state_expires_that_was_not_written(driver: StreamsDriver) -> None:
    class Expiring(Processor):
        value = Value[int]("BIGINT", ttl=timedelta(milliseconds=1))
        items = List[int]("BIGINT", ttl=timedelta(milliseconds=1))
        entries = Map[str, int]("STRING", "BIGINT", ttl=timedelta(milliseconds=1))
        day = Value[int]("BIGINT", ttl=timedelta(days=1))
        days = Map[str, int]("STRING", "BIGINT", ttl=timedelta(days=1))
        all = Value[int]("BIGINT")

        def process(self, record: Any, context: Context) -> Iterator[str]:  # noqa: ARG002
            brief = [self.value.get(), self.items.get(), self.entries.get("e"), self.entries.items()]
            yield json.dumps([brief, [self.day.get(), self.days.items(), self.all.get()]])
            number = int(record.value)
            for value in (self.value, self.day, self.all):
                value.set(number)
            self.items.append(number)
            for entries in (self.entries, self.days):
                entries.set("e", number)

    inputs, results = driver.topic("numbers"), driver.topic("results")

    def query() -> DataFrame:
        return process(driver.stream(inputs), Expiring(), "STRING", time="processing")

    driver.send(inputs, ("a", "1", 0.0), ("a", "2", 0.0))
    driver.run(query, results)
    driver.send(inputs, ("a", "3", 0.0))
    driver.run(query, results)  # more than a millisecond later
    nothing: list[Any] = [None, [], None, {}]
    assert [json.loads(one.value or "") for one in driver.read(results)] == [
        [nothing, [None, {}, None]],
        [[1, [1], 1, {"e": 1}], [1, {"e": 1}, 1]],
        [nothing, [2, {"e": 2}, 2]],
    ]


def test_a_worker_that_is_killed_leaves_no_trace_in_state(
    spark: SparkSession, driver: StreamsDriver, tmp_path: Path
) -> None:
    """Nor in the results; and the number of shuffle partitions may change between starts."""
    mark = tmp_path / "killed"

    def add(key: str, value: str, total: int) -> int:  # noqa: ARG001
        if value == "last" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return total + 1

    class Seen(Processor):
        totals = List[int]("BIGINT")

        def process(self, record: Any, context: Context) -> Iterator[str]:  # noqa: ARG002
            self.totals.append(record.value)
            yield json.dumps(self.totals.get())

    inputs, results = driver.topic("inputs", partitions=2), driver.topic("results")
    keys = [f"k{number}" for number in range(20)]

    def query() -> DataFrame:
        return process(aggregate(driver.stream(inputs), lambda: 0, add, "BIGINT"), Seen(), "STRING")

    driver.send(inputs, *[(key, "first", 0.0) for key in keys])
    driver.run(query, results, exactlyOnce="true")
    driver.send(inputs, *[(key, "next", 1.0) for key in keys], (keys[-1], "last", 2.0), partition=1)
    with pytest.raises(StreamingQueryException):
        driver.run(query, results, exactlyOnce="true")
    assert mark.exists()
    before = spark.conf.get("spark.sql.shuffle.partitions") or ""
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        driver.run(query, results, exactlyOnce="true")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    found: dict[str | None, list[list[int]]] = {}
    for one in driver.read(results):
        found.setdefault(one.key, []).append(json.loads(one.value or ""))
    assert found == {key: [[1], [1, 3 if key == keys[-1] else 2]] for key in keys}


def test_results_and_state_of_wrong_types_and_unprintable_errors(driver: StreamsDriver) -> None:
    class Odd(Processor):
        total = Value[float]("DOUBLE")

        def process(self, record: Any, context: Context) -> Iterator[Any] | None:  # noqa: ARG002
            self.total.set((self.total.get() or 0) + 1)  # an int
            match record.value:
                case "result":
                    return iter([f"not a number {self.total.get()}"])
                case "state":
                    self.total.set("3")  # type: ignore[arg-type]
                case "error":
                    raise ValueError("\ud800")
                case "none":
                    return None
            return iter([self.total.get()])

    inputs, results, dead = driver.topic("odd"), driver.topic("results"), driver.topic("dead")

    def query() -> DataFrame:
        processed = process(driver.stream(inputs), Odd(), "DOUBLE", on_error="dead_letter")
        return to_topics(processed.withColumn("value", F.col("value").cast("string")), results, dead)

    driver.send(inputs, *[("a", text, 0.0) for text in ("", "result", "state", "error", "none")])
    driver.run(query)
    driver.send(inputs, ("a", "", 0.0))
    driver.run(query)
    assert [one.value for one in driver.read(results)] == ["1.0", "3.0"]
    messages = [letter.headers["__streams.errors.message"] for letter in driver.read(dead)]
    assert [text[:30] for text in messages] == [
        "Could not convert 'not a numbe",
        "expected a float for double, n",
        "\\ud800",
    ]

    def strict() -> DataFrame:
        return (
            process(driver.stream(inputs), Odd(), "DOUBLE").where("value = 99").select("key", F.lit("").alias("value"))
        )

    with pytest.raises(StreamingQueryException, match="Odd failed at offset 1 of partition 0"):
        driver.run(strict, results)


class Unknown(Processor):
    state = Value[int]("NUMBER")


class Nothing(Processor):
    expires = Value[int]("INT", ttl=timedelta(hours=1))


def test_what_cannot_be_processed(driver: StreamsDriver) -> None:
    stream = driver.stream(driver.topic("any"))
    with pytest.raises(StreamError, match=r"the ttl of 'expires' needs process\(…, time='processing'\)"):
        process(stream, Nothing(), "STRING")
    with pytest.raises(StreamError, match="state 'state' has the type 'NUMBER', which Spark does not know"):
        process(stream, Unknown(), "STRING")
    with pytest.raises(StreamError, match="processor must be an instance, not <class"):
        process(stream, Nothing, "STRING")  # type: ignore[arg-type]
    with pytest.raises(StreamError, match="stream has no column offset"):
        process(stream.drop("offset"), Nothing(), "STRING", time="processing")
    processed = process(stream, Nothing(), "BIGINT", time="processing", on_error="dead_letter")
    with pytest.raises(StreamError, match="column value must be string or binary, not bigint"):
        to_topics(processed, "a", "b")
    with pytest.raises(StreamError, match="needs the column 'failure'"):
        to_topics(stream, "a", "b")


def test_retention_deletes_nothing_that_a_driver_sends(driver: StreamsDriver) -> None:
    """Its records are from the past."""
    resource = ConfigResource.topic(driver.topic("inputs"))
    with Admin(bootstrap_servers=driver.bootstrap) as admin:
        assert admin.describe_configs([resource])[resource]["retention.ms"].value == "-1"


def test_a_queryable_table_is_read_by_a_view(driver: StreamsDriver, topic: str, tmp_path: Path) -> None:
    inputs = driver.topic("inputs", compacted=True)
    options = {"kafka.bootstrap.servers": driver.bootstrap}

    def run() -> None:
        writer = queryable(driver.stream(inputs), topic, options, partitions=3)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writer.start().awaitTermination(WAIT_S)

    driver.send(inputs, ("a", "1", 0.0), ("b", "2", 0.0))
    run()
    coders = {"key_deserializer": "string", "value_deserializer": "string"}
    with TableView(topic, {"bootstrap.servers": driver.bootstrap, **coders}) as view:
        assert dict(view.range()) == {"a": "1", "b": "2"}
        driver.send(inputs, ("a", None, 1.0), ("b", "20", 2.0))
        run()
        view.wait_until_caught_up(WAIT_S)
        assert dict(view) == {"b": "20"}
    with Admin(bootstrap_servers=driver.bootstrap) as admin:
        described = admin.describe_topics([topic])[topic]
        resource = ConfigResource.topic(topic)
        policy = admin.describe_configs([resource])[resource]["cleanup.policy"].value
    assert (len(described.partitions), policy) == (3, "compact")
    plain = driver.topic("plain")
    with pytest.raises(StreamError, match=f"topic {plain} has cleanup.policy=delete, so rows would disappear"):
        queryable(driver.stream(inputs), plain, options)
    with pytest.raises(StreamError, match="column value of table must be string or binary, not int"):
        queryable(driver.stream(inputs).withColumn("value", F.lit(1)), topic, options)
