"""The form of a struct in one version: derived from its declaration, shared by every codec."""

from __future__ import annotations

from functools import cache
from typing import Any

from ottla.wire.schema import UNSET, Field, Kind, Struct, WireType


@cache
def ordered_fields(cls: type[Struct], version: int) -> tuple[Field, ...]:
    """The fields of this version, in order, without the tagged section."""
    return tuple(field for field in cls.fields if version in field.versions and field.tag is None)


@cache
def tagged_fields(cls: type[Struct], version: int) -> tuple[Field, ...]:
    """The fields of the tagged section in this version, by ascending tag."""
    tagged = [field for field in cls.fields if version in field.versions and field.tag is not None]
    return tuple(sorted(tagged, key=lambda field: field.tag or 0))


@cache
def absent_fields(cls: type[Struct], version: int) -> tuple[Field, ...]:
    """The fields that this version does not have."""
    return tuple(field for field in cls.fields if version not in field.versions)


def tells_default(field: Field, value: Any) -> bool:
    """Whether the value is what a reader assumes for an absent field, so that it need not be sent."""
    if field.absent_is_none:
        return value is None or value == field.type.struct_class()()
    if field.default is UNSET:
        return bool(value == field.type.struct_class()())
    return bool(value == field.default)


def minimum_size(wire_type: WireType, version: int, *, flexible: bool, compact: bool) -> int:
    """The minimum size of a value of the type: it limits the number of elements in a frame."""
    if wire_type.fixed_size is not None:
        return wire_type.fixed_size
    if wire_type.kind is Kind.STRUCT:
        return _minimum_struct_size(wire_type.struct_class(), version, flexible)
    if compact:
        return 1
    return 2 if wire_type.kind is Kind.STRING else 4


@cache
def _minimum_struct_size(cls: type[Struct], version: int, flexible: bool) -> int:
    size = 1 if flexible else 0
    for field in ordered_fields(cls, version):
        if field.type.kind is Kind.STRUCT and version in field.nullable:
            size += 1
        else:
            compact = flexible and not field.never_compact
            size += minimum_size(field.type, version, flexible=flexible, compact=compact)
    return size
