"""How a message is declared: once, as a class, with the versions of each field.

    class FetchPartition(Struct):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1, ignorable=True)

    class FetchRequest(Request, api_key=1, versions="0-18", flexible="12+"):
        topics: list[FetchTopic] = array(FetchTopic)

The call on the right declares the wire type and gives a type checker the Python type, so the two cannot differ. Fields
are encoded in the order of their declaration. One class serves every version: a field that a version lacks has its
default after reading, and may only be dropped on writing if it is `ignorable`.

A field takes `versions` (all by default) and

- `default`: the value of an absent field. By default numbers are 0, strings and arrays empty;
- `nullable`: the versions in which null is distinct from empty;
- `tag`: the field is in the tagged section of its struct, under this number, and only if it is not its default;
- `ignorable`: writing a version without the field drops the value silently instead of raising;
- `key`: the field is (part of) the key that identifies the elements of an array of this struct.

A missing struct of the tagged section is `None`, not an instance full of defaults: building a response for a thousand
partitions must not build thousands of objects that are never sent.

Nothing here reads or writes bytes: `plain` interprets declarations, `reader` and `writer` compile them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar, cast, dataclass_transform, overload

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.wire.versions import NO_VERSIONS, Versions

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview
"""The value of a records field: not copied. A writer accepts anything that has a length."""


class Kind(Enum):
    """The type of a field on the wire; for those of fixed size, their `struct` code."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    UINT32 = "I"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    ARRAY = "array"
    STRUCT = "struct"


FIXED_SIZES: Final = {
    Kind.BOOL: 1,
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.UINT16: 2,
    Kind.INT32: 4,
    Kind.UINT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.UUID: 16,
}


@dataclass(frozen=True, slots=True)
class WireType:
    """A kind, with the element of an array or the class of a struct."""

    kind: Kind
    element: WireType | None = None
    struct: type[Struct] | None = None

    @property
    def fixed_size(self) -> int | None:
        return FIXED_SIZES.get(self.kind)

    def array_element(self) -> WireType:
        if self.element is None:
            raise TypeError(f"{self.kind} has no elements")
        return self.element

    def struct_class(self) -> type[Struct]:
        if self.struct is None:
            raise TypeError(f"{self.kind} is not a struct")
        return self.struct


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct, as declared. Its class sets `name`."""

    type: WireType
    versions: Versions
    default: Any
    nullable: Versions = NO_VERSIONS
    tag: int | None = None
    ignorable: bool = False
    key: bool = False
    never_compact: bool = False
    name: str = ""

    @property
    def absent_is_none(self) -> bool:
        """Whether `None` means a tagged struct that is not sent. If null itself can be sent, it cannot."""
        return self.tag is not None and self.type.kind is Kind.STRUCT and not self.nullable

    def fresh_default(self) -> Any:
        """A new copy of the default: two messages never share a list or a struct."""
        if self.default == [] and self.type.kind is Kind.ARRAY:
            return []
        if self.default is UNSET:
            return self.type.struct_class()()
        return self.default


class _Unset(Enum):
    UNSET = 0

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset.UNSET
"""Not given: for values whose default must be created each time."""


class Primitive(Generic[T]):
    """The type of array elements that are not structs; `T` is their Python type."""

    __slots__ = ("type",)

    def __init__(self, kind: Kind) -> None:
        self.type = WireType(kind)


BOOL: Final = Primitive[bool](Kind.BOOL)
INT8: Final = Primitive[int](Kind.INT8)
INT16: Final = Primitive[int](Kind.INT16)
INT32: Final = Primitive[int](Kind.INT32)
INT64: Final = Primitive[int](Kind.INT64)
STRING: Final = Primitive[str](Kind.STRING)
UUID: Final = Primitive[Uuid](Kind.UUID)


def _number(kind: Kind) -> Callable[..., int]:
    def declare(
        versions: str = "0+",
        *,
        default: int = 0,
        tag: int | None = None,
        ignorable: bool = False,
        key: bool = False,
    ) -> int:
        return cast(
            int, Field(WireType(kind), Versions.parse(versions), default, tag=tag, ignorable=ignorable, key=key)
        )

    return declare


int8 = _number(Kind.INT8)
int16 = _number(Kind.INT16)
uint16 = _number(Kind.UINT16)
int32 = _number(Kind.INT32)
uint32 = _number(Kind.UINT32)
int64 = _number(Kind.INT64)


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None, ignorable: bool = False) -> bool:
    return cast(bool, Field(WireType(Kind.BOOL), Versions.parse(versions), default, tag=tag, ignorable=ignorable))


def float64(versions: str = "0+", *, default: float = 0.0, ignorable: bool = False) -> float:
    return cast(float, Field(WireType(Kind.FLOAT64), Versions.parse(versions), default, ignorable=ignorable))


def uuid(
    versions: str = "0+",
    *,
    default: Uuid = ZERO_UUID,
    tag: int | None = None,
    ignorable: bool = False,
    key: bool = False,
) -> Uuid:
    field = Field(WireType(Kind.UUID), Versions.parse(versions), default, tag=tag, ignorable=ignorable, key=key)
    return cast(Uuid, field)


@overload
def string(
    versions: str = "0+",
    *,
    default: str = "",
    nullable: None = None,
    tag: int | None = None,
    ignorable: bool = False,
    key: bool = False,
) -> str: ...
@overload
def string(
    versions: str = "0+",
    *,
    nullable: str,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
    key: bool = False,
    never_compact: bool = False,
) -> str | None: ...
def string(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
    key: bool = False,
    never_compact: bool = False,
) -> Any:
    """A string. `never_compact` keeps the two-byte length in flexible versions (the client id of a request header)."""
    return Field(
        WireType(Kind.STRING),
        Versions.parse(versions),
        default,
        nullable=Versions.parse(nullable or "none"),
        tag=tag,
        ignorable=ignorable,
        key=key,
        never_compact=never_compact,
    )


@overload
def binary(
    versions: str = "0+",
    *,
    default: bytes = b"",
    nullable: None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> bytes: ...
@overload
def binary(
    versions: str = "0+",
    *,
    nullable: str,
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> bytes | None: ...
def binary(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Opaque bytes, copied out of the frame on reading: they are small and outlive it."""
    return Field(
        WireType(Kind.BYTES),
        Versions.parse(versions),
        default,
        nullable=Versions.parse(nullable or "none"),
        tag=tag,
        ignorable=ignorable,
    )


def records(versions: str = "0+", *, nullable: str = "none", ignorable: bool = False) -> Bytes | None:
    """Record batches. Reading gives a `memoryview` into the frame; writing keeps them as a separate chunk."""
    field = Field(
        WireType(Kind.RECORDS), Versions.parse(versions), None, nullable=Versions.parse(nullable), ignorable=ignorable
    )
    return cast("Bytes | None", field)


@overload
def array(
    element: type[T] | Primitive[T],
    versions: str = "0+",
    *,
    nullable: None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T]: ...
@overload
def array(
    element: type[T] | Primitive[T],
    versions: str = "0+",
    *,
    nullable: str,
    default: Iterable[T] | None = (),
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T] | None: ...
def array(
    element: Any,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: Iterable[Any] | None = (),
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Elements in order. Structs with a `key` are identified by it, but are still a list here."""
    inner = element.type if isinstance(element, Primitive) else WireType(Kind.STRUCT, struct=element)
    return Field(
        WireType(Kind.ARRAY, element=inner),
        Versions.parse(versions),
        None if default is None else list(default),
        nullable=Versions.parse(nullable or "none"),
        tag=tag,
        ignorable=ignorable,
    )


@overload
def nested(
    struct: type[T],
    versions: str = "0+",
    *,
    nullable: None = None,
    tag: None = None,
    ignorable: bool = False,
) -> T: ...
@overload
def nested(
    struct: type[T],
    versions: str = "0+",
    *,
    nullable: str,
    default: _Unset | None = UNSET,
    tag: int | None = None,
    ignorable: bool = False,
) -> T | None: ...
@overload
def nested(
    struct: type[T], versions: str = "0+", *, nullable: None = None, tag: int, ignorable: bool = False
) -> T | None: ...
def nested(
    struct: Any,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: _Unset | None = UNSET,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A struct inside a struct; `None` if it is null, or tagged and absent.

    One that is both tagged and nullable encodes null in its tagged field: its absence means `default`.
    """
    return Field(
        WireType(Kind.STRUCT, struct=struct),
        Versions.parse(versions),
        None if tag is not None and nullable is None else default,
        nullable=Versions.parse(nullable or "none"),
        tag=tag,
        ignorable=ignorable,
    )


class _StructType(type):
    """Removes the declarations from the class body, so that slots can have their names."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> Any:
        declared = {key: value for key, value in body.items() if isinstance(value, Field)}
        for key in declared:
            del body[key]
        body.setdefault("__slots__", tuple(declared))
        cls = super().__new__(mcs, name, bases, body, **options)
        if declared:
            cls.fields = tuple(  # type: ignore[attr-defined]  # Struct, the base of all, declares it
                Field(
                    field.type,
                    field.versions,
                    field.default,
                    field.nullable,
                    field.tag,
                    field.ignorable,
                    field.key,
                    field.never_compact,
                    key,
                )
                for key, field in declared.items()
            )
        return cls


@dataclass_transform(kw_only_default=True)
class Struct(metaclass=_StructType):
    """A group of fields. Not thread-safe; owned by its creator."""

    __slots__ = ("unknown_tags",)

    fields: ClassVar[tuple[Field, ...]] = ()
    unknown_tags: dict[int, bytes] | None

    def __init__(self, **values: Any) -> None:
        # The first instance of a class compiles its constructor; importing 70 modules must not compile 700.
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, field.name) == getattr(other, field.name) for field in self.fields
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        shown = [(field.name, getattr(self, field.name), field.fresh_default()) for field in self.fields]
        told = [f"{name}={value!r}" for name, value, default in shown if value != default]
        if self.unknown_tags:
            told.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(told)})"


def _compile_init(cls: type[Struct]) -> Any:
    scope: dict[str, Any] = {"UNSET": UNSET}
    parameters, lines = [], ["    self.unknown_tags = None"]
    for field in cls.fields:
        name = field.name
        if field.type.kind is Kind.ARRAY and field.default is not None:
            parameters.append(f"{name}=UNSET")
            lines.append(f"    self.{name} = [] if {name} is UNSET else {name}")
        elif field.default is UNSET:
            scope[f"make_{name}"] = field.type.struct
            parameters.append(f"{name}=UNSET")
            lines.append(f"    self.{name} = make_{name}() if {name} is UNSET else {name}")
        else:
            scope[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            lines.append(f"    self.{name} = {name}")
    head = f"def __init__(self{', *, ' if parameters else ''}{', '.join(parameters)}):"
    exec(compile("\n".join([head, *lines]), f"<init {cls.__name__}>", "exec"), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


class Message(Struct):
    """A top-level struct: its `versions`; from `flexible` on it has compact lengths and tagged fields.

    `unstable` are versions that Kafka declares but does not serve by default.
    """

    __slots__ = ()

    versions: ClassVar[Versions]
    flexible: ClassVar[Versions]
    unstable: ClassVar[Versions]

    def __init_subclass__(cls, *, versions: str = "", flexible: str = "none", unstable: str = "none") -> None:
        super().__init_subclass__()
        if versions:
            cls.versions = Versions.parse(versions)
            cls.flexible = Versions.parse(flexible)
            cls.unstable = Versions.parse(unstable)


class _ApiMessage(Message):
    __slots__ = ()

    api_key: ClassVar[int]

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str = "", flexible: str = "none", unstable: str = "none"
    ) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible, unstable=unstable)
        if api_key >= 0:
            cls.api_key = api_key


class Request(_ApiMessage):
    """A request of a client or another broker."""

    __slots__ = ()


class Response(_ApiMessage):
    """The response to the request of the same API key, in the same version."""

    __slots__ = ()


class Header(Message):
    """The header of a request or a response in its frame."""

    __slots__ = ()


class Data(Message):
    """A schema inside something else: a record of an internal topic, a blob in a field."""

    __slots__ = ()
