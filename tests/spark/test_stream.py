"""Streams: nothing is read twice, nothing is left out, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, window
from pyspark.sql.streaming.query import StreamingQuery

from ottla.spark.offsets import from_json, ids_from_json
from ottla.testing.broker import Broker
from support.clients.peers import Peer
from support.topic_data import WAIT_S, TopicData
from support.waiting import wait_until

T0_MS = 1_700_000_000_000


class Stream:
    """A query over topics, with its checkpoint: each run goes on where the last one ended. Values by batch."""

    def __init__(self, spark: SparkSession, checkpoint: Path, bootstrap: str, **options: object) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "100",
            **options,
        }
        self.batches: dict[int, list[str]] = {}
        self.running: StreamingQuery | None = None

    @property
    def values(self) -> list[str]:
        return [value for batch in self.batches.values() for value in batch]

    def frame(self, **options: object) -> DataFrame:
        given = {**self._options, **options}
        texts = {name: json.dumps(one) if isinstance(one, dict) else str(one) for name, one in given.items()}
        return self._spark.readStream.format("ottla").options(**texts).load()

    def start(self, *, available_now: bool = False, **options: object) -> StreamingQuery:
        def keep(batch: DataFrame, batch_id: int) -> None:
            rows = batch.selectExpr("cast(value as string) as value").collect()
            self.batches[batch_id] = sorted(row.value for row in rows)

        writer = self.frame(**options).writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
        self.running = writer.start()
        return self.running

    def run(self, **options: object) -> StreamingQuery:
        """Reads what is there, and ends."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(WAIT_S)
        return query

    def wait_for(self, count: int) -> None:
        running = self.running
        assert running is not None

        def all_came() -> bool:
            assert running.exception() is None
            return len(self.values) >= count

        wait_until(all_came, f"not all of {count} rows came", WAIT_S)

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()


StreamMaker = Callable[..., Stream]


@pytest.fixture
def stream_of(spark: SparkSession, broker: Peer, tmp_path: Path) -> Iterator[StreamMaker]:
    made: list[Stream] = []

    def make(bootstrap: str = broker.bootstrap, **options: object) -> Stream:
        made.append(Stream(spark, tmp_path / f"checkpoint-{len(made)}", bootstrap, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def data(broker: Peer) -> TopicData:
    return TopicData(broker.bootstrap, partitions=2)


def failure(what: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        what()
    return str(caught.value)


# Going on.


def test_available_now_reads_in_limited_batches_and_goes_on_from_its_checkpoint(
    data: TopicData, stream_of: StreamMaker
) -> None:
    data.send(range(9))
    data.send(["x", "y", "z"], partition=1)
    stream = stream_of(subscribe=data.name, maxOffsetsPerTrigger=4, commitGroup=f"{data.name}-query")
    stream.run()
    assert [len(batch) for batch in stream.batches.values()] == [4, 4, 4]
    assert sorted(stream.values) == sorted([*map(str, range(9)), "x", "y", "z"])
    assert data.committed(f"{data.name}-query") == {0: 9, 1: 3}

    data.send(["later"], partition=1)
    assert data.committed(f"{data.name}-query") == {0: 9, 1: 3}  # a lag of one
    query = stream.run()
    assert stream.batches[3] == ["later"]
    assert len(stream.values) == 13
    assert data.committed(f"{data.name}-query") == {0: 9, 1: 4}

    progress = query.recentProgress[0].sources[0]
    end = json.loads(progress.endOffset)
    assert ids_from_json(end).keys() == {data.name}
    assert from_json(end) == {(data.name, 0): 9, (data.name, 1): 4}
    assert json.loads(progress.latestOffset) == {data.name: {"0": 9, "1": 4}}


def test_stopping_and_going_on_while_records_come_and_the_topic_grows(data: TopicData, stream_of: StreamMaker) -> None:
    stream = stream_of(subscribe=data.name)
    data.send(range(3))
    stream.start()
    stream.wait_for(3)
    data.send(range(3, 6), partition=1)
    stream.wait_for(6)
    stream.stop()

    data.send(range(6, 9))
    data.grow(3)
    data.send(range(9, 12), partition=2)
    stream.start()
    stream.wait_for(12)
    data.grow(4)
    data.send(range(12, 15), partition=3)
    stream.wait_for(15)
    stream.stop()
    assert sorted(stream.values, key=int) == [str(number) for number in range(15)]


def test_two_queries_at_once_read_everything_each(data: TopicData, stream_of: StreamMaker) -> None:
    data.send(["before"])
    one = stream_of(subscribe=data.name)
    other = stream_of(subscribePattern=f"^{data.name}$", startingOffsets="latest", minPartitions=4)
    for stream in (one, other):
        stream.start().processAllAvailable()
    data.send(range(10))
    data.send(range(10, 20), partition=1)
    after = sorted(map(str, range(20)))
    for stream, expected in ((one, [*after, "before"]), (other, after)):
        stream.wait_for(len(expected))
        stream.stop()
        assert sorted(stream.values) == expected


def test_a_stream_begins_at_its_starting_offsets(data: TopicData, stream_of: StreamMaker) -> None:
    data.send(["a"], timestamp_ms=T0_MS)
    data.send(["b", "c"], timestamp_ms=T0_MS + 1000)
    by_offset = stream_of(assign={data.name: [0]}, startingOffsets={data.name: {"0": 2}})
    by_offset.run()
    assert by_offset.values == ["c"]
    by_time = stream_of(subscribe=data.name, startingTimestamp=T0_MS + 500, startingOffsetsByTimestampStrategy="latest")
    by_time.run()
    assert by_time.values == ["b", "c"]


def test_records_that_come_too_late_are_left_out_of_windows(
    data: TopicData, stream_of: StreamMaker, tmp_path: Path
) -> None:
    # 60 moves the watermark to 50. It closes windows in the next batch, and turns late records away in the one after.
    for seconds in (0, 60, 61, 1, 120):
        data.send([seconds], timestamp_ms=T0_MS + seconds * 1000)
    frame = stream_of(subscribe=data.name, maxOffsetsPerTrigger=1).frame()
    counts: dict[int, int] = {}

    def keep(batch: DataFrame, _: int) -> None:
        for row in batch.selectExpr("unix_millis(window.start) as start", "count").collect():
            counts[(row.start - T0_MS) // 1000] = row["count"]

    windows = frame.withWatermark("timestamp", "10 seconds").groupBy(window(col("timestamp"), "10 seconds")).count()
    query = (
        windows.writeStream.outputMode("append")
        .option("checkpointLocation", str(tmp_path / "windows"))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    assert counts == {0: 1, 60: 2}


# What is gone.


def test_records_that_were_deleted_before_they_were_read(data: TopicData, stream_of: StreamMaker) -> None:
    data.send(range(2))
    stream = stream_of(subscribe=data.name)
    stream.run()
    data.send(range(2, 8))
    data.delete_before(5)
    told = failure(stream.run)
    assert f"offsets 2 to 4 of partition {data.name}-0 were deleted before they were read" in told
    assert stream.values == ["0", "1"]
    stream.run(failOnDataLoss="false")
    assert stream.values == ["0", "1", "5", "6", "7"]


def test_a_topic_that_was_created_again(data: TopicData, stream_of: StreamMaker) -> None:
    """With fewer partitions than before."""
    data.grow(3)
    data.send(range(4))
    data.send([4], partition=2)
    stream = stream_of(subscribe=data.name)
    stream.run()
    data.delete()
    data.create(2)
    data.send(["new"])
    data.send(["other"], partition=1)
    told = failure(stream.run)
    assert f"topic {data.name} was deleted and created again; unread records of the old topic are lost" in told
    stream.run(failOnDataLoss="false")
    data.send(["newer"])
    stream.run(failOnDataLoss="false")
    assert sorted(stream.values) == sorted([*map(str, range(5)), "new", "other", "newer"])


# What is wrong.


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "nowhere-to-be-seen", "fetchOffset.numRetries": 1}, "topic 'nowhere-to-be-seen' does not exist"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "a streaming query has no end"),
        ({"subscribe": "t", "maxOffsetPerTrigger": 5}, "did you mean maxOffsetsPerTrigger?"),
    ],
)
def test_what_is_wrong_is_reported_by_the_query(stream_of: StreamMaker, options: dict[str, object], told: str) -> None:
    assert told in failure(lambda: stream_of(**options).run())


# A broker that goes away.


def test_a_broker_that_goes_away(stream_of: StreamMaker) -> None:
    """For a moment, which the query waits for; then for good, which ends it. It goes on from its checkpoint."""
    with Broker() as broker:
        data = TopicData(broker.bootstrap)
        stream = stream_of(broker.bootstrap, subscribe=data.name)
        patient: dict[str, Any] = {"kafka.default.api.timeout.ms": 30_000}
        data.send(range(3))
        stream.start(**patient)
        stream.wait_for(3)
        broker.restart()
        data.send(range(3, 6))
        stream.wait_for(6)
        stream.stop()

        hasty: dict[str, Any] = {"kafka.default.api.timeout.ms": 500, "kafka.request.timeout.ms": 500}
        hasty["fetchOffset.numRetries"] = 1
        query = stream.start(**hasty)
        data.send(range(6, 9))
        stream.wait_for(9)
        broker.stop()
        told = failure(lambda: query.awaitTermination(WAIT_S))
        assert f"127.0.0.1:{broker.port}" in told

        broker.start()
        data.send(range(9, 12))
        stream.run(**patient)
        assert sorted(stream.values, key=int) == [str(number) for number in range(12)]


def test_a_query_tells_a_topic_from_one_that_had_its_name_before(data: TopicData, stream_of: StreamMaker) -> None:
    data.send(range(6))
    stream = stream_of(subscribe=data.name)
    stream.run()
    data.delete()
    data.create(2)
    data.send(range(12))
    assert "was deleted and created again" in failure(stream.run)
    assert stream.values == [str(number) for number in range(6)]
