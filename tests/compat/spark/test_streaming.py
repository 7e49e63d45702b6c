"""Streaming queries: every record in one row, over restarts, and in batches as large as was asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from compat.spark.sides import Side, everywhere
from spark_program import QueryFailedError
from support.clients.expectations import START_MS, numbered

EARLIEST = {"startingOffsets": "earliest"}


@everywhere
def test_a_query_goes_on_where_it_was(side: Side, topic: str, tmp_path: Path) -> None:
    side.create(topic, 2)
    query = {"subscribe": topic, **EARLIEST}
    side.produce(topic, *numbered(5, 0), *numbered(3, 1))
    first = side.stream(query, tmp_path / "checkpoint")
    assert first.rows == side.seen(topic, 8, (0, 1))
    assert first.end == {topic: {"0": 5, "1": 3}}
    side.produce(topic, *numbered(2, 0, 5))
    second = side.stream(query, tmp_path / "checkpoint")
    assert [(row.partition, row.value) for row in second.rows] == [(0, b"value 5"), (0, b"value 6")]
    assert second.end == {topic: {"0": 7, "1": 3}}
    assert side.stream(query, tmp_path / "checkpoint").rows == []


def test_where_a_query_begins(side: Side, topic: str, tmp_path: Path) -> None:
    side.create(topic, 2)
    side.produce(topic, *numbered(6, 0), *numbered(6, 1))
    latest = {"subscribe": topic}
    assert side.stream(latest, tmp_path / "latest").rows == []
    offsets = {"assign": json.dumps({topic: [0, 1]}), "startingOffsets": json.dumps({topic: {"0": 4, "1": -1}})}
    assert [(row.partition, row.offset) for row in side.stream(offsets, tmp_path / "offsets").rows] == [(0, 4), (0, 5)]
    by_time = {"subscribe": topic, "startingTimestamp": str(START_MS + 5)}
    assert [(row.partition, row.offset) for row in side.stream(by_time, tmp_path / "time").rows] == [(0, 5), (1, 5)]
    # From here on, what a checkpoint says counts, not where the query is told to begin.
    side.produce(topic, *numbered(1, 1, 6))
    assert [(row.partition, row.offset) for row in side.stream(offsets, tmp_path / "offsets").rows] == [(1, 6)]


@everywhere
def test_batches_of_a_limited_size(side: Side, topic: str, tmp_path: Path) -> None:
    side.create(topic, 2)
    side.produce(topic, *numbered(30, 0), *numbered(10, 1))
    streamed = side.stream({"subscribe": topic, **EARLIEST, "maxOffsetsPerTrigger": "16"}, tmp_path / "checkpoint")
    assert streamed.rows == side.seen(topic, 40, (0, 1))
    assert streamed.sizes == [16, 16, 8]
    # Each partition has its share of a batch.
    assert sorted(row.partition for task in streamed.batches[0] for row in task) == [0] * 12 + [1] * 4


def test_tasks_of_a_limited_size(side: Side, topic: str, tmp_path: Path) -> None:
    side.create(topic, 2)
    side.produce(topic, *numbered(30, 0), *numbered(10, 1))
    streamed = side.stream({"subscribe": topic, **EARLIEST, "maxRecordsPerPartition": "7"}, tmp_path / "checkpoint")
    assert streamed.rows == side.seen(topic, 40, (0, 1))
    assert len(streamed.batches[0]) == 7
    assert max(map(len, streamed.batches[0])) <= 7


@everywhere
def test_topics_and_partitions_that_come_later(side: Side, topic: str, tmp_path: Path) -> None:
    query = {"subscribePattern": f"{topic}-.*", "includeHeaders": "true"}
    side.create(f"{topic}-a")
    side.produce(f"{topic}-a", *numbered(2))
    assert side.stream(query, tmp_path / "checkpoint").rows == []
    with side.confluent.admin() as admin:
        admin.create_partitions(f"{topic}-a", 2)
    side.create(f"{topic}-b")
    side.produce(f"{topic}-a", *numbered(1, 0, 2), *numbered(2, 1))
    side.produce(f"{topic}-b", *numbered(3))
    streamed = side.stream(query, tmp_path / "checkpoint")
    # What is new is read from its beginning, though the query began at the end of what was there.
    assert [(row.topic, row.partition, row.offset) for row in streamed.rows] == [
        (f"{topic}-a", 0, 2),
        (f"{topic}-a", 1, 0),
        (f"{topic}-a", 1, 1),
        (f"{topic}-b", 0, 0),
        (f"{topic}-b", 0, 1),
        (f"{topic}-b", 0, 2),
    ]
    assert streamed.end == {f"{topic}-a": {"0": 3, "1": 2}, f"{topic}-b": {"0": 3}}


def test_records_that_are_gone(side: Side, topic: str, tmp_path: Path) -> None:
    side.create(topic)
    query = {"subscribe": topic, **EARLIEST}
    lenient = {**query, "failOnDataLoss": "false"}
    side.produce(topic, *numbered(2))
    assert side.stream(query, tmp_path / "strict").sizes == [2]
    shutil.copytree(tmp_path / "strict", tmp_path / "lenient")
    side.produce(topic, *numbered(8, 0, 2))
    with side.confluent.admin() as admin:
        admin.delete_records(topic, 0, 6)
    with pytest.raises(QueryFailedError):
        side.stream(query, tmp_path / "strict")
    assert [row.offset for row in side.stream(lenient, tmp_path / "lenient").rows] == [6, 7, 8, 9]
