"""Columns as batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ottla.client.errors import ClientError, RecordTooLargeError, SerializationError
from ottla.client.produce.columns import columns_of, pieces
from ottla.client.produce.partitioners import partition_of_key
from ottla.records import Record, decode_batch
from unit.client.produce.scripted_log import config
from unit.client.produce.test_partitioners import partitioner


def batches_of(
    data: Any, partitions: int = 3, partition: int | None = None, **changes: object
) -> list[tuple[int | None, list[Record]]]:
    """Where the rows go, and what they are there."""
    chosen: Any = {name: value for name, value in changes.items() if name.startswith("partitioner")}
    made = pieces(config(**changes), "events", columns_of("events", data), partitioner(partitions, **chosen), partition)
    return [(one.partition, decode_batch(one.encoded)) for some in made for one in some]


def test_rows_become_records() -> None:
    headers = [[("a", b"1"), ("a", None)], None, []]
    data = {"value": [b"v", None, "text"], "key": ["k", b"l", b"k"], "timestamp": [5, 6, 7], "headers": headers}
    expected = [
        Record(0, 5, b"k", b"v", (("a", b"1"), ("a", None))),
        Record(1, 6, b"l", None, ()),
        Record(2, 7, b"k", b"text", ()),
    ]
    assert batches_of(data, partition=1) == [(1, expected)]
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    rows = [[{"key": key, "value": value} for key, value in row or ()] for row in headers]
    table = pa.table(
        {
            "value": pa.chunked_array([[b"v"], [None, b"text"]]),
            "key": pa.array(["k", "l", "k"]),
            "timestamp": pa.array([5000, 6000, 7000], pa.timestamp("us")),
            "headers": pa.array(rows, pa.list_(pair)),
        }
    )
    assert batches_of(table, partition=1) == [(1, expected)]
    assert batches_of(table.to_batches()[0], partition=1)[0][1] == expected[:1]


def test_keys_decide_and_rows_of_a_key_stay_in_order() -> None:
    keys = [None if index % 10 == 0 else b"key %d" % (index % 7) for index in range(1000)]
    values = [b"%d" % index for index in range(1000)]
    for sliced in (False, True):
        table = pa.table({"key": pa.array(keys), "value": pa.array(values)})
        expected = dict(zip(values, keys, strict=True))
        if sliced:
            table = table.slice(100)
            del values[:100]
        there = batches_of(table)
        assert sorted(record.value or b"" for _, some in there for record in some) == sorted(values)
        for partition, some in there:
            numbers = [int(record.value or b"") for record in some]
            assert numbers == sorted(numbers)
            for record in some:
                assert record.key == expected[record.value or b""]
                assert partition == (None if record.key is None else partition_of_key(record.key, 3))


def test_partitions_of_rows_and_partitioners_decide() -> None:
    partitions = [2, 0, None, 2]
    for column in (partitions, pa.array(partitions, pa.int32()), pa.array(partitions, pa.int64())):
        given = batches_of({"value": [b"a", b"b", b"c", b"d"], "partition": column})
        assert [(partition, [one.value for one in some]) for partition, some in given] == [
            (None, [b"c"]),
            (0, [b"b"]),
            (2, [b"a", b"d"]),
        ]
    by_key = partition_of_key(b"k", 3)
    left_open = batches_of(
        {"value": [b"a", b"b", b"c"], "key": [b"k", b"k", None], "partition": [(by_key + 1) % 3, None, None]}
    )
    assert {(partition, *(one.value for one in some)) for partition, some in left_open} == {
        ((by_key + 1) % 3, b"a"),
        (by_key, b"b"),
        (None, b"c"),
    }
    own = batches_of({"value": ["", "x", "yz", "x"]}, partitioner=lambda _t, _k, value, count: len(value) % count)
    assert [(partition, len(some)) for partition, some in own] == [(0, 1), (1, 2), (2, 1)]
    ignoring = batches_of({"value": [b"a"], "key": [b"k"]}, partitioner_ignore_keys=True)
    assert [partition for partition, _ in ignoring] == [None]


def test_many_rows_make_batches_that_brokers_take() -> None:
    count = 30_000
    there = batches_of({"value": [b"%5d" % index * 200 for index in range(count)]}, compression_type="lz4")
    assert len(there) > 50
    assert [one.value[:5] for _, some in there for one in some if one.value] == [b"%5d" % i for i in range(count)]
    assert all(some[0].offset == 0 for _, some in there)


def test_no_rows_are_no_batches() -> None:
    assert batches_of({"value": []}) == []


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (5, SerializationError, "int is no Arrow table"),
        ({"key": [b"x"]}, SerializationError, "no column value"),
        ({"value": [b"x"], "offset": [1]}, SerializationError, "offset: no part of a record; columns are value, key"),
        ({"value": [5]}, SerializationError, "a value of type int"),
        (pa.table({"value": [1.5]}), SerializationError, "column of double has no bytes"),
        ({"value": [b"x"], "key": [b"x", b"y"]}, SerializationError, "1 of value, 2 of key"),
        ({"value": [b"x"], "timestamp": [-7]}, SerializationError, "timestamp -7"),
        ({"value": [b"x"], "partition": [3]}, ClientError, "partitions 0 to 2, not 3"),
        ({"value": [b"x"], "partition": [-1]}, ClientError, "partitions 0 to 2, not -1"),
        ({"value": [b"x" * 2_000_000]}, RecordTooLargeError, r"max\.request\.size, which is 1048576"),
    ],
)
def test_what_cannot_be_sent_is_refused(data: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        batches_of(data)


def test_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(ClientError, match="partitions 0 to 2, not 9"):
        batches_of({"value": [b"x"]}, partition=9)
