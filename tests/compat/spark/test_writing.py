"""Rows that Spark writes: librdkafka sees records with the same keys, values, headers and places."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.spark.sides import Side, everywhere
from ottla.client.produce.partitioners import partition_of_key
from spark_program import QueryFailedError
from support.clients.expectations import VARIED, numbered

HEADERS = "headers array<struct<key: string, value: binary>>"


@everywhere
def test_every_column(side: Side, topic: str) -> None:
    for suffix in "ab":
        side.create(f"{topic}-{suffix}", 2)
    side.write(
        {},
        f"topic string, partition int, key binary, value binary, {HEADERS}",
        (f"{topic}-a", 0, b"key", b"value", [("h", b"1"), ("h", b"\x00\xff"), ("i", None)]),
        (f"{topic}-a", 1, None, b"", []),
        (f"{topic}-b", 1, b"", None, None),
    )
    (first,), (second,) = (side.confluent.consume(f"{topic}-a", 1, [partition]) for partition in (0, 1))
    assert (first.key, first.value) == (b"key", b"value")
    assert list(first.headers) == [("h", b"1"), ("h", b"\x00\xff"), ("i", None)]
    assert (second.key, second.value, second.headers) == (None, b"", ())
    (third,) = side.confluent.consume(f"{topic}-b", 1, [1])
    assert (third.key, third.value, third.headers) == (b"", None, ())


@everywhere
def test_text_and_a_topic_for_all_rows(side: Side, topic: str) -> None:
    side.create(topic, 4)
    rows = [(f"key {number}", f"žluťoučký {number}") for number in range(20)]
    side.write({"topic": topic}, "key string, value string", *rows)
    seen = side.confluent.consume(topic, len(rows), range(4))
    assert sorted((record.key, record.value) for record in seen) == sorted(
        (key.encode(), value.encode()) for key, value in rows
    )
    # Rows of a key stay together with what other clients write.
    expected = {key.encode(): partition_of_key(key.encode(), 4) for key, _ in rows}
    assert {record.key: record.partition for record in seen} == expected


def test_the_option_counts_more_than_the_column(side: Side, topic: str) -> None:
    side.create(topic)
    side.write({"topic": topic}, "topic string, value string", ("elsewhere", "value"))
    assert [record.value for record in side.confluent.consume(topic, 1)] == [b"value"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_settings_of_the_producer(side: Side, topic: str, codec: str) -> None:
    side.create(topic)
    options = {"topic": topic, "kafka.compression.type": codec, "kafka.acks": "all", "kafka.linger.ms": "5"}
    side.write(options, "value string", *([f"value {number}"] for number in range(50)))
    assert sorted(row.value or b"" for row in side.seen(topic, 50)) == sorted(
        b"value %d" % number for number in range(50)
    )


@pytest.mark.parametrize(
    ("options", "schema", "row", "words"),
    [
        ({}, "value string", ["value"], "topic"),
        ({}, "topic string, value string", [None, "value"], "(?i)topic"),
        ({"topic": "any"}, "key string", ["key"], "value"),
        ({"topic": "any"}, "value int", [1], "value"),
        ({"topic": "any"}, "value string, partition string", ["value", "0"], "partition"),
    ],
)
def test_rows_that_cannot_be_written(
    side: Side, options: dict[str, str], schema: str, row: list[object], words: str
) -> None:
    with pytest.raises(QueryFailedError, match=words):
        side.write(options, schema, row)


@everywhere
def test_a_stream_from_topic_to_topic(side: Side, topic: str, tmp_path: Path) -> None:
    side.create(f"{topic}-from")
    side.create(f"{topic}-to")
    read = {"subscribe": f"{topic}-from", "startingOffsets": "earliest", "includeHeaders": "true"}
    columns, write = ["key", "value", "headers", "partition"], {"topic": f"{topic}-to"}
    side.produce(f"{topic}-from", *VARIED)
    side.copy(read, columns, write, tmp_path / "checkpoint")
    copied = side.confluent.consume(f"{topic}-to", len(VARIED))
    assert [(record.key, record.value, record.headers) for record in copied] == [
        (record.key, record.value, record.headers) for record in VARIED
    ]
    side.produce(f"{topic}-from", *numbered(3))
    side.copy(read, columns, write, tmp_path / "checkpoint")
    copied = side.confluent.consume(f"{topic}-to", len(VARIED) + 3)
    assert [record.value for record in copied[-3:]] == [b"value 0", b"value 1", b"value 2"]
