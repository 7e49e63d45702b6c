"""Our messages as the trees that kio's process takes and gives, and such trees drawn from kio's declarations.

Everything is derived from two declarations of the same struct, ours and kio's, which must name the same fields in the
same order. kio takes the unit off the names of durations and instants, and puts an underscore behind names that
Python uses itself; nothing else differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from ottla.base.ids import ZERO_UUID
from ottla.wire.schema import Field, Kind, Struct, WireType
from support.oracles.kio_process import KioField, Tree
from support.strategies.messages import Chooser, HypothesisChooser

KINDS: Final = {
    "bool": Kind.BOOL,
    "int8": Kind.INT8,
    "int16": Kind.INT16,
    "uint16": Kind.UINT16,
    "int32": Kind.INT32,
    "int64": Kind.INT64,
    "float64": Kind.FLOAT64,
    "uuid": Kind.UUID,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
    "records": Kind.RECORDS,
    "struct": Kind.STRUCT,
    "error_code": Kind.INT16,
    "timedelta_i32": Kind.INT32,
    "timedelta_i64": Kind.INT64,
    "datetime_i64": Kind.INT64,
}
"""What each type of kio is on the wire."""

TIMES: Final = {"timedelta_i32", "timedelta_i64", "datetime_i64"}
TIMEDELTA_MS_LIMIT: Final = 2**51
"""kio computes milliseconds from the float of seconds; from 2**53 on that loses some."""
DATETIME_MS_LIMIT: Final = 253_402_300_800_000
"""The year 10000, which Python's datetime does not reach."""
NONE_AS_VALUE: Final = {"uuid": ZERO_UUID, "datetime_i64": -1}
"""Where kio's None is no null on the wire, but a value: the id of zeros, the instant -1."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One field as both declare it, with the fields of the struct in it."""

    path: str
    ours: Field
    kio: KioField
    inner: tuple[Pair, ...]

    @property
    def element(self) -> WireType:
        """Our type of the field, or of its elements."""
        return self.ours.type.array_element() if self.ours.type.kind is Kind.ARRAY else self.ours.type


def pairs(cls: type[Struct], version: int, kio_fields: Sequence[KioField], path: str = "") -> tuple[Pair, ...]:
    """The fields of a struct side by side; raises where they are not the same fields in the same order."""
    own = [field for field in cls.fields if version in field.versions]
    names = [field.name for field in own]
    expected = [_name_of_ours(field) for field in kio_fields]
    if names != expected:
        raise AssertionError(f"{cls.__name__} v{version} at {path or 'top'}: we have {names}, kio has {expected}")
    paired = []
    for field, kio in zip(own, kio_fields, strict=True):
        where = f"{path}.{field.name}".lstrip(".")
        element = field.type.array_element() if field.type.kind is Kind.ARRAY else field.type
        inner = pairs(element.struct_class(), version, kio.fields, where) if element.kind is Kind.STRUCT else ()
        paired.append(Pair(where, field, kio, inner))
    return tuple(paired)


def _name_of_ours(kio: KioField) -> str:
    return kio.name.removesuffix("_") + ("_ms" if kio.kafka_type in TIMES else "")


def differences(pair: Pair, version: int) -> list[str]:
    """In what the declarations of a field, and of the fields in it, differ."""
    ours, kio = pair.ours, pair.kio
    aspects: list[tuple[str, Any, Any]] = [
        ("type", pair.element.kind, KINDS[kio.kafka_type]),
        ("array", ours.type.kind is Kind.ARRAY, kio.is_array),
        ("tag", ours.tag, kio.tag),
    ]
    if kio.kafka_type not in NONE_AS_VALUE or kio.is_array:
        aspects.append(("nullable", version in ours.nullable, kio.nullable))
    if kio.has_default:
        aspects.append(("default", _bare_field(pair, ours.fresh_default()), kio.default))
    told = [f"{pair.path}: {aspect} is {own!r}, kio's {other!r}" for aspect, own, other in aspects if own != other]
    return told + [difference for inner in pair.inner for difference in differences(inner, version)]


def bare(value: Struct, paired: Sequence[Pair]) -> Tree:
    """Our message as the tree that kio makes of the same message."""
    return {pair.kio.name: _bare_field(pair, getattr(value, pair.ours.name)) for pair in paired}


def _bare_field(pair: Pair, value: Any) -> Any:
    if value is None and pair.ours.absent_is_none:
        # We leave out what kio fills with defaults.
        value = pair.element.struct_class()()
    if value is None:
        return None
    if pair.ours.type.kind is Kind.ARRAY:
        return [bare(element, pair.inner) for element in value] if pair.inner else value
    if pair.inner:
        return bare(value, pair.inner)
    return bytes(value) if pair.ours.type.kind is Kind.RECORDS else value


def confine(value: Struct, paired: Sequence[Pair], error_codes: Sequence[int]) -> None:
    """Changes the message where it holds what kio cannot."""
    for pair in paired:
        held = getattr(value, pair.ours.name)
        if pair.inner and held is not None:
            for element in held if pair.ours.type.kind is Kind.ARRAY else [held]:
                confine(element, pair.inner, error_codes)
        elif held is not None:
            setattr(value, pair.ours.name, _confined(pair.kio, held, error_codes))


def _confined(kio: KioField, value: Any, error_codes: Sequence[int]) -> Any:
    match kio.kafka_type:
        case "error_code":  # an enumeration
            return value if value in error_codes else error_codes[value % len(error_codes)]
        case "timedelta_i64":
            return value if abs(value) < TIMEDELTA_MS_LIMIT else value % TIMEDELTA_MS_LIMIT
        case "datetime_i64":  # refuses what is before 1970; -1 is its None
            return value if kio.nullable and value == -1 else value % DATETIME_MS_LIMIT
    return value


@st.composite
def trees(draw: st.DrawFn, kio_fields: Sequence[KioField], error_codes: Sequence[int]) -> Tree:
    """Messages that kio can hold, from its own declarations: ours have no say in them."""
    return _tree(HypothesisChooser(draw), kio_fields, error_codes)


def _tree(chooser: Chooser, kio_fields: Sequence[KioField], error_codes: Sequence[int]) -> Tree:
    return {field.name: _tree_field(chooser, field, error_codes) for field in kio_fields}


def _tree_field(chooser: Chooser, field: KioField, error_codes: Sequence[int]) -> Any:
    if field.nullable and chooser.null():
        return None if field.is_array else NONE_AS_VALUE.get(field.kafka_type)
    if field.is_array:
        return [_tree_element(chooser, field, error_codes) for _ in range(chooser.count())]
    return _tree_element(chooser, field, error_codes)


def _tree_element(chooser: Chooser, field: KioField, error_codes: Sequence[int]) -> Any:
    if field.fields:
        return _tree(chooser, field.fields, error_codes)
    leaf = chooser.leaf(KINDS[field.kafka_type])
    return bytes(leaf) if field.kafka_type == "records" else _confined(field, leaf, error_codes)


class FullChooser:
    """Fills every field, each with a value of its own: nothing is null or empty, so that no field goes unseen."""

    def __init__(self) -> None:
        self._last = 0

    def leaf(self, kind: Kind) -> Any:
        self._last += 1
        number = self._last
        match kind:
            case Kind.BOOL:
                return number % 2 == 0
            case Kind.INT8:
                return number % 127
            case Kind.FLOAT64:
                return number / 4
            case Kind.UUID:
                return number.to_bytes(16, "big")
            case Kind.STRING:
                return f"text {number}"
            case Kind.BYTES | Kind.RECORDS:
                return f"bytes {number}".encode()
            case _:
                return number

    def count(self) -> int:
        return 2

    def null(self) -> bool:
        return False

    def unknown_tags(self) -> dict[int, bytes]:
        return {}
