"""Our serializers beside Kafka's own of the same names, on values made by chance: bytes, and what is read from them."""

from __future__ import annotations

import math
import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kafka_artifacts import classpath
from ottla.client.serializers import deserializer_of, serializer_of

pytestmark = pytest.mark.compat

PROGRAM = Path(__file__).parent / "java" / "Serializers.java"
JAVA = "org.apache.kafka.common.serialization."
VALUES = 500


def some_text(chance: random.Random) -> str:
    planes = [(0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
    return "".join(chr(chance.randint(*chance.choice(planes))) for _ in range(chance.randrange(12)))


def some_double(chance: random.Random) -> float:
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308]
    return chance.choice(special) if chance.random() < 0.1 else chance.uniform(-1, 1) * 10 ** chance.randint(-300, 300)


def some_float(chance: random.Random) -> float:
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0]
    if chance.random() < 0.1:
        return chance.choice(special)
    rounded: float = struct.unpack(">f", struct.pack(">f", chance.uniform(-1, 1) * 10 ** chance.randint(-40, 38)))[0]
    return rounded


def some_int(bits: int) -> Callable[[random.Random], int]:
    return lambda chance: chance.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) >> chance.randrange(bits)


MAKERS: dict[str, Callable[[random.Random], object]] = {
    "ByteArray": lambda chance: chance.randbytes(chance.randrange(20)),
    "String": some_text,
    "Short": some_int(16),
    "Integer": some_int(32),
    "Long": some_int(64),
    "Float": some_float,
    "Double": some_double,
    "UUID": lambda chance: UUID(int=chance.getrandbits(128)),
}


def single(text: str) -> float:
    """The number of 32 bits that Java shows with as few digits as tell it from its neighbours."""
    nearest: float = struct.unpack(">f", struct.pack(">f", float(text)))[0]
    return nearest


SHOWN: dict[str, Callable[[str], object]] = {
    "String": str,
    "Short": int,
    "Integer": int,
    "Long": int,
    "Float": single,
    "Double": float,
    "UUID": UUID,
}
"""What Java's text of a value stands for."""


def test_bytes_and_values_are_those_of_kafka() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    given = [(name, maker(chance)) for name, maker in MAKERS.items() for _ in range(VALUES)]
    ours = []
    for name, value in given:
        data = serializer_of(f"{JAVA}{name}Serializer", "value")("orders", value)
        assert data is not None
        ours.append((name, value, data))
    lines = "".join(f"{name} {data.hex()}\n" for name, _, data in ours)
    command = ["java", "-cp", classpath("3.9.1"), str(PROGRAM)]
    answered = subprocess.run(command, input=lines, check=True, capture_output=True, text=True, timeout=120).stdout
    theirs = [tuple(map(bytes.fromhex, line.split(" "))) for line in answered.splitlines()]
    assert len(theirs) == len(ours)
    for (name, value, data), (written, text) in zip(ours, theirs, strict=True):
        place = f"{name} {value!r} (seed {seed})"
        assert data == written, place
        read = SHOWN[name](text.decode("utf-16-be")) if name in SHOWN else text
        assert repr(read) == repr(value), place
        assert repr(deserializer_of(f"{JAVA}{name}Deserializer", "value")("orders", written)) == repr(value), place
