from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.client.serializers import AvroSchema, SingleObjectFraming

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "buyer", "type": "shop.Person"}],
}
PERSON = {"type": "record", "name": "shop.Person", "fields": [{"name": "name", "type": "string", "doc": "in full"}]}


def test_a_schema_in_every_form(tmp_path: Path) -> None:
    file = tmp_path / "shop.Person.avsc"
    file.write_text(json.dumps(PERSON))
    forms: list[Any] = [PERSON, json.dumps(PERSON), file, AvroSchema(PERSON)]
    assert {AvroSchema(form).fingerprint for form in forms} == {AvroSchema(PERSON).fingerprint}
    assert {AvroSchema(form).name for form in forms} == {"shop.Person"}


def test_a_file_refers_to_types_in_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "shop.Person.avsc").write_text(json.dumps(PERSON))
    file = tmp_path / "shop.Order.avsc"
    file.write_text(json.dumps(ORDER))
    inlined = ORDER | {"fields": [ORDER["fields"][0], {"name": "buyer", "type": PERSON}]}
    assert AvroSchema(file).fingerprint == AvroSchema(inlined).fingerprint


def test_a_type_that_is_in_no_file(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    with pytest.raises(ValueError, match=r"the schema in .*order\.avsc is not valid Avro: UnknownType: shop\.Person"):
        AvroSchema(file)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("string", "string"),
        ('"long"', "long"),
        (["null", "string"], "union"),
        ({"type": "map", "values": "int"}, "map"),
    ],
)
def test_what_is_no_record_has_a_name_as_well(source: Any, name: str) -> None:
    assert AvroSchema(source).name == name


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"type": "nope"}, "the schema is not valid Avro: .*nope"),
        ("{", "the schema is not valid Avro: JSONDecodeError"),
        ("order.avsc", r"'order.avsc' is neither JSON nor an Avro type; pass a file as a pathlib\.Path"),
        (Path("missing.avsc"), r"the schema in missing\.avsc cannot be read: the file does not exist"),
        (
            {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int", "default": "a"}]},
            "Default value <a> must match schema type: int",
        ),
    ],
)
def test_what_is_no_schema_is_refused_at_once(source: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AvroSchema(source)


def test_the_fingerprint_is_that_of_avros_specification() -> None:
    # The table of the specification has 7275d51a3f395c8f for "int"; single objects carry it the other way round.
    assert AvroSchema("int").fingerprint == bytes.fromhex("7275d51a3f395c8f")[::-1]


def test_the_header_of_a_single_object() -> None:
    header = SingleObjectFraming().header("orders", AvroSchema("int"))
    assert header.hex() == "c3018f5c393f1ad57572"
    schema, start = SingleObjectFraming("int", "string").written_with("orders", header + b"\x02")
    assert (schema.name, start) == ("int", 10)


@pytest.mark.parametrize("data", [b"", b"\xc3", b"\x00\x00\x00\x00\x01\x02"])
def test_what_is_no_single_object(data: bytes) -> None:
    with pytest.raises(ValueError, match="marker of a single object"):
        SingleObjectFraming("int").written_with("orders", data)


def test_a_single_object_cut_off_in_its_header() -> None:
    with pytest.raises(
        ValueError, match=r"written with schema 8f5c, but the known schemas are int \(8f5c393f1ad57572\)"
    ):
        SingleObjectFraming("int").written_with("orders", bytes.fromhex("c3018f5c"))
