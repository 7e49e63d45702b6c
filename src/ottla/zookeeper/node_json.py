"""The JSON of Kafka's nodes: read with errors that name the node and the field, written as Kafka's JVM writes it.

No reader minds the order of keys. Ours is Kafka's all the same, so that a node that was read and written again stays as
it was, byte for byte, and a difference between two trees means something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeGuard, TypeVar

V = TypeVar("V")

_ESCAPED = re.compile(r"\\u00[0-9a-f]{2}|\\.|[\U00010000-\U0010ffff]")  # "\\." skips a pair, so "\\\\u00…" stays
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_LONGEST_SHOWN: Final = 200


class ZnodeError(ValueError):
    """What a node holds cannot be understood; the message names it and what is wrong."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def write_json(value: Mapping[str, object]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if "\\u00" in text or not text.isascii():
        text = _ESCAPED.sub(_escape, text)
    return text.encode()


def _escape(match: re.Match[str]) -> str:
    """The JVM's way: hex digits in upper case, and two escapes for what takes two of its characters."""
    found = match[0]
    if found.startswith("\\u"):
        return f"\\u{found[2:].upper()}"
    return found if found.startswith("\\") else "".join(f"\\u{unit:04X}" for unit in _utf16_units(found))


class Fields:
    """The object that a node holds, or one within it. Fields that are not asked for may be there."""

    __slots__ = ("_path", "_values", "_within")

    def __init__(self, path: str, values: Mapping[str, Any], within: str = "") -> None:
        self._path = path
        self._values = values
        self._within = within

    @classmethod
    def parse(cls, path: str, data: bytes) -> Fields:
        try:
            values = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ZnodeError(path, f"the node must hold JSON, and it holds {shown(data)}: {error}") from None
        if not isinstance(values, dict):
            raise ZnodeError(path, f"the node must hold a JSON object, and it holds {shown(data)}")
        return cls(path, values)

    def has(self, name: str) -> bool:
        """Null counts as absent, as Kafka has it."""
        return self._values.get(name) is not None

    def integer(self, name: str) -> int:
        """Of 32 bits, as all of Kafka's are that are not in a string."""
        value = self._values.get(name)
        if not is_int32(value):
            raise self._wrong(name, "an integer")
        return value

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if type(value) is not str:
            raise self._wrong(name, "a string")
        return value

    def long_in_text(self, name: str) -> int:
        """Of 64 bits, which Kafka writes as a string."""
        text = self.text(name)
        if not _NUMBER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
            raise self._wrong(name, "a number in a string")
        return int(text)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._values.get(name)
        if type(value) is not list or not all(is_int32(each) for each in value):
            raise self._wrong(name, "a list of integers")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._values.get(name)
        if type(value) is not list or any(type(each) is not str for each in value):
            raise self._wrong(name, "a list of strings")
        return tuple(value)

    def object(self, name: str) -> Fields:
        value = self._values.get(name)
        if type(value) is not dict:
            raise self._wrong(name, "an object")
        return Fields(self._path, value, f"{self._within}{name}.")

    def optional_object(self, name: str) -> Fields:
        """Empty if it is absent."""
        return self.object(name) if self.has(name) else Fields(self._path, {}, f"{self._within}{name}.")

    def objects(self, name: str) -> list[Fields]:
        value = self._values.get(name)
        if type(value) is not list or any(type(each) is not dict for each in value):
            raise self._wrong(name, "a list of objects")
        return [Fields(self._path, each, f"{self._within}{name}[{index}].") for index, each in enumerate(value)]

    def names(self) -> Iterable[str]:
        return self._values

    def error(self, reason: str) -> ZnodeError:
        return ZnodeError(self._path, reason)

    def _wrong(self, name: str, expected: str) -> ZnodeError:
        field = f"{self._within}{name}"
        if name not in self._values:
            return self.error(f"the field {field} is missing; it must hold {expected}")
        return self.error(f"the field {field} must hold {expected}, and it holds {shown(self._values[name])}")


def is_int32(value: object) -> TypeGuard[int]:
    return type(value) is int and -(2**31) <= value < 2**31


def shown(value: object) -> str:
    """For an error: whatever it is, it does not fill the screen."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


# --- the order of keys ----------------------------------------------------------------------------------------------


def in_scala_order(values: Mapping[str, V]) -> dict[str, V]:
    """As Scala's mutable hash map lists them: by slot, then by hash. It grows before three quarters of it are full."""
    if not values:
        return {}
    slots = _slot_count(len(values))
    hashes = {key: _spread_hash(key) for key in values}
    order = sorted(values, key=lambda key: (hashes[key] & (slots - 1), hashes[key]))
    return {key: values[key] for key in order}


def in_properties_order(values: Mapping[str, V]) -> dict[str, V]:
    """As Java's `Properties` list them: by slot, then as they were added (or nearly so, once it had to grow)."""
    slots = _slot_count(len(values))
    return {key: values[key] for key in sorted(values, key=lambda key: _spread_hash(key) & (slots - 1))}


def _slot_count(size: int) -> int:
    slots = 16
    while size * 4 >= slots * 3:
        slots *= 2
    return slots


@lru_cache(maxsize=1024)  # most keys are the numbers of partitions
def _spread_hash(text: str) -> int:
    """The hash of a Java string, with its upper half mixed in, as a signed number."""
    value = 0
    for unit in _utf16_units(text):
        value = (value * 31 + unit) & 0xFFFFFFFF
    value ^= value >> 16
    return value - 0x100000000 if value >= 0x80000000 else value


def _utf16_units(text: str) -> Sequence[int]:
    if text.isascii():
        return text.encode()
    raw = text.encode("utf-16-be", "surrogatepass")
    return [raw[position] << 8 | raw[position + 1] for position in range(0, len(raw), 2)]
