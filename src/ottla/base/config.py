"""Configuration by Kafka's names: what keys there are, what they may hold, and what to say when they do not.

A `ConfigSchema` is a set of keys, each with its type, default, rule and a sentence for people. It turns the text of a
properties file, a command line or a request into checked values, and refuses with the key, the value and what is right.
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
    """What Kafka's tools call the types, and what Python sees."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    SHORT = "short"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    CLASS = "class"
    """The name of a Java class that Kafka would load: a text to us."""
    PASSWORD = "password"
    """A text that is never shown."""


class ConfigError(ValueError):
    """A key that does not exist, or a value that it cannot have."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"{key}: {reason}")


Rule = Callable[[Any], str | None]
"""Says what is wrong with a value, or nothing. Its docstring says what is right."""


def described(allowed: str, check: Rule) -> Rule:
    """A rule that says what it allows."""
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
    """A key and what it may hold."""

    name: str
    type: ValueType
    default: Any
    doc: str
    rule: Rule = any_value

    @property
    def allowed(self) -> str:
        """What the rule lets through, in words; empty if that is everything of its type."""
        return self.rule.__doc__ or ""

    @property
    def is_sensitive(self) -> bool:
        return self.type is ValueType.PASSWORD

    def parse(self, text: str) -> Any:
        """The value behind a text, checked."""
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
        """A value that is set, as it stands in a properties file."""
        if self.type is ValueType.BOOLEAN:
            return "true" if value else "false"
        if self.type is ValueType.LIST:
            return ",".join(value)
        return _java_double(value) if self.type is ValueType.DOUBLE else str(value)


def _java_double(value: float) -> str:
    """As Java writes it, which has exponents earlier than Python: 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not math.isfinite(value):
        return str(value)
    mantissa, exponent = f"{Decimal(repr(value)).normalize():E}".split("E")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{int(exponent)}"


def _without_underscores(text: str) -> str:
    """Python reads 1_000 as a number, which nobody else does."""
    if "_" in text:
        raise ValueError(text)
    return text


class ConfigSchema:
    """The keys of one kind of thing. Immutable."""

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
        """The key that a wrong name may have meant: of those as much like it as that, the likest."""
        close = difflib.get_close_matches(name, self._keys, n=1, cutoff=likeness)
        return close[0] if close else None

    def parse(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Every key with its value: the given one, or its default."""
        values = {key.name: key.default for key in self}
        for name, text in given.items():
            values[name] = self[name].parse(text)
        return values
