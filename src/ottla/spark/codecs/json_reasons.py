"""Explains why a value is not the JSON that a schema describes. Called only for values that Spark could not read."""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    FractionalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

_BITS: Final[dict[type[DataType], int]] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
_SHOWN_CHARS: Final = 40


def reason(value: bytes, schema: StructType) -> str:
    """Returns one sentence."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    if not text.strip():
        return "empty"
    try:
        found = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    except RecursionError:
        return "JSON is nested too deeply"
    return _misfit(found, schema, "") or f"does not match {schema.simpleString()}"


def _misfit(found: Any, wanted: DataType, path: str) -> str | None:
    """Returns the first mismatch that can be seen here; Spark's own rules for the text of dates and the like are not
    known here."""
    match wanted:
        case StructType():
            return _misfit_of_struct(found, wanted, path)
        case ArrayType():
            if not isinstance(found, list):
                return _told(found, "an array", path)
            places = ((item, wanted.elementType, f"{path}[{index}]") for index, item in enumerate(found))
            may_be_null = wanted.containsNull
        case MapType():
            if not isinstance(found, dict):
                return _told(found, "an object", path)
            places = ((item, wanted.valueType, _joined(path, key)) for key, item in found.items())
            may_be_null = wanted.valueContainsNull
        case _:
            return _misfit_of_scalar(found, wanted, path)
    for item, kind, place in places:
        if item is None:
            if not may_be_null:
                return f"{place}: is null, but the schema requires a value"
        elif told := _misfit(item, kind, place):
            return told
    return None


def _misfit_of_struct(found: Any, wanted: StructType, path: str) -> str | None:
    if not isinstance(found, dict):
        return _told(found, "an object", path)
    for field in wanted.fields:
        place = _joined(path, field.name)
        if found.get(field.name) is None:
            if not field.nullable:
                return f"{place}: is missing, but the schema requires it"
        elif told := _misfit(found[field.name], field.dataType, place):
            return told
    return None


def _misfit_of_scalar(found: Any, wanted: DataType, path: str) -> str | None:
    name = wanted.simpleString()
    if isinstance(wanted, StringType):
        return None  # Spark accepts anything as a string
    if isinstance(wanted, BooleanType):
        return None if isinstance(found, bool) else _told(found, name, path)
    bits = _BITS.get(type(wanted))
    if bits is not None:
        is_fit = isinstance(found, int) and not isinstance(found, bool) and -(1 << bits) <= found < 1 << bits
        return None if is_fit else _told(found, name, path)
    if isinstance(wanted, FractionalType):
        is_fit = isinstance(found, int | float) and not isinstance(found, bool)
        return None if is_fit else _told(found, name, path)
    return _told(found, name, path)


def _told(found: Any, wanted: str, path: str) -> str:
    text = json.dumps(found, ensure_ascii=False)
    shown = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
    return f"{path + ': ' if path else ''}{shown} is not {wanted}"


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
