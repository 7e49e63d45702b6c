"""Python objects as what `json` can write and Spark's JSON reader understands, checked against their Spark type.

Spark would report a value of another type only as a malformed record, without the value, and read a field with a
misspelled name as null. So the types are checked here, where the value and the name of the field are known.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from numbers import Integral, Real
from typing import Any, Final

from pyspark.sql import Row
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
    StructType,
    TimestampNTZType,
    TimestampType,
)

Writer = Callable[[Any], Any]
"""Raises `TypeError` for another type, and `ValueError` for a value that the type cannot hold."""

_BITS: Final[Mapping[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_EXACT: Final = Context(prec=1000)


def writer_of(kind: DataType, where: str = "") -> Writer:
    """`where` names the field in errors."""
    return _unless_null(_writer(kind, where))


def binary_of(value: Any, kind: DataType, where: str = "") -> bytes:
    if not isinstance(value, bytes | bytearray):
        raise _unfit("bytes", kind, where, value)
    return bytes(value)


def _writer(kind: DataType, where: str) -> Writer:
    match kind:
        case StructType():
            return _struct_writer(kind, where)
        case ArrayType():
            return _array_writer(kind, where)
        case MapType():
            return _map_writer(kind, where)
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _integer_writer(kind, where)
        case DecimalType():
            return _decimal_writer(kind, where)
        case BooleanType():
            return lambda value: _checked(value, bool, "a bool", kind, where)
        case DoubleType() | FloatType():
            return lambda value: float(_number(value, Real, "a float", kind, where))
        case StringType():
            return lambda value: _text(value, kind, where)
        case BinaryType():
            return lambda value: base64.b64encode(binary_of(value, kind, where)).decode()
        case DateType():
            return lambda value: _day(_checked(value, date, "a date", kind, where))
        case TimestampType():
            return lambda value: _instant(value, kind, where)
        case TimestampNTZType():
            return lambda value: _local_time(value, kind, where)
    raise TypeError(f"no value of {kind.simpleString()} can be written as JSON")


def _struct_writer(kind: StructType, where: str) -> Writer:
    writers = {field.name: writer_of(field.dataType, _inside(where, field.name)) for field in kind.fields}

    def write(value: Any) -> dict[str, Any]:
        if isinstance(value, Row):
            value = value.asDict()
        if not isinstance(value, Mapping):
            raise _unfit("a dict", kind, where, value)
        unknown = [name for name in value if name not in writers]
        if unknown:
            raise ValueError(
                f"{kind.simpleString()}{_at(where)} has no field {unknown[0]!r}; its fields are {', '.join(writers)}"
            )
        return {name: write_field(value.get(name)) for name, write_field in writers.items()}

    return write


def _array_writer(kind: ArrayType, where: str) -> Writer:
    write_element = writer_of(kind.elementType, _inside(where, "element"))

    def write(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _unfit("a list", kind, where, value)
        return [write_element(one) for one in value]

    return write


def _map_writer(kind: MapType, where: str) -> Writer:
    write_key = _writer(kind.keyType, _inside(where, "key"))
    write_value = writer_of(kind.valueType, _inside(where, "value"))

    def write(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _unfit("a dict", kind, where, value)
        return {write_key(key): write_value(one) for key, one in value.items()}

    return write


def _integer_writer(kind: DataType, where: str) -> Writer:
    limit = 1 << (_BITS[type(kind)] - 1)

    def write(value: Any) -> int:
        number = int(_number(value, Integral, "an int", kind, where))
        if not -limit <= number < limit:
            raise ValueError(f"{number} is too large for {kind.simpleString()}{_at(where)}")
        return number

    return write


def _decimal_writer(kind: DecimalType, where: str) -> Writer:
    last_digit = Decimal(1).scaleb(-kind.scale)

    def write(value: Any) -> str:
        if isinstance(value, float):
            value = repr(value)  # 0.1 is meant to be 0.1
        elif not isinstance(value, Decimal):
            value = int(_number(value, Integral, "a Decimal", kind, where))
        number = Decimal(value)
        if not number.is_finite():
            raise ValueError(f"{number} cannot be a {kind.simpleString()}{_at(where)}")
        rounded = number.quantize(last_digit, ROUND_HALF_UP, _EXACT)
        if rounded.adjusted() >= kind.precision - kind.scale and rounded:
            raise ValueError(f"{number} is too large for {kind.simpleString()}{_at(where)}")
        return str(rounded)

    return write


def _text(value: Any, kind: DataType, where: str) -> str:
    text: str = _checked(value, str, "a str", kind, where)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} cannot be a {kind.simpleString()}{_at(where)}: {error.reason}") from None
    return text


def _day(value: date) -> str:
    return (value.date() if isinstance(value, datetime) else value).isoformat()


def _instant(value: Any, kind: DataType, where: str) -> str:
    at: datetime = _checked(value, datetime, "a datetime", kind, where)
    if at.tzinfo is None:
        raise ValueError(f"a datetime for {kind.simpleString()}{_at(where)} needs a time zone: {at!r}")
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _local_time(value: Any, kind: DataType, where: str) -> str:
    at: datetime = _checked(value, datetime, "a datetime", kind, where)
    if at.tzinfo is not None:
        raise ValueError(f"a datetime for {kind.simpleString()}{_at(where)} must not have a time zone: {at!r}")
    return at.isoformat(timespec="microseconds")


def _number(value: Any, kinds: Any, wanted: str, kind: DataType, where: str) -> Any:
    if isinstance(value, bool):
        raise _unfit(wanted, kind, where, value)
    return _checked(value, kinds, wanted, kind, where)


def _checked(value: Any, kinds: Any, wanted: str, kind: DataType, where: str) -> Any:
    if not isinstance(value, kinds):
        raise _unfit(wanted, kind, where, value)
    return value


def _unfit(wanted: str, kind: DataType, where: str, value: Any) -> TypeError:
    return TypeError(f"expected {wanted} for {kind.simpleString()}{_at(where)}, not {type(value).__name__}: {value!r}")


def _at(where: str) -> str:
    return f" at {where}" if where else ""


def _inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _unless_null(write: Writer) -> Writer:
    return lambda value: None if value is None else write(value)
