"""The readable codec: walks a declaration field by field.

It is the oracle against which the compiled codec is tested, and produces the error message when that one fails: the
compiled code only knows that something is wrong, this one knows which field, where, and why. Slow, and never on a hot
path.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from ottla.wire.errors import (
    InvalidLengthError,
    InvalidTagError,
    InvalidTextError,
    InvalidValueError,
    InvalidVarintError,
    ProtocolError,
    TrailingBytesError,
    TruncatedError,
    UnexpectedNullError,
    UnsupportedVersionError,
)
from ottla.wire.schema import Field, Kind, Message, Struct, WireType
from ottla.wire.shape import absent_fields, minimum_size, ordered_fields, tagged_fields, tells_default
from ottla.wire.varint import OverlongError, encode_unsigned, read_unsigned

M = TypeVar("M", bound=Message)

MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1


def read(message: type[M], version: int, data: bytes | memoryview) -> M:
    """The message that fills the data."""
    reader = _Reader(message, version, data)
    value: M = reader.struct(message)
    if reader.at != len(data):
        raise reader.error(TrailingBytesError, f"{len(data) - reader.at} bytes are left after the last field")
    return value


def write(value: Message, version: int) -> bytes:
    """The bytes of the message in that version."""
    writer = _Writer(type(value), version)
    writer.struct(value)
    return b"".join(writer.parts)


class _Walk:
    """Keeps the path to the current field, for error messages."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.path: list[str] = []

    @contextmanager
    def inside(self, step: str) -> Iterator[None]:
        self.path.append(step)
        yield
        self.path.pop()  # not on an error: its message needs the path

    @property
    def title(self) -> str:
        return f"{self.message.__name__} v{self.version}"

    @property
    def field(self) -> str:
        return "".join(self.path).removeprefix(".")


class _Reader(_Walk):
    def __init__(self, message: type[Message], version: int, data: bytes | memoryview) -> None:
        super().__init__(message, version)
        self.data = data
        self.at = 0

    def error(self, kind: type[ProtocolError], reason: str) -> ProtocolError:
        return kind(reason, message=self.title, field=self.field, offset=self.at)

    def take(self, size: int) -> bytes | memoryview:
        left = len(self.data) - self.at
        if size > left:
            raise self.error(TruncatedError, f"{size} bytes are needed, {left} are left")
        taken = self.data[self.at : self.at + size]
        self.at += size
        return taken

    def unsigned(self) -> int:
        try:
            value, self.at = read_unsigned(self.data, self.at)
        except IndexError:
            raise self.error(TruncatedError, "the data ends within a variable-length number") from None
        except OverlongError:
            raise self.error(
                InvalidVarintError, "a variable-length number does not fit 32 bits in five bytes"
            ) from None
        return value

    def fixed(self, kind: Kind) -> Any:
        layout = struct.Struct(">" + kind.value)
        return layout.unpack(self.take(layout.size))[0]

    def length(self, kind: Kind, compact: bool, nullable: bool) -> int | None:
        """The number of bytes or elements that follow; None for null."""
        width = Kind.INT16 if kind is Kind.STRING else Kind.INT32
        length = self.unsigned() - 1 if compact else self.fixed(width)
        if length == -1:
            if not nullable:
                raise self.error(UnexpectedNullError, "null is not allowed here")
            return None
        if length < 0:
            raise self.error(InvalidLengthError, f"a length of {length}")
        return int(length)

    def struct(self, cls: type[Struct]) -> Any:
        value = cls.__new__(cls)
        value.unknown_tags = None
        for field in absent_fields(cls, self.version) + tagged_fields(cls, self.version):
            setattr(value, field.name, field.fresh_default())
        for field in ordered_fields(cls, self.version):
            with self.inside(f".{field.name}"):
                setattr(value, field.name, self.value(field))
        if self.flexible:
            self.tags(value)
        return value

    def value(self, field: Field) -> Any:
        compact = self.flexible and not field.never_compact
        if field.type.kind is Kind.STRUCT and self.version in field.nullable:
            return self.nullable_struct(field)
        return self.typed(field.type, compact, self.version in field.nullable)

    def typed(self, wire_type: WireType, compact: bool, nullable: bool) -> Any:
        kind = wire_type.kind
        if wire_type.fixed_size is not None:
            return self.fixed(kind)
        if kind is Kind.STRUCT:
            return self.struct(wire_type.struct_class())
        length = self.length(kind, compact, nullable)
        if length is None:
            return None
        if kind is Kind.ARRAY:
            return self.elements(wire_type.array_element(), length, compact)
        if length > len(self.data) - self.at:
            raise self.error(InvalidLengthError, f"a length of {length}, but {len(self.data) - self.at} bytes are left")
        taken = self.take(length)
        if kind is Kind.STRING:
            try:
                return str(taken, "utf-8")
            except UnicodeDecodeError as error:
                self.at -= length
                raise self.error(InvalidTextError, f"not UTF-8: {error.reason}") from None
        return memoryview(taken) if kind is Kind.RECORDS else bytes(taken)

    def nullable_struct(self, field: Field) -> Any:
        """Preceded by 1, or by -1 for null; as a tagged field, by 0 for null."""
        marker, null = self.fixed(Kind.INT8), -1 if field.tag is None else 0
        if marker == null:
            return None
        if marker != 1:
            raise self.error(InvalidLengthError, f"a struct is marked by 1, or by {null} for null, not by {marker}")
        return self.struct(field.type.struct_class())

    def elements(self, element: WireType, count: int, compact: bool) -> list[Any]:
        least = minimum_size(element, self.version, flexible=self.flexible, compact=compact)
        left = len(self.data) - self.at
        if count * max(least, 1) > left:
            raise self.error(InvalidLengthError, f"{count} elements of at least {least} bytes, but {left} are left")
        values = []
        for index in range(count):
            with self.inside(f"[{index}]"):
                values.append(self.typed(element, compact, nullable=False))
        return values

    def tags(self, value: Struct) -> None:
        known = {field.tag: field for field in tagged_fields(type(value), self.version)}
        unknown: dict[int, bytes] = {}
        for _ in range(self.unsigned()):  # in any order, as Kafka reads them
            tag = self.unsigned()
            size = self.unsigned()
            end = self.at + size
            if end > len(self.data):
                reason = f"tag {tag} announces {size} bytes, {len(self.data) - self.at} are left"
                raise self.error(InvalidLengthError, reason)
            field = known.get(tag)
            if field is None:
                unknown[tag] = bytes(self.take(size))
                continue
            with self.inside(f".{field.name}"):
                setattr(value, field.name, self.value(field))
                if self.at != end:
                    raise self.error(
                        InvalidTagError, f"tag {tag} announces {size} bytes and takes {self.at - end + size}"
                    )
        value.unknown_tags = unknown or None


class _Writer(_Walk):
    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.parts: list[Any] = []

    def error(self, kind: type[ProtocolError], reason: str) -> ProtocolError:
        return kind(reason, message=self.title, field=self.field)

    def fixed(self, kind: Kind, value: Any) -> None:
        if kind is Kind.UUID and (not isinstance(value, bytes) or len(value) != 16):
            raise self.error(InvalidValueError, f"an id is 16 bytes, not {value!r}")
        try:
            self.parts.append(struct.pack(">" + kind.value, value))
        except (struct.error, TypeError, OverflowError) as error:
            raise self.error(InvalidValueError, f"{value!r} is not a valid {kind.name.lower()}: {error}") from None

    def length(self, kind: Kind, compact: bool, length: int) -> None:
        """-1 for null."""
        limit = MAX_INT16 if kind is Kind.STRING else MAX_INT32
        if length > limit:
            raise self.error(InvalidValueError, f"a length of {length} is beyond {limit}")
        if compact:
            self.parts.append(encode_unsigned(length + 1))
        else:
            self.fixed(Kind.INT16 if kind is Kind.STRING else Kind.INT32, length)

    def struct(self, value: Struct) -> None:
        cls = type(value)
        for field in absent_fields(cls, self.version):
            given = getattr(value, field.name)
            if not field.ignorable and not tells_default(field, given):
                self.path.append(f".{field.name}")
                raise self.error(UnsupportedVersionError, f"this version cannot carry {given!r}")
        for field in ordered_fields(cls, self.version):
            with self.inside(f".{field.name}"):
                self.value(field, getattr(value, field.name))
        if self.flexible:
            self.tags(value)

    def value(self, field: Field, value: Any) -> None:
        compact = self.flexible and not field.never_compact
        if field.type.kind is Kind.STRUCT and self.version in field.nullable:
            null = -1 if field.tag is None else 0
            self.fixed(Kind.INT8, null if value is None else 1)
            if value is None:
                return
        self.typed(field.type, compact, self.version in field.nullable, value)

    def typed(self, wire_type: WireType, compact: bool, nullable: bool, value: Any) -> None:
        kind = wire_type.kind
        if value is None and not nullable:
            raise self.error(UnexpectedNullError, "null is not allowed here in this version")
        if wire_type.fixed_size is not None:
            self.fixed(kind, value)
        elif kind is Kind.STRUCT:
            self.instance(wire_type.struct_class(), value)
        elif value is None:
            self.length(kind, compact, -1)
        elif kind is Kind.ARRAY:
            self.elements(wire_type.array_element(), compact, value)
        else:
            self.blob(kind, compact, value)

    def instance(self, cls: type[Struct], value: Any) -> None:
        if type(value) is not cls:
            raise self.error(InvalidValueError, f"a {cls.__name__} belongs here, not {value!r}")
        self.struct(value)

    def elements(self, element: WireType, compact: bool, values: Any) -> None:
        try:
            self.length(Kind.ARRAY, compact, len(values))
            pairs = list(enumerate(values))
        except TypeError:
            raise self.error(InvalidValueError, f"a list belongs here, not {values!r}") from None
        for index, value in pairs:
            with self.inside(f"[{index}]"):
                self.typed(element, compact, False, value)

    def blob(self, kind: Kind, compact: bool, value: Any) -> None:
        if kind is Kind.STRING:
            if not isinstance(value, str):
                raise self.error(InvalidValueError, f"text belongs here, not {value!r}")
            try:
                value = value.encode()
            except UnicodeEncodeError as error:
                raise self.error(InvalidValueError, f"{value!r} cannot be UTF-8: {error.reason}") from None
        elif kind is Kind.BYTES and not isinstance(value, bytes | bytearray | memoryview):
            raise self.error(InvalidValueError, f"bytes belong here, not {value!r}")
        try:
            size = len(value)
        except TypeError:
            raise self.error(InvalidValueError, f"records belong here, not {value!r}") from None
        self.length(kind, compact, size)
        self.parts.append(value)

    def tags(self, value: Struct) -> None:
        sections: dict[int, bytes] = dict(value.unknown_tags or {})
        for field in tagged_fields(type(value), self.version):
            given = getattr(value, field.name)
            if tells_default(field, given) or field.tag is None:
                continue
            inner = _Writer(self.message, self.version)
            inner.path = [*self.path, f".{field.name}"]
            inner.value(field, given)
            sections[field.tag] = b"".join(inner.parts)
        self.parts.append(encode_unsigned(len(sections)))
        for tag, section in sorted(sections.items()):
            self.parts += (encode_unsigned(tag), encode_unsigned(len(section)), section)
