"""Columns decoded and encoded: what fits, and what goes to the side."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, LongType, MapType, StringType, StructType

from ottla.client.serializers import AvroSerializer, SingleObjectFraming
from ottla.spark import dead_letters, decode_avro, decode_json, encode_avro, encode_json

ORDER = "id BIGINT NOT NULL, item STRING, price DOUBLE, at TIMESTAMP, place STRUCT<city: STRING NOT NULL, zip: INT>"

AVRO_ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"},
            {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        ]}}},
    ],
}  # fmt: skip
REF = uuid.UUID(int=7)
AN_ORDER = {
    "id": 1,
    "item": "pen",
    "price": Decimal("12.50"),
    "at": dt.datetime(2024, 5, 6, 7, 8, 9, 250_000, dt.UTC),
    "ref": REF,
    "tags": {"x": 1, "y": 2},
    "lines": [{"sku": "p-1", "kind": "B"}],
}


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [("orders", 0, offset, value if value is None else bytearray(value)) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, "topic STRING, partition INT, offset BIGINT, value BINARY")


def by_offset(frame: DataFrame, column: str) -> dict[int, Any]:
    return {row["offset"]: row[column] for row in frame.select("offset", column).collect()}


def test_json_that_fits_and_json_that_does_not(spark: SparkSession) -> None:
    frame = records(
        spark,
        b'{"id": 1, "item": "pen", "price": 2, "at": "2024-05-06T07:08:09Z", "more": true}',
        None,
        b'{"id": 2, "place": {"city": "Praha"}}',
        b'{"id": 3, "pri',
        b"",
        b'{"id": "four"}',
        b'{"item": "no id"}',
        b'{"id": 7, "place": {"zip": 11000}}',
        b'{"id": 8, "item": "\xff"}',
        b"[9]",
        b'{"id": 10, "at": "soon"}',
    )
    good, bad = decode_json(frame, ORDER)
    assert good.columns == frame.columns
    assert bad.columns == [*frame.columns, "error"]
    orders = by_offset(good, "value")
    assert orders.keys() == {0, 1, 2}
    assert orders[0].asDict(recursive=True) == {
        "id": 1,
        "item": "pen",
        "price": 2.0,
        "at": dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC).astimezone().replace(tzinfo=None),
        "place": None,
    }
    assert orders[1] is None
    assert orders[2].place.city == "Praha"
    errors = by_offset(bad, "error")
    assert errors == {
        3: "not JSON: Unterminated string starting at: line 1 column 11 (char 10)",
        4: "empty",
        5: 'id: "four" is not bigint',
        6: "id: is missing, but the schema requires it",
        7: "place.city: is missing, but the schema requires it",
        8: "not UTF-8: invalid start byte at byte 19",
        9: "[9] is not an object",
        10: 'at: "soon" is not timestamp',
    }
    assert bytes(by_offset(bad, "value")[3]) == b'{"id": 3, "pri'


def test_options_of_json(spark: SparkSession) -> None:
    frame = records(spark, b'{"at": "06.05.2024"}')
    good, bad = decode_json(frame, StructType().add("at", DateType()), dateFormat="dd.MM.yyyy")
    assert good.select("value.at").collect()[0].at == dt.date(2024, 5, 6)
    assert bad.count() == 0


def test_json_is_read_once(spark: SparkSession) -> None:
    good, _ = decode_json(records(spark, b"{}"), "a INT")
    plan: str = good.select("value.a")._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 1


def test_a_stream_is_decoded_on_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    lines = tmp_path / "in"
    lines.mkdir()
    (lines / "one.txt").write_text('{"id": 1}\nnonsense\n{"id": 2}\n')
    stream = spark.readStream.text(str(lines))
    good, bad = decode_json(stream, "id INT")
    for name, side in [("decoded_good", good.select("value.id")), ("decoded_bad", bad.select("value", "error"))]:
        query = side.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
    assert sorted(row.id for row in spark.table("decoded_good").collect()) == [1, 2]
    assert [tuple(row) for row in spark.table("decoded_bad").collect()] == [
        ("nonsense", "not JSON: Expecting value: line 1 column 1 (char 0)")
    ]


def test_columns_to_json(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("ana", 3, None)], "who STRING, count INT, note STRING")
    whole = encode_json(frame).collect()[0].asDict()
    assert {name: json.loads(text) for name, text in whole.items()} == {"value": {"who": "ana", "count": 3}}
    some = encode_json(frame.withColumnRenamed("who", "key"), "count", "note", ignoreNullFields="false")
    assert [row.asDict() for row in some.collect()] == [{"key": "ana", "value": '{"count":3,"note":null}'}]
    one = encode_json(frame, "count", into="payload").select("payload").collect()
    assert one[0].payload == '{"count":3}'


def test_json_there_and_back(spark: SparkSession) -> None:
    good, _ = decode_json(records(spark, b'{"id":5,"place":{"city":"Wien","zip":1010}}', None), ORDER)
    again = encode_json(good, "value")
    assert by_offset(again, "value") == {0: '{"id":5,"place":{"city":"Wien","zip":1010}}', 1: None}


def test_avro_that_fits_and_avro_that_does_not(spark: SparkSession) -> None:
    written = AvroSerializer(AVRO_ORDER)("orders", AN_ORDER)
    frame = records(spark, written, None, written[:-3], written + b"x", b"")
    good, bad = decode_avro(frame, AVRO_ORDER)
    assert good.columns == frame.columns
    rows = by_offset(good, "value")
    assert rows.keys() == {0, 1}
    assert rows[1] is None
    expected = AN_ORDER | {"ref": str(REF)}
    found = rows[0].asDict(recursive=True)
    assert found.pop("at").astimezone(dt.UTC) == expected.pop("at")
    assert found == expected
    errors = by_offset(bad, "error")
    assert errors.keys() == {2, 3, 4}
    assert errors[2] == "ends too early"
    assert errors[3] == f"ends after {len(written)} bytes; it was written with a different schema than shop.Order"
    assert bytes(by_offset(bad, "value")[3]) == written + b"x"


def test_avro_is_read_with_a_newer_schema(spark: SparkSession) -> None:
    old = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
    new = {
        "type": "record",
        "name": "User",
        "fields": [
            {"name": "nick", "aliases": ["name"], "type": "string"},
            {"name": "age", "type": "int", "default": 9},
        ],
    }
    frame = records(spark, AvroSerializer(old)("", {"name": "ada"}))
    good, _ = decode_avro(frame, old, reader_schema=new)
    assert [row.asDict() for row in good.select("value.*").collect()] == [{"nick": "ada", "age": 9}]
    framing = SingleObjectFraming(old, new)
    framed = records(
        spark,
        AvroSerializer(old, framing)("", {"name": "ada"}),
        AvroSerializer(new, framing)("", {"nick": "bo", "age": 3}),
        b"nonsense",
    )
    good, bad = decode_avro(framed, new, framing=framing)
    assert sorted(row.value.nick for row in good.collect()) == ["ada", "bo"]
    assert by_offset(bad, "error") == {2: "does not start with the marker of a single object, c301"}
    with pytest.raises(ValueError, match="pass only `schema`"):
        decode_avro(framed, old, reader_schema=new, framing=framing)


def test_a_decimal_that_spark_cannot_hold_is_a_bad_row(spark: SparkSession) -> None:
    narrow = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
    frame = records(spark, AvroSerializer(narrow)("", Decimal(7)), AvroSerializer(wide)("", Decimal(123456)))
    good, bad = decode_avro(frame, narrow)
    assert by_offset(good, "value") == {0: Decimal(7)}
    assert list(by_offset(bad, "error")) == [1]


def test_avro_there_and_back(spark: SparkSession) -> None:
    written = AvroSerializer(AVRO_ORDER)("orders", AN_ORDER)
    good, _ = decode_avro(records(spark, written, None), AVRO_ORDER)
    again = by_offset(encode_avro(good, AVRO_ORDER, "value"), "value")
    assert (bytes(again[0]), again[1]) == (written, None)
    columns = encode_avro(good.where("value is not null").select("offset", "value.*"), AVRO_ORDER, *AN_ORDER)
    assert columns.columns == ["offset", "value"]
    assert bytes(by_offset(columns, "value")[0]) == written


def test_a_row_that_the_avro_schema_does_not_describe(spark: SparkSession) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    with pytest.raises(PythonException, match=r"encode_avro: a row does not match R: .*too_much"):
        encode_avro(spark.createDataFrame([(1, 2)], "n INT, too_much INT"), schema).collect()


def test_what_cannot_be_decoded_is_said_before_anything_runs(spark: SparkSession) -> None:
    frame = records(spark, b"{}")
    with pytest.raises(ValueError, match="unknown column 'valeu': did you mean 'value'"):
        decode_json(frame, "a INT", column="valeu")
    with pytest.raises(ValueError, match="column 'offset' must be binary or string, not bigint"):
        decode_json(frame, "a INT", column="offset")
    with pytest.raises(ValueError, match="the column 'error' already exists"):
        decode_json(frame.withColumnRenamed("topic", "error"), "a INT")
    with pytest.raises(ValueError, match="name fields, for example"):
        decode_json(frame, "array<int>")
    with pytest.raises(ValueError, match=r"a Spark type at u: unions of several types \(string, int\)"):
        decode_avro(frame, {"type": "record", "name": "U", "fields": [{"name": "u", "type": ["string", "int"]}]})
    with pytest.raises(ValueError, match="unknown column 'coutn': did you mean 'count'"):
        encode_json(spark.createDataFrame([(1,)], "count INT"), "coutn")


# Required fields and items.


def test_json_lacks_what_is_required_within_arrays_and_maps(spark: SparkSession) -> None:
    line = StructType().add("sku", StringType(), nullable=False).add("tags", ArrayType(StringType(), False))
    wanted = (
        StructType()
        .add("lines", ArrayType(line))
        .add("counts", MapType(StringType(), ArrayType(StructType().add("n", LongType(), nullable=False)), False))
    )
    frame = records(
        spark,
        b"{}",
        b'{"lines": null, "counts": null}',
        b'{"lines": [], "counts": {}}',
        b'{"lines": [null, {"sku": "a", "tags": ["x"]}], "counts": {"a": [null, {"n": 1}], "b": []}}',
        b'{"lines": [{"sku": "a"}, {"tags": []}]}',
        b'{"lines": [{"sku": "a", "tags": ["x", null]}]}',
        b'{"counts": {"a": [{"n": 1}], "b": null}}',
        b'{"counts": {"a": [{"n": null}]}}',
    )
    good, bad = decode_json(frame, wanted)
    assert by_offset(good, "value").keys() == {0, 1, 2, 3}
    assert by_offset(bad, "error") == {
        4: "lines[1].sku: is missing, but the schema requires it",
        5: "lines[0].tags[1]: is null, but the schema requires a value",
        6: "counts.b: is null, but the schema requires a value",
        7: "counts.a[0].n: is missing, but the schema requires it",
    }


# What becomes of bad records.


def test_bad_records_stop_the_query_if_told_so(spark: SparkSession) -> None:
    frame = records(spark, b'{"id": 1}', None, b'{"id": "two"}')
    good, bad = decode_json(frame, "id BIGINT", on_error="fail")
    assert [row.value and row.value.id for row in good.where("offset < 2").orderBy("offset").collect()] == [1, None]
    assert (bad.columns, bad.count()) == ([*frame.columns, "error"], 0)
    words = "a record cannot be decoded at offset 2 of partition 0 of topic orders: "
    assert f'{words}no JSON for struct<id:bigint>: {{"id": "two"}}' in failure(good)
    good, _ = decode_avro(frame.where("offset = 2").drop("partition"), AVRO_ORDER, on_error="fail")
    assert "a record cannot be decoded at offset 2 of topic orders: " in failure(good)
    with pytest.raises(ValueError, match="on_error must be 'set_aside' or 'fail', not 'drop'"):
        decode_json(frame, "id BIGINT", on_error="drop")  # type: ignore[arg-type]


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as raised:
        frame.collect()
    return str(raised.value)


def test_bad_records_are_dead_letters(spark: SparkSession) -> None:
    kind = "array<struct<key: string, value: binary>>"
    frame = (
        records(spark, b'{"id": 1}', b"{").withColumn("key", F.lit(b"k")).withColumn("headers", F.lit(None).cast(kind))
    )
    (letter,) = dead_letters(decode_json(frame, "id BIGINT").bad, "dead").collect()
    assert (bytes(letter.key), bytes(letter.value), letter.topic) == (b"k", b"{", "dead")
    expected = {"exception": "DecodeError", "topic": "orders", "partition": "0", "offset": "1"}
    headers = {one.key.removeprefix("__streams.errors."): bytes(one.value).decode() for one in letter.headers}
    assert headers.pop("message").startswith("not JSON: ")
    assert headers == expected
    own = F.array(F.struct(F.lit("mine").alias("key"), F.lit(b"1").alias("value")))
    (letter,) = dead_letters(decode_json(frame.withColumn("headers", own), "id BIGINT").bad, "dead").collect()
    assert (letter.headers[0].key, len(letter.headers)) == ("mine", 6)
    assert dead_letters(decode_json(frame.select("value"), "id BIGINT").bad, "dead").columns == [
        "value",
        "topic",
        "headers",
    ]
    with pytest.raises(ValueError, match="unknown column 'error'"):
        dead_letters(frame, "dead")
