"""Validators that only client configs need. Their docstrings say what they allow, for the reference pages."""

from __future__ import annotations

import re
from typing import Any, Final

from ottla.base.config import Rule, described


def one_of_any_case(*allowed: str) -> Rule:
    names = ", ".join(allowed)
    return described(names, lambda value: None if value.lower() in allowed else f"{value!r} is not one of {names}")


def at_least_one(values: tuple[Any, ...]) -> str | None:
    """one or more"""
    return None if values else "is empty: use host:port, for example localhost:9092"


def not_empty(value: str) -> str | None:
    """not empty"""
    return None if value else "is empty"


BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:[.,](\d{1,9}))?S)?)?", re.IGNORECASE
)
_DAY_S, _HOUR_S, _MINUTE_S, _MS = 86_400, 3600, 60, 1000


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration of days, hours, minutes and seconds, as Java parses it."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:5]) or text[-1] in "Tt":
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as PT1H or P7DT12H")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    total_ms = _MS * (
        int(days or 0) * _DAY_S + int(hours or 0) * _HOUR_S + int(minutes or 0) * _MINUTE_S + int(seconds or 0)
    )
    fraction_ms = int((fraction or "").ljust(3, "0")[:3] or 0)
    total_ms += -fraction_ms if (seconds or "").startswith("-") else fraction_ms
    return -total_ms if sign == "-" else total_ms


def reset_strategy(value: str) -> str | None:
    """earliest, latest, none, by_duration:<ISO 8601 duration>"""
    if value.lower().startswith(BY_DURATION):
        try:
            is_negative = duration_ms(value[len(BY_DURATION) :]) < 0
        except ValueError as error:
            return str(error)
        return f"{value!r} must not be negative" if is_negative else None
    return one_of_any_case("earliest", "latest", "none", f"{BY_DURATION}PT1H and the like")(value)


def gzip_level(value: int) -> str | None:
    """1 to 9, or -1"""
    return None if value == -1 or 1 <= value <= 9 else f"{value} is neither between 1 and 9 nor -1"


def function_or_name(value: object) -> str | None:
    """a function, or the name of a built-in one"""
    if isinstance(value, str):
        return not_empty(value)
    if isinstance(value, type):
        return f"{value.__qualname__} is a class: pass an instance, {value.__qualname__}(…)"
    return None if callable(value) else f"{value!r} is neither a function nor the name of a built-in one"


def objects(values: tuple[object, ...]) -> str | None:
    """objects"""
    for value in values:
        if isinstance(value, str):
            return f"{value!r} is a str: Java classes cannot be loaded, pass objects"
        if isinstance(value, type):
            return f"{value.__qualname__} is a class: pass an instance, {value.__qualname__}(…)"
    return None
