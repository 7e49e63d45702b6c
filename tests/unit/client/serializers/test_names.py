from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.client.errors import ConfigError
from ottla.client.serializers import StringSerializer, deserializer_of, serializer_of

JAVA = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bytes", b"\x01"),
        ("string", "é"),
        ("int16", -2),
        ("int32", -2),
        ("int64", -2),
        ("float32", 0.5),
        ("float64", 0.1),
        ("uuid", UUID(int=5)),
        ("json", {"a": [1]}),
        (None, b"as it is"),
    ],
)
def test_by_name_there_and_back(name: str | None, value: object) -> None:
    data = serializer_of(name, "value")("orders", value)
    assert data is not None
    assert deserializer_of(name, "value")("orders", data) == value


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("short", "int16"),
        ("integer", "int32"),
        ("long", "int64"),
        ("float", "float32"),
        ("double", "float64"),
        (JAVA + "ByteArray*", "bytes"),
        (JAVA + "Bytes*", "bytes"),
        (JAVA + "String*", "string"),
        (JAVA + "Short*", "int16"),
        (JAVA + "Integer*", "int32"),
        (JAVA + "Long*", "int64"),
        (JAVA + "Float*", "float32"),
        (JAVA + "Double*", "float64"),
        (JAVA + "UUID*", "uuid"),
        ("StringSerializer", "string"),
    ],
)
def test_javas_names(java: str, ours: str) -> None:
    serializer: Any = serializer_of(java.replace("*", "Serializer"), "key")
    assert serializer.name == ours
    if "Serializer" not in java:
        deserializer: Any = deserializer_of(java.replace("*", "Deserializer"), "key")
        assert deserializer.name == ours


def test_what_can_be_called_is_taken_as_it_is() -> None:
    def mine(_topic: str, value: str) -> bytes:
        return value.encode()

    given = StringSerializer("latin-1")
    assert serializer_of(given, "value") is given
    assert serializer_of(mine, "value") is mine
    assert serializer_of(lambda *_both: b"", "value")("orders", 1) == b""
    assert deserializer_of(bytes.__add__, "key") is bytes.__add__  # type: ignore[comparison-overlap, arg-type]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("sting", "value.serializer: 'sting' is neither one of bytes, string, int16, .*; did you mean 'string'"),
        ("com.example.OrderSerializer", "value.serializer: 'com.example.OrderSerializer' is neither one of"),
        (JAVA + "StringDeserializer", "value.serializer: .*StringDeserializer' is neither one of"),
        ("avro", r"value.serializer: avro needs a schema: pass AvroSerializer\(schema\)"),
        ("protobuf", "value.serializer: protobuf needs a schema"),
        (5, "value.serializer: a int is neither one of the names bytes, string"),
        (StringSerializer, "value.serializer: StringSerializer is a class: pass an instance"),
        (lambda value: value, r"value.serializer: .*<lambda> cannot be called with two arguments; .* \(topic, value\)"),
    ],
)
def test_what_is_no_serializer_is_refused_when_it_is_set(setting: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        serializer_of(setting, "value")


def test_what_is_no_deserializer_is_refused_when_it_is_set() -> None:
    with pytest.raises(ConfigError, match=r"key\.deserializer: 'jason' .* did you mean 'json'"):
        deserializer_of("jason", "key")
    with pytest.raises(ConfigError, match=r"key\.deserializer: .* signature \(topic, data\) -> value"):
        deserializer_of(lambda: 1, "key")  # type: ignore[arg-type, misc]
