"""Serializers by name, as in `key.serializer` and the related configs.

`string`, `int64` and so on; Java's short names for numbers; and the names of Kafka's Java classes, so that the config
of a Java client works here.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from ottla.client.errors import ConfigError
from ottla.client.serializers import basic
from ottla.client.serializers.contract import Deserializer, Part, Serializer, name_of

T = TypeVar("T")

_JAVA_PACKAGE: Final = "org.apache.kafka.common.serialization."

_SAME: Final = {
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytearray": "bytes",
}
"""Java's short names."""

_NEED_SCHEMA: Final = {
    "avro": "AvroSerializer(schema) or AvroDeserializer(schema)",
    "protobuf": "ProtobufSerializer(MessageClass) or ProtobufDeserializer(MessageClass)",
}

_SERIALIZERS: Final[Mapping[str, Callable[[], Serializer]]] = {
    "bytes": basic.BytesSerializer,
    "string": basic.StringSerializer,
    **{name: partial(basic.NumberSerializer, name) for name in basic.NUMBER_NAMES},
    "uuid": basic.UUIDSerializer,
    "json": basic.JsonSerializer,
}

_DESERIALIZERS: Final[Mapping[str, Callable[[], Deserializer]]] = {
    "bytes": basic.BytesDeserializer,
    "string": basic.StringDeserializer,
    **{name: partial(basic.NumberDeserializer, name) for name in basic.NUMBER_NAMES},
    "uuid": basic.UUIDDeserializer,
    "json": basic.JsonDeserializer,
}

NAMES: Final = tuple(_SERIALIZERS)


def serializer_of(setting: str | Serializer | None, part: Part) -> Serializer:
    """The serializer for `key.serializer` or `value.serializer`: a name or a callable; bytes if it is not set."""
    key = f"{part}.serializer"
    if setting is None or isinstance(setting, str):
        return _named(_SERIALIZERS, setting or "bytes", key, "Serializer")
    _check_callable(setting, key, "(topic, value) -> bytes")
    return setting


def deserializer_of(setting: str | Deserializer | None, part: Part) -> Deserializer:
    """The deserializer for `key.deserializer` or `value.deserializer`: a name or a callable; bytes if it is not set."""
    key = f"{part}.deserializer"
    if setting is None or isinstance(setting, str):
        return _named(_DESERIALIZERS, setting or "bytes", key, "Deserializer")
    _check_callable(setting, key, "(topic, data) -> value")
    return setting


def _named(made_by: Mapping[str, Callable[[], T]], setting: str, key: str, kind: str) -> T:
    name = setting.removeprefix(_JAVA_PACKAGE).removesuffix(kind).lower()
    name = _SAME.get(name, name)
    if name in made_by:
        return made_by[name]()
    if name in _NEED_SCHEMA:
        raise ConfigError(key, f"{name} needs a schema: pass {_NEED_SCHEMA[name]}")
    close = difflib.get_close_matches(name, made_by, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(key, f"{setting!r} is neither one of {', '.join(made_by)} nor a callable{meant}")


def _check_callable(given: Any, key: str, signature: str) -> None:
    if isinstance(given, type):
        raise ConfigError(key, f"{given.__qualname__} is a class: pass an instance of it")
    if not callable(given):
        names = ", ".join(NAMES)
        raise ConfigError(key, f"a {type(given).__qualname__} is neither one of the names {names} nor a callable")
    if not _takes_two(given):
        raise ConfigError(
            key, f"{name_of(given)} cannot be called with two arguments; it must have the signature {signature}"
        )


def _takes_two(function: Callable[..., Any]) -> bool:
    """Other clients call serializers with the value alone, so passing such a function is an easy mistake."""
    try:
        inspect.signature(function).bind("topic", b"")
    except TypeError:
        return False
    except ValueError:  # some built-in functions have no signature
        return True
    return True
