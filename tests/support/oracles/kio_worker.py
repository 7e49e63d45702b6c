"""A process that holds one version of kio and encodes and decodes with it on request.

Two versions of kio cannot be imported into one interpreter, so each lives in a process like this one. Requests and
answers are pickles of plain values on stdin and stdout. An entity of kio travels as a tree: a dict by kio's field
names, in which arrays are lists and what kio dresses up is bare again (durations and instants are milliseconds, error
codes numbers, ids sixteen bytes). It imports nothing of Ottla, so that no mistake can be made on both sides.
"""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pkgutil import resolve_name
from types import NoneType
from typing import Any, Final, get_args, get_origin
from uuid import UUID

from kio._version import __version__
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

MILLISECOND: Final = timedelta(milliseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ZERO_ID: Final = bytes(16)

Tree = dict[str, Any]


def about() -> tuple[str, dict[tuple[str, int], str], list[int]]:
    """Which kio this is, where it has each message and version, and the error codes it knows."""
    paths = [
        ((path.partition(":")[2], version), path)
        for versions in schema_name_map.values()
        for version, kinds in versions.items()
        for path in kinds.values()
    ]
    return __version__, dict(paths), [code.value for code in ErrorCode]


def describe(path: str) -> list[Tree]:
    """The fields of an entity as kio declares them."""
    return _describe(resolve_name(path))


def exchange(path: str, tree: Tree | None, encoded: bytes | None) -> tuple[bytes | None, tuple[Tree, int] | None]:
    """The tree as bytes, and the bytes as a tree with the number of them that were read."""
    entity = resolve_name(path)
    written = read = None
    if tree is not None:
        buffer = io.BytesIO()
        entity_writer(entity)(buffer, _dress(entity, tree))
        written = buffer.getvalue()
    if encoded is not None:
        value, size = entity_reader(entity)(encoded, 0)
        read = (_bare(value), size)
    return written, read


@cache
def _typing(field: Field[Any]) -> tuple[Any, bool, bool]:
    """The type of a field, or of its elements; whether it is an array; whether kio takes None for it."""
    kind, nullable = _without_none(field.type)
    if get_origin(kind) is tuple:
        return _without_none(get_args(kind)[0])[0], True, nullable
    return kind, False, nullable


def _without_none(kind: Any) -> tuple[Any, bool]:
    options = get_args(kind)
    if NoneType not in options:
        return kind, False
    (kind,) = (option for option in options if option is not NoneType)
    return kind, True


def _describe(entity: Any) -> list[Tree]:
    described = []
    for field in fields(entity):
        kind, is_array, nullable = _typing(field)
        described.append(
            {
                "name": field.name,
                "kafka_type": field.metadata.get("kafka_type", "struct"),
                "is_array": is_array,
                "nullable": nullable,
                "tag": field.metadata.get("tag"),
                "has_default": field.default is not MISSING,
                "default": None if field.default is MISSING else _bare_field(field, field.default),
                "fields": _describe(kind) if is_dataclass(kind) else [],
            }
        )
    return described


def _dress(entity: Any, tree: Tree) -> Any:
    return entity(**{field.name: _dress_field(field, tree[field.name]) for field in fields(entity)})


def _dress_field(field: Field[Any], value: Any) -> Any:
    kind, is_array, nullable = _typing(field)
    if is_array:
        return value if value is None else tuple(_dress_one(field, kind, True, element) for element in value)
    return _dress_one(field, kind, nullable, value)


def _dress_one(field: Field[Any], kind: Any, nullable: bool, value: Any) -> Any:
    if value is None:
        return None
    if is_dataclass(kind):
        return _dress(kind, value)
    match field.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if nullable and value == -1 else EPOCH + timedelta(milliseconds=value)
        case "uuid":
            return None if nullable and value == ZERO_ID else UUID(bytes=value)
    return value


def _bare(value: Any) -> Tree:
    return {field.name: _bare_field(field, getattr(value, field.name)) for field in fields(value)}


def _bare_field(field: Field[Any], value: Any) -> Any:
    if isinstance(value, tuple):
        return [_bare_one(field, element) for element in value]
    return value if value is None and _typing(field)[1] else _bare_one(field, value)


def _bare_one(field: Field[Any], value: Any) -> Any:
    match field.metadata.get("kafka_type", "struct"):
        case "struct":
            return None if value is None else _bare(value)
        case "error_code":
            return value.value
        case "timedelta_i32" | "timedelta_i64":
            return round(value / MILLISECOND)
        case "datetime_i64":
            return -1 if value is None else round((value - EPOCH) / MILLISECOND)
        case "uuid":
            return ZERO_ID if value is None else value.bytes
        case "bytes" | "records":
            return None if value is None else bytes(value)
    return value


COMMANDS: Final[dict[str, Callable[..., Any]]] = {"about": about, "describe": describe, "exchange": exchange}


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            command, *arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            answer = (True, COMMANDS[command](*arguments))
        except Exception:
            answer = (False, traceback.format_exc())
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
