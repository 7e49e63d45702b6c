"""A record as a producer is given it, before anything was done with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ottla.client.arguments import wrong_type
from ottla.client.errors import SerializationError
from ottla.records import Header

Headers: TypeAlias = "Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]"


class ProducerRecord(NamedTuple):
    """What `send` was called with. Interceptors see it, and may answer another: `record._replace(value=…)`."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | None = None
    timestamp: int | None = None
    """In milliseconds since 1970; None for now."""
    partition: int | None = None


class PreparedRecord(NamedTuple):
    """The same, as it will be in a batch."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]
    timestamp: int | None
    partition: int | None


def checked_headers(topic: str, headers: Headers | None) -> tuple[Header, ...]:
    """The headers as a batch takes them. Text becomes UTF-8."""
    if not headers:
        return ()
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise wrong_type("headers", headers, "a mapping, or an iterable of pairs")
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple((_name(name), _content(content)) for name, content in pairs)
    except (TypeError, ValueError) as error:
        reason = f"{error}; headers are pairs of a text and bytes, or a mapping of them"
        raise SerializationError(topic, "headers", reason) from None


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is a text, not {type(name).__name__}")
    if not name.isascii():
        name.encode()  # raises what is wrong with it
    return name


def _content(content: object) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"the content of a header is bytes, text or None, not {type(content).__name__}")
