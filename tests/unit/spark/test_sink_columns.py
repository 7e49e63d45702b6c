"""Columns that are written: what they must be, and where their rows go."""

from __future__ import annotations

import pickle
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.columns import HEADERS, ColumnError
from ottla.spark.sink_columns import WriteColumns


def schema_of(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_what_records_have_no_part_for_is_left_out() -> None:
    columns = WriteColumns.of(schema_of(id=LongType(), value=StringType(), topic=StringType(), key=BinaryType()), None)
    assert columns == WriteColumns(("value", "key"), None)
    assert pickle.loads(pickle.dumps(columns)) == columns


def test_the_option_wins_over_the_column() -> None:
    schema = schema_of(value=StringType(), topic=LongType())
    columns = WriteColumns.of(schema, "there")
    batch = pa.RecordBatch.from_pydict({"value": ["a"], "topic": [7]})
    assert [(topic, part["value"].to_pylist()) for topic, part in columns.by_topic(batch)] == [("there", ["a"])]


@pytest.mark.parametrize(
    ("schema", "topic", "words"),
    [
        (schema_of(Value=StringType()), "t", r"the column value is missing.*columns are <Value:string>"),
        (schema_of(value=StringType()), None, "no topic to write to: set the option topic, or add a column"),
        (schema_of(value=LongType()), "t", "column value must be binary or string, not bigint: cast it"),
        (schema_of(value=StringType(), key=IntegerType()), "t", "column key must be binary or string, not int"),
        (schema_of(value=StringType(), topic=BinaryType()), None, "column topic must be string, not binary"),
        (schema_of(value=StringType(), partition=LongType()), "t", "column partition must be int, not bigint"),
        (
            schema_of(value=StringType(), timestamp=LongType()),
            "t",
            "timestamp must be timestamp or double, not bigint",
        ),
        (
            schema_of(value=StringType(), timestamp=TimestampNTZType()),
            "t",
            "timestamp must be timestamp or double, not timestamp_ntz",
        ),
        (
            schema_of(value=StringType(), headers=ArrayType(StringType())),
            "t",
            "headers must be array<struct<key:string,value:binary>>, not array<string>",
        ),
        (
            StructType([StructField("value", StringType()), StructField("value", StringType())]),
            "t",
            "more than one column value",
        ),
    ],
)
def test_what_cannot_be_written(schema: StructType, topic: str | None, words: str) -> None:
    with pytest.raises(ColumnError, match=words):
        WriteColumns.of(schema, topic)


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
def test_what_can(kind: DataType) -> None:
    pair = StructType([StructField("key", StringType(), nullable=False), StructField("value", BinaryType())])
    for headers in (HEADERS, ArrayType(pair, containsNull=False)):
        for timestamp in (TimestampType(), DoubleType()):
            schema = schema_of(
                key=kind, value=kind, headers=headers, partition=IntegerType(), timestamp=timestamp, topic=StringType()
            )
            assert WriteColumns.of(schema, None).names == ("key", "value", "headers", "partition", "timestamp")


def parts_of(columns: WriteColumns, batch: pa.RecordBatch) -> list[tuple[str, dict[str, list[Any]]]]:
    return [
        (topic, {name: column.to_pylist() for name, column in part.items()}) for topic, part in columns.by_topic(batch)
    ]


def test_rows_of_several_topics_part_in_their_order() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["b", "a", "b", "c", "a"], "value": ["1", "2", "3", "4", None], "key": [b"1", None, b"3", b"4", b"5"]}
    )
    columns = WriteColumns(("value", "key"), None)
    assert parts_of(columns, batch) == [
        ("b", {"value": ["1", "3"], "key": [b"1", b"3"]}),
        ("a", {"value": ["2", None], "key": [None, b"5"]}),
        ("c", {"value": ["4"], "key": [b"4"]}),
    ]
    assert parts_of(columns, batch.slice(1, 1)) == [("a", {"value": ["2"], "key": [None]})]
    assert parts_of(columns, batch.slice(0, 0)) == []


def test_rows_without_a_topic_are_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["b", None], "value": ["1", "2"]})
    with pytest.raises(ColumnError, match=r"1 of 2 rows in a batch have null as their topic: .*option topic"):
        list(WriteColumns(("value",), None).by_topic(batch))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna"])
def test_timestamps_become_milliseconds(zone: str) -> None:
    stamps = [
        datetime(2024, 5, 6, 7, 8, 9, 123_999, UTC),
        None,
        datetime(1970, 1, 1, 0, 0, 0, 1999, UTC),
    ]
    batch = pa.RecordBatch.from_pydict(
        {"value": ["", "", ""], "timestamp": pa.array(stamps, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))}
    )
    before_ms = int(time.time() * 1000)
    ((_, part),) = parts_of(WriteColumns(("value", "timestamp"), "t"), batch)
    first, now_ms, last = part["timestamp"]
    assert (first, last) == (1_714_979_289_123, 1)
    assert before_ms <= now_ms <= time.time() * 1000


def test_timestamps_in_seconds() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["", ""], "timestamp": [1.5, 1714979289.25]})
    ((_, part),) = parts_of(WriteColumns(("value", "timestamp"), "t"), batch)
    assert part["timestamp"] == [1500, 1_714_979_289_250]


@pytest.mark.parametrize("seconds", [float("nan"), float("-inf"), 1e300])
def test_seconds_that_are_no_time(seconds: float) -> None:
    batch = pa.record_batch({"value": ["", ""], "timestamp": [1.5, seconds]})
    with pytest.raises(ColumnError, match="column timestamp must be seconds since the epoch, or null: "):
        parts_of(WriteColumns(("value", "timestamp"), "t"), batch)
