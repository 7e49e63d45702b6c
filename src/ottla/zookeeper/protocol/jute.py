"""ZooKeeper's serialization ("jute"): big-endian numbers; strings and buffers with a length of 32 bits, -1 for null.

A record is declared as a dataclass, one wire type a field, and gets `read` and `write` from that declaration, so that
server and client share one definition. Bytes come from outside: a length is checked against what is left before
anything is made of it, and everything that is wrong raises `JuteError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar, dataclass_transform

T = TypeVar("T")

_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class JuteError(ValueError):
    """A frame that does not hold what its type says."""


class JuteReader:
    """Reads one frame from its beginning to its end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack(self._take(8))[0]
        return value

    def boolean(self) -> bool:
        return self._take(1) != b"\x00"

    def buffer(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._take(size)

    def string(self) -> str:
        """Null counts as empty: nothing that has to be there may be null."""
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError as error:
            raise JuteError(f"a string at byte {self._at} is not UTF-8: {error.reason}") from None

    def items(self, read: Callable[[JuteReader], T]) -> tuple[T, ...]:
        count = self.int32()
        if count > self.left:
            raise JuteError(f"a list announces {count} items, and only {self.left} bytes are left")
        return tuple(read(self) for _ in range(count))

    def packed(self, struct: Struct) -> tuple[Any, ...]:
        """Several numbers at once."""
        at = self._at
        self._at = at + struct.size
        if self._at > len(self._data):
            self._at = at
            self._take(struct.size)  # raises
        return struct.unpack_from(self._data, at)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise JuteError(f"{size} bytes are expected at byte {self._at}, and only {self.left} are left")
        taken = self._data[self._at : end]
        self._at = end
        return taken


class JuteWriter:
    """Collects the bytes of one frame."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def int32(self, value: int) -> None:
        self._chunks.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        self._chunks.append(_INT64.pack(value))

    def boolean(self, value: bool) -> None:
        self._chunks.append(b"\x01" if value else b"\x00")

    def buffer(self, value: bytes | None) -> None:
        if value is None:
            self.int32(-1)
        else:
            self.int32(len(value))
            self._chunks.append(value)

    def string(self, value: str) -> None:
        self.buffer(value.encode())

    def items(self, values: tuple[T, ...], write: Callable[[JuteWriter, T], None]) -> None:
        self.int32(len(values))
        for value in values:
            write(self, value)

    def raw(self, value: bytes) -> None:
        """What is serialized already."""
        self._chunks.append(value)

    def body(self) -> bytes:
        return b"".join(self._chunks)

    def frame(self) -> bytes:
        """With its size before it, as it goes over a connection."""
        body = self.body()
        return _INT32.pack(len(body)) + body


# --- declarations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WireType:
    read: Callable[[JuteReader], Any]
    write: Callable[[JuteWriter, Any], None]
    number: str = ""
    """The format of `struct`, if it has a fixed size."""


def _declared(wire_type: _WireType) -> Any:
    return field(metadata={"jute": wire_type})


def int32() -> Any:
    return _declared(_WireType(JuteReader.int32, JuteWriter.int32, "i"))


def int64() -> Any:
    return _declared(_WireType(JuteReader.int64, JuteWriter.int64, "q"))


def boolean() -> Any:
    return _declared(_WireType(JuteReader.boolean, JuteWriter.boolean, "?"))


def buffer() -> Any:
    return _declared(_WireType(JuteReader.buffer, JuteWriter.buffer))


def string() -> Any:
    return _declared(_WireType(JuteReader.string, JuteWriter.string))


def strings() -> Any:
    return _declared(
        _WireType(
            lambda reader: reader.items(JuteReader.string), lambda writer, value: writer.items(value, JuteWriter.string)
        )
    )


def record(kind: type[Record]) -> Any:
    return _declared(_WireType(kind.read, lambda writer, value: value.write(writer)))


def records(kind: type[Record]) -> Any:
    return _declared(
        _WireType(
            lambda reader: reader.items(kind.read),
            lambda writer, value: writer.items(value, lambda to, each: each.write(to)),
        )
    )


@dataclass_transform(
    frozen_default=True, field_specifiers=(int32, int64, boolean, buffer, string, strings, record, records)
)
class Record:
    """Subclasses become frozen dataclasses; their fields are on the wire in the order of their declaration."""

    _names: ClassVar[tuple[str, ...]] = ()
    _parts: ClassVar[tuple[_Numbers | _OneField, ...]] = ()

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
        declared = [(each.name, each.metadata["jute"]) for each in fields(cls)]  # type: ignore[arg-type]
        cls._names = tuple(name for name, _ in declared)
        cls._parts = tuple(_parts_of(declared))

    @classmethod
    def read(cls, reader: JuteReader) -> Self:
        values: list[Any] = []
        for part in cls._parts:
            if isinstance(part, _Numbers):
                values += reader.packed(part.struct)
            else:
                values.append(part.wire_type.read(reader))
        # As the constructor does it, without a call for each field: ten thousand nodes are read at once.
        made = cls.__new__(cls)
        made.__dict__.update(zip(cls._names, values, strict=True))
        return made

    def write(self, writer: JuteWriter) -> None:
        values = self.__dict__
        for part in self._parts:
            if isinstance(part, _Numbers):
                writer.raw(part.struct.pack(*[values[name] for name in part.names]))
            else:
                part.wire_type.write(writer, values[part.name])


class _Numbers(NamedTuple):
    """Fields beside each other that all have a fixed size."""

    struct: Struct
    names: tuple[str, ...]


class _OneField(NamedTuple):
    name: str
    wire_type: _WireType


def _parts_of(declared: Sequence[tuple[str, _WireType]]) -> Iterator[_Numbers | _OneField]:
    for is_number, group in groupby(declared, lambda each: bool(each[1].number)):
        if is_number:
            some = list(group)
            form = "".join(wire_type.number for _, wire_type in some)
            yield _Numbers(Struct(f">{form}"), tuple(name for name, _ in some))
        else:
            for name, wire_type in group:
                yield _OneField(name, wire_type)
