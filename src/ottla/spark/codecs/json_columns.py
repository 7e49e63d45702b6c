"""JSON, read and written by Spark's own functions; only the reasons for invalid rows are found in Python."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from ottla.spark.codecs.json_reasons import reason
from ottla.spark.codecs.sides import ERROR, Decoded, batchwise, check_bytes_column, with_packed

_PARSED: Final = "__ottla_parsed"
_CORRUPT: Final = "__ottla_corrupt"


def decode_json(frame: DataFrame, schema: StructType | str, *, column: str = "value", **options: str) -> Decoded:
    """Decodes the JSON objects in a column into a struct in its place; also returns the rows with invalid JSON, or with
    JSON that does not match.

    `schema` is a `StructType`, or a string such as `"id BIGINT NOT NULL, name STRING"`. A missing field is null, unless
    the schema says NOT NULL: then the row is bad. Fields that the schema does not have are ignored. `options` are
    Spark's JSON options, such as `timestampFormat`. Works with streams.
    """
    check_bytes_column(frame, column)
    wanted = _struct_of(schema)
    reading = StructType([*wanted.fields, *StructType().add(_CORRUPT, StringType()).fields])
    text = F.col(column).cast("string")
    parsed = F.from_json(text, reading, {**options, "columnNameOfCorruptRecord": _CORRUPT})
    # `explode` makes Spark parse once: it would move a filter on a plain expression below it, and parse again.
    both = frame.select("*", F.explode(F.array(parsed)).alias(_PARSED))
    is_null = F.col(column).isNull()
    misfit = F.col(_PARSED).isNull() | F.col(f"{_PARSED}.{_CORRUPT}").isNotNull() | ~F.is_valid_utf8(text)
    for lacking in _lacking(F.col(_PARSED), wanted):
        misfit = misfit | lacking
    is_bad = ~is_null & F.coalesce(misfit, F.lit(True))

    decoded = F.when(is_null, None).otherwise(F.col(_PARSED).dropFields(_CORRUPT))
    good = both.where(~is_bad).withColumn(column, decoded).drop(_PARSED)
    bad = both.where(is_bad).drop(_PARSED).withColumn(ERROR, _reasons(wanted)(F.col(column).cast("binary")))
    return Decoded(good, bad)


def encode_json(frame: DataFrame, *columns: str, into: str = "value", **options: str) -> DataFrame:
    """Encodes columns as one JSON object per row, in the column `into`; the other columns stay.

    Without `columns`, all of them; a single struct column is written as it is. `options` are Spark's JSON options:
    `ignoreNullFields="false"` writes nulls, which are left out by default.
    """
    packed, _ = with_packed(frame, columns, into)
    return packed.withColumn(into, F.to_json(F.col(into), dict(options)))


def _struct_of(schema: StructType | str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise ValueError(f"the schema must name fields, for example 'id BIGINT, name STRING', not {schema!r}")
    return parsed


def _lacking(place: Column, wanted: StructType) -> list[Column]:
    """For each required value, whether it is missing. Spark's reader treats all of them as optional."""
    conditions: list[Column] = []
    for field in wanted.fields:
        inner = place.getField(field.name)
        if not field.nullable:
            conditions.append(inner.isNull())
        if _requires(field.dataType):
            conditions.append(_lacks(inner, field.dataType))
    return conditions


def _requires(kind: DataType) -> bool:
    """Whether a value of the type has to contain others."""
    match kind:
        case StructType():
            return any(not field.nullable or _requires(field.dataType) for field in kind.fields)
        case ArrayType():
            return not kind.containsNull or _requires(kind.elementType)
        case MapType():
            return not kind.valueContainsNull or _requires(kind.valueType)
    return False


def _lacks(place: Column, kind: DataType) -> Column:
    """Whether a value lacks what its type requires, at any depth; false for null."""
    match kind:
        case ArrayType():
            lacking = _any_lacks(place, kind.elementType, kind.containsNull)
        case MapType():
            lacking = _any_lacks(F.map_values(place), kind.valueType, kind.valueContainsNull)
        case StructType():
            lacking = reduce(or_, _lacking(place, kind))
        case _:
            raise TypeError(f"a value of type {kind.simpleString()} requires nothing")
    return place.isNotNull() & lacking


def _any_lacks(items: Column, kind: DataType, may_be_null: bool) -> Column:
    def lacks(item: Column) -> Column:
        if not _requires(kind):
            return item.isNull()
        return _lacks(item, kind) if may_be_null else item.isNull() | _lacks(item, kind)

    return F.exists(items, lacks)


def _reasons(wanted: StructType) -> Any:
    def reasons(values: pa.Array) -> pa.Array:
        return pa.array([reason(value.as_py(), wanted) for value in values], pa.string())

    return batchwise(reasons, StringType())
