"""Ranges of message versions in Kafka's notation: `0+`, `3-7`, `5`, `none`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

_FORM = re.compile(r"(?P<low>\d+)(?:(?P<open>\+)|-(?P<high>\d+))?")
OPEN_END: Final = 32767
"""The highest version of an int16: where `3+` ends."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions `low` to `high`, inclusive; empty if `high` is below `low`."""

    low: int
    high: int

    @staticmethod
    @cache
    def parse(text: str) -> Versions:
        if text == "none":
            return NO_VERSIONS
        form = _FORM.fullmatch(text)
        if form is None:
            raise ValueError(f"{text!r} is not a version range such as '0+', '3-7', '5' or 'none'")
        low = int(form["low"])
        high = OPEN_END if form["open"] else int(form["high"] or low)
        return Versions(low, high)

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.high == OPEN_END:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NO_VERSIONS: Final = Versions(0, -1)
