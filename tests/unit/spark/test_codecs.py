"""The parts of codecs that need no session: reasons for bad JSON, and Spark's types for Avro's."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from ottla.client.serializers import AvroSchema
from ottla.spark.codecs import json_columns
from ottla.spark.codecs.avro_types import has_uuids, spark_type
from ottla.spark.codecs.json_columns import encode_json
from ottla.spark.codecs.json_reasons import reason

SCHEMA = (
    StructType()
    .add("n", IntegerType())
    .add("tiny", ByteType())
    .add("x", DoubleType())
    .add("is_new", BooleanType())
    .add("must", StringType(), nullable=False)
    .add("list", ArrayType(StructType().add("deep", LongType())))
    .add("map", MapType(StringType(), DecimalType(10, 2)))
    .add("full", ArrayType(MapType(StringType(), IntegerType(), valueContainsNull=False), containsNull=False))
)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"\xc3(", "not UTF-8: invalid continuation byte at byte 0"),
        (b"  ", "empty"),
        (b"{]", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"null", "null is not an object"),
        (b'{"n": 1.5}', "n: 1.5 is not int"),
        (b'{"n": true}', "n: true is not int"),
        (b'{"n": 2147483648}', "n: 2147483648 is not int"),
        (b'{"tiny": 128}', "tiny: 128 is not tinyint"),
        (b'{"x": "1"}', 'x: "1" is not double'),
        (b'{"is_new": 1}', "is_new: 1 is not boolean"),
        (b'{"n": 1}', "must: is missing, but the schema requires it"),
        (b'{"must": null}', "must: is missing, but the schema requires it"),
        (b'{"must": "", "list": {}}', "list: {} is not an array"),
        (b'{"must": "", "list": [null, {"deep": 1}, {"deep": "x"}]}', 'list[2].deep: "x" is not bigint'),
        (b'{"must": "", "map": {"a": 1, "b": []}}', "map.b: [] is not decimal(10,2)"),
        (b'{"must": "", "list": [null], "full": [{}, null]}', "full[1]: is null, but the schema requires a value"),
        (b'{"must": "", "full": [{"a": null}]}', "full[0].a: is null, but the schema requires a value"),
        (b'{"must": "", "list": "' + b"y" * 99 + b'"}', 'list: "' + "y" * 39 + "… is not an array"),
        (b"[" * 200_000, "JSON is nested too deeply"),
    ],
)
def test_the_reason(value: bytes, told: str) -> None:
    assert reason(value, SCHEMA) == told


def test_a_reason_that_only_spark_knows() -> None:
    assert reason(b'{"a": "x"}', StructType().add("a", StringType())) == "does not match struct<a:string>"


@pytest.mark.parametrize(
    ("schema", "held"),
    [
        ("long", "bigint"),
        (["null", "string"], "string"),
        (["int", "long", "null"], "bigint"),
        (["int", "float"], "double"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": "bytes"}, "map<string,binary>"),
        ({"type": "fixed", "name": "f", "size": 4}, "binary"),
        (
            {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 1},
            "decimal(5,1)",
        ),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "int", "logicalType": "time-millis"}, "time(6)"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "long", "logicalType": "something-new"}, "bigint"),
        (
            {
                "type": "record",
                "name": "a.R",
                "fields": [
                    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X"]}},
                    {"name": "again", "type": "E"},
                ],
            },
            "struct<e:string,again:string>",
        ),
    ],
)
def test_types_for_avro(schema: Any, held: str) -> None:
    assert spark_type(AvroSchema(schema).parsed).simpleString() == held


def test_what_may_be_null() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": ["int", "null"]}]
    held = spark_type(AvroSchema({"type": "record", "name": "R", "fields": fields}).parsed)
    assert isinstance(held, StructType)
    assert [field.nullable for field in held.fields] == [False, True]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]},
            "a Spark type at next: Node is recursive",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": {"type": "array", "items": ["int", "string"]}}],
            },
            r"at a\[\]: unions of several types \(int, string\)",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 50},
            "decimals of 50 digits are not supported, only up to 38",
        ),
    ],
)
def test_avro_without_a_type(schema: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        spark_type(AvroSchema(schema).parsed)


def test_where_uuids_may_be() -> None:
    assert has_uuids(AvroSchema(["null", {"type": "array", "items": {"type": "string", "logicalType": "uuid"}}]).parsed)
    assert not has_uuids(AvroSchema({"type": "array", "items": "string"}).parsed)


@pytest.mark.parametrize(
    ("options", "passed"), [({}, None), ({"ignoreNullFields": "false"}, {"ignoreNullFields": "false"})]
)
def test_options_that_are_not_given_are_not_sent(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], passed: dict[str, str] | None
) -> None:
    """Spark Connect rejects an empty map."""
    seen: list[object] = []
    frame = Mock(columns=["a"])
    monkeypatch.setattr(json_columns, "with_packed", lambda *_: (frame, None))
    monkeypatch.setattr(json_columns, "F", Mock(to_json=lambda _, given: seen.append(given)))
    encode_json(frame, "a", **options)
    assert seen == [passed]
