"""Batches: every option against the rows that it should give."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.testing.broker import Broker
from support.clients.peers import Peer
from support.topic_data import TopicData

HOUR_MS = 3_600_000
T0_MS = 1_700_000_000_000


class Reader:
    """Batches of one broker."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self._spark = spark
        self._usual = {"kafka.bootstrap.servers": bootstrap, "fetchOffset.numRetries": "1"}

    def load(self, schema: str | None = None, /, **options: object) -> DataFrame:
        given = {name: json.dumps(one) if isinstance(one, dict) else str(one) for name, one in options.items()}
        reader = self._spark.read.format("ottla").options(**{**self._usual, **given})
        return (reader.schema(schema) if schema else reader).load()

    def values(self, **options: object) -> list[str]:
        return sorted(bytes(row.value).decode() for row in self.load(**options).select("value").collect())


@pytest.fixture(scope="module")
def reader(spark: SparkSession, broker: Peer) -> Reader:
    return Reader(spark, broker.bootstrap)


@pytest.fixture(scope="module")
def letters(broker: Peer) -> TopicData:
    """a to d, an hour apart, in partition 0; x and y in partition 1, at the times of b and c."""
    data = TopicData(broker.bootstrap, partitions=2)
    for hour, letter in enumerate("abcd"):
        data.send([letter], timestamp_ms=T0_MS + hour * HOUR_MS)
    data.send(["x"], partition=1, timestamp_ms=T0_MS + HOUR_MS)
    data.send(["y"], partition=1, timestamp_ms=T0_MS + 2 * HOUR_MS)
    return data


def message(what: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        what()
    return str(caught.value)


# Columns.


def test_all_columns_of_a_record(reader: Reader, broker: Peer) -> None:
    data = TopicData(broker.bootstrap)
    data.send(["with"], timestamp_ms=T0_MS, headers=[("h", b"1"), ("h", b"2")])
    data.send(["without"], timestamp_ms=T0_MS + 1)
    first, second = reader.load(subscribe=data.name, includeHeaders="true").orderBy("offset").collect()
    assert first.asDict(recursive=True) == {
        "key": b"k-with",
        "value": b"with",
        "topic": data.name,
        "partition": 0,
        "offset": 0,
        "timestamp": first.timestamp,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}],
    }
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(T0_MS / 1000, UTC)
    assert (second.value, second.offset, second.headers) == (b"without", 1, None)
    assert "headers" not in reader.load(subscribe=data.name).columns


def test_only_the_columns_that_are_wanted(reader: Reader, letters: TopicData) -> None:
    wanted = reader.load("offset long, topic string", subscribe=letters.name)
    assert wanted.columns == ["offset", "topic"]
    assert sorted(row.offset for row in wanted.collect()) == [0, 0, 1, 1, 2, 3]
    assert "no column 'vallue'; did you mean value?" in message(
        lambda: reader.load("vallue binary", subscribe=letters.name).collect()
    )


# What is read.


def test_several_topics_patterns_and_partitions(reader: Reader, letters: TopicData, broker: Peer) -> None:
    other = TopicData(broker.bootstrap, f"{letters.name}-other")
    other.send(["o"])
    assert reader.values(subscribe=f"{letters.name}, {other.name}") == ["a", "b", "c", "d", "o", "x", "y"]
    assert reader.values(subscribePattern=f"{letters.name}.+") == ["o"]
    assert reader.values(assign={letters.name: [1]}) == ["x", "y"]


def test_nothing_is_read_where_nothing_is(reader: Reader, broker: Peer) -> None:
    empty = TopicData(broker.bootstrap, partitions=3)
    assert reader.values(subscribe=empty.name) == []
    assert reader.values(subscribePattern=f"{empty.name}-no") == []
    nothing = {empty.name: {"0": 0, "1": 0, "2": 0}}
    assert reader.load(subscribe=empty.name, startingOffsets=nothing, endingOffsets=nothing).count() == 0


def test_a_dataframe_that_is_used_again_sees_what_has_come(reader: Reader, broker: Peer) -> None:
    data = TopicData(broker.bootstrap, partitions=2)
    frame = reader.load(subscribe=data.name)
    assert frame.count() == 0
    data.send(range(3))
    data.send(range(2), partition=1)
    assert frame.count() == 5


def test_a_topic_in_sql(spark: SparkSession, letters: TopicData) -> None:
    options = f"'kafka.bootstrap.servers' '{letters.bootstrap}', 'subscribe' '{letters.name}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW letters USING ottla OPTIONS ({options})")
    rows = spark.sql(
        "SELECT CAST(value AS STRING) AS letter FROM letters WHERE partition = 1 ORDER BY offset"
    ).collect()
    assert [row.letter for row in rows] == ["x", "y"]


# From where to where.


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, "abcdxy"),
        ({"startingOffsets": {"0": 2, "1": -2}}, "cdxy"),
        ({"startingOffsets": {"0": 1, "1": 0}, "endingOffsets": {"0": 3, "1": -1}}, "bcxy"),
        ({"endingOffsets": {"0": 1, "1": 1}}, "ax"),
        ({"startingTimestamp": T0_MS + HOUR_MS, "endingTimestamp": T0_MS + 2 * HOUR_MS}, "bx"),
        ({"startingTimestamp": T0_MS, "endingTimestamp": T0_MS + 9 * HOUR_MS}, "abcdxy"),
        (
            {
                "startingOffsetsByTimestamp": {"0": T0_MS + 1, "1": T0_MS + 2 * HOUR_MS},
                "endingOffsetsByTimestamp": {"0": T0_MS + 2 * HOUR_MS, "1": T0_MS + 9 * HOUR_MS},
            },
            "by",
        ),
        ({"startingTimestamp": T0_MS + 3 * HOUR_MS, "startingOffsetsByTimestampStrategy": "latest"}, "d"),
        ({"maxRecordsPerPartition": 1}, "abcdxy"),
        ({"minPartitions": 5, "startingOffsets": {"0": 1, "1": 1}}, "bcdy"),
        ({"kafka.isolation.level": "read_committed", "kafka.max.partition.fetch.bytes": 100}, "abcdxy"),
    ],
)
def test_from_where_to_where(reader: Reader, letters: TopicData, options: dict[str, object], expected: str) -> None:
    by_topic = {name: {letters.name: one} if isinstance(one, dict) else one for name, one in options.items()}
    assert "".join(reader.values(subscribe=letters.name, **by_topic)) == expected


def test_partitions_are_split_into_tasks(reader: Reader, letters: TopicData) -> None:
    def tasks(**options: object) -> int:
        return reader.load(subscribe=letters.name, **options).rdd.getNumPartitions()

    assert tasks() == 2
    assert tasks(minPartitions=6) == 6
    assert tasks(maxRecordsPerPartition=2) == 3


# What is gone.


def test_records_that_were_deleted(reader: Reader, broker: Peer) -> None:
    data = TopicData(broker.bootstrap)
    data.send(range(6))
    data.delete_before(4)
    from_the_first = {"subscribe": data.name, "startingOffsets": {data.name: {"0": 0}}}
    told = message(lambda: reader.values(**from_the_first))
    assert f"offsets 0 to 3 of partition {data.name}-0 no longer exist" in told
    assert "failOnDataLoss" in told
    assert reader.values(**from_the_first, failOnDataLoss="false") == ["4", "5"]
    assert reader.values(subscribe=data.name) == ["4", "5"]


def test_records_that_are_deleted_between_planning_and_reading(reader: Reader, broker: Peer) -> None:
    data = TopicData(broker.bootstrap)
    data.send(range(6))
    given = {"subscribe": data.name, "startingOffsets": {data.name: {"0": 1}}}
    strict, lenient = reader.load(**given), reader.load(**given, failOnDataLoss="false")
    assert strict.count() == lenient.count() == 5  # both are planned now
    data.delete_before(4)
    assert f"offsets 1 to 3 of partition {data.name}-0 were deleted" in message(strict.count)
    assert lenient.count() == 2


def test_offsets_beyond_the_end(reader: Reader, letters: TopicData) -> None:
    def ends_at(offset: int) -> dict[str, object]:
        return {"subscribe": letters.name, "endingOffsets": {letters.name: {"0": offset, "1": 0}}}

    assert "ends at offset 4, but the batch should end at 99" in message(lambda: reader.values(**ends_at(99)))
    assert reader.values(**ends_at(99), failOnDataLoss="false") == ["a", "b", "c", "d"]
    beyond = {"subscribe": letters.name, "startingOffsets": {letters.name: {"0": 99, "1": 0}}}
    assert "starts at offset 99" in message(lambda: reader.values(**beyond))


# What is wrong.


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "nowhere-to-be-seen"}, "topic 'nowhere-to-be-seen' does not exist"),
        (
            {"subscribe": "t", "startingOffset": "earliest"},
            "startingoffset: unknown option; did you mean startingOffsets?",
        ),
        ({}, "set one of subscribe, subscribePattern and assign"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "a batch query cannot start at latest"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset: cannot be set"),
    ],
)
def test_what_is_wrong_is_said_in_the_last_line(reader: Reader, options: dict[str, str], told: str) -> None:
    lines = message(lambda: reader.load(**options).collect()).split("SQLSTATE")[0].strip().splitlines()
    assert told in lines[-1]


def test_a_time_after_all_records(reader: Reader, letters: TopicData) -> None:
    told = message(lambda: reader.values(subscribe=letters.name, startingTimestamp=T0_MS + 3 * HOUR_MS))
    assert f"no record of {letters.name}-1 has the timestamp {T0_MS + 3 * HOUR_MS}" in told


def test_a_broker_that_goes_away_before_its_records_are_read(spark: SparkSession) -> None:
    with Broker() as broker:
        data = TopicData(broker.bootstrap)
        data.send(range(3))
        frame = Reader(spark, broker.bootstrap).load(
            subscribe=data.name, **{"kafka.default.api.timeout.ms": 1000, "kafka.request.timeout.ms": 1000}
        )
        assert frame.count() == 3
        broker.stop()
        assert f"127.0.0.1:{broker.port}" in message(frame.count)
        broker.start()
        assert frame.count() == 3
