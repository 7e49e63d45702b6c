"""The Spark type for an Avro schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

_PLAIN: Final[Mapping[str, Callable[[], DataType]]] = {
    "null": NullType,
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "bytes": BinaryType,
    "string": StringType,
    "enum": StringType,
    "fixed": BinaryType,
}
_LOGICAL: Final[Mapping[str, Callable[[], DataType]]] = {
    "date": DateType,
    "time-millis": TimeType,
    "time-micros": TimeType,
    "timestamp-millis": TimestampType,
    "timestamp-micros": TimestampType,
    "local-timestamp-millis": TimestampNTZType,
    "local-timestamp-micros": TimestampNTZType,
    "uuid": StringType,
}
_WIDER: Final = ("int", "long", "float", "double")
_MOST_DIGITS: Final = 38


def spark_type(parsed: Any) -> DataType:
    """The type for a schema in fastavro's form. Raises `ValueError` with the place if Spark has no type for it."""
    return _type_of(parsed, {}, "")


def _type_of(schema: Any, named: dict[str, DataType | None], path: str) -> DataType:
    """`named` has the types seen so far by name; None for one in progress, which therefore contains itself."""
    if isinstance(schema, list):
        return _type_of_union(schema, named, path)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]()
        known = named.get(schema)
        if known is None:
            raise _unheld(path, f"{schema} is recursive")
        return known
    kind = schema["type"]
    name = schema.get("name")
    if kind in ("record", "error"):
        named[name] = None
        fields = [
            StructField(
                field["name"], _type_of(field["type"], named, _joined(path, field["name"])), _is_nullable(field)
            )
            for field in schema["fields"]
        ]
        named[name] = StructType(fields)
        return StructType(fields)
    if kind == "array":
        items = schema["items"]
        return ArrayType(_type_of(items, named, f"{path}[]"), _admits_null(items))
    if kind == "map":
        values = schema["values"]
        return MapType(StringType(), _type_of(values, named, f"{path}{{}}"), _admits_null(values))
    if not isinstance(kind, str) or kind not in _PLAIN:
        return _type_of(kind, named, path)  # a type in its own braces
    held = _logical(schema, path) or _PLAIN[kind]()
    if name is not None:
        named[name] = held
    return held


def _type_of_union(branches: list[Any], named: dict[str, DataType | None], path: str) -> DataType:
    others = [branch for branch in branches if branch != "null"]
    if len(others) == 1:
        return _type_of(others[0], named, path)
    if not others:
        return NullType()
    if all(isinstance(branch, str) and branch in _WIDER for branch in others):
        widest = max(others, key=_WIDER.index)
        return _PLAIN["double" if widest == "float" else widest]()
    names = ", ".join(
        str(branch.get("name") or branch["type"]) if isinstance(branch, dict) else str(branch) for branch in others
    )
    raise _unheld(path, f"unions of several types ({names}) are not supported")


def _logical(schema: Mapping[str, Any], path: str) -> DataType | None:
    logical = str(schema.get("logicalType"))
    if logical == "decimal":
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if not 0 < precision <= _MOST_DIGITS:
            raise _unheld(path, f"decimals of {precision} digits are not supported, only up to {_MOST_DIGITS}")
        return DecimalType(precision, scale)
    return _LOGICAL[logical]() if logical in _LOGICAL else None


def _is_nullable(field: Mapping[str, Any]) -> bool:
    return _admits_null(field["type"])


def _admits_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _unheld(path: str, why: str) -> ValueError:
    where = f" at {path}" if path else ""
    return ValueError(f"this Avro schema cannot be converted to a Spark type{where}: {why}")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def without_uuids(value: Any) -> Any:
    """Replaces UUIDs with strings, because Arrow does not accept them."""
    match value:
        case UUID():
            return str(value)
        case dict():
            return {key: without_uuids(item) for key, item in value.items()}
        case list():
            return [without_uuids(item) for item in value]
    return value


def has_uuids(schema: Any) -> bool:
    """Whether values that fastavro reads may contain UUIDs."""
    match schema:
        case dict():
            return schema.get("logicalType") == "uuid" or any(map(has_uuids, schema.values()))
        case list():
            return any(map(has_uuids, schema))
    return False
