"""Serializers and deserializers for keys and values.

Most are given by name (`value_serializer="json"`); those that need arguments are created from the classes here.
`contract` says what a serializer is, so that your own functions can be used. The packages for Avro and Protobuf are
imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ottla.client.errors import MissingPackageError
from ottla.client.serializers.basic import (
    BytesDeserializer,
    BytesSerializer,
    JsonDeserializer,
    JsonSerializer,
    NumberDeserializer,
    NumberSerializer,
    StringDeserializer,
    StringSerializer,
    UUIDDeserializer,
    UUIDSerializer,
)
from ottla.client.serializers.contract import (
    Deserializer,
    Part,
    Serializer,
    bound_deserializer,
    bound_serializer,
    serialization_failure,
)
from ottla.client.serializers.names import deserializer_of, serializer_of

if TYPE_CHECKING:
    from ottla.client.serializers.avro import AvroDeserializer, AvroSerializer
    from ottla.client.serializers.avro_schemas import AvroFraming, AvroSchema, SingleObjectFraming
    from ottla.client.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer

__all__ = [
    "AvroDeserializer",
    "AvroFraming",
    "AvroSchema",
    "AvroSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "Deserializer",
    "JsonDeserializer",
    "JsonSerializer",
    "NumberDeserializer",
    "NumberSerializer",
    "Part",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Serializer",
    "SingleObjectFraming",
    "StringDeserializer",
    "StringSerializer",
    "UUIDDeserializer",
    "UUIDSerializer",
    "bound_deserializer",
    "bound_serializer",
    "deserializer_of",
    "serialization_failure",
    "serializer_of",
]

_AVRO = ("Avro", "fastavro", "avro")
_PROTOBUF = ("Protobuf", "protobuf", "protobuf")

_IN_EXTRAS = {
    "AvroDeserializer": ("avro", _AVRO),
    "AvroSerializer": ("avro", _AVRO),
    "AvroFraming": ("avro_schemas", _AVRO),
    "AvroSchema": ("avro_schemas", _AVRO),
    "SingleObjectFraming": ("avro_schemas", _AVRO),
    "ProtobufDeserializer": ("protobuf", _PROTOBUF),
    "ProtobufSerializer": ("protobuf", _PROTOBUF),
}
"""The module of each class, its purpose, the package that it needs, and the extra that installs the package."""


def __getattr__(name: str) -> Any:
    if name not in _IN_EXTRAS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, needs = _IN_EXTRAS[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ImportError as error:
        raise MissingPackageError(*needs) from error
