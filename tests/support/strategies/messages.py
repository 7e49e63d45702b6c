"""Instances of any declared message, in any of its versions, made from its declaration.

Two sources choose the values: Hypothesis, which shrinks what fails, and a seeded `random.Random`, which is fast enough
to fill a fuzzer's corpus.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar, Protocol

from hypothesis import strategies as st

from ottla.wire.schema import Field, Kind, Message, Struct, WireType
from ottla.wire.shape import ordered_fields, tagged_fields

_BITS = {Kind.INT8: 7, Kind.INT16: 15, Kind.UINT16: 16, Kind.INT32: 31, Kind.UINT32: 32, Kind.INT64: 63}
_UNSIGNED = {Kind.UINT16, Kind.UINT32}
MAX_ELEMENTS = 3


class Chooser(Protocol):
    """What decides the values of an instance."""

    def leaf(self, kind: Kind) -> Any: ...
    def count(self) -> int: ...
    def null(self) -> bool: ...
    def unknown_tags(self) -> dict[int, bytes]: ...


@st.composite
def messages(draw: st.DrawFn, message: type[Message], version: int, *, unknown_tags: bool = False) -> Any:
    """Instances whose fields are set only where the version has them.

    One composite that walks the declaration: strategies nested like the structs would be built anew for each of some
    eight hundred versions, which takes longer than the tests.
    """
    return build(HypothesisChooser(draw), message, version, unknown_tags and version in message.flexible)


def random_message(source: random.Random, message: type[Message], version: int) -> Any:
    """An instance from a seeded source."""
    return build(_RandomChooser(source), message, version, version in message.flexible)


def build(chooser: Chooser, cls: type[Struct], version: int, unknown_tags: bool) -> Any:
    fields = ordered_fields(cls, version) + tagged_fields(cls, version)
    value = cls(**{field.name: _value(chooser, field, version, unknown_tags) for field in fields})
    if unknown_tags:
        value.unknown_tags = chooser.unknown_tags() or None
    return value


def _value(chooser: Chooser, field: Field, version: int, unknown_tags: bool) -> Any:
    if (field.absent_is_none or version in field.nullable) and chooser.null():
        return None
    value = _typed(chooser, field.type, version, unknown_tags)
    # An instance full of defaults is not sent where it is tagged, and comes back as None.
    return None if field.absent_is_none and value == type(value)() else value


def _typed(chooser: Chooser, wire_type: WireType, version: int, unknown_tags: bool) -> Any:
    match wire_type.kind:
        case Kind.ARRAY:
            element = wire_type.array_element()
            return [_typed(chooser, element, version, unknown_tags) for _ in range(chooser.count())]
        case Kind.STRUCT:
            return build(chooser, wire_type.struct_class(), version, unknown_tags)
        case kind:
            return chooser.leaf(kind)


def _range(kind: Kind) -> tuple[int, int]:
    return (0 if kind in _UNSIGNED else -(1 << _BITS[kind]), (1 << _BITS[kind]) - 1)


class HypothesisChooser:
    """Values that shrink, drawn one by one."""

    _TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.integers(120, 300).map("x".__mul__)
    _BLOB = st.binary(max_size=12) | st.integers(120, 300).map(b"y".__mul__)
    _LEAVES: ClassVar[dict[Kind, st.SearchStrategy[Any]]] = {
        **{kind: st.integers(*_range(kind)) for kind in _BITS},
        Kind.BOOL: st.booleans(),
        Kind.FLOAT64: st.floats(allow_nan=False),
        Kind.UUID: st.binary(min_size=16, max_size=16),
        Kind.STRING: _TEXT,
        Kind.BYTES: _BLOB,
        Kind.RECORDS: st.binary(max_size=40).map(lambda blob: memoryview(blob)),
    }
    _COUNT = st.integers(0, MAX_ELEMENTS)
    _NULL = st.integers(0, 3).map(lambda number: number == 0)
    _UNKNOWN_TAGS = st.dictionaries(st.integers(100, 300), st.binary(max_size=200), max_size=2)

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def leaf(self, kind: Kind) -> Any:
        return self._draw(self._LEAVES[kind])

    def count(self) -> int:
        return self._draw(self._COUNT)

    def null(self) -> bool:
        return self._draw(self._NULL)

    def unknown_tags(self) -> dict[int, bytes]:
        return self._draw(self._UNKNOWN_TAGS)


class _RandomChooser:
    def __init__(self, source: random.Random) -> None:
        self._source = source

    def leaf(self, kind: Kind) -> Any:
        source = self._source
        if kind in _BITS:
            low, high = _range(kind)
            return source.choice((0, 1, low, high, source.randint(low, high)))
        match kind:
            case Kind.BOOL:
                return source.random() < 0.5
            case Kind.FLOAT64:
                return source.uniform(-1e9, 1e9)
            case Kind.UUID:
                return source.randbytes(16)
            case Kind.STRING:
                return "é" * source.choice((0, 1, 5, 70))
            case _:
                return source.randbytes(source.choice((0, 1, 20, 140)))

    def count(self) -> int:
        return self._source.randint(0, MAX_ELEMENTS)

    def null(self) -> bool:
        return self._source.random() < 0.25

    def unknown_tags(self) -> dict[int, bytes]:
        return {tag: self._source.randbytes(tag % 7) for tag in range(100, 100 + self._source.choice((0, 0, 0, 2)))}
