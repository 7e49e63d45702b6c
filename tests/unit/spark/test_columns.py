"""The columns of what is read: which there are, and what cannot be asked for."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from ottla.spark.columns import HEADERS, READ_TYPES, ColumnError, ReadColumns, read_schema


def test_they_are_those_of_sparks_own_connector() -> None:
    plain = read_schema(include_headers=False)
    assert plain.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    whole = read_schema(include_headers=True)
    assert whole.fields[:-1] == plain.fields
    assert whole["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert all(field.nullable for field in whole.fields)


def test_some_of_them_in_any_order_as_spark_exchanges_them() -> None:
    columns = ReadColumns.of(
        StructType([StructField("value", BinaryType(), nullable=False), StructField("offset", LongType())])
    )
    assert columns.names == ["value", "offset"]
    assert columns.arrow_schema == pa.schema(
        [pa.field("value", pa.binary(), nullable=False), pa.field("offset", pa.int64())]
    )


def test_they_travel_small() -> None:
    columns = ReadColumns.of(read_schema(include_headers=True))
    alone = len(pickle.dumps(columns))
    assert columns.arrow_schema.names == list(READ_TYPES)
    assert len(pickle.dumps(columns)) == alone
    assert pickle.loads(pickle.dumps(columns)) == columns


def test_nullability_within_headers_is_the_users() -> None:
    pair = StructType([StructField("key", StringType(), nullable=False), StructField("value", BinaryType())])
    kind = ArrayType(pair, containsNull=False)
    assert kind != HEADERS
    assert ReadColumns.of(StructType([StructField("headers", kind)])).names == ["headers"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([], "names no column; use key, value, topic"),
        ([("valeu", BinaryType())], "no column 'valeu'; did you mean value"),
        ([("TimestampType", LongType())], "no column 'TimestampType'; did you mean timestampType"),
        ([("xyz", BinaryType())], "no column 'xyz'; use key, value"),
        ([("value", StringType())], "column value is of type binary, not string"),
        ([("headers", ArrayType(StringType()))], "headers is of type array<struct<.*not array<string>"),
        ([("key", BinaryType()), ("key", BinaryType())], "column key is 2 times in the schema"),
    ],
)
def test_what_cannot_be_asked_for(fields: list[tuple[str, BinaryType]], words: str) -> None:
    with pytest.raises(ColumnError, match=words):
        ReadColumns.of(StructType([StructField(name, kind) for name, kind in fields]))
