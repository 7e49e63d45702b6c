"""Topics as streams and as tables: columns, keys that are null, topics that are not compacted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.client.administer import Admin, NewTopic
from ottla.client.produce import Producer
from ottla.spark.streams import NotCompactedWarning, stream, table
from ottla.spark.streams.frames import StreamError
from support.clients.peers import Peer
from support.topic_data import WAIT_S


@pytest.fixture
def compacted(broker: Peer, topic: str) -> str:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, configs={"cleanup.policy": "compact"})])
    return topic


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompactedWarning)
        yield


def options(broker: Peer) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap}


def send(broker: Peer, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for key, value in records:
            producer.send(topic, value, key=key)
        producer.flush()


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as raised:
        frame.collect()
    return str(raised.value)


def test_columns_are_decoded_by_expressions(spark: SparkSession, broker: Peer, topic: str) -> None:
    send(broker, topic, (b"a", b"1"), (None, b"2"))
    frame = stream(
        spark,
        topic,
        options(broker),
        key="CAST(key AS STRING)",
        value="CAST(CAST(value AS STRING) AS INT)",
        streaming=False,
    )
    assert frame.columns == ["key", "value", "timestamp", "topic", "partition", "offset"]
    assert [(row.key, row.value, row.topic) for row in frame.orderBy("value").collect()] == [
        ("a", 1, topic),
        (None, 2, topic),
    ]
    headed = stream(spark, topic, {**options(broker), "includeHeaders": "true"})
    assert (headed.columns[-1], headed.isStreaming) == ("headers", True)


def test_a_table_skips_and_counts_records_without_a_key(spark: SparkSession, broker: Peer, topic: str) -> None:
    send(broker, topic, (b"a", b"1"), (None, b"2"), (b"a", None))
    with pytest.warns(NotCompactedWarning, match=rf"table {topic}: the topic has cleanup\.policy=delete"):
        frame = table(spark, topic, options(broker))
    with pytest.warns(NotCompactedWarning):  # the same topic as another table, in one query
        other = table(spark, topic, options(broker), key="IF(CAST(key AS STRING) = 'a', NULL, key)")
    query = frame.union(other).writeStream.format("noop").trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    metrics = query.recentProgress[0].observedMetrics
    assert metrics[f"ottla.table.{topic}"].skipped_null_keys == 1
    assert metrics[f"ottla.table.{topic}.2"].skipped_null_keys == 3


def test_a_table_of_a_topic_that_does_not_exist(spark: SparkSession, broker: Peer, topic: str) -> None:
    with pytest.raises(StreamError, match=f"create {topic}-typo --config cleanup.policy=compact"):
        table(spark, f"{topic}-typo", options(broker))


@pytest.mark.filterwarnings("ignore::ottla.spark.streams.NotCompactedWarning")
def test_a_table_fails_at_records_without_a_key_if_told_so(spark: SparkSession, broker: Peer, topic: str) -> None:
    send(broker, topic, (b"a", b"1"), (None, b"2"))
    frame = table(spark, topic, options(broker), null_keys="fail", streaming=False)
    assert f"table {topic}: the record at offset 1 of partition 0 has no key" in failure(frame)


@pytest.mark.usefixtures("quiet")
def test_tombstones_of_a_compacted_topic_are_rows(spark: SparkSession, broker: Peer, compacted: str) -> None:
    send(broker, compacted, (b"a", b"1"), (b"a", None))
    rows = table(spark, compacted, options(broker), value="CAST(value AS STRING)", streaming=False).collect()
    assert [(bytes(row.key), row.value) for row in rows] == [(b"a", "1"), (b"a", None)]


def test_wrong_arguments(spark: SparkSession, broker: Peer) -> None:
    with pytest.raises(StreamError, match="option subscribe cannot be set: pass the topics"):
        stream(spark, "a", {**options(broker), "subscribe": "b"})
    with pytest.raises(StreamError, match="a table has one topic, not 'a,b'"):
        table(spark, "a,b", options(broker))
    with pytest.raises(StreamError, match="null_keys must be 'skip' or 'fail', not 'drop'"):
        table(spark, "a", options(broker), null_keys="drop")  # type: ignore[arg-type]
