"""What a writing task does, without Spark: rows from Arrow columns into topics, and what it tells of them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from ottla import Admin, Consumer, ConsumerRecord, TopicPartition
from ottla.base.config import ConfigError
from ottla.client.administer import NewTopic
from ottla.client.errors import ClientError, OttlaError
from ottla.client.produce.partitioners import partition_of_key
from ottla.spark.columns import HEADERS, ColumnError
from ottla.spark.options import WriteOptions
from ottla.spark.sink import OttlaArrowWriter, OttlaStreamArrowWriter, WriteResult, Written, read_results
from ottla.spark.worker_clients import PRODUCERS
from ottla.testing.broker import Broker

PARTITIONS = 3


@pytest.fixture(autouse=True)
def _closed_clients() -> Iterator[None]:
    yield
    PRODUCERS.close()


@pytest.fixture
def made(broker: Broker, topic: str) -> str:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    return topic


def options_of(broker: Broker, **options: str) -> WriteOptions:
    return WriteOptions.parse({"kafka.bootstrap.servers": broker.bootstrap, **options})


def schema_of(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


TEXT = schema_of(value=StringType())


def records_of(broker: Broker, topic: str) -> list[ConsumerRecord]:
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0, until=ends[partition])
        return sorted(consumer)


def written(writer: OttlaArrowWriter | OttlaStreamArrowWriter, *batches: dict[str, Any]) -> list[WriteResult]:
    travelled = pickle.loads(pickle.dumps(writer))
    message = travelled.write(pa.RecordBatch.from_pydict(batch) for batch in batches)
    assert isinstance(message, Written)
    return pickle.loads(pickle.dumps(message)).results  # type: ignore[no-any-return]


def test_rows_are_records(broker: Broker, made: str) -> None:
    schema = schema_of(key=StringType(), value=StringType(), headers=HEADERS, partition=IntegerType())
    pair = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, []]
    columns = {
        "key": ["k", "k", None],
        "value": ["a", None, ""],
        "headers": pa.array(headers, pair),
        "partition": pa.array([2, None, 0], pa.int32()),
    }
    results = written(OttlaArrowWriter(options_of(broker, topic=made), schema, False), columns)
    found = {(one.partition, one.key, one.value, one.headers) for one in records_of(broker, made)}
    by_key = partition_of_key(b"k", PARTITIONS)
    assert found == {(2, b"k", b"a", (("h", b"1"), ("n", None))), (by_key, b"k", None, ()), (0, None, b"", ())}
    assert sum(one.records for one in results) == 3
    assert {one.partition for one in results} == {2, by_key, 0}


def test_results_say_where_rows_are(broker: Broker, made: str) -> None:
    writer = OttlaArrowWriter(options_of(broker), schema_of(value=StringType(), topic=StringType()), False)
    other = f"{made}-other"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(other, PARTITIONS, 1)])
    batches = [{"value": ["a", "b", "c"], "topic": [made, other, made]}, {"value": ["d"], "topic": [made]}]
    for _ in range(2):
        results = written(writer, *batches)
    assert sum(one.records for one in results if one.topic == made) == 3
    assert sum(one.records for one in results if one.topic == other) == 1
    there = {(one.partition, one.offset) for one in records_of(broker, made)}
    told = {
        (one.partition, offset)
        for one in results
        if one.topic == made
        for offset in range(one.base_offset, one.base_offset + one.records)
    }
    assert told <= there
    assert len(there) == 6
    assert written(writer) == []


def test_consecutive_results_are_joined(broker: Broker, made: str) -> None:
    schema = schema_of(value=StringType(), partition=IntegerType())
    writer = OttlaArrowWriter(options_of(broker, topic=made), schema, False)
    batches = [{"value": ["x" * 300_000] * 10, "partition": pa.array([1, 2] * 5, pa.int32())}] * 3  # one record each
    assert written(writer, *batches) == [WriteResult(made, 1, 0, 15), WriteResult(made, 2, 0, 15)]


def test_a_producer_serves_task_after_task(broker: Broker, made: str) -> None:
    writer = OttlaArrowWriter(options_of(broker, topic=made), TEXT, False)
    written(writer, {"value": ["a"]})
    settings = options_of(broker, topic=made).client_settings
    with PRODUCERS.lent(settings) as kept:
        pass
    written(writer, {"value": ["b"]})
    with PRODUCERS.lent(settings) as again:
        assert again is kept
        assert again.config.enable_idempotence
        assert again.config.acks == -1


def test_unacknowledged_rows_fail_the_task(broker: Broker, made: str) -> None:
    schema = schema_of(value=StringType(), partition=IntegerType())
    writer = OttlaArrowWriter(options_of(broker, topic=made), schema, False)
    with pytest.raises(ClientError, match="partitions 0 to 2, not 7"):
        written(writer, {"value": ["a"], "partition": pa.array([7], pa.int32())})
    too_large = OttlaArrowWriter(options_of(broker, topic=made, **{"kafka.max.request.size": "5000000"}), TEXT, False)
    with pytest.raises(OttlaError, match=r"message\.max\.bytes|too large|larger"):
        written(too_large, {"value": ["fine", "x" * 3_000_000]})


def test_a_topic_that_is_not_there_fails_the_task(topic: str) -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        options = options_of(broker, topic=topic, **{"kafka.max.block.ms": "500"})
        with pytest.raises(ClientError, match=f"topic '{topic}' does not exist"):
            written(OttlaArrowWriter(options, TEXT, False), {"value": ["a"]})


def test_invalid_queries_are_refused_before_anything_runs(broker: Broker) -> None:
    with pytest.raises(ConfigError, match="a topic cannot be overwritten: use mode append"):
        OttlaArrowWriter(options_of(broker, topic="t"), TEXT, True)
    with pytest.raises(ColumnError, match="column value must be binary or string, not bigint"):
        OttlaStreamArrowWriter(options_of(broker, topic="t"), schema_of(value=LongType()), False)
    with pytest.raises(ConfigError, match="'hdfs://there' is not a local directory of the driver"):
        OttlaArrowWriter(options_of(broker, topic="t", resultsPath="hdfs://there"), TEXT, False)


def test_results_are_left_as_lines_of_json(broker: Broker, tmp_path: Path) -> None:
    messages: list[WriterCommitMessage | None] = [
        Written([WriteResult("t", 1, 5, 2)]),
        None,
        Written([WriteResult("t", 0, 9, 1)]),
    ]
    folder = tmp_path / "not" / "there yet"
    stream = OttlaStreamArrowWriter(options_of(broker, topic="t", resultsPath=folder.as_uri()), TEXT, False)
    stream.commit(messages, 7)
    assert [json.loads(line) for line in (folder / "batch-0000000007.jsonl").read_text().splitlines()] == [
        {"topic": "t", "partition": 0, "base_offset": 9, "records": 1},
        {"topic": "t", "partition": 1, "base_offset": 5, "records": 2},
    ]
    stream.commit([Written([WriteResult("t", 0, 12, 3)])], 7)  # run again
    assert list(read_results(folder)) == [WriteResult("t", 0, 12, 3)]
    batch = OttlaArrowWriter(options_of(broker, topic="t", resultsPath=str(folder)), TEXT, False)
    batch.commit(messages)
    batch.commit([])
    assert len(list(folder.iterdir())) == 3
    assert len(list(read_results(folder))) == 3
    OttlaArrowWriter(options_of(broker, topic="t"), TEXT, False).commit(messages)  # nobody asked
