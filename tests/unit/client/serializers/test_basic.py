"""The bytes are those that the serializers of Kafka 3.9.1 made of the same values."""

from __future__ import annotations

import math
import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.serializers import (
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

TOPIC = "orders"
SOME_UUID = UUID("00112233-4455-6677-8899-aabbccddeeff")

NUMBERS_OF_JAVA = [
    ("int16", 0, "0000"),
    ("int16", -1, "ffff"),
    ("int16", 258, "0102"),
    ("int16", 32767, "7fff"),
    ("int16", -32768, "8000"),
    ("int32", -1, "ffffffff"),
    ("int32", 16909060, "01020304"),
    ("int32", 2**31 - 1, "7fffffff"),
    ("int32", -(2**31), "80000000"),
    ("int64", -1, "ffffffffffffffff"),
    ("int64", 72623859790382856, "0102030405060708"),
    ("int64", 2**63 - 1, "7fffffffffffffff"),
    ("int64", -(2**63), "8000000000000000"),
    ("float32", 1.0, "3f800000"),
    ("float32", -1.5, "bfc00000"),
    ("float32", 3.4028234663852886e38, "7f7fffff"),
    ("float32", 2.0**-149, "00000001"),
    ("float32", math.inf, "7f800000"),
    ("float64", -0.0, "8000000000000000"),
    ("float64", -1.5, "bff8000000000000"),
    ("float64", math.pi, "400921fb54442d18"),
    ("float64", 5e-324, "0000000000000001"),
    ("float64", -math.inf, "fff0000000000000"),
]


@pytest.mark.parametrize(("name", "value", "java"), NUMBERS_OF_JAVA)
def test_numbers_are_javas(name: str, value: float, java: str) -> None:
    data = NumberSerializer(name)(TOPIC, value)
    assert data.hex() == java
    assert repr(NumberDeserializer(name)(TOPIC, data)) == repr(value)


@pytest.mark.parametrize(("name", "java"), [("float32", "7fc00000"), ("float64", "7ff8000000000000")])
def test_not_a_number_is_javas(name: str, java: str) -> None:
    data = NumberSerializer(name)(TOPIC, math.nan)
    assert data.hex() == java
    assert math.isnan(NumberDeserializer(name)(TOPIC, data))


@pytest.mark.parametrize(
    ("name", "value"),
    [("int16", 32768), ("int32", 2**31), ("int64", 2**63), ("int32", 1.5), ("int64", "1"), ("float64", "1")],
)
def test_what_does_not_fit_is_refused(name: str, value: object) -> None:
    with pytest.raises(struct.error):
        NumberSerializer(name)(TOPIC, value)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", bytes(3), bytes(5)])
def test_a_number_of_another_size_is_refused(data: bytes) -> None:
    with pytest.raises(struct.error):
        NumberDeserializer("int32")(TOPIC, data)


def test_numbers_there_are_not() -> None:
    for kind in NumberSerializer, NumberDeserializer:
        with pytest.raises(ValueError, match="'int8'; use int16, int32"):
            kind("int8")


@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("", ""),
        ("abc", "616263"),
        ("héllo", "68c3a96c6c6f"),
        ("你好", "e4bda0e5a5bd"),
        ("\N{ROCKET}", "f09f9a80"),
        ("a\0b", "610062"),
    ],
)
def test_text_is_javas(text: str, java: str) -> None:
    data = StringSerializer()(TOPIC, text)
    assert data.hex() == java
    assert StringDeserializer()(TOPIC, data) == text


@pytest.mark.parametrize(("encoding", "java"), [("ISO-8859-1", "68e9"), ("UTF-16BE", "006800e9")])
def test_encodings_are_javas(encoding: str, java: str) -> None:
    data = StringSerializer(encoding)(TOPIC, "hé")
    assert data.hex() == java
    assert StringDeserializer(encoding)(TOPIC, data) == "hé"


def test_encodings_that_cannot_be() -> None:
    for kind in StringSerializer, StringDeserializer:
        with pytest.raises(ValueError, match=r"use utf-16-be"):
            kind("UTF-16")
        with pytest.raises(LookupError):
            kind("klingon")
    with pytest.raises(LookupError):
        StringDeserializer(errors="guess")


def test_text_that_cannot_be_written_is_not_replaced() -> None:
    with pytest.raises(UnicodeEncodeError):
        StringSerializer()(TOPIC, "\ud800x")
    with pytest.raises(UnicodeEncodeError):
        StringSerializer("ascii")(TOPIC, "é")


def test_text_that_cannot_be_read_is_replaced_where_that_is_asked_for() -> None:
    with pytest.raises(UnicodeDecodeError):
        StringDeserializer()(TOPIC, b"\xffA")
    assert StringDeserializer(errors="replace")(TOPIC, b"\xffA").encode().hex() == "efbfbd41"


def test_a_uuid_is_javas_text() -> None:
    data = UUIDSerializer()(TOPIC, SOME_UUID)
    assert data == b"00112233-4455-6677-8899-aabbccddeeff"
    assert UUIDDeserializer()(TOPIC, data.upper()) == SOME_UUID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00112233445566778899aabbccddeeff",
        "{00112233-4455-6677-8899-aabbccddeeff}",
        "00112233-4455-6677-8899-aabbccddeefg",
        "001122334455-6677-8899-aabb-ccddeeff",
        "00112233-4455-6677-8899-aabbccddeef\N{GREEK SMALL LETTER ALPHA}",
    ],
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"form|base 16|ascii"):
        UUIDDeserializer()(TOPIC, text.encode())


def test_text_is_no_uuid_to_a_serializer() -> None:
    with pytest.raises(TypeError):
        UUIDSerializer()(TOPIC, str(SOME_UUID))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_of_any_kind(value: bytes | bytearray | memoryview) -> None:
    data = BytesSerializer()(TOPIC, value)
    assert type(data) is bytes
    assert data == b"abc"
    assert BytesDeserializer()(TOPIC, data) is data


@pytest.mark.parametrize("value", ["abc", 5, [1, 2]])
def test_bytes_are_not_made_of_something_else(value: object) -> None:
    with pytest.raises(TypeError):
        BytesSerializer()(TOPIC, value)  # type: ignore[arg-type]


def test_json_is_compact_and_utf8() -> None:
    value = {"name": "Zoë", "sizes": [1, 2.5], "good": True, "note": None}
    data = JsonSerializer()(TOPIC, value)
    assert data == '{"name":"Zoë","sizes":[1,2.5],"good":true,"note":null}'.encode()
    assert JsonDeserializer()(TOPIC, data) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, SOME_UUID, {1, 2}, b"abc", "\ud800"])
def test_what_json_has_not_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        JsonSerializer()(TOPIC, [value])


@pytest.mark.parametrize("data", [b"", b"{", b"{} {}", b"\xff"])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|Extra data|decode"):
        JsonDeserializer()(TOPIC, data)


def test_json_of_ones_own() -> None:
    assert JsonSerializer(default=str)(TOPIC, {"id": SOME_UUID}) == f'{{"id":"{SOME_UUID}"}}'.encode()
    assert JsonDeserializer(object_hook=lambda found: sorted(found))(TOPIC, b'{"b":1,"a":2}') == ["a", "b"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_comes_back(value: object) -> None:
    assert JsonDeserializer()(TOPIC, JsonSerializer()(TOPIC, value)) == value
