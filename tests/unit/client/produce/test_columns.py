"""Columns as batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ottla.client.errors import (
    ArgumentTypeError,
    ClientError,
    CompiledCodeError,
    RecordTooLargeError,
    SerializationError,
)
from ottla.client.produce import compiled
from ottla.client.produce.columns import columns_of, pieces
from ottla.client.produce.core import ProducerCore
from ottla.client.produce.partitioners import partition_of_key
from ottla.records import Record, decode_batch
from unit.client.produce.scripted_log import config
from unit.client.produce.test_partitioners import partitioner


def batches_of(
    data: Any, partitions: int = 3, partition: int | None = None, **changes: object
) -> list[tuple[int | None, list[Record]]]:
    """Where the rows go, and what they are there. Records without a key stick to the last partition."""
    chosen: Any = {name: value for name, value in changes.items() if name.startswith("partitioner")}
    columns, choosing = columns_of("events", data), partitioner(partitions, **chosen)
    made = pieces(config(**changes), "events", columns, choosing, partition, lambda: partitions - 1)
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


def test_code_that_cannot_be_loaded_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(compiled, "columns", lambda: None)
    monkeypatch.setattr(compiled, "load", fail)
    core = ProducerCore(config(), lambda: None, may_block=True)
    with pytest.raises(CompiledCodeError, match=r"send_batch needs compiled code.*no locator.*NUMBA_CACHE_DIR"):
        core.prepare_columns("events", {"value": [b"x"]})


class Frame:
    """What is seen of a data frame of pandas or Polars: an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_data_frames_are_tables() -> None:
    table = pa.table({"value": pa.array(["v", "w"], pa.string_view()), "key": pa.array(["k", "l"], pa.large_string())})
    expected = [(one.key, one.value) for _, some in batches_of(table, partition=1) for one in some]
    assert expected == [(b"k", b"v"), (b"l", b"w")]
    assert [(one.key, one.value) for _, some in batches_of(Frame(table), partition=1) for one in some] == expected


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
                assert partition == (2 if record.key is None else partition_of_key(record.key, 3))
        assert len({partition for partition, _ in there}) == len(there)


def test_rows_without_a_key_keep_their_place_among_others() -> None:
    keys, partitions = [b"k", None, b"k", None], [0, None, None, 0]
    for data in ({"key": keys}, {"partition": partitions}, {"key": keys, "partition": partitions}):
        (one,) = batches_of({"value": [b"0", b"1", b"2", b"3"], **data}, partitions=1)
        assert (one[0], [record.value for record in one[1]]) == (0, [b"0", b"1", b"2", b"3"])
    assert [partition for partition, _ in batches_of({"value": [b"0", b"1"], "key": [None, None]})] == [None]


def test_partitions_of_rows_and_partitioners_decide() -> None:
    partitions = [2, 0, None, 2]
    for column in (partitions, pa.array(partitions, pa.int32()), pa.array(partitions, pa.int64())):
        given = batches_of({"value": [b"a", b"b", b"c", b"d"], "partition": column})
        assert [(partition, [one.value for one in some]) for partition, some in given] == [
            (0, [b"b"]),
            (2, [b"a", b"c", b"d"]),
        ]
    by_key = partition_of_key(b"k", 4)
    left_open = batches_of(
        {"value": [b"a", b"b", b"c"], "key": [b"k", b"k", None], "partition": [(by_key + 1) % 4, None, None]},
        partitions=4,
    )
    assert {(partition, one.value) for partition, some in left_open for one in some} == {
        ((by_key + 1) % 4, b"a"),
        (by_key, b"b"),
        (3, b"c"),
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
        (5, ArgumentTypeError, "data must be an Arrow table, a record batch, a data frame or a mapping"),
        ([b"x"], ArgumentTypeError, "a mapping of columns, not list"),
        (pa.chunked_array([[b"x"]]), SerializationError, "ChunkedArray is not a table"),
        ({"key": [b"x"]}, SerializationError, "no column value"),
        ({"value": [b"x"], "offset": [1]}, SerializationError, "offset: no part of a record; columns are value, key"),
        ({"value": [5]}, SerializationError, "a value of type int"),
        (pa.table({"value": [1.5]}), SerializationError, "column of type double cannot be sent"),
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


def header_rows(kind: Any, rows: list[Any]) -> list[tuple[tuple[str, bytes | None], ...]]:
    """What becomes of headers in this form; by keys as well, for which rows are put into another order."""
    column = pa.array(rows, kind)
    values = pa.array([b"%d" % index for index in range(len(rows))])
    ((_, plain),) = batches_of(pa.table({"value": values, "headers": column}), partition=0)
    sliced = pa.table({"value": values, "headers": column, "key": values}).slice(1)
    by_key = {one.value: one.headers for _, some in batches_of(sliced) for one in some}
    assert by_key == {one.value: one.headers for one in plain[1:]}
    return [one.headers for one in plain]


PAIRS: list[Any] = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, [], [{"key": "é", "value": b""}]]
TUPLES: list[Any] = [row and [tuple(pair.values()) for pair in row] for row in PAIRS]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), PAIRS),
        (pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])), PAIRS),
        (pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])), PAIRS),
        (pa.list_(pa.struct([("value", pa.binary_view()), ("key", pa.string_view())])), PAIRS),
        (pa.map_(pa.string(), pa.binary()), TUPLES),
        (pa.map_(pa.field("name", pa.string(), nullable=False), pa.field("content", pa.binary())), TUPLES),
        (pa.map_(pa.string_view(), pa.binary_view()), TUPLES),
    ],
    ids=str,
)
def test_headers_are_taken_by_name_in_whatever_form_arrow_has_them(kind: Any, rows: list[Any]) -> None:
    assert header_rows(kind, rows) == [(("a", b"1"), ("a", None)), (), (), (("é", b""),)]


def test_no_headers_at_all() -> None:
    assert header_rows(pa.null(), [None, None, None]) == [(), (), ()]
    ((_, records),) = batches_of({"value": [b"a", b"b"], "headers": [{"h": b"1"}, None]}, partition=0)
    assert [one.headers for one in records] == [(("h", b"1"),), ()]


LONG = "a text that is too long to be kept within a view"


@pytest.mark.parametrize(
    "kind",
    [
        pa.string_view(),
        pa.binary_view(),
        pa.binary(len(LONG)),
        pa.dictionary(pa.int8(), pa.string()),
        pa.large_string(),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["key", "value"])
def test_keys_and_values_of_every_type_of_bytes_and_text(kind: Any, name: str) -> None:
    given: list[Any] = [LONG, None, "z" * len(LONG), LONG]
    column = pa.array([one and one.encode() for one in given] if pa.types.is_fixed_size_binary(kind) else given, kind)
    other = "value" if name == "key" else "key"
    table = pa.table({name: column, other: [b"0", b"1", b"2", b"3"]}).slice(1)
    there = {getattr(one, other): getattr(one, name) for _, some in batches_of(table) for one in some}
    assert there == {b"1": None, b"2": b"z" * len(LONG), b"3": LONG.encode()}


def test_columns_that_can_be_read_only_once() -> None:
    rows = range(3)
    data = {
        "value": (b"%d" % row for row in rows),
        "key": map(str, rows),
        "timestamp": (row + 5 for row in rows),
        "headers": ([("h", b"%d" % row)] for row in rows),
        "partition": iter([0, 0, 0]),
    }
    ((_, records),) = batches_of(data)
    assert records == [Record(row, row + 5, b"%d" % row, b"%d" % row, (("h", b"%d" % row),)) for row in rows]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"value": "abc"}, "the column value must be an Arrow array or a sequence, not str"),
        ({"value": 5}, "the column value must be an Arrow array or a sequence, not int"),
        ({"value": [b"x"], "key": b"abc"}, "the column key must be .* not bytes"),
        ({"value": [b"x"], "timestamp": 5}, "the column timestamp must be .* not int"),
        (pa.table({"value": [b"x"], "headers": [[{"key": "a", "content": b"1"}]]}), "the fields key and value"),
        (pa.table({"value": [b"x"], "headers": [[{"key": "a", "value": b"1", "x": 1}]]}), "the fields key and value"),
        (pa.table({"value": [b"x"], "headers": ["a=b"]}), "headers of type string cannot be sent"),
        (pa.table({"value": [b"x"], "headers": [[{"key": None, "value": b"1"}]]}), "have no key"),
        (pa.table({"value": pa.array([1, 1]).dictionary_encode()}), "column of type int64 cannot be sent"),
    ],
)
def test_columns_of_wrong_types_are_refused(data: Any, words: str) -> None:
    with pytest.raises(SerializationError, match=words):
        batches_of(data)
