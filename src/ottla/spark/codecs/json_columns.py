"""JSON, read and written by Spark's own functions; only the reasons for invalid rows are found in Python."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from ottla.spark.codecs.json_reasons import reason
from ottla.spark.codecs.sides import (
    ERROR,
    Decoded,
    OnError,
    batchwise,
    check_bytes_column,
    check_on_error,
    empty_bad,
    raised,
    with_packed,
)

_PARSED: Final = "__ottla_parsed"
_CORRUPT: Final = "__ottla_corrupt"
_SHOWN_CHARS: Final = 200


def decode_json(
    frame: DataFrame,
    schema: StructType | str,
    *,
    column: str = "value",
    on_error: OnError = "set_aside",
    **options: str,
) -> Decoded:
    """Decodes the JSON objects in a column into a struct in its place; also returns the rows with invalid JSON, or with
    JSON that does not match.

    `schema` is a `StructType`, or a string such as `"id BIGINT NOT NULL, name STRING"`. A missing field is null, unless
    the schema says NOT NULL: then the row is bad. Fields that the schema does not have are ignored. `options` are
    Spark's JSON options, such as `timestampFormat`. Works with streams.

    With `on_error="fail"`, a bad row stops the query with an error that names the record, and `bad` is empty.
    """
    check_on_error(on_error)
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
    if on_error == "fail":
        shown = F.substring(text, 1, _SHOWN_CHARS)
        why = F.concat(F.lit(f"no JSON for {wanted.simpleString()}: "), F.coalesce(shown, F.lit("not UTF-8")))
        checked = F.when(is_bad, raised(frame, why)).otherwise(decoded)
        return Decoded(both.withColumn(column, checked).drop(_PARSED), empty_bad(frame))
    good = both.where(~is_bad).withColumn(column, decoded).drop(_PARSED)
    bad = both.where(is_bad).drop(_PARSED).withColumn(ERROR, _reasons(wanted)(F.col(column).cast("binary")))
    return Decoded(good, bad)


def encode_json(frame: DataFrame, *columns: str, into: str = "value", **options: str) -> DataFrame:
    """Encodes columns as one JSON object per row, in the column `into`; the other columns stay.

    Without `columns`, all of them; a single struct column is written as it is. `options` are Spark's JSON options:
    `ignoreNullFields="false"` writes nulls, which are left out by default.
    """
    packed, _ = with_packed(frame, columns, into)
    # Spark Connect does not take an empty map of options.
    return packed.withColumn(into, F.to_json(F.col(into), dict(options) or None))


def _struct_of(schema: StructType | str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise ValueError(f"the schema must name fields, for example 'id BIGINT, name STRING', not {schema!r}")
    return parsed


def _lacking(place: Column, wanted: StructType) -> list[Column]:
    """For each required field, whether it is missing. Spark's reader treats all fields as optional. None is null."""
    return [
        lacking
        for field in wanted.fields
        for lacking in _lacking_in(place.getField(field.name), field.dataType, may_be_null=field.nullable)
    ]


def _lacking_in(value: Column, kind: DataType, *, may_be_null: bool) -> list[Column]:
    conditions = [] if may_be_null else [value.isNull()]
    match kind:
        case StructType():
            conditions += [value.isNotNull() & lacking for lacking in _lacking(value, kind)]
        case ArrayType():
            conditions += _lacking_items(value, value, kind.elementType, may_be_null=kind.containsNull)
        case MapType():
            conditions += _lacking_items(value, F.map_values(value), kind.valueType, may_be_null=kind.valueContainsNull)
    return conditions


def _lacking_items(value: Column, items: Column, kind: DataType, *, may_be_null: bool) -> list[Column]:
    if not _requires(kind, may_be_null=may_be_null):
        return []

    def is_lacking(item: Column) -> Column:
        return reduce(operator.or_, _lacking_in(item, kind, may_be_null=may_be_null))

    return [value.isNotNull() & F.exists(items, is_lacking)]


def _requires(kind: DataType, *, may_be_null: bool) -> bool:
    """Whether anything in a value of this type is required."""
    match kind:
        case StructType():
            return not may_be_null or any(_requires(one.dataType, may_be_null=one.nullable) for one in kind.fields)
        case ArrayType():
            return not may_be_null or _requires(kind.elementType, may_be_null=kind.containsNull)
        case MapType():
            return not may_be_null or _requires(kind.valueType, may_be_null=kind.valueContainsNull)
    return not may_be_null


def _reasons(wanted: StructType) -> Any:
    def reasons(values: pa.Array) -> pa.Array:
        return pa.array([reason(value.as_py(), wanted) for value in values], pa.string())

    return batchwise(reasons, StringType())
