"""JSON, read and written by Spark's own functions; only the reasons for invalid rows are found in Python."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

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
    """For each required field, whether it is missing. Spark's reader treats all fields as optional."""
    conditions: list[Column] = []
    for field in wanted.fields:
        inner = place.getField(field.name)
        if not field.nullable:
            conditions.append(inner.isNull())
        if isinstance(field.dataType, StructType):
            conditions += [inner.isNotNull() & lacking for lacking in _lacking(inner, field.dataType)]
    return conditions


def _reasons(wanted: StructType) -> Any:
    def reasons(values: pa.Array) -> pa.Array:
        return pa.array([reason(value.as_py(), wanted) for value in values], pa.string())

    return batchwise(reasons, StringType())
