"""Compiles a declaration in one version into a function that writes it.

The generated code appends parts to a list: adjacent fields of fixed size become one `pack`, with the short arrays of
numbers between them and the length of what follows; records remain separate objects, so that a response can be sent
without copying them. If a value does not fit its field, it raises one of `FAILURES`, and the caller writes again with
`plain`, which produces the error message.

    def write(o, add):                   # MetadataResponse v12, shortened
        …
        for i1 in v2:
            v3 = i1.replica_nodes
            n4 = len(v3)
            if n4 <= 8 and …:
                add(packers[n4, …](i1.error_code, …, n4 + 1, *v3, …))
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.wire.schema import UNSET, Field, Kind, Message, Struct, WireType
from ottla.wire.shape import absent_fields, ordered_fields, tagged_fields
from ottla.wire.source import CodeLines
from ottla.wire.varint import ONE_BYTE, encode_unsigned


class RefusedValueError(Exception):
    """A value that the version cannot contain; `plain` will say which."""


FAILURES: Final = (struct.error, RefusedValueError, TypeError, AttributeError, ValueError, OverflowError)
"""What a compiled writer raises on values that do not fit."""

NULL_STRUCT: Final = b"\xff"
NULL_TAGGED_STRUCT: Final = b"\x00"

SMALL_ARRAY: Final = 32
"""An array of numbers up to this length is packed together with the fields around it."""

SMALL_ARRAYS: Final = 8
"""The same if there are several: every combination of lengths needs its own `Struct`."""


class Packers(dict[Any, Callable[..., bytes]]):
    """For a run with arrays of numbers: the pack functions by the lengths of the arrays. Created on first use."""

    def __init__(self, codes: list[str]) -> None:
        """`codes` of `struct`, where `*i` means an array of numbers `i`."""
        self._codes = codes

    def __missing__(self, lengths: int | tuple[int, ...]) -> Callable[..., bytes]:
        counts = iter(lengths if isinstance(lengths, tuple) else (lengths,))
        layout = "".join(f"{next(counts)}{code[1:]}" if code.startswith("*") else code for code in self._codes)
        self[lengths] = pack = struct.Struct(">" + layout).pack
        return pack


def compile_writer(message: type[Message], version: int) -> Callable[[Any, Callable[[Any], None]], None]:
    """Returns a function that takes the message and passes its parts, in order, to a callable."""
    write: Callable[[Any, Callable[[Any], None]], None] = _WriterCompiler(message, version).compile()
    return write


def write_unknown_tags(value: Struct, add: Callable[[bytes], None]) -> None:
    """Writes the tagged section of a struct that declares no tags, but was read with some."""
    write_sections(value.unknown_tags or {}, add)


def write_sections(sections: dict[int, bytes], add: Callable[[bytes], None]) -> None:
    add(encode_unsigned(len(sections)))
    for tag, section in sorted(sections.items()):
        add(encode_unsigned(tag) + encode_unsigned(len(section)))
        add(section)


class Item(NamedTuple):
    """Something to pack: its `struct` code, and its expression (none for a pad byte)."""

    code: str
    value: str = ""
    elements: str = ""
    """For an array of numbers, marked by an asterisk before its code: the variable with its length."""


def identifier(codes: list[str]) -> str:
    return "".join(codes).replace("?", "o").replace("*", "_")


class _WriterCompiler:
    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.source = CodeLines()
        self.source.scope.update(
            ONE_BYTE=ONE_BYTE,
            encode_unsigned=encode_unsigned,
            write_unknown_tags=write_unknown_tags,
            write_sections=write_sections,
            RefusedValueError=RefusedValueError,
            pack=struct.pack,
        )
        self.pending: list[Item] = []
        self.tag_writers: list[tuple[str, type[Struct]]] = []

    def compile(self) -> Any:
        with self.source.block("def write(o, add):"):
            self.source.line("pass")
            self.write_struct(self.message, "o")
            self.flush()
        for name, cls in self.tag_writers:  # grows during the loop
            self.define_tag_writer(name, cls)
        return self.source.compile("write", f"write {self.message.__name__} v{self.version}")

    # Items of fixed size wait in `pending` until something of variable size comes, and are written by one pack. So are
    # arrays of numbers, each after the item that is its length.

    def flush(self, *, in_one: bool = True) -> None:
        """`in_one` is for the path that is nearly always taken: other paths need not be fast, but short."""
        run, self.pending = self.pending, []
        counts = [item.elements for item in run if item.elements]
        if not counts:
            self.pack(run)
        elif not in_one:
            self.pack_apart(run)
        else:
            limit = SMALL_ARRAY if len(counts) == 1 else SMALL_ARRAYS
            with self.source.block(f"if {' and '.join(f'{count} <= {limit}' for count in counts)}:"):
                codes = [item.code for item in run]
                packers = self.source.constant(f"packers_{identifier(codes)}", Packers(codes))
                values = [f"*{item.value}" if item.elements else item.value for item in run if item.value]
                self.source.line(f"add({packers}[{', '.join(counts)}]({', '.join(values)}))")
            with self.source.block("else:"):
                self.pack_apart(run)

    def pack(self, run: list[Item]) -> None:
        codes = [item.code for item in run]
        values = [item.value for item in run if item.value]
        if values:
            packer = self.source.constant(f"pack_{identifier(codes)}", struct.Struct(">" + "".join(codes)).pack)
            self.source.line(f"add({packer}({', '.join(values)}))")
        elif codes:
            self.source.line(f"add({bytes(len(codes))!r})")

    def pack_apart(self, run: list[Item]) -> None:
        """A run with arrays of numbers of any length."""
        before: list[Item] = []
        for item in run:
            if not item.elements:
                before.append(item)
                continue
            length = before.pop()
            if length.code == "B":
                self.pack(before)
                self.source.line(f"add(encode_unsigned({length.value}))")
            else:
                self.pack([*before, length])
            self.source.line(f'add(pack(f">{{{item.elements}}}{item.code[1:]}", *{item.value}))')
            before = []
        self.pack(before)

    def write_struct(self, cls: type[Struct], value: str) -> None:
        for field in absent_fields(cls, self.version):
            if not field.ignorable:
                with self.source.block(f"if {self.differs(field, f'{value}.{field.name}')}:"):
                    self.source.line("raise RefusedValueError")
        for field in ordered_fields(cls, self.version):
            compact = self.flexible and not field.never_compact
            self.write_value(field.type, compact, self.version in field.nullable, f"{value}.{field.name}")
        if self.flexible:
            self.write_tags(cls, value)

    def differs(self, field: Field, value: str) -> str:
        """A condition that is true if the value is not what a reader assumes for an absent field."""
        default = field.default
        if field.absent_is_none or default is UNSET:
            empty = self.source.constant(f"empty_{field.type.struct_class().__name__}", field.type.struct_class()())
            return f"{value} is not None and {value} != {empty}" if field.absent_is_none else f"{value} != {empty}"
        if field.type.kind is Kind.ARRAY and default is not None:
            return f"{value} is None or len({value})"
        if default is None:
            return f"{value} is not None"
        return f"{value} != {default!r}"

    def write_value(
        self, wire_type: WireType, compact: bool, nullable: bool, value: str, *, tagged: bool = False
    ) -> None:
        kind = wire_type.kind
        if wire_type.fixed_size is not None:
            if kind is Kind.UUID:  # pack would pad or truncate it
                with self.source.block(f"if len({value}) != 16:"):
                    self.source.line("raise RefusedValueError")
            self.pending.append(Item(kind.value, value))
        elif kind is Kind.STRUCT:
            self.write_nested(wire_type.struct_class(), nullable, tagged, value)
        elif nullable:
            self.write_nullable(wire_type, compact, value)
        elif kind is Kind.ARRAY:
            self.write_array(wire_type.array_element(), compact, value)
        else:
            self.write_blob(kind, compact, value)

    def local(self, value: str) -> str:
        name = self.source.fresh("v")
        self.source.line(f"{name} = {value}")
        return name

    def check_class(self, cls: type[Struct], value: str) -> None:
        name = self.source.constant(f"class_{cls.__name__}", cls)
        with self.source.block(f"if type({value}) is not {name}:"):
            self.source.line("raise RefusedValueError")

    def write_nested(self, cls: type[Struct], nullable: bool, tagged: bool, value: str) -> None:
        name = self.local(value)
        if not nullable:
            self.check_class(cls, name)
            self.write_struct(cls, name)
            return
        self.flush()
        with self.source.block(f"if {name} is None:"):
            self.source.line(f"add({NULL_TAGGED_STRUCT if tagged else NULL_STRUCT!r})")
        with self.source.block("else:"):
            self.check_class(cls, name)
            self.pending.append(Item("b", "1"))
            self.write_struct(cls, name)
            self.flush()

    def write_nullable(self, wire_type: WireType, compact: bool, value: str) -> None:
        name = self.local(value)
        before = list(self.pending)
        with self.source.block(f"if {name} is None:"):
            length_code = "h" if wire_type.kind is Kind.STRING else "i"
            self.pending.append(Item("x") if compact else Item(length_code, "-1"))
            self.flush(in_one=False)
        with self.source.block("else:"):
            self.pending = before
            self.write_value(wire_type, compact, False, name)
            self.flush()

    def write_length(self, kind: Kind, compact: bool, length: str) -> None:
        """Emits a length as the last item of the pending run."""
        if not compact:
            self.pending.append(Item("h" if kind is Kind.STRING else "i", length))
            self.flush()
            return
        before = list(self.pending)
        with self.source.block(f"if {length} < 127:"):
            if before:
                self.pending.append(Item("B", f"{length} + 1"))
                self.flush()
            else:
                self.source.line(f"add(ONE_BYTE[{length} + 1])")
        if kind is Kind.RECORDS or kind is Kind.BYTES:
            self.write_longer_length(before, length)
        with self.source.block("else:"):
            if kind is Kind.STRING:
                with self.source.block(f"if {length} > 32767:"):
                    self.source.line("raise RefusedValueError")
            self.pending = before
            self.flush(in_one=False)
            self.source.line(f"add(encode_unsigned({length} + 1))")

    def write_longer_length(self, before: list[Item], length: str) -> None:
        """Records rarely fit 127 bytes and rarely exceed 2 MiB: lengths of two and three bytes join the run, too."""
        number = f"({length} + 1)"
        low, middle = Item("B", f"{number} & 127 | 128"), Item("B", f"{number} >> 7 & 127 | 128")
        with self.source.block(f"elif {length} < {2**14 - 1}:"):
            self.pending = [*before, low, Item("B", f"{number} >> 7")]
            self.flush(in_one=False)
        with self.source.block(f"elif {length} < {2**21 - 1}:"):
            self.pending = [*before, low, middle, Item("B", f"{number} >> 14")]
            self.flush(in_one=False)

    def write_blob(self, kind: Kind, compact: bool, value: str) -> None:
        name = self.local(f"{value}.encode()" if kind is Kind.STRING else value)
        length = self.source.fresh("n")
        self.source.line(f"{length} = len({name})")
        if kind is Kind.BYTES:
            self.source.constant("BYTES", (bytes, bytearray, memoryview))
            with self.source.block(f"if not isinstance({name}, BYTES):"):
                self.source.line("raise RefusedValueError")
        self.write_length(kind, compact, length)
        self.source.line(f"add({name})")

    def write_array(self, element: WireType, compact: bool, value: str) -> None:
        name = self.local(value)
        length = self.source.fresh("n")
        self.source.line(f"{length} = len({name})")
        if element.fixed_size is not None and element.kind is not Kind.UUID:
            self.pending.append(Item("B", f"{length} + 1") if compact else Item("i", length))
            self.pending.append(Item("*" + element.kind.value, name, elements=length))
            return
        self.write_length(Kind.ARRAY, compact, length)
        item = self.source.fresh("i")
        with self.source.block(f"for {item} in {name}:"):
            if element.kind is Kind.STRUCT:
                self.check_class(element.struct_class(), item)
                self.write_struct(element.struct_class(), item)
            else:
                self.write_value(element, compact, False, item)
            self.flush()

    def write_tags(self, cls: type[Struct], value: str) -> None:
        """There are nearly always none: a zero byte, which is part of a pack (`x` is a pad byte)."""
        conditions = [self.differs(field, f"{value}.{field.name}") for field in tagged_fields(cls, self.version)]
        conditions.append(f"{value}.unknown_tags")
        name = "write_unknown_tags"
        if tagged_fields(cls, self.version):
            name = f"write_tags_{cls.__name__}"
            if (name, cls) not in self.tag_writers:
                self.tag_writers.append((name, cls))
        before = list(self.pending)
        with self.source.block(f"if {' or '.join(conditions)}:"):
            self.flush(in_one=False)
            self.source.line(f"{name}({value}, add)")
        with self.source.block("else:"):
            self.pending = [*before, Item("x")]
            self.flush()

    def define_tag_writer(self, name: str, cls: type[Struct]) -> None:
        source = self.source
        with source.block(f"def {name}(o, add_after):"):
            source.line("sections = dict(o.unknown_tags or ())")
            for field in tagged_fields(cls, self.version):
                with source.block(f"if {self.differs(field, f'o.{field.name}')}:"):
                    source.line("parts = []")
                    source.line("add = parts.append")
                    nullable = self.version in field.nullable
                    self.write_value(field.type, self.flexible, nullable, f"o.{field.name}", tagged=True)
                    self.flush()
                    source.line(f'sections[{field.tag}] = b"".join(parts)')
            source.line("write_sections(sections, add_after)")
