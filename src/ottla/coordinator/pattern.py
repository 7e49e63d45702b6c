"""Regular expressions of clients: RE2's syntax, as Kafka's brokers read it, matched in linear time.

Python's `re` backtracks, which can take minutes, and patterns come from clients. So this is an automaton: it follows
all ways to match at the same time, and caches the sets of states that occur.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.coordinator.pattern_syntax import (
    TOPIC_ALPHABET,
    WORD,
    PatternCheck,
    PatternError,
    PatternReader,
)

_LENGTH_MAX: Final = 1_000
_REMEMBERED_MAX: Final = 10_000


class PatternAutomaton:
    """A compiled pattern for names of these characters; raises `PatternError` if it is invalid."""

    def __init__(self, text: str, alphabet: frozenset[str] = TOPIC_ALPHABET) -> None:
        if len(text) > _LENGTH_MAX:
            raise PatternError(f"it has {len(text)} characters; the limit is {_LENGTH_MAX}")
        reader = PatternReader(text, alphabet)
        self._states = reader.states
        start, self._end = reader.read()
        self._start = (frozenset([start]), "")
        self._steps: dict[tuple[tuple[frozenset[int], str], str], tuple[frozenset[int], str]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        steps, place = self._steps, self._start
        for character in name:
            after = steps.get((place, character))
            if after is None:
                if len(steps) >= _REMEMBERED_MAX:
                    steps.clear()
                after = steps[place, character] = self._step(place, character)
            if not after[0]:
                return False
            place = after
        return self._end in self._reachable(place, "")

    def _step(self, place: tuple[frozenset[int], str], character: str) -> tuple[frozenset[int], str]:
        after = set()
        for number in self._reachable(place, character):
            state = self._states[number]
            if state.takes is not None and character in state.takes:
                after.update(state.then)
        return frozenset(after), "a" if character in WORD else "."

    def _reachable(self, place: tuple[frozenset[int], str], following: str) -> set[int]:
        """All states that can be reached without a character. `place` has one before it that stands for its kind."""
        numbers, before = place
        found = set(numbers)
        pending = list(numbers)
        while pending:
            state = self._states[pending.pop()]
            if state.takes is None and (state.check is None or _holds(state.check, before, following)):
                fresh = [number for number in state.then if number not in found]
                found.update(fresh)
                pending.extend(fresh)
        return found


def _holds(check: PatternCheck, before: str, following: str) -> bool:
    if check is PatternCheck.START:
        return not before
    if check is PatternCheck.END:
        return not following
    return ((before in WORD) != (following in WORD)) == (check is PatternCheck.BOUNDARY)


def topic_matcher(text: str) -> Callable[[str], bool]:
    """Whether a topic's whole name matches the pattern. Raises `PatternError`."""
    return PatternAutomaton(text).matches
