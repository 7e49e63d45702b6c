"""Python objects checked against a Spark type, and made into the objects that stand for it.

Spark does not check what Python gives it: a value of another type is stored as null, or read as a malformed record, of
which the error does not say what it was, and a field with a misspelled name becomes null. So types are checked here,
where the value and the name of the field are known. Numbers become those of the type: an int is a double if it must be.

The objects are new, so that nothing changes if the given ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime
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

Fitter = Callable[[Any], Any]
"""Raises `TypeError` for another type, and `ValueError` for a value that the type cannot hold. None stays None."""

_BITS: Final[Mapping[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_EXACT: Final = Context(prec=1000)


@dataclass(frozen=True)
class Style:
    """What the objects are for."""

    has_rows: bool
    """Structs become rows, otherwise dicts."""
    is_zoned: bool
    """Whether timestamps need a time zone. Spark takes one without for local time."""


TEXT: Final = Style(has_rows=False, is_zoned=True)
"""For JSON."""
STATE: Final = Style(has_rows=True, is_zoned=False)
"""For Spark's state: what it returns."""


def fitter_of(kind: DataType, style: Style, where: str = "") -> Fitter:
    """`where` names the field in errors."""
    fit = _fitter(kind, style, where)
    return lambda value: None if value is None else fit(value)


def _fitter(kind: DataType, style: Style, where: str) -> Fitter:
    match kind:
        case StructType():
            return _struct_fitter(kind, style, where)
        case ArrayType():
            return _array_fitter(kind, style, where)
        case MapType():
            return _map_fitter(kind, style, where)
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _integer_fitter(kind, where)
        case DecimalType():
            return _decimal_fitter(kind, where)
        case BooleanType():
            return lambda value: _checked(value, bool, "a bool", kind, where)
        case DoubleType() | FloatType():
            return lambda value: float(_number(value, Real, "a float", kind, where))
        case StringType():
            return lambda value: _text(value, kind, where)
        case BinaryType():
            return lambda value: bytes(_checked(value, bytes | bytearray, "bytes", kind, where))
        case DateType():
            return lambda value: _day(_checked(value, date, "a date", kind, where))
        case TimestampType():
            return lambda value: _instant(value, kind, style, where)
        case TimestampNTZType():
            return lambda value: _local_time(value, kind, where)
    return deepcopy


def _struct_fitter(kind: StructType, style: Style, where: str) -> Fitter:
    fitters = {field.name: fitter_of(field.dataType, style, _inside(where, field.name)) for field in kind.fields}
    make_row = Row(*fitters)

    def fit(value: Any) -> Any:
        if isinstance(value, Row):
            value = value.asDict()
        if not isinstance(value, Mapping):
            raise _unfit("a dict or a Row", kind, where, value)
        unknown = [name for name in value if name not in fitters]
        if unknown:
            raise ValueError(
                f"{kind.simpleString()}{_at(where)} has no field {unknown[0]!r}; its fields are {', '.join(fitters)}"
            )
        fields = {name: fit_field(value.get(name)) for name, fit_field in fitters.items()}
        return make_row(*fields.values()) if style.has_rows else fields

    return fit


def _array_fitter(kind: ArrayType, style: Style, where: str) -> Fitter:
    fit_element = fitter_of(kind.elementType, style, _inside(where, "element"))

    def fit(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or isinstance(value, Row):
            raise _unfit("a list", kind, where, value)
        return [fit_element(one) for one in value]

    return fit


def _map_fitter(kind: MapType, style: Style, where: str) -> Fitter:
    fit_key = _fitter(kind.keyType, style, _inside(where, "key"))
    fit_value = fitter_of(kind.valueType, style, _inside(where, "value"))

    def fit(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise _unfit("a dict", kind, where, value)
        return {fit_key(key): fit_value(one) for key, one in value.items()}

    return fit


def _integer_fitter(kind: DataType, where: str) -> Fitter:
    limit = 1 << (_BITS[type(kind)] - 1)

    def fit(value: Any) -> int:
        number = int(_number(value, Integral, "an int", kind, where))
        if not -limit <= number < limit:
            raise ValueError(f"{number} is too large for {kind.simpleString()}{_at(where)}")
        return number

    return fit


def _decimal_fitter(kind: DecimalType, where: str) -> Fitter:
    last_digit = Decimal(1).scaleb(-kind.scale)

    def fit(value: Any) -> Decimal:
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
        return rounded

    return fit


def _text(value: Any, kind: DataType, where: str) -> str:
    text: str = _checked(value, str, "a str", kind, where)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} cannot be a {kind.simpleString()}{_at(where)}: {error.reason}") from None
    return text


def _day(value: date) -> date:
    return value.date() if isinstance(value, datetime) else value


def _instant(value: Any, kind: DataType, style: Style, where: str) -> datetime:
    at: datetime = _checked(value, datetime, "a datetime", kind, where)
    if at.tzinfo is None and style.is_zoned:
        raise ValueError(f"a datetime for {kind.simpleString()}{_at(where)} needs a time zone: {at!r}")
    return at


def _local_time(value: Any, kind: DataType, where: str) -> datetime:
    at: datetime = _checked(value, datetime, "a datetime", kind, where)
    if at.tzinfo is not None:
        raise ValueError(f"a datetime for {kind.simpleString()}{_at(where)} must not have a time zone: {at!r}")
    return at


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
