"""The packages of Avro and Protobuf are loaded when they are needed, and missed with a sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.client import serializers


def run(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_nothing_is_loaded_before_it_is_needed() -> None:
    program = "import sys, ottla.client.serializers; print(*{'fastavro', 'google.protobuf'} & set(sys.modules))"
    assert run(program) == ""


@pytest.mark.parametrize(
    ("name", "package", "sentence"),
    [
        ("AvroSerializer", "fastavro", "Avro needs fastavro: install it with `pip install 'ottla[avro]'`"),
        ("AvroDeserializer", "fastavro", "Avro needs fastavro: install it with `pip install 'ottla[avro]'`"),
        ("AvroSchema", "fastavro", "Avro needs fastavro: install it with `pip install 'ottla[avro]'`"),
        ("ProtobufSerializer", "google", "Protobuf needs protobuf: install it with `pip install 'ottla[protobuf]'`"),
    ],
)
def test_a_package_that_is_missing(name: str, package: str, sentence: str) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None  # as if it were not installed
from ottla.client.errors import MissingPackageError
try:
    from ottla.client.serializers import {name}
except MissingPackageError as error:
    print(error)
"""
    assert run(program) == sentence


def test_every_name_that_is_offered_is_there() -> None:
    assert all(getattr(serializers, name) for name in serializers.__all__)
    assert not hasattr(serializers, "XmlSerializer")
