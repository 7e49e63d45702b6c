"""Instances of any declared message, in any of its versions, drawn from its declaration."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ottla.wire.schema import Field, Kind, Message, Struct, WireType
from ottla.wire.shape import ordered_fields, tagged_fields

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.integers(120, 300).map("x".__mul__)
_BLOB = st.binary(max_size=12) | st.integers(120, 300).map(b"y".__mul__)
_LEAVES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOL: st.booleans(),
    Kind.INT8: st.integers(-(2**7), 2**7 - 1),
    Kind.INT16: st.integers(-(2**15), 2**15 - 1),
    Kind.UINT16: st.integers(0, 2**16 - 1),
    Kind.INT32: st.integers(-(2**31), 2**31 - 1),
    Kind.UINT32: st.integers(0, 2**32 - 1),
    Kind.INT64: st.integers(-(2**63), 2**63 - 1),
    Kind.FLOAT64: st.floats(allow_nan=False),
    Kind.UUID: st.binary(min_size=16, max_size=16),
    Kind.STRING: _TEXT,
    Kind.BYTES: _BLOB,
    Kind.RECORDS: st.binary(max_size=40).map(lambda blob: memoryview(blob)),
}
_COUNT = st.integers(0, 3)
_NULL = st.integers(0, 3).map(lambda number: number == 0)
_UNKNOWN_TAGS = st.dictionaries(st.integers(100, 300), st.binary(max_size=200), max_size=2)


@st.composite
def messages(draw: st.DrawFn, message: type[Message], version: int, *, unknown_tags: bool = False) -> Any:
    """Instances whose fields are set only where the version has them.

    One composite that walks the declaration: strategies nested like the structs would be built anew for each of some
    eight hundred versions, which takes longer than the tests.
    """
    return _struct(draw, message, version, unknown_tags and version in message.flexible)


def _struct(draw: st.DrawFn, cls: type[Struct], version: int, unknown_tags: bool) -> Any:
    fields = ordered_fields(cls, version) + tagged_fields(cls, version)
    value = cls(**{field.name: _value(draw, field, version, unknown_tags) for field in fields})
    if unknown_tags:
        value.unknown_tags = draw(_UNKNOWN_TAGS) or None
    return value


def _value(draw: st.DrawFn, field: Field, version: int, unknown_tags: bool) -> Any:
    if (field.absent_is_none or version in field.nullable) and draw(_NULL):
        return None
    value = _typed(draw, field.type, version, unknown_tags)
    # An instance full of defaults is not sent where it is tagged, and comes back as None.
    return None if field.absent_is_none and value == type(value)() else value


def _typed(draw: st.DrawFn, wire_type: WireType, version: int, unknown_tags: bool) -> Any:
    match wire_type.kind:
        case Kind.ARRAY:
            element = wire_type.array_element()
            return [_typed(draw, element, version, unknown_tags) for _ in range(draw(_COUNT))]
        case Kind.STRUCT:
            return _struct(draw, wire_type.struct_class(), version, unknown_tags)
        case kind:
            return draw(_LEAVES[kind])
