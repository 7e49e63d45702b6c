"""Compiles a declaration in one version into a function that reads it.

The generated code is straight-line: one `unpack_from` reads adjacent fields of fixed size, and the length or tag count
after them; arrays become loops. It checks what Python would accept silently (a slice beyond the end with nothing to
read after it, a length that no frame can have) and relies on Python's own exceptions for the rest; on any of `FAILURES`
the caller reads again with `plain`, which produces the error message.

    def read(data):                      # FetchRequest v12, shortened
        o1 = new(FetchRequest)
        o1.max_wait_ms, …, n2 = unpack_iiibiiB(data, at)
        …
        o1.topics = a3 = [*map(new, one_FetchTopic * n2)]
        for o4 in a3:
            …
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ottla.wire.schema import UNSET, Field, Header, Kind, Message, Struct, WireType
from ottla.wire.shape import absent_fields, minimum_size, ordered_fields, tagged_fields
from ottla.wire.source import CodeLines
from ottla.wire.varint import OverlongError, read_unsigned


class MalformedError(Exception):
    """Something is wrong; `plain` will say what."""


FAILURES: Final = (struct.error, IndexError, UnicodeDecodeError, MalformedError, OverlongError)
"""What a compiled reader raises on bad bytes."""

SMALL_ARRAY: Final = 32
"""Arrays of numbers up to this length are unpacked by a ready-made `Struct`."""

SHORT_TEXT: Final = 64
"""Strings up to this length are read from a `memoryview` with a ready-made `Struct`: cheaper than slicing the view."""

UNPACK_TEXT: Final = [struct.Struct(f"{size}s").unpack_from for size in range(SHORT_TEXT + 1)]


def reads_view(message: type[Message]) -> bool:
    """Whether a message is read from a `memoryview`: it has records that must not be copied, or is the header of such a
    message. Any other is read from `bytes`, which costs a copy of the frame and makes each field cheaper."""
    return issubclass(message, Header) or _carries_records(message)


def _carries_records(cls: type[Struct]) -> bool:
    for field in cls.fields:
        element = field.type.element or field.type
        if element.kind is Kind.RECORDS or (element.kind is Kind.STRUCT and _carries_records(element.struct_class())):
            return True
    return False


def compile_reader(message: type[Message], version: int) -> Callable[[bytes | memoryview], tuple[Any, int]]:
    """Returns a function from the data to the message and where it ends."""
    read: Callable[[bytes | memoryview], tuple[Any, int]] = _ReaderCompiler(message, version).compile()
    return read


def read_longer(data: bytes | memoryview, at: int, first: int) -> tuple[int, int]:
    """The rest of `read_unsigned`, if the byte before `at` is only the first of several."""
    second = data[at]
    if second < 0x80:
        return first - 0x80 + (second << 7), at + 1
    third = data[at + 1]
    if third < 0x80:
        return first - 0x80 + (second - 0x80 << 7) + (third << 14), at + 2
    return read_unsigned(data, at - 1)


def read_unknown_tags(value: Struct, data: bytes | memoryview, at: int, limit: int) -> int:
    """Keeps the tagged fields of a struct that declares none; returns where they end."""
    count, at = read_unsigned(data, at)
    unknown = {}
    for _ in range(count):
        tag, at = read_unsigned(data, at)
        size, at = read_unsigned(data, at)
        if at + size > limit:
            raise MalformedError
        unknown[tag] = bytes(data[at : at + size])
        at += size
    value.unknown_tags = unknown or None
    return at


class _ReaderCompiler:
    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.from_view = reads_view(message)
        self.source = CodeLines()
        self.source.scope.update(
            new=object.__new__,
            read_unsigned=read_unsigned,
            read_longer=read_longer,
            read_unknown_tags=read_unknown_tags,
            MalformedError=MalformedError,
            UNPACK_TEXT=UNPACK_TEXT,
            unpack_from=struct.unpack_from,
        )
        self.pending: list[tuple[str, str]] = []
        self.tag_readers: list[tuple[str, type[Struct]]] = []

    def compile(self) -> Any:
        source = self.source
        with source.block("def read(data):"):
            source.line("at = 0")
            source.line("limit = len(data)")
            target = self.read_struct(self.message)
            self.flush()
            source.line(f"return {target}, at")
        for name, cls in self.tag_readers:  # grows during the loop: a tagged struct may have tags of its own
            self.define_tag_reader(name, cls)
        return source.compile("read", f"read {self.message.__name__} v{self.version}")

    # Fixed-size items wait in `pending` until something of variable size comes, and are read by one unpack.

    def flush(self) -> None:
        if not self.pending:
            return
        targets = ", ".join(target for target, _ in self.pending)
        codes = "".join(code for _, code in self.pending)
        layout = struct.Struct(">" + codes)
        if codes == "B":
            self.source.line(f"{targets} = data[at]")
        else:
            unpack = self.source.constant(f"unpack_{codes.replace('?', 'o')}", layout.unpack_from)
            self.source.line(f"{targets}{',' if len(self.pending) == 1 else ''} = {unpack}(data, at)")
        self.source.line(f"at += {layout.size}")
        self.pending.clear()

    def read_struct(self, cls: type[Struct]) -> str:
        """Emits the creation of an instance; returns the name of its variable. The last fields may still be pending."""
        target = self.source.fresh("o")
        self.source.line(f"{target} = new({self.class_name(cls)})")
        self.fill_struct(cls, target)
        return target

    def class_name(self, cls: type[Struct]) -> str:
        return self.source.constant(f"class_{cls.__name__}", cls)

    def fill_struct(self, cls: type[Struct], target: str) -> None:
        self.source.line(f"{target}.unknown_tags = None")
        for field in absent_fields(cls, self.version) + tagged_fields(cls, self.version):
            self.source.line(f"{target}.{field.name} = {self.default(field)}")
        for field in ordered_fields(cls, self.version):
            compact = self.flexible and not field.never_compact
            self.read_value(field.type, compact, self.version in field.nullable, f"{target}.{field.name}")
        if self.flexible:
            self.read_tags(cls, target)

    def default(self, field: Field) -> str:
        if field.default == [] and field.type.kind is Kind.ARRAY:
            return "[]"
        if field.default is UNSET:
            return self.class_name(field.type.struct_class()) + "()"
        if field.default is None or isinstance(field.default, bool | int | str | bytes):
            return repr(field.default)
        return self.source.constant(f"default_{field.name}", field.default)

    def read_value(
        self, wire_type: WireType, compact: bool, nullable: bool, target: str, *, tagged: bool = False
    ) -> None:
        kind = wire_type.kind
        if wire_type.fixed_size is not None:
            self.pending.append((target, kind.value))
        elif kind is Kind.STRUCT:
            self.read_nested(wire_type.struct_class(), nullable, tagged, target)
        elif kind is Kind.ARRAY:
            self.read_array(wire_type.array_element(), compact, nullable, target)
        else:
            self.read_blob(kind, compact, nullable, target)

    def read_nested(self, cls: type[Struct], nullable: bool, tagged: bool, target: str) -> None:
        """A nullable struct has a marker: 1, or -1 for null; as a tagged field, 0 for null."""
        if not nullable:
            self.source.line(f"{target} = {self.read_struct(cls)}")
            return
        marker = self.source.fresh("n")
        self.pending.append((marker, "b"))
        self.flush()
        with self.source.block(f"if {marker} == 1:"):
            value = self.read_struct(cls)
            self.flush()
            self.source.line(f"{target} = {value}")
        with self.source.block(f"elif {marker} == {0 if tagged else -1}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line("raise MalformedError")

    def read_length(self, kind: Kind, compact: bool) -> str:
        """Emits reading a length; returns its variable: one more than the length if compact (0 for null)."""
        length = self.source.fresh("n")
        if not compact:
            self.pending.append((length, "h" if kind is Kind.STRING else "i"))
            self.flush()
            return length
        self.pending.append((length, "B"))
        self.flush()
        with self.source.block(f"if {length} > 127:"):
            self.source.line(f"{length}, at = read_longer(data, at, {length})")
        return length

    def read_blob(self, kind: Kind, compact: bool, nullable: bool, target: str) -> None:
        length = self.read_length(kind, compact)
        with self.unless_null(length, compact, nullable, target):
            if compact:
                self.source.line(f"{length} -= 1")
            self.take_blob(kind, length, compact and nullable, target)

    @contextmanager
    def unless_null(self, length: str, compact: bool, nullable: bool, target: str) -> Iterator[None]:
        if not nullable:
            yield
            return
        with self.source.block(f"if {length} == {0 if compact else -1}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            yield

    def take_blob(self, kind: Kind, length: str, never_negative: bool, target: str) -> None:
        """In flexible versions something follows, at least a tag count; reading it fails if the blob was cut short."""
        end = self.source.fresh("e")
        checks = [] if never_negative else [f"{length} < 0"]
        self.source.line(f"{end} = at + {length}")
        if not self.flexible:
            checks.append(f"{end} > limit")
        if checks:
            with self.source.block(f"if {' or '.join(checks)}:"):
                self.source.line("raise MalformedError")
        if kind is Kind.STRING and self.from_view:
            with self.source.block(f"if {length} <= {SHORT_TEXT}:"):
                self.source.line(f"{target} = UNPACK_TEXT[{length}](data, at)[0].decode()")
            with self.source.block("else:"):
                self.source.line(f'{target} = str(data[at:{end}], "utf-8")')
        elif kind is Kind.STRING:
            self.source.line(f"{target} = data[at:{end}].decode()")
        elif kind is Kind.BYTES and self.from_view:
            self.source.line(f"{target} = bytes(data[at:{end}])")
        else:
            self.source.line(f"{target} = data[at:{end}]")
        self.source.line(f"at = {end}")

    def read_array(self, element: WireType, compact: bool, nullable: bool, target: str) -> None:
        length = self.read_length(Kind.ARRAY, compact)
        with self.unless_null(length, compact, nullable, target):
            if compact:
                self.source.line(f"{length} -= 1")
            if element.fixed_size is not None and element.kind is not Kind.UUID:
                self.take_numbers(element, length, target)
            else:
                self.take_elements(element, length, compact, target)

    def check_count(self, length: str, least: int) -> None:
        with self.source.block(f"if {length} < 0 or {length} * {least} > limit - at:"):
            self.source.line("raise MalformedError")

    def take_elements(self, element: WireType, length: str, compact: bool, target: str) -> None:
        with self.source.block(f"if {length} == 0:"):
            self.source.line(f"{target} = []")
        with self.source.block("else:"):
            least = minimum_size(element, self.version, flexible=self.flexible, compact=compact)
            self.check_count(length, max(least, 1))
            self.fill_array(element, length, compact, target)

    def fill_array(self, element: WireType, length: str, compact: bool, target: str) -> None:
        """Structs are created all at once and then filled; their number was checked against the remaining bytes."""
        values = self.source.fresh("a")
        if element.kind is Kind.STRUCT:
            cls, item = element.struct_class(), self.source.fresh("o")
            one = self.source.constant(f"one_{cls.__name__}", (cls,))
            self.source.line(f"{target} = {values} = [*map(new, {one} * {length})]")
            with self.source.block(f"for {item} in {values}:"):
                self.fill_struct(cls, item)
                self.flush()
            return
        item, add = self.source.fresh("v"), self.source.fresh("add")
        self.source.line(f"{target} = {values} = []")
        self.source.line(f"{add} = {values}.append")
        with self.source.block(f"for _ in range({length}):"):
            self.read_value(element, compact, False, item)
            self.flush()
            self.source.line(f"{add}({item})")

    def take_numbers(self, element: WireType, length: str, target: str) -> None:
        code, size = element.kind.value, element.fixed_size or 0
        ready = self.source.constant(
            f"unpack_many_{code.replace('?', 'o')}",
            [struct.Struct(f">{count}{code}").unpack_from for count in range(SMALL_ARRAY + 1)],
        )
        with self.source.block(f"if {length} == 0:"):
            self.source.line(f"{target} = []")
        with self.source.block(f"elif 0 < {length} <= {SMALL_ARRAY}:"):
            self.source.line(f"{target} = [*{ready}[{length}](data, at)]")
            self.source.line(f"at += {length} * {size}")
        with self.source.block("else:"):
            self.check_count(length, size)
            self.source.line(f'{target} = [*unpack_from(f">{{{length}}}{code}", data, at)]')
            self.source.line(f"at += {length} * {size}")

    def read_tags(self, cls: type[Struct], target: str) -> None:
        """There are nearly always none: one byte, which is part of the unpack before it."""
        count = self.source.fresh("t")
        self.pending.append((count, "B"))
        self.flush()
        name = "read_unknown_tags"
        if tagged_fields(cls, self.version):
            name = f"read_tags_{cls.__name__}"
            if (name, cls) not in self.tag_readers:
                self.tag_readers.append((name, cls))
        with self.source.block(f"if {count}:"):
            self.source.line(f"at = {name}({target}, data, at - 1, limit)")

    def define_tag_reader(self, name: str, cls: type[Struct]) -> None:
        source = self.source
        with source.block(f"def {name}(o, data, at, limit):"):
            source.line("count, at = read_unsigned(data, at)")
            source.line("unknown = {}")
            with source.block("for _ in range(count):"):
                source.line("tag, at = read_unsigned(data, at)")
                source.line("size, at = read_unsigned(data, at)")
                source.line("end = at + size")
                with source.block("if end > limit:"):
                    source.line("raise MalformedError")
                for field in tagged_fields(cls, self.version):
                    with source.block(f"if tag == {field.tag}:"):
                        nullable = self.version in field.nullable
                        self.read_value(field.type, self.flexible, nullable, f"o.{field.name}", tagged=True)
                        self.flush()
                        with source.block("if at != end:"):
                            source.line("raise MalformedError")
                        source.line("continue")
                source.line("unknown[tag] = bytes(data[at:end])")
                source.line("at = end")
            source.line("o.unknown_tags = unknown or None")
            source.line("return at")
