"""Configuration keys with Kafka's names: their types, defaults and rules.

A `ConfigSchema` is a set of keys, each with its type, default, rule and description. It parses the text of a properties
file, a command line or a request into checked values; errors name the key, the value and what is allowed.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

_INT_BITS: Final = {"short": 15, "int": 31, "long": 63}


class ValueType(Enum):
    """The types of values, with the names that Kafka's tools use."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    SHORT = "short"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    CLASS = "class"
    """The name of a Java class that Kafka would load; a string here."""
    PASSWORD = "password"
    """A string that is never shown."""


class ConfigError(ValueError):
    """An unknown key, or an invalid value."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"{key}: {reason}")


Rule = Callable[[Any], str | None]
"""Returns what is wrong with a value, or None. Its docstring describes the allowed values."""


def described(allowed: str, check: Rule) -> Rule:
    """A rule with a description of the allowed values."""
    check.__doc__ = allowed
    return check


def between(low: float, high: float) -> Rule:
    return described(
        f"{low} to {high}",
        lambda value: None if low <= value <= high else f"{value} is not between {low} and {high}",
    )


def at_least(low: float) -> Rule:
    return described(f"{low} or more", lambda value: None if value >= low else f"{value} is less than {low}")


def one_of(*allowed: str) -> Rule:
    names = ", ".join(allowed)
    return described(names, lambda value: None if value in allowed else f"{value!r} is not one of {names}")


def each_of(*allowed: str) -> Rule:
    names = ", ".join(allowed)

    def rule(values: tuple[str, ...]) -> str | None:
        wrong = [value for value in values if value not in allowed]
        return f"{wrong[0]!r} is not one of {names}" if wrong else None

    return described(f"any of {names}", rule)


def any_value(_: Any) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A key with its type, default and rule."""

    name: str
    type: ValueType
    default: Any
    doc: str
    rule: Rule = any_value

    @property
    def allowed(self) -> str:
        """A description of the allowed values; empty if any value of the type is allowed."""
        return self.rule.__doc__ or ""

    @property
    def is_sensitive(self) -> bool:
        return self.type is ValueType.PASSWORD

    def parse(self, text: str) -> Any:
        """Parses and checks a value."""
        value = self._typed(text.strip())
        wrong = self.rule(value)
        if wrong is not None:
            raise ConfigError(self.name, wrong)
        return value

    def accepts(self, text: str) -> bool:
        try:
            self.parse(text)
        except ConfigError:
            return False
        return True

    def _typed(self, text: str) -> Any:
        match self.type:
            case ValueType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise ConfigError(self.name, f"{text!r} is neither true nor false")
                return text.lower() == "true"
            case ValueType.STRING | ValueType.CLASS | ValueType.PASSWORD:
                return text
            case ValueType.LIST:
                return tuple(part.strip() for part in text.split(",")) if text else ()
            case ValueType.DOUBLE:
                try:
                    return float(_without_underscores(text))
                except ValueError:
                    raise ConfigError(self.name, f"{text!r} is not a number") from None
            case _:
                return self._whole_number(text)

    def _whole_number(self, text: str) -> int:
        try:
            value = int(_without_underscores(text))
        except ValueError:
            raise ConfigError(self.name, f"{text!r} is not a whole number") from None
        limit = 1 << _INT_BITS[self.type.value]
        if not -limit <= value < limit:
            raise ConfigError(self.name, f"{value} does not fit a {self.type.value}")
        return value

    def text(self, value: Any) -> str:
        """Formats a value as in a properties file."""
        if self.type is ValueType.BOOLEAN:
            return "true" if value else "false"
        if self.type is ValueType.LIST:
            return ",".join(value)
        return _java_double(value) if self.type is ValueType.DOUBLE else str(value)


def _java_double(value: float) -> str:
    """Formats a float as Java does, which uses exponents earlier than Python: 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not math.isfinite(value):
        return str(value)
    mantissa, exponent = f"{Decimal(repr(value)).normalize():E}".split("E")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{int(exponent)}"


def _without_underscores(text: str) -> str:
    """Refuses underscores: Python parses 1_000 as a number, Kafka does not."""
    if "_" in text:
        raise ValueError(text)
    return text


class ConfigSchema:
    """The keys of a broker, a topic, a client and so on. Immutable."""

    def __init__(self, kind: str, keys: Iterable[ConfigKey]) -> None:
        self.kind = kind
        self._keys = {key.name: key for key in keys}

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        try:
            return self._keys[name]
        except KeyError:
            nearest = self.nearest(name)
            hint = f"; did you mean {nearest}?" if nearest else ""
            raise ConfigError(name, f"there is no such {self.kind} config{hint}") from None

    def nearest(self, name: str, likeness: float = 0.6) -> str | None:
        """The most similar key to a wrong name, if one is similar enough."""
        close = difflib.get_close_matches(name, self._keys, n=1, cutoff=likeness)
        return close[0] if close else None

    def parse(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Every key with its given value or its default."""
        values = {key.name: key.default for key in self}
        for name, text in given.items():
            values[name] = self[name].parse(text)
        return values
