"""DataFrames into topics: every column, in batches and in streams, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, when
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla import Consumer, ConsumerRecord, TopicPartition
from ottla.client.produce.partitioners import partition_of_key
from ottla.spark import WriteResult, write
from ottla.spark.sink import read_results
from support.clients.peers import Peer
from support.topic_data import WAIT_S, TopicData

SCHEMA = "key string, value string, headers array<struct<key:string,value:binary>>, partition int, timestamp timestamp"
T0 = datetime(2024, 5, 6, 7, 8, 9, 123_000, UTC)
T0_MS = 1_714_979_289_123


@pytest.fixture
def sent_to(broker: Peer) -> TopicData:
    return TopicData(broker.bootstrap, partitions=3)


def records_of(data: TopicData, name: str | None = None, partitions: int = 3) -> list[ConsumerRecord]:
    all_of_it = [TopicPartition(name or data.name, partition) for partition in range(partitions)]
    with Consumer(bootstrap_servers=data.bootstrap) as consumer:
        ends = consumer.end_offsets(all_of_it)
        consumer.assign(all_of_it)
        for partition in all_of_it:
            consumer.seek(partition, 0, until=ends[partition])
        return sorted(consumer)


def values_of(data: TopicData, name: str | None = None, partitions: int = 3) -> list[str]:
    return sorted((record.value or b"").decode() for record in records_of(data, name, partitions))


def save(frame: DataFrame, data: TopicData, mode: str = "append", **options: str) -> None:
    usual = {"kafka.bootstrap.servers": data.bootstrap, "topic": data.name}
    frame.write.format("ottla").options(**{**usual, **options}).mode(mode).save()


def message(what: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        what()
    return str(caught.value)


# Batches.


def test_every_column(spark: SparkSession, sent_to: TopicData) -> None:
    rows = [
        ("k", "a", [("h", b"1"), ("n", None)], 2, T0),
        ("k", None, None, None, None),
        (None, "", [], 0, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ]
    save(spark.createDataFrame(rows, SCHEMA), sent_to)
    by_key = partition_of_key(b"k", 3)
    found = {(one.partition, one.key, one.value): one for one in records_of(sent_to)}
    assert found.keys() == {(2, b"k", b"a"), (by_key, b"k", None), (0, None, b"")}
    assert found[2, b"k", b"a"].headers == (("h", b"1"), ("n", None))
    assert found[2, b"k", b"a"].timestamp == T0_MS
    assert found[0, None, b""].timestamp == 1000
    assert found[by_key, b"k", None].headers == ()
    assert found[by_key, b"k", None].timestamp > T0_MS  # now


def test_binary_columns_and_seconds_and_others_that_nobody_asked_for(spark: SparkSession, sent_to: TopicData) -> None:
    frame = spark.range(1).select(
        lit(b"\xff\x00").alias("value"), lit(b"\xfe").alias("key"), lit(1.25).alias("timestamp"), "id"
    )
    save(frame, sent_to)
    (record,) = records_of(sent_to)
    assert (record.key, record.value, record.timestamp) == (b"\xfe", b"\xff\x00", 1250)


def test_what_was_read_can_be_written_as_it_is(spark: SparkSession, broker: Peer, sent_to: TopicData) -> None:
    sent_to.send(["a", "b"], partition=1, timestamp_ms=T0_MS, headers=[("h", b"1")])
    copy = TopicData(broker.bootstrap, partitions=3)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": sent_to.name, "includeHeaders": "true"}
    save(spark.read.format("ottla").options(**options).load(), copy)
    assert [one[1:] for one in records_of(copy)] == [one[1:] for one in records_of(sent_to)]


def test_a_column_says_which_topic(spark: SparkSession, broker: Peer, sent_to: TopicData) -> None:
    other = TopicData(broker.bootstrap)
    topic = when(col("id") % 3 == 0, lit(other.name)).otherwise(lit(sent_to.name))
    frame = spark.range(100).select(col("id").cast("string").alias("value"), topic.alias("topic"))
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    frame.write.format("ottla").options(**options).mode("append").save()
    assert values_of(other, partitions=1) == sorted(str(number) for number in range(0, 100, 3))
    assert values_of(sent_to) == sorted(str(number) for number in range(100) if number % 3)
    save(frame.limit(1), sent_to)  # the option wins
    assert len(values_of(sent_to)) == 67


def test_many_rows_of_several_tasks(spark: SparkSession, sent_to: TopicData) -> None:
    frame = spark.range(0, 25_000, 1, 3).select(
        col("id").cast("string").alias("value"), col("id").cast("string").alias("key")
    )
    save(frame, sent_to)
    records = records_of(sent_to)
    assert sorted(int(record.value or b"") for record in records) == list(range(25_000))
    assert all(record.partition == partition_of_key(record.key or b"", 3) for record in records[:100])


def test_write_says_where_rows_are(spark: SparkSession, sent_to: TopicData) -> None:
    frame = spark.range(0, 10, 1, 2).select(col("id").cast("string").alias("value"), lit(1).alias("partition"))
    options = {"kafka.bootstrap.servers": sent_to.bootstrap, "topic": sent_to.name}
    first = write(frame, **options)
    second = write(frame, **options)
    assert sum(one.records for one in first) == sum(one.records for one in second) == 10
    told = [offset for one in first + second for offset in range(one.base_offset, one.base_offset + one.records)]
    assert sorted(told) == [record.offset for record in records_of(sent_to)]
    assert {(one.topic, one.partition) for one in first + second} == {(sent_to.name, 1)}


# Errors.


def test_wrong_columns_are_reported_before_anything_runs(spark: SparkSession, sent_to: TopicData) -> None:
    number = spark.range(3)
    wrong = number.select(col("id").alias("value"))
    assert "ColumnError: column value must be binary or string, not bigint" in message(lambda: save(wrong, sent_to))
    assert "ColumnError: the column value is missing" in message(lambda: save(number, sent_to))
    text = number.select(col("id").cast("string").alias("value"))
    assert "cannot be overwritten: use mode append" in message(lambda: save(text, sent_to, "overwrite"))
    without = {"kafka.bootstrap.servers": sent_to.bootstrap}
    assert "no topic to write to: set the option topic" in message(
        lambda: text.write.format("ottla").options(**without).mode("append").save()
    )
    assert records_of(sent_to) == []


def test_rows_that_cannot_be_sent_fail_the_job(spark: SparkSession, sent_to: TopicData) -> None:
    text = spark.range(3).select(col("id").cast("string").alias("value"))
    told = message(lambda: save(text.withColumn("partition", lit(9)), sent_to))
    assert "partitions 0 to 2, not 9" in told
    options = {"kafka.bootstrap.servers": sent_to.bootstrap}
    nowhere = text.withColumn("topic", lit(None).cast("string"))
    told = message(lambda: nowhere.write.format("ottla").options(**options).mode("append").save())
    assert "have null as their topic" in told


# Streams.


def run_out(writer: DataStreamWriter) -> None:
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()


def stream_of(spark: SparkSession, data: TopicData, **options: str) -> DataFrame:
    usual = {"kafka.bootstrap.servers": data.bootstrap, "subscribe": data.name, "startingOffsets": "earliest"}
    return spark.readStream.format("ottla").options(**{**usual, **options}).load()


def test_a_stream_from_topic_to_topic(spark: SparkSession, broker: Peer, sent_to: TopicData, tmp_path: Path) -> None:
    source = TopicData(broker.bootstrap)
    source.send(range(5))
    results = tmp_path / "results"
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "topic": sent_to.name,
        "resultsPath": str(results),
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }

    def go_on() -> None:
        frame = stream_of(spark, source).select("key", "value")
        run_out(frame.writeStream.format("ottla").options(**options))

    go_on()
    source.send(range(5, 8))
    go_on()
    assert values_of(sent_to) == sorted(str(number) for number in range(8))
    assert [file.name for file in sorted(results.iterdir())] == ["batch-0000000000.jsonl", "batch-0000000001.jsonl"]
    told = list(read_results(results))
    assert sum(one.records for one in told) == 8
    assert {one.topic for one in told} == {sent_to.name}
    assert all(isinstance(one, WriteResult) for one in told)


def test_a_stream_with_wrong_columns_does_not_start(spark: SparkSession, sent_to: TopicData, tmp_path: Path) -> None:
    options = {
        "kafka.bootstrap.servers": sent_to.bootstrap,
        "topic": sent_to.name,
        "checkpointLocation": str(tmp_path),
    }
    wrong = stream_of(spark, sent_to).select(col("offset").alias("value"))

    def start() -> None:
        run_out(wrong.writeStream.format("ottla").options(**options))

    assert "column value must be binary or string, not bigint" in message(start)


def test_micro_batches_by_hand(spark: SparkSession, broker: Peer, sent_to: TopicData, tmp_path: Path) -> None:
    source = TopicData(broker.bootstrap)
    source.send(range(6))
    told: list[WriteResult] = []

    def each(frame: DataFrame, _: int) -> None:
        told.extend(write(frame.select("value"), topic=sent_to.name, **{"kafka.bootstrap.servers": broker.bootstrap}))

    frame = stream_of(spark, source, maxOffsetsPerTrigger="3")
    run_out(frame.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path)))
    assert values_of(sent_to) == sorted(str(number) for number in range(6))
    assert sum(one.records for one in told) == 6
