"""Avro schemas, and how data says which of them it was written with.

Avro data cannot be read without the schema that wrote it. Either both sides agree on it beforehand, or each record
identifies it in a few bytes at the start: that is an `AvroFraming`. `SingleObjectFraming` is the one of Avro's own
specification. A schema registry is another: its header is an id, and it looks schemas up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import fastavro
import fastavro.schema

SchemaSource: TypeAlias = "AvroSchema | Mapping[str, Any] | Sequence[Any] | str | Path"
"""A schema as parsed JSON, as JSON text, or as a file; types that it refers to are looked for in the same directory."""


class AvroSchema:
    """A schema, parsed once. Raises `ValueError` with the reason if it is not a valid schema."""

    def __init__(self, source: SchemaSource) -> None:
        self.parsed: Any = source.parsed if isinstance(source, AvroSchema) else _parse(source)
        """In fastavro's form."""

    @property
    def name(self) -> str:
        """The full name of a record, enum or fixed; the type of anything else."""
        parsed = self.parsed
        if isinstance(parsed, dict):
            return str(parsed.get("name") or parsed["type"])
        return "union" if isinstance(parsed, list) else str(parsed)

    @cached_property
    def fingerprint(self) -> bytes:
        """The eight bytes that identify the schema in single-object encoding: CRC-64-AVRO of its canonical form."""
        canonical = fastavro.schema.to_parsing_canonical_form(self.parsed)
        return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))

    def __repr__(self) -> str:
        return f"AvroSchema({self.name})"


def _parse(source: Mapping[str, Any] | Sequence[Any] | str | Path) -> Any:
    origin = f"the schema in {source}" if isinstance(source, Path) else "the schema"
    if isinstance(source, Path) and not source.is_file():
        raise ValueError(f"{origin} cannot be read: the file does not exist")
    try:
        if isinstance(source, Path):
            return fastavro.schema.load_schema(str(source))
        parsed: Any = _from_text(source) if isinstance(source, str) else source
        return fastavro.parse_schema(parsed)
    except Exception as error:  # fastavro's exceptions have no common base class
        raise ValueError(f"{origin} is not valid Avro: {type(error).__name__}: {error}") from error


_TYPES_BY_NAME: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def _from_text(text: str) -> Any:
    if text.strip()[:1] not in ("{", "[", '"'):
        if text not in _TYPES_BY_NAME:
            raise ValueError(f"{text!r} is neither JSON nor an Avro type; pass a file as a pathlib.Path")
        return text
    return json.loads(text)


class AvroFraming(Protocol):
    """The header before a record's Avro data, by which readers find the schema that wrote it.

    Called for every record, from any thread: an implementation that looks schemas up should cache them.
    """

    def header(self, topic: str, schema: AvroSchema) -> bytes:
        """Returns the header to write."""

    def written_with(self, topic: str, data: bytes) -> tuple[AvroSchema, int]:
        """Returns the schema that wrote the data, and where its Avro data begins. Raises `ValueError` if unknown."""


_MARK: Final = b"\xc3\x01"
_HEADER_LENGTH: Final = 10


class SingleObjectFraming:
    """Avro's single-object encoding: a two-byte marker and the schema's fingerprint. Readers must know all schemas."""

    def __init__(self, *schemas: SchemaSource) -> None:
        self._known = {schema.fingerprint: schema for schema in map(AvroSchema, schemas)}

    def header(self, topic: str, schema: AvroSchema) -> bytes:
        return _MARK + schema.fingerprint

    def written_with(self, topic: str, data: bytes) -> tuple[AvroSchema, int]:
        if data[:2] != _MARK:
            raise ValueError("does not start with the marker of a single object, c301")
        fingerprint = data[2:_HEADER_LENGTH]
        schema = self._known.get(fingerprint)
        if schema is None:
            known = ", ".join(f"{one.name} ({one.fingerprint.hex()})" for one in self._known.values())
            raise ValueError(f"written with schema {fingerprint.hex()}, but the known schemas are {known or 'none'}")
        return schema, _HEADER_LENGTH


class AgreedSchema:
    """No framing: everything was written with this one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._answer = (schema, 0)

    def header(self, topic: str, schema: AvroSchema) -> bytes:
        return b""

    def written_with(self, topic: str, data: bytes) -> tuple[AvroSchema, int]:
        return self._answer
