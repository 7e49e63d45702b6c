"""Values as bytes and as Python objects."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.streams.python_values import PythonValues

AT = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, dt.UTC)


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


def test_objects_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="expected a str for string, not int"):
        PythonValues(StringType()).dumps(3)
    with pytest.raises(TypeError, match="expected bytes for binary, not str"):
        PythonValues(BinaryType()).dumps("3")
    with pytest.raises(TypeError, match="object is not a value of a Spark column"):
        PythonValues(StructType().add("a", LongType())).dumps(object())
