"""Bytes, strings, numbers, UUIDs and JSON. Those that Java also has produce the same bytes as its serializers."""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

_NUMBERS: Final = {
    "int16": (">h", "an int from -32768 to 32767", 2),
    "int32": (">i", "an int from -2147483648 to 2147483647", 4),
    "int64": (">q", "an int from -2**63 to 2**63-1", 8),
    "float32": (">f", "a float", 4),
    "float64": (">d", "a float", 8),
}
"""By name: the layout (big-endian, as in Java), the accepted types, and the size in bytes."""

NUMBER_NAMES: Final = tuple(_NUMBERS)

_UUID_TEXT_LENGTH: Final = 36


class BytesSerializer:
    """Passes bytes through unchanged."""

    __slots__ = ()
    name: Final = "bytes"
    accepts: Final = "bytes, bytearray or memoryview"

    def __call__(self, topic: str, value: bytes | bytearray | memoryview) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise TypeError


class BytesDeserializer:
    __slots__ = ()
    name: Final = "bytes"
    accepts: Final = "bytes"

    def __call__(self, topic: str, data: bytes) -> bytes:
        return data


class StringSerializer:
    """Encodes strings. Refuses characters that the encoding does not have, where Java would write a question mark."""

    __slots__ = ("_encoding",)
    name: Final = "string"
    accepts: Final = "str"

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = _checked_encoding(encoding)

    def __call__(self, topic: str, value: str) -> bytes:
        try:
            return value.encode(self._encoding)
        except AttributeError:
            raise TypeError from None


class StringDeserializer:
    """Decodes strings. Refuses bytes that are invalid in the encoding, unless `errors` is "replace", as in Java."""

    __slots__ = ("_encoding", "_errors")
    name: Final = "string"

    def __init__(self, encoding: str = "utf-8", errors: str = "strict") -> None:
        self._encoding = _checked_encoding(encoding)
        self._errors = errors
        codecs.lookup_error(errors)

    @property
    def accepts(self) -> str:
        return f"text in {self._encoding}"

    def __call__(self, topic: str, data: bytes) -> str:
        return str(data, self._encoding, self._errors)


def _checked_encoding(encoding: str) -> str:
    name = codecs.lookup(encoding).name
    if name in ("utf-16", "utf-32"):
        raise ValueError(
            f"the byte order of {encoding} depends on the machine; use {name}-be (as Java does) or {name}-le"
        )
    return name


class NumberSerializer:
    """Encodes numbers as Java does: int16 as short, int32 as int, int64 as long, float32 as float, float64 as
    double."""

    __slots__ = ("_pack", "accepts", "name")

    def __init__(self, name: str) -> None:
        layout, self.accepts, _ = _number(name)
        self.name = name
        self._pack = struct.Struct(layout).pack

    def __call__(self, topic: str, value: float) -> bytes:
        return self._pack(value)


class NumberDeserializer:
    """Decodes numbers as Java does, by the same names."""

    __slots__ = ("_unpack", "accepts", "name")

    def __init__(self, name: str) -> None:
        layout, _, size = _number(name)
        self.name = name
        self.accepts = f"exactly {size} bytes"
        self._unpack = struct.Struct(layout).unpack

    def __call__(self, topic: str, data: bytes) -> Any:
        return self._unpack(data)[0]


def _number(name: str) -> tuple[str, str, int]:
    try:
        return _NUMBERS[name]
    except KeyError:
        raise ValueError(f"unknown number type {name!r}; use {', '.join(_NUMBERS)}") from None


class UUIDSerializer:
    """Encodes a UUID as a string of 36 characters, as Java does."""

    __slots__ = ()
    name: Final = "uuid"
    accepts: Final = "uuid.UUID"

    def __call__(self, topic: str, value: UUID) -> bytes:
        if not isinstance(value, UUID):
            raise TypeError
        return str(value).encode("ascii")


class UUIDDeserializer:
    __slots__ = ()
    name: Final = "uuid"
    accepts: Final = "a UUID as text of 36 characters"

    def __call__(self, topic: str, data: bytes) -> UUID:
        # Python would also accept braces, and no dashes at all, which no serializer writes.
        if len(data) != _UUID_TEXT_LENGTH or data[8:24:5] != b"----":
            raise ValueError("not of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
        return UUID(str(data, "ascii"))


class JsonSerializer:
    """Encodes JSON in UTF-8 without spaces. `default` converts objects that JSON does not support, as for `json.dumps`.

    NaN and infinities are refused, because JSON does not have them. None is a tombstone, not "null".
    """

    __slots__ = ("_encode",)
    name: Final = "json"
    accepts: Final = "JSON values (dict, list, str, int, float, bool)"

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default)
        self._encode = encoder.encode

    def __call__(self, topic: str, value: Any) -> bytes:
        return self._encode(value).encode("utf-8")


class JsonDeserializer:
    """Decodes JSON. `object_hook` converts each object, as for `json.loads`."""

    __slots__ = ("_decode",)
    name: Final = "json"
    accepts: Final = "JSON in UTF-8"

    def __init__(self, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> None:
        self._decode = json.JSONDecoder(object_hook=object_hook).decode

    def __call__(self, topic: str, data: bytes) -> Any:
        return self._decode(str(data, "utf-8"))
