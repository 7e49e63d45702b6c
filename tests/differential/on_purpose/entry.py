"""An entry of the list, and the search for the one that explains a difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from differential.comparison import Difference


@dataclass(frozen=True)
class OnPurpose:
    name: str
    reason: str
    applies: Callable[[Difference], bool]
    parts_ways: bool = False
    """What the brokers hold differs from there on: the dialogue ends."""


class Explanations:
    """Finds the reason for a difference, and counts which were needed. Shared by threads: counting only adds."""

    def __init__(self, entries: tuple[OnPurpose, ...]) -> None:
        self._entries = entries
        self.used: Counter[str] = Counter()
        self.kinds: Counter[tuple[str, str]] = Counter()
        """The names of entries with the kinds of differences that they explained."""

    def __call__(self, difference: Difference) -> OnPurpose | None:
        for entry in self._entries:
            if entry.applies(difference):
                self.used[entry.name] += 1
                self.kinds[entry.name, difference.kind] += 1
                return entry
        return None

    def unused(self) -> list[OnPurpose]:
        return [entry for entry in self._entries if entry.name not in self.used]
