from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from ottla.client.errors import SerializationError
from ottla.client.serializers import (
    AvroDeserializer,
    AvroSerializer,
    SingleObjectFraming,
    bound_deserializer,
    bound_serializer,
)

TOPIC = "orders"


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


ORDER = record("shop.Order", {"name": "id", "type": "long"}, {"name": "item", "type": "string"})
LATER_ORDER = record(
    "shop.Order",
    {"name": "id", "type": "double"},
    {"name": "article", "type": "string", "aliases": ["item"]},
    {"name": "count", "type": "int", "default": 1},
)
SPOON = {"id": 27, "item": "foo"}


def test_the_bytes_of_avros_specification() -> None:
    assert AvroSerializer(ORDER)(TOPIC, SPOON).hex() == "3606666f6f"
    assert AvroSerializer("string")(TOPIC, "foo").hex() == "06666f6f"


def test_there_and_back() -> None:
    assert AvroDeserializer(ORDER)(TOPIC, AvroSerializer(ORDER)(TOPIC, SPOON)) == SPOON


def test_logical_types() -> None:
    schema = record(
        "Sale",
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    )
    sale = {
        "id": UUID(int=7),
        "day": date(2024, 7, 3),
        "at": datetime(2024, 7, 3, 12, 30, tzinfo=UTC),
        "price": Decimal("12.50"),
    }
    assert AvroDeserializer(schema)(TOPIC, AvroSerializer(schema)(TOPIC, sale)) == sale


def test_what_was_written_before_is_read_with_todays_schema() -> None:
    data = AvroSerializer(ORDER)(TOPIC, SPOON)
    read = AvroDeserializer(LATER_ORDER, written_with=ORDER)(TOPIC, data)
    assert read == {"id": 27.0, "article": "foo", "count": 1}


def test_what_is_written_today_is_read_with_yesterdays_schema() -> None:
    wider = record("shop.Order", {"name": "note", "type": "string"}, *ORDER["fields"])
    data = AvroSerializer(wider)(TOPIC, SPOON | {"note": "quick"})
    assert AvroDeserializer(ORDER, written_with=wider)(TOPIC, data) == SPOON


def test_schemas_that_do_not_go_together() -> None:
    other = record("shop.Order", {"name": "id", "type": "string"})
    read = bound_deserializer(AvroDeserializer(other, written_with=ORDER), "value")
    with pytest.raises(SerializationError, match=r"Avro that can be read as shop\.Order, .*Schema.*long.*string"):
        read(TOPIC, [AvroSerializer(ORDER)(TOPIC, SPOON)])


def test_a_field_without_a_value_or_default() -> None:
    lacking = record("shop.Order", *ORDER["fields"], {"name": "count", "type": "int"})
    read = bound_deserializer(AvroDeserializer(lacking, written_with=ORDER), "value")
    with pytest.raises(SerializationError, match="count"):
        read(TOPIC, [AvroSerializer(ORDER)(TOPIC, SPOON)])


def test_records_that_say_what_wrote_them() -> None:
    framing = SingleObjectFraming(ORDER, LATER_ORDER)
    old = AvroSerializer(ORDER, framing)(TOPIC, SPOON)
    new = AvroSerializer(LATER_ORDER, framing)(TOPIC, {"id": 28, "article": "bar", "count": 5})
    assert old.endswith(bytes.fromhex("3606666f6f"))
    read = bound_deserializer(AvroDeserializer(LATER_ORDER, framing=framing), "value")
    assert read(TOPIC, [old, None, new]) == [
        {"id": 27.0, "article": "foo", "count": 1},
        None,
        {"id": 28.0, "article": "bar", "count": 5},
    ]
    assert AvroDeserializer(framing=framing)(TOPIC, old) == SPOON


def test_records_written_with_a_schema_that_is_not_known() -> None:
    data = AvroSerializer(LATER_ORDER, SingleObjectFraming())(TOPIC, {"id": 1, "article": "x"})
    read = bound_deserializer(AvroDeserializer(ORDER, framing=SingleObjectFraming(ORDER)), "value")
    with pytest.raises(
        SerializationError, match=r"written with schema [0-9a-f]{16}, but the known schemas are shop\.Order \("
    ):
        read(TOPIC, [data])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"id": "x", "item": "foo"}, "integer is required on field id"),
        ({"id": 1}, "Field item is specified in the schema but missing"),
        (SPOON | {"colour": "red"}, "more fields than the schema specifies: colour"),
        ({"id": 2**70, "item": "foo"}, "too large"),
        ("text", "str"),
    ],
)
def test_what_the_schema_does_not_describe_is_refused(value: object, said: str) -> None:
    with pytest.raises(SerializationError, match=f"the avro serializer accepts data of the schema shop.Order.*{said}"):
        bound_serializer(AvroSerializer(ORDER), "value")(TOPIC, value)


@pytest.mark.parametrize("data", ["", "36", "3606666f", "36ff", "3606666f6f00"])
def test_bytes_that_another_schema_wrote(data: str) -> None:
    with pytest.raises(
        SerializationError, match=f"the avro deserializer .* could not read these {len(data) // 2} bytes"
    ):
        bound_deserializer(AvroDeserializer(ORDER), "value")(TOPIC, [bytes.fromhex(data)])


def test_a_deserializer_has_to_know_what_wrote() -> None:
    with pytest.raises(ValueError, match="give a schema, or a framing"):
        AvroDeserializer()
    with pytest.raises(ValueError, match="give either written_with or a framing"):
        AvroDeserializer(ORDER, written_with=ORDER, framing=SingleObjectFraming(ORDER))
