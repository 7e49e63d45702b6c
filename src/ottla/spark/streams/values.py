"""Keys and values as bytes, and back: what operators shuffle, compare and keep in their state.

Binary columns are used as they are, strings as UTF-8, and everything else as JSON, written and read by Spark. The same
value always gives the same bytes, so that keys can be compared by them; only maps are no keys.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.streams.frames import StreamError

_SCALARS: Final = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
_WRITING: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
_READING: Final = {**{key: text for key, text in _WRITING.items() if key != "ignoreNullFields"}, "mode": "FAILFAST"}
ONLY: Final = "v"
"""The field of the JSON that has the value."""


def packed_key(column: Column, kind: DataType, what: str) -> Column:
    """As `packed`, for columns whose bytes are compared."""
    if _has_map(kind):
        words = f"{what} contains a map, whose entries have no order, so that equal maps would be different keys"
        raise StreamError(f"{words}: use sorted entries (array_sort(map_entries(…))), or a struct")
    return packed(column, kind, what)


def packed(column: Column, kind: DataType, what: str) -> Column:
    """The column as bytes; null stays null. `what` names it in errors."""
    check_kind(kind, what)
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StringType):
        return column.cast("binary")
    # A struct around it, because only structs, arrays and maps can be JSON.
    return F.when(column.isNotNull(), F.to_json(F.struct(column.alias(ONLY)), _WRITING).cast("binary"))


def unpacked(column: Column, kind: DataType) -> Column:
    """The inverse of `packed`."""
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StringType):
        return column.cast("string")
    schema = StructType([StructField(ONLY, kind)])
    return F.from_json(column.cast("string"), schema, _READING).getField(ONLY)


def check_kind(kind: DataType, what: str) -> None:
    """Raises `StreamError` if a type cannot be packed."""
    found = _unfit(kind)
    if found is not None:
        words = f"{what} contains {found.simpleString()}, which has no representation as JSON"
        raise StreamError(f"{words}: keep it as bytes (or cast it), and decode it after the operator")


def _has_map(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(_has_map(field.dataType) for field in kind.fields)
        case ArrayType():
            return _has_map(kind.elementType)
    return isinstance(kind, MapType)


def _unfit(kind: DataType) -> DataType | None:
    inner: list[DataType]
    if isinstance(kind, StructType):
        inner = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            return kind
        inner = [kind.valueType]
    else:
        return None if isinstance(kind, _SCALARS) else kind
    return next((found for one in inner if (found := _unfit(one)) is not None), None)
