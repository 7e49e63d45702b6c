"""Batch queries: the rows are the records that librdkafka sees."""

from __future__ import annotations

import json

import pytest

from compat.spark.both_connectors import Row
from compat.spark.sides import Side, everywhere
from spark_program import QueryFailedError
from support.clients.dialect import CODECS, LOG_APPEND_TIME, ProducerSettings, Record
from support.clients.expectations import START_MS, VARIED, numbered
from support.waiting import wait_until


def values(rows: list[Row]) -> list[bytes | None]:
    return [row.value for row in rows]


def numbers(rows: list[Row]) -> list[tuple[int, int]]:
    """Partition and offset."""
    return [(row.partition, row.offset) for row in rows]


@everywhere
def test_all_forms_of_records_in_all_codecs(side: Side, topic: str) -> None:
    topics = [side.create(f"{topic}-{codec}") for codec in CODECS]
    for name, codec in zip(topics, CODECS, strict=True):
        side.confluent.produce(name, VARIED, ProducerSettings(codec))
    rows = side.read({"subscribe": ",".join(topics), "includeHeaders": "true"})
    assert rows == sorted(row for name in topics for row in side.seen(name, len(VARIED), headers=True))


def test_columns(side: Side, topic: str) -> None:
    side.create(topic)
    expected = [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "integer"),
        ("offset", "long"),
        ("timestamp", "timestamp"),
        ("timestampType", "integer"),
    ]
    plain = side.schema({"subscribe": topic})["fields"]
    assert [(field["name"], field["type"]) for field in plain] == expected
    assert all(field["nullable"] for field in plain)
    *others, headers = side.schema({"subscribe": topic, "includeHeaders": "true"})["fields"]
    assert others == plain
    assert (headers["name"], headers["type"]["type"]) == ("headers", "array")
    parts = headers["type"]["elementType"]["fields"]
    assert [(part["name"], part["type"]) for part in parts] == [("key", "string"), ("value", "binary")]


def test_some_columns(side: Side, topic: str) -> None:
    side.create(topic, 2)
    side.produce(topic, *numbered(5, 0), *numbered(3, 1))
    query = {"subscribe": topic}
    assert side.count(query) == 8
    assert sorted(row["offset"] for row in side.read_columns(query, "offset")) == [0, 0, 1, 1, 2, 2, 3, 4]
    cells = side.read_columns(query, "value", "timestamp")
    assert sorted((bytes.fromhex(row["value"]), row["timestamp"]) for row in cells) == sorted(
        (row.value, row.timestamp_us) for row in side.seen(topic, 8, (0, 1))
    )


def test_between_offsets(side: Side, topic: str) -> None:
    side.create(topic, 3)
    side.produce(topic, *numbered(10, 0), *numbered(10, 1), *numbered(10, 2))
    rows = side.read(
        {
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: {"0": 4, "1": -2, "2": 10}}),
            "endingOffsets": json.dumps({topic: {"0": 7, "1": 2, "2": -1}}),
        }
    )
    assert numbers(rows) == [(0, 4), (0, 5), (0, 6), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": START_MS + 3, "endingTimestamp": START_MS + 5}, [3, 4]),
        ({"startingTimestamp": START_MS + 9}, [9]),
        ({"endingTimestamp": START_MS + 2}, [0, 1]),
        ({"endingTimestamp": START_MS + 100, "startingTimestamp": START_MS + 8}, [8, 9]),
        ({"startingTimestamp": START_MS + 100, "startingOffsetsByTimestampStrategy": "latest"}, []),
    ],
)
def test_between_times(side: Side, topic: str, options: dict[str, object], expected: list[int]) -> None:
    side.create(topic)
    side.produce(topic, *numbered(10))
    rows = side.read({"subscribe": topic, **{name: str(value) for name, value in options.items()}})
    assert [row.offset for row in rows] == expected


@everywhere
def test_between_times_of_each_partition(side: Side, topic: str) -> None:
    side.create(topic, 2)
    side.produce(topic, *numbered(10, 0), *numbered(10, 1))
    rows = side.read(
        {
            "assign": json.dumps({topic: [0, 1]}),
            "startingOffsetsByTimestamp": json.dumps({topic: {"0": START_MS + 7, "1": START_MS}}),
            "endingOffsetsByTimestamp": json.dumps({topic: {"0": START_MS + 9, "1": START_MS + 1}}),
        }
    )
    assert numbers(rows) == [(0, 7), (0, 8), (1, 0)]


def test_a_time_after_all_records_is_refused(side: Side, topic: str) -> None:
    side.create(topic)
    side.produce(topic, *numbered(3))
    with pytest.raises(QueryFailedError, match=r"offset|no record"):
        side.read({"subscribe": topic, "startingTimestamp": str(START_MS + 100)})


@everywhere
def test_topics_are_chosen_by_pattern_and_partitions_by_name(side: Side, topic: str) -> None:
    for suffix in ("a", "b", "other"):
        side.create(f"{topic}-{suffix}", 2)
        side.produce(f"{topic}-{suffix}", *numbered(1, 0), *numbered(2, 1))
    rows = side.read({"subscribePattern": f"{topic}-[ab]"})
    assert [(row.topic, row.partition, row.offset) for row in rows] == [
        (f"{topic}-{suffix}", *position) for suffix in "ab" for position in ((0, 0), (1, 0), (1, 1))
    ]
    rows = side.read({"assign": json.dumps({f"{topic}-a": [1], f"{topic}-other": [0]})})
    assert [(row.topic, row.partition, row.offset) for row in rows] == [
        (f"{topic}-a", 1, 0),
        (f"{topic}-a", 1, 1),
        (f"{topic}-other", 0, 0),
    ]


def test_partitions_are_split_among_tasks(side: Side, topic: str) -> None:
    side.create(topic, 2)
    side.produce(topic, *numbered(30, 0), *numbered(10, 1))
    by_task = side.read_by_task({"subscribe": topic, "minPartitions": "5"})
    assert [len(task) for task in by_task if task[0].partition == 1] == [10]
    assert len(by_task) == 5
    assert sorted(row for task in by_task for row in task) == side.seen(topic, 40, (0, 1))


@everywhere
def test_times_of_the_broker(side: Side, topic: str) -> None:
    side.create(topic, config={"message.timestamp.type": "LogAppendTime"})
    side.produce(topic, *numbered(3))
    rows = side.read({"subscribe": topic})
    assert rows == side.seen(topic, 3)
    assert {row.timestamp_type for row in rows} == {LOG_APPEND_TIME}


@everywhere
def test_offsets_that_compaction_left_out(side: Side, topic: str) -> None:
    side.create(topic, config={"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"})
    kept = [Record(b"first", b"kept", (), START_MS)]
    replaced = [Record(b"old %d" % number, b"key %d" % (number % 4), (), START_MS + number) for number in range(8)]
    side.produce(topic, *replaced[:4], *kept, *replaced[4:])
    # Each is a segment of its own, since times in one segment are less than 100 ms apart.
    side.produce(topic, *(Record(None, b"key %d" % number, (), START_MS + 1_000) for number in range(3)))
    side.produce(topic, Record(b"last", b"last", (), START_MS + 2_000))
    # A cleaner may take several passes: the last record that goes is the one before offset 8.
    wait_until(lambda: [row.offset for row in side.seen(topic, 2)] == [4, 8], "not everything was compacted")
    rows = side.read({"subscribe": topic})
    assert [(row.offset, row.key, row.value) for row in rows] == [
        (4, b"kept", b"first"),
        (8, b"key 3", b"old 7"),
        *((9 + number, b"key %d" % number, None) for number in range(3)),
        (12, b"last", b"last"),
    ]
    between = {"startingOffsets": json.dumps({topic: {"0": 5}}), "endingOffsets": json.dumps({topic: {"0": 8}})}
    assert side.read({"subscribe": topic, **between}) == []


@everywhere
def test_deleted_records(side: Side, topic: str) -> None:
    side.create(topic)
    side.produce(topic, *numbered(10))
    with side.confluent.admin() as admin:
        admin.delete_records(topic, 0, 6)
    query = {"subscribe": topic}
    assert [row.offset for row in side.read(query)] == [6, 7, 8, 9]
    gone = {**query, "startingOffsets": json.dumps({topic: {"0": 3}})}
    with pytest.raises(QueryFailedError):
        side.read(gone)
    assert [row.offset for row in side.read({**gone, "failOnDataLoss": "false"})] == [6, 7, 8, 9]


@everywhere
def test_nothing_to_read(side: Side, topic: str) -> None:
    side.create(topic, 2)
    assert side.read({"subscribe": topic}) == []
    with pytest.raises(QueryFailedError, match=r"(?i)unknown|does not exist"):
        side.read({"subscribe": f"{topic}-missing"})
