"""What a client promises about any serializer, its own or the user's."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any
from uuid import uuid4

import pytest

from ottla.client.errors import ClientError, SerializationError
from ottla.client.serializers import (
    BytesSerializer,
    JsonSerializer,
    NumberDeserializer,
    NumberSerializer,
    Serializer,
    StringDeserializer,
    StringSerializer,
    bound_deserializer,
    bound_serializer,
)

TOPIC = "orders"


def test_a_function_of_ones_own_is_a_serializer() -> None:
    def shouted(topic: str, value: str) -> bytes:
        return f"{topic}: {value.upper()}".encode()

    assert bound_serializer(shouted, "value")(TOPIC, "hi") == b"orders: HI"


def test_none_is_a_tombstone_that_no_serializer_sees() -> None:
    called = []
    serialize = bound_serializer(lambda topic, value: called.append((topic, value)), "value")
    deserialize = bound_deserializer(lambda topic, data: called.append((topic, data)), "value")
    assert serialize(TOPIC, None) is None
    assert deserialize(TOPIC, [None, None]) == [None, None]
    assert called == []


def test_a_serializer_may_make_a_tombstone() -> None:
    assert bound_serializer(lambda _topic, _value: None, "value")(TOPIC, "gone") is None


@pytest.mark.parametrize("data", [bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_of_another_kind_become_bytes(data: bytearray | memoryview) -> None:
    made = bound_serializer(lambda _topic, _value: data, "value")(TOPIC, 1)  # type: ignore[arg-type,return-value]
    assert type(made) is bytes
    assert made == b"abc"


def test_a_serializer_that_answers_no_bytes() -> None:
    def forgot_to_encode(_topic: str, value: object) -> Any:
        return str(value)

    with pytest.raises(SerializationError, match=r"forgot_to_encode returned a str; a serializer must return bytes"):
        bound_serializer(forgot_to_encode, "key")(TOPIC, 1)


@pytest.mark.parametrize(
    ("serializer", "part", "value", "sentence"),
    [
        (
            StringSerializer(),
            "key",
            42,
            "the key of a record of topic 'orders': the string serializer accepts str, but not this int; "
            "use key_serializer='int64'",
        ),
        (
            BytesSerializer(),
            "value",
            "text",
            "the value of a record of topic 'orders': the bytes serializer accepts bytes, bytearray or memoryview, but "
            "not this str; use value_serializer='string'",
        ),
        (
            NumberSerializer("int16"),
            "value",
            70_000,
            "the value of a record of topic 'orders': the int16 serializer accepts an int from -32768 to 32767, but "
            "not this int (…); use value_serializer='int64'",
        ),
        (
            JsonSerializer(),
            "value",
            {"when": object},
            "the value of a record of topic 'orders': the json serializer accepts JSON values (dict, list, str, int, "
            "float, bool), but not this dict (TypeError: Object of type type is not JSON serializable)",
        ),
    ],
    ids=["string", "bytes", "int16", "json"],
)
def test_a_value_that_is_not_taken(serializer: Serializer, part: Any, value: object, sentence: str) -> None:
    with pytest.raises(SerializationError) as raised:
        bound_serializer(serializer, part)(TOPIC, value)
    # What struct says differs from one Python to the next.
    assert re.sub(r"\(struct.error: .*\)", "(…)", str(raised.value)) == sentence
    assert (raised.value.topic, raised.value.part) == (TOPIC, part)
    assert isinstance(raised.value, ClientError)
    assert raised.value.__cause__ is not None


def test_a_value_that_ones_own_serializer_does_not_take() -> None:
    def of_order(_topic: str, value: dict[str, str]) -> bytes:
        return value["id"].encode()

    with pytest.raises(SerializationError, match=r"of_order did not accept an OrderedDict \(KeyError: 'id'\)"):
        bound_serializer(of_order, "value")(TOPIC, OrderedDict())


def test_a_hint_names_what_would_take_it() -> None:
    for value, name in [(1.5, "float64"), (uuid4(), "uuid"), ([1], "json"), (b"x", "bytes")]:
        with pytest.raises(SerializationError, match=f"use value_serializer='{name}'"):
            bound_serializer(StringSerializer(), "value")(TOPIC, value)


def test_a_column_is_read_at_once() -> None:
    assert bound_deserializer(StringDeserializer(), "value")(TOPIC, [b"a", None, b"b"]) == ["a", None, "b"]
    assert bound_deserializer(StringDeserializer(), "value")(TOPIC, []) == []


def test_the_record_that_cannot_be_read_is_named() -> None:
    column = [bytes(4), None, bytes(5), bytes(6)]
    with pytest.raises(SerializationError) as raised:
        bound_deserializer(NumberDeserializer("int32"), "key")(TOPIC, column)
    assert str(raised.value) == (
        "the key of a record of topic 'orders': the int32 deserializer accepts exactly 4 bytes, and could not read "
        "these 5 bytes (struct.error: unpack requires a buffer of 4 bytes)"
    )
    assert (raised.value.topic, raised.value.part, raised.value.index) == (TOPIC, "key", 2)


def test_a_deserializer_of_ones_own_that_fails_without_a_word() -> None:
    def broken(_topic: str, _data: bytes) -> object:
        raise EOFError

    with pytest.raises(SerializationError, match=r"broken could not read these 3 bytes \(EOFError\)"):
        bound_deserializer(broken, "value")(TOPIC, [b"abc"])


def test_an_interrupt_is_no_failure_of_a_serializer() -> None:
    def interrupted(_topic: str, _value: object) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bound_serializer(interrupted, "value")(TOPIC, 1)
