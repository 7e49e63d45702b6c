"""Arguments of public methods: what has the wrong type is a `TypeError` that names the parameter."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from ottla.base.ids import TopicPartition


def wrong_type(parameter: str, given: object, expected: str) -> TypeError:
    """To be raised."""
    return TypeError(f"{parameter} must be {expected}, not {type(given).__name__}")


def whole_number(parameter: str, given: object) -> int:
    """The number, of NumPy as well; a bool is none."""
    if given.__class__ is int:
        return given
    if isinstance(given, bool):
        raise wrong_type(parameter, given, "an int")
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise wrong_type(parameter, given, "an int") from None


def topic_partition(parameter: str, given: object) -> TopicPartition:
    """A partition of a topic: as such, or as a pair."""
    if given.__class__ is TopicPartition:
        return given
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], str):
        raise TypeError(f"{parameter} must be a TopicPartition, or a topic and a number, not {given!r}")
    return TopicPartition(given[0], whole_number(parameter, given[1]))


def all_of(parameter: str, given: object, check: Callable[[str, object], Any], expected: str) -> list[Any]:
    """Each of several, checked. A str is not taken for its letters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong_type(parameter, given, expected)
    return [check(parameter, one) for one in given]
