"""A record as it is passed to a producer, before any processing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.client.arguments import whole_number, wrong_type
from ottla.client.errors import ArgumentError, SerializationError
from ottla.records import Header
from ottla.records.header_sections import fast_header_section, header_section
from ottla.records.layout import MAX_INT64

RECORD_OVERHEAD_BYTES: Final = 14
"""The most that a record takes besides its key, value and headers, in a batch of up to a few megabytes."""

Headers: TypeAlias = "Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]"


class ProducerRecord(NamedTuple):
    """The arguments of `send`. Interceptors get it and may return another: `record._replace(value=…)`."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | None = None
    timestamp: int | None = None
    """In milliseconds since the epoch; None for now."""
    partition: int | None = None


class PreparedRecord(NamedTuple):
    """The same record, encoded as it will be in a batch."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: bytes | None
    """Encoded: see `header_sections`."""
    timestamp: int | None
    partition: int | None
    size: int
    """The most that the record takes in a batch."""

    @property
    def is_wide(self) -> bool:
        """Whether it is more than a value."""
        return self.key is not None or self.headers is not None or self.timestamp is not None


def encoded_headers(topic: str, headers: Headers) -> bytes:
    """Encodes headers for a batch. Strings become UTF-8."""
    section = fast_header_section(headers)
    return header_section(checked_headers(topic, headers)) if section is None else section


def checked_headers(topic: str, headers: Headers) -> tuple[Header, ...]:
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise wrong_type("headers", headers, "a mapping, or an iterable of pairs")
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple((_name(name), _content(content)) for name, content in pairs)
    except (TypeError, ValueError) as error:
        reason = f"{error}; headers are pairs of a text and bytes, or a mapping of them"
        raise SerializationError(topic, "headers", reason) from None


def checked_timestamp(timestamp: object) -> int:
    stamp_ms = whole_number("timestamp", timestamp)
    if not 0 <= stamp_ms <= MAX_INT64:
        raise ArgumentError(f"timestamp must be between 0 and {MAX_INT64}, in milliseconds since 1970, not {stamp_ms}")
    return stamp_ms


def checked_partition(partition: object) -> int:
    index = whole_number("partition", partition)
    if index < 0:
        raise ArgumentError(f"partition must be 0 or more, not {index}")
    return index


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is a text, not {type(name).__name__}")
    if not name.isascii():
        name.encode()  # raises if it is not valid
    return name


def _content(content: object) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"the content of a header is bytes, text or None, not {type(content).__name__}")


def size_of(value: bytes | None, key: bytes | None, headers: bytes | None) -> int:
    """The most that the record takes in a batch."""
    return RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"") + len(headers or b"")
