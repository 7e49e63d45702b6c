"""Values as bytes and as Python objects."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.streams.python_values import PythonValues

AT = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)
ONE = StructType().add("a", IntegerType())
TWO = StructType().add("a", IntegerType()).add("b", StructType().add("c", IntegerType()))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (BinaryType(), b"\xff"),
        (StringType(), "č"),
        (LongType(), 2**62),
        (DoubleType(), 1.5),
        (DoubleType(), float("inf")),
        (BooleanType(), False),
        (DateType(), dt.date(2024, 5, 6)),
        (TimestampType(), AT),
        (TimestampNTZType(), AT.replace(tzinfo=None)),
        (DecimalType(38, 9), Decimal("12345678901234567890.123456789")),
        (ArrayType(DecimalType(4, 2)), [Decimal("1.25"), None]),
        (MapType(StringType(), BinaryType()), {"a": b"\x00", "b": None}),
        (
            StructType().add("a", LongType()).add("b", StructType().add("c", DateType())),
            {"a": None, "b": {"c": dt.date(2024, 5, 6)}},
        ),
        (StringType(), None),
        (LongType(), None),
    ],
)
def test_there_and_back(kind: DataType, value: Any) -> None:
    values = PythonValues(kind)
    assert values.loads(values.dumps(value)) == value


def test_missing_fields_are_null() -> None:
    values = PythonValues(StructType().add("a", LongType()).add("b", DateType()))
    assert values.loads(json.dumps({"v": {"a": 1}}).encode()) == {"a": 1, "b": None}


def test_what_spark_can_parse() -> None:
    """Its formats need six digits of a second, and a zone or none."""
    hour = dt.datetime(2024, 5, 6, 7)
    east = hour.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert PythonValues(TimestampType()).dumps(east) == b'{"v":"2024-05-06T05:00:00.000000Z"}'
    assert PythonValues(TimestampNTZType()).dumps(hour) == b'{"v":"2024-05-06T07:00:00.000000"}'
    assert PythonValues(DateType()).dumps(hour) == b'{"v":"2024-05-06"}'
    assert PythonValues(DecimalType(5, 2)).dumps(Decimal("1.235")) == b'{"v":"1.24"}'
    assert PythonValues(DoubleType()).dumps(3) == b'{"v":3.0}'


def test_rows_are_structs() -> None:
    kind = StructType().add("a", LongType()).add("b", StringType())
    assert PythonValues(kind).dumps(Row(b="x", a=1)) == b'{"v":{"a":1,"b":"x"}}'


def test_strings_that_are_not_utf8() -> None:
    assert PythonValues(StringType()).loads(b"a\xff") == "a\ufffd"
    assert PythonValues(ArrayType(StringType())).loads(b'{"v":["\xff"]}') == ["\ufffd"]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (StringType(), 3, "expected a str for string, not int: 3"),
        (StringType(), "\ud800", r"'\\ud800' cannot be a string: surrogates not allowed"),
        (BinaryType(), "3", "expected bytes for binary, not str"),
        (ArrayType(BinaryType()), ["3"], "expected bytes for binary at element, not str"),
        (LongType(), 1.5, "expected an int for bigint, not float: 1.5"),
        (LongType(), 2**63, "9223372036854775808 is too large for bigint"),
        (IntegerType(), True, "expected an int for int, not bool: True"),
        (BooleanType(), 1, "expected a bool for boolean, not int"),
        (DoubleType(), "1.5", "expected a float for double, not str"),
        (DecimalType(4, 2), Decimal("99.995"), r"99.995 is too large for decimal\(4,2\)"),
        (DecimalType(4, 2), Decimal("NaN"), r"NaN cannot be a decimal\(4,2\)"),
        (DateType(), "2024-05-06", "expected a date for date, not str"),
        (TimestampType(), dt.datetime(2024, 5, 6), "a datetime for timestamp needs a time zone"),
        (TimestampNTZType(), AT, "a datetime for timestamp_ntz must not have a time zone"),
        (ONE, object(), "expected a dict or a Row for struct<a:int>, not object"),
        (ONE, (1,), "expected a dict or a Row for struct<a:int>, not tuple"),
        (TWO, {"b": {"c": "1"}}, "expected an int for int at b.c, not str: '1'"),
        (TWO, {"b": {"C": 1}}, "struct<c:int> at b has no field 'C'; its fields are c"),
        (MapType(StringType(), IntegerType()), {1: 1}, "expected a str for string at key, not int"),
    ],
)
def test_objects_that_do_not_fit(kind: DataType, value: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        PythonValues(kind).dumps(value)
