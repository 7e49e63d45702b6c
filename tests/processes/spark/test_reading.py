"""What a task reads of a partition: exactly its range, whatever the log holds there, or no longer holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.base.error_codes import ErrorCode
from ottla.client.administer import NewTopic
from ottla.client.errors import ClientError
from ottla.records import BatchOptions, encode_batch, encode_transaction_marker
from ottla.spark.columns import READ_TYPES, ReadColumns, read_schema
from ottla.spark.data_loss import DataLossError
from ottla.spark.ranges import OffsetRange
from ottla.spark.reading import read_range
from ottla.spark.worker_clients import CONSUMERS
from ottla.testing.broker import Broker
from ottla.wire.messages.fetch import AbortedTransaction
from support.clients.dialect import CODECS
from unit.client.consume.scripted_log import TOPIC, Partition, ScriptedLog, batch
from unit.client.test_cluster import run

ALL = ReadColumns.of(read_schema(include_headers=True))
OFFSETS = ReadColumns.of(StructType([StructField("offset", READ_TYPES["offset"])]))


@pytest.fixture(autouse=True)
def _closed_clients() -> Iterator[None]:
    yield
    CONSUMERS.close()


def settings_of(broker: Broker, **more: object) -> dict[str, str]:
    quick = {"reconnect.backoff.ms": "10", "retry.backoff.ms": "10"}
    named = {key.replace("_", "."): str(value) for key, value in more.items()}
    return {"bootstrap.servers": broker.bootstrap, **quick, **named}


def make(broker: Broker, topic: str, **configs: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, configs={key.replace("_", "."): of for key, of in configs.items()})])


def fill(broker: Broker, topic: str, count: int, *, batch_rows: int = 0, **settings: Any) -> None:
    """Values are their offsets; keys, headers and tombstones here and there."""
    with Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        step = batch_rows or count
        for first in range(0, count, step):
            rows = range(first, min(first + step, count))
            columns = {
                "value": [None if row % 7 == 3 else b"%d" % row for row in rows],
                "key": [None if row % 3 else b"k%d" % row for row in rows],
                "headers": [[("h", b"%d" % row), ("n", None)] if row % 5 == 0 else [] for row in rows],
                "timestamp": [1000 + row for row in rows],
            }
            producer.send_batch(topic, columns, partition=1).result(60)


def row_at(topic: str, offset: int) -> dict[str, Any]:
    headers = [{"key": "h", "value": b"%d" % offset}, {"key": "n", "value": None}]
    return {
        "key": None if offset % 3 else b"k%d" % offset,
        "value": None if offset % 7 == 3 else b"%d" % offset,
        "topic": topic,
        "partition": 1,
        "offset": offset,
        "timestamp": datetime.fromtimestamp((1000 + offset) / 1000, UTC),
        "timestampType": 0,
        "headers": headers if offset % 5 == 0 else None,
    }


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for one in batches:
        one.validate(full=True)
        assert one.num_rows
        rows += one.to_pylist()
    return rows


def offsets_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [row["offset"] for row in rows_of(batches)]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_what_was_written(broker: Broker, topic: str, codec: str) -> None:
    make(broker, topic)
    fill(broker, topic, 200, batch_rows=30, compression_type=codec)
    found = rows_of(read_range(settings_of(broker), OffsetRange(topic, 1, 0, 200), ALL, True))
    assert found == [row_at(topic, offset) for offset in range(200)]


def test_exactly_the_range(broker: Broker, topic: str) -> None:
    make(broker, topic)
    fill(broker, topic, 100, batch_rows=30)
    for start, until in [(0, 1), (29, 31), (30, 60), (5, 99), (99, 100), (40, 40), (50, 40)]:
        found = read_range(settings_of(broker), OffsetRange(topic, 1, start, until), OFFSETS, True)
        assert offsets_of(found) == list(range(start, until))


@pytest.mark.parametrize("name", READ_TYPES)
def test_one_column_alone(broker: Broker, topic: str, name: str) -> None:
    make(broker, topic)
    fill(broker, topic, 10)
    columns = ReadColumns.of(StructType([StructField(name, READ_TYPES[name])]))
    (one,) = read_range(settings_of(broker), OffsetRange(topic, 1, 0, 10), columns, True)
    assert one.schema == columns.arrow_schema
    assert one.to_pylist() == [{name: row_at(topic, offset)[name]} for offset in range(10)]


def test_columns_in_the_order_and_with_the_nullability_that_is_asked_for(broker: Broker, topic: str) -> None:
    make(broker, topic, message_timestamp_type="LogAppendTime")
    fill(broker, topic, 10)
    fields = [
        StructField("timestampType", IntegerType()),
        StructField("topic", StringType(), nullable=False),
        StructField("value", READ_TYPES["value"]),
        StructField("partition", IntegerType()),
    ]
    columns = ReadColumns.of(StructType(fields))
    (one,) = read_range(settings_of(broker), OffsetRange(topic, 1, 2, 4), columns, True)
    assert one.schema == columns.arrow_schema
    assert [tuple(row.values()) for row in one.to_pylist()] == [(1, topic, b"2", 1), (1, topic, None, 1)]


def test_many_batches_come_in_pieces(broker: Broker, topic: str) -> None:
    make(broker, topic)
    fill(broker, topic, 20_000, batch_rows=1000)
    settings = settings_of(broker, max_partition_fetch_bytes=50_000, queued_max_bytes=100_000)
    batches = list(read_range(settings, OffsetRange(topic, 1, 0, 20_000), OFFSETS, True))
    assert offsets_of(iter(batches)) == list(range(20_000))
    assert max(one.num_rows for one in batches) < 15_000


def test_a_client_serves_task_after_task(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(broker, topic)
    fill(broker, topic, 10)
    made: list[Consumer] = []

    def make_and_note(settings: Mapping[str, str]) -> Consumer:
        made.append(Consumer(settings))
        return made[-1]

    monkeypatch.setattr(CONSUMERS, "_make", make_and_note)
    for start in range(10):
        found = read_range(settings_of(broker), OffsetRange(topic, 1, start, start + 1), OFFSETS, True)
        assert offsets_of(found) == [start]
    assert len(made) == 1
    given_up = read_range(settings_of(broker), OffsetRange(topic, 1, 0, 10), OFFSETS, True)
    next(given_up)
    del given_up
    assert offsets_of(read_range(settings_of(broker), OffsetRange(topic, 1, 0, 10), OFFSETS, True)) == list(range(10))
    assert len(made) == 2


def test_a_range_may_be_bound_by_what_is_there(broker: Broker, topic: str) -> None:
    make(broker, topic)
    fill(broker, topic, 50, batch_rows=10)
    delete_before(broker, topic, 15)
    for start, until, expected in [(-2, -1, range(15, 50)), (-2, 20, range(15, 20)), (45, -1, range(45, 50))]:
        found = read_range(settings_of(broker), OffsetRange(topic, 1, start, until), OFFSETS, True)
        assert offsets_of(found) == list(expected)
    assert offsets_of(read_range(settings_of(broker), OffsetRange(topic, 0, -2, -1), OFFSETS, True)) == []


def test_a_broker_that_goes_away_and_comes_back(topic: str) -> None:
    with Broker({"log.retention.ms": "-1"}) as broker:
        make(broker, topic)
        fill(broker, topic, 20_000, batch_rows=1000)
        settings = settings_of(broker, max_partition_fetch_bytes=50_000, queued_max_bytes=50_000)
        found = read_range(settings, OffsetRange(topic, 1, 0, 20_000), OFFSETS, True)
        first = next(found)
        broker.kill()
        broker.start()
        assert offsets_of(iter([first, *found])) == list(range(20_000))


# Offsets without records.


def scripted_offsets(log: ScriptedLog, until: int, **more: object) -> list[int]:
    found: list[int] = []

    async def scenario() -> None:
        async with log.broker() as broker:
            settings: Any = settings_of(broker, default_api_timeout_ms=2000, **more)  # type: ignore[arg-type]
            reading = read_range(settings, OffsetRange(TOPIC, 0, 0, until), OFFSETS, True)
            found.extend(await asyncio.to_thread(offsets_of, reading))
            await asyncio.to_thread(CONSUMERS.close)

    run(scenario)
    return found


def marker(offset: int, *, committed: bool = True) -> bytearray:
    return encode_transaction_marker(
        producer_id=1, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=1, base_offset=offset
    )


def gap(first: int, count: int) -> bytearray:
    return encode_batch([], BatchOptions(base_offset=first, last_offset_delta=count - 1))


def test_the_end_is_reached_though_nothing_is_seen_there() -> None:
    log = ScriptedLog(Partition([batch(0, 5), marker(5), gap(6, 4)], end=10))
    assert scripted_offsets(log, 10) == [0, 1, 2, 3, 4]


def test_a_range_may_end_within_a_gap() -> None:
    log = ScriptedLog(Partition([batch(0, 5), batch(50, 5)], end=55))
    assert scripted_offsets(log, 20) == [0, 1, 2, 3, 4]


def test_a_range_without_any_record() -> None:
    log = ScriptedLog(Partition([gap(0, 4), marker(4), batch(5, 5)], end=10))
    assert scripted_offsets(log, 5) == []


@pytest.mark.parametrize(("level", "expected"), [("read_committed", [4, 5]), ("read_uncommitted", [0, 1, 2, 4, 5])])
def test_isolation(level: str, expected: list[int]) -> None:
    in_transaction = batch(0, 3, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log = ScriptedLog(
        Partition(
            [in_transaction, marker(3, committed=False), batch(4, 2)],
            end=6,
            aborted=[AbortedTransaction(producer_id=1, first_offset=0)],
        )
    )
    assert scripted_offsets(log, 6, isolation_level=level) == expected


def test_nothing_is_fetched_beyond_the_range() -> None:
    log = ScriptedLog(Partition([batch(offset, 5) for offset in range(0, 50, 5)], end=50, chunk=len(batch(0, 5)) + 20))
    assert scripted_offsets(log, 12) == list(range(12))
    asked = [one.fetch_offset for fetch in log.fetches for topic in fetch.topics for one in topic.partitions]
    assert max(asked) == 10


# Records that are gone.


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 1): offset})


def test_deleted_before_they_were_read(broker: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    make(broker, topic)
    fill(broker, topic, 100, batch_rows=10)
    delete_before(broker, topic, 35)
    words = f"offsets 20 to 34 of partition {topic}-1 were deleted before they were read.*failOnDataLoss to false"
    with pytest.raises(DataLossError, match=words):
        list(read_range(settings_of(broker), OffsetRange(topic, 1, 20, 50), OFFSETS, True))
    caplog.set_level(logging.WARNING, "ottla.spark")
    found = read_range(settings_of(broker), OffsetRange(topic, 1, 20, 50), OFFSETS, False)
    assert offsets_of(found) == list(range(35, 50))
    assert [record.levelname for record in caplog.records if "offsets 20 to 34" in record.message] == ["WARNING"]
    assert offsets_of(read_range(settings_of(broker), OffsetRange(topic, 1, 20, 30), OFFSETS, False)) == []


@pytest.mark.parametrize("fail", [True, False])
def test_deleted_in_the_middle(broker: Broker, topic: str, fail: bool) -> None:
    make(broker, topic)
    fill(broker, topic, 20_000, batch_rows=500)
    settings = settings_of(broker, max_partition_fetch_bytes=20_000, queued_max_bytes=20_000)
    reading = read_range(settings, OffsetRange(topic, 1, 0, 20_000), OFFSETS, fail)
    first = next(reading)
    delete_before(broker, topic, 19_990)
    if fail:
        with pytest.raises(DataLossError, match=r"offsets \d+ to 19989 of partition"):
            list(reading)
        return
    found = offsets_of(iter([first, *reading]))
    assert found[-10:] == list(range(19_990, 20_000))
    assert all(before < after for before, after in pairwise(found))
    assert len(found) < 20_000


@pytest.mark.parametrize("fail", [True, False])
def test_created_again_in_the_middle(broker: Broker, topic: str, fail: bool) -> None:
    make(broker, topic)
    fill(broker, topic, 4000, batch_rows=200)
    settings = settings_of(broker, max_partition_fetch_bytes=5000, queued_max_bytes=5000)
    reading = read_range(settings, OffsetRange(topic, 1, 0, 4000), OFFSETS, fail)
    first = next(reading)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([topic])
    make(broker, topic)
    fill(broker, topic, 4000, batch_rows=200)
    if fail:
        with pytest.raises(DataLossError, match=r"offsets \d+ to 3999 of partition .* were deleted with their topic"):
            list(reading)
        return
    found = offsets_of(iter([first, *reading]))
    assert found == list(range(len(found)))
    assert len(found) < 4000


@pytest.mark.parametrize("start", [0, 5, 9])
def test_a_log_that_is_shorter_than_it_was(broker: Broker, topic: str, start: int) -> None:
    make(broker, topic)
    fill(broker, topic, 5)
    settings = settings_of(broker, default_api_timeout_ms=1200)
    span = OffsetRange(topic, 1, start, 12)
    first = max(start, 5)
    with pytest.raises(
        DataLossError, match=f"ends at offset 5, but offsets {first} to 11 should be read: it was truncated"
    ):
        list(read_range(settings, span, OFFSETS, True))
    assert offsets_of(read_range(settings, span, OFFSETS, False)) == list(range(start, 5))


@pytest.mark.parametrize(("partition", "why"), [(0, "does not exist"), (7, "has no partition 7: it has 2")])
@pytest.mark.parametrize("timeout_ms", [900, 60_000], ids=["told by a poll", "found by looking at the end"])
def test_a_topic_or_partition_that_is_gone(
    broker: Broker, topic: str, partition: int, why: str, timeout_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if timeout_ms == 60_000:
        monkeypatch.setattr("ottla.spark.reading._SHORT_LOG_PATIENCE_S", 0.5)
    if partition:
        make(broker, topic)
    settings = settings_of(broker, default_api_timeout_ms=timeout_ms)
    span = OffsetRange(topic, partition, 3, 12)
    words = f"partition {topic}-{partition} no longer exists; offsets 3 to 11 are lost: .*{why}"
    with pytest.raises(DataLossError, match=words):
        list(read_range(settings, span, OFFSETS, True))
    assert offsets_of(read_range(settings, span, OFFSETS, False)) == []


def test_a_broker_that_answers_and_gives_nothing_is_reported() -> None:
    log = ScriptedLog(Partition([batch(0, 5)], end=10, errors=[ErrorCode.NONE]))
    with pytest.raises(
        ClientError, match=r"no records of partition events-0 arrived from offset 5 within 2 s.*pollTimeout"
    ):
        scripted_offsets(log, 10)
