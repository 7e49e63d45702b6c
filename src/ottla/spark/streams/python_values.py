"""Packed keys and values (see `values`) as Python objects, and back, for functions that users write in Python.

Structs are dicts, timestamps are aware and in UTC, decimals are `Decimal`, binary is `bytes`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, cast

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.streams.typed_values import TEXT, Fitter, fitter_of
from ottla.spark.streams.values import ONLY

Reader = Callable[[Any], Any]


@dataclass(frozen=True)
class PythonValues:
    """Converts the values of one Spark type. Sent from the driver to the tasks."""

    kind: DataType

    def __getstate__(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def loads(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if isinstance(self.kind, BinaryType):
            return data
        text = data.decode(errors="replace")  # Spark's strings can hold bytes that are not UTF-8
        if isinstance(self.kind, StringType):
            return text
        return self._read(json.loads(text, parse_float=Decimal).get(ONLY))

    def dumps(self, value: Any) -> bytes | None:
        """Raises `TypeError` or `ValueError`, which name the field, if the value does not have the type."""
        if value is None:
            return None
        fitting = self._fit(value)
        if isinstance(self.kind, BinaryType):
            return cast(bytes, fitting)
        if isinstance(self.kind, StringType):
            return cast(str, fitting).encode()
        return json.dumps({ONLY: fitting}, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()

    @cached_property
    def _read(self) -> Reader:
        return _reader(self.kind)

    @cached_property
    def _fit(self) -> Fitter:
        return fitter_of(self.kind, TEXT)


def _plain(value: Decimal | date | bytes) -> str:
    """As Spark's JSON reader expects it, see `values`."""
    match value:
        case Decimal():
            return str(value)
        case datetime(tzinfo=None):
            return value.isoformat(timespec="microseconds")
        case datetime():
            return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()


def _reader(kind: DataType) -> Reader:
    match kind:
        case StructType():
            readers = [(field.name, _reader(field.dataType)) for field in kind.fields]
            return _unless_null(lambda found: {name: read(found.get(name)) for name, read in readers})
        case ArrayType():
            read_element = _reader(kind.elementType)
            return _unless_null(lambda found: [read_element(one) for one in found])
        case MapType():
            read_value = _reader(kind.valueType)
            return _unless_null(lambda found: {key: read_value(one) for key, one in found.items()})
        case DecimalType():
            return _unless_null(lambda found: Decimal(found))
        case DoubleType() | FloatType():
            return _unless_null(float)
        case DateType():
            return _unless_null(date.fromisoformat)
        case TimestampType() | TimestampNTZType():
            return _unless_null(datetime.fromisoformat)
        case BinaryType():
            return _unless_null(base64.b64decode)
    return lambda found: found


def _unless_null(read: Reader) -> Reader:
    return lambda found: None if found is None else read(found)
