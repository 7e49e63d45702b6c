"""Rules that only keys of clients need. A rule's docstring says what it allows, for the reference."""

from __future__ import annotations

from typing import Any

from ottla.base.config import Rule, described


def one_of_any_case(*allowed: str) -> Rule:
    names = ", ".join(allowed)
    return described(names, lambda value: None if value.lower() in allowed else f"{value!r} is none of {names}")


def at_least_one(values: tuple[Any, ...]) -> str | None:
    """one or more"""
    return None if values else "is empty: write host:port, for instance localhost:9092"


def not_empty(value: str) -> str | None:
    """not empty"""
    return None if value else "is empty"


def reset_strategy(value: str) -> str | None:
    """earliest, latest, none"""
    if value.lower().startswith("by_duration"):
        return f"{value!r} is not there yet: earliest, latest and none are"
    return one_of_any_case("earliest", "latest", "none")(value)


def gzip_level(value: int) -> str | None:
    """1 to 9, or -1"""
    return None if value == -1 or 1 <= value <= 9 else f"{value} is neither between 1 and 9 nor -1"


def function_or_name(value: object) -> str | None:
    """a function, or the name of one that is there"""
    if isinstance(value, str):
        return not_empty(value)
    if isinstance(value, type):
        return f"{value.__qualname__} is a class: give an instance, {value.__qualname__}(…)"
    return None if callable(value) else f"{value!r} is neither a function nor the name of one"


def objects(values: tuple[object, ...]) -> str | None:
    """objects"""
    for value in values:
        if isinstance(value, str):
            return f"{value!r} is a text: Java's classes cannot be loaded, give objects"
        if isinstance(value, type):
            return f"{value.__qualname__} is a class: give an instance, {value.__qualname__}(…)"
    return None
