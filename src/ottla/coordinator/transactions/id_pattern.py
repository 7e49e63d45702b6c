"""Patterns of transactional ids in ListTransactions (KIP-1152), matched in linear time as in Kafka (`pattern`).

Transactional ids can have any characters. Those after Latin-1 that the pattern does not spell are all alike to it: `.`
and negated classes match them, ranges and Unicode categories do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.pattern import PatternAutomaton
from ottla.coordinator.pattern_syntax import PatternError

_LATIN_1: Final = frozenset(map(chr, range(0x100)))
_OTHER: Final = "\uffff"
"""Stands for every other character."""
_ID_LENGTH_MAX: Final = 512
"""Longer ids match no pattern: each character takes time."""


def id_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a transactional id matches, as a whole. Raises `CoordinatorError` for an invalid pattern."""
    alphabet = _LATIN_1.union(pattern, _OTHER)
    try:
        automaton = PatternAutomaton(pattern, alphabet)
    except PatternError as error:
        raise CoordinatorError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is not a pattern of transactional ids: {error}."
        ) from error

    def matches(transactional_id: str) -> bool:
        if len(transactional_id) > _ID_LENGTH_MAX:
            return False
        return automaton.matches("".join(each if each in alphabet else _OTHER for each in transactional_id))

    return matches
