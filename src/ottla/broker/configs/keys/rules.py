"""Rules that only keys of a broker need. A rule's docstring says what it allows, for the reference."""

from __future__ import annotations

import re
from typing import Final

from ottla.base.config import Rule, described

_INTERMEDIATE: Final = {
    # Releases whose protocol changed in steps, and how many they had.
    "0.8.0": 0,
    "0.8.1": 0,
    "0.8.2": 0,
    "0.9.0": 0,
    "0.10.0": 2,
    "0.10.1": 3,
    "0.10.2": 1,
    "0.11.0": 3,
    "1.0": 1,
    "1.1": 1,
    "2.0": 2,
    "2.1": 3,
    "2.2": 2,
    "2.3": 2,
    "2.4": 2,
    "2.5": 1,
    "2.6": 1,
    "2.7": 3,
    "2.8": 2,
    "3.0": 2,
    "3.1": 1,
    "3.2": 1,
    "3.3": 4,
    "3.4": 1,
    "3.5": 3,
    "3.6": 3,
    "3.7": 5,
    "3.8": 1,
    "3.9": 1,
    "4.0": 2,
}
_ADDRESS: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*|\[[0-9a-zA-Z\-%._:]*\]):[0-9]+")


def release(value: str) -> str | None:
    """a release of Kafka, such as 3.9, or a step on the way to it, such as 3.9-IV0"""
    parts = value.split(".")
    name = ".".join(parts[: 3 if value.startswith("0.") else 2])
    base, dash, step = name.partition("-IV")
    steps = _INTERMEDIATE.get(base)
    if steps is not None and (not dash or (step.isdecimal() and int(step) < steps)):
        return None
    return f"{value!r} is no release of Kafka, such as 3.9 or 3.9-IV0"


def addresses(values: tuple[str, ...]) -> str | None:
    """any of host:port"""
    wrong = [value for value in values if not _ADDRESS.fullmatch(value)]
    return f"{wrong[0]!r} is not host:port" if wrong else None


def voters(values: tuple[str, ...]) -> str | None:
    """any of id@host:port"""
    for value in values:
        member, _, address = value.partition("@")
        if not re.fullmatch(r"[+-]?\d+", member) or not _ADDRESS.fullmatch(address):
            return f"{value!r} is not id@host:port"
    return None


def not_empty(value: str) -> str | None:
    """not empty"""
    return None if value else "it is empty"


def or_unset(unset: int, rule: Rule) -> Rule:
    """Lets the number through that means it is not set."""
    return described(f"{unset}, or {rule.__doc__}", lambda value: None if value == unset else rule(value))


def one_of_ignoring_case(*allowed: str) -> Rule:
    names = ", ".join(allowed)
    return described(names, lambda value: None if value.lower() in allowed else f"{value!r} is not one of {names}")
