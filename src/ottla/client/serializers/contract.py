"""What a serializer is, how a client calls it, and the errors if it does not accept its argument.

A serializer is a callable that takes a topic and a value and returns bytes; a deserializer takes a topic and bytes and
returns a value. Your own functions can be used. Neither is ever called with None: a record without a key has none, and
a record without a value is a tombstone, whatever the serializer.

Serializers can raise any exception. The client turns it into a `SerializationError`, which names the key or value, the
topic, the type, and what would have been accepted. They may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, Literal, TypeAlias, TypeVar, cast
from uuid import UUID

from ottla.client.errors import SerializationError

Part = Literal["key", "value"]

Serializer: TypeAlias = Callable[[str, Any], bytes | None]
Deserializer: TypeAlias = Callable[[str, bytes], Any]
Buffer: TypeAlias = bytes | bytearray | memoryview
"""The type of keys and values for a producer without serializers."""

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])
AnyKey = TypeVar("AnyKey")
AnyValue = TypeVar("AnyValue")
"""For the type of `self` in clients' constructors, where pyright does not solve the class's own variables."""


def bound_serializer(serializer: Serializer, part: Part) -> Callable[[str, Any], bytes | None]:
    """Wraps the serializer for a producer: None is passed through, and any failure is a `SerializationError`."""
    call = _quickest(serializer)

    def serialize(topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            data = call(topic, value)
        except Exception as error:
            raise serialization_failure(topic, part, value, serializer, error) from error
        if data.__class__ is bytes or data is None:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        answered = f"{name_of(serializer)} returned {_type_of(data)}; a serializer must return bytes or None"
        raise SerializationError(topic, part, answered)

    return serialize


def bound_deserializer(deserializer: Deserializer, part: Part) -> Callable[[str, Iterable[bytes | None]], list[Any]]:
    """Wraps the deserializer for a consumer: it takes a column of keys or values of one topic, which may contain None.

    The first one that cannot be read is raised as a `SerializationError` whose `index` is its position in the column.
    """
    call = _quickest(deserializer)

    def deserialize(topic: str, column: Iterable[bytes | None]) -> list[Any]:
        values: list[Any] = []
        append = values.append
        data: bytes | None = None
        try:
            for data in column:
                append(None if data is None else call(topic, data))
        except Exception as error:
            failure = deserialization_failure(topic, part, data or b"", deserializer, error)
            failure.index = len(values)
            raise failure from error
        return values

    return deserialize


def _quickest(function: AnyCallable) -> AnyCallable:
    """Calling an object's method is a third faster than calling the object, which looks it up each time."""
    method = getattr(function, "__call__", None)  # noqa: B004 - the method itself is wanted, not whether it is there
    return cast("AnyCallable", method) if isinstance(method, MethodType) else function


# Error messages.


def serialization_failure(
    topic: str, part: Part, value: Any, serializer: Serializer, error: Exception | None = None
) -> SerializationError:
    """The error of a producer for a key or value that the serializer did not accept."""
    accepts = getattr(serializer, "accepts", None)
    if accepts is None:
        return SerializationError(topic, part, f"{name_of(serializer)} did not accept {_type_of(value)}{_said(error)}")
    reason = f"the {name_of(serializer)} serializer accepts {accepts}, but not this {_type_name(value)}"
    return SerializationError(topic, part, f"{reason}{_said(error)}{_hint(part, value, serializer)}")


def deserialization_failure(
    topic: str, part: Part, data: bytes, deserializer: Deserializer, error: Exception | None = None
) -> SerializationError:
    """The error of a consumer for a key or value that the deserializer could not read."""
    accepts = getattr(deserializer, "accepts", None)
    reader = f"the {name_of(deserializer)} deserializer accepts {accepts}, and" if accepts else name_of(deserializer)
    return SerializationError(topic, part, f"{reader} could not read these {len(data)} bytes{_said(error)}")


def name_of(serializer: Callable[..., Any]) -> str:
    """The name to show in messages: built-in serializers have a `name`."""
    name = getattr(serializer, "name", None) or getattr(serializer, "__qualname__", None)
    return str(name or type(serializer).__qualname__)


def _said(error: Exception | None) -> str:
    # Built-in serializers raise a bare TypeError if the list of accepted types says everything.
    if error is None or (type(error) is TypeError and not error.args):
        return ""
    kind = type(error)
    name = f"{kind.__module__}.{kind.__name__}" if kind.__name__ == "error" else kind.__name__  # such as struct.error
    return f" ({name}: {error})" if str(error) else f" ({name})"


def _type_name(value: Any) -> str:
    return type(value).__qualname__


def _type_of(value: Any) -> str:
    name = _type_name(value)
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


_TAKERS: dict[type, str] = {
    bytes: "bytes",
    bytearray: "bytes",
    str: "string",
    int: "int64",
    float: "float64",
    UUID: "uuid",
    dict: "json",
    list: "json",
    bool: "json",
}


def _hint(part: Part, value: Any, serializer: Serializer) -> str:
    taker = _TAKERS.get(type(value))
    if taker is None or taker == name_of(serializer):
        return ""
    return f"; use {part}_serializer={taker!r}"
