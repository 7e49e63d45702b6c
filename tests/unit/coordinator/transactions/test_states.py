"""The table of transitions."""

from __future__ import annotations

import pytest

from ottla.coordinator.transactions.states import (
    ALLOWED,
    BY_TITLE,
    IDLE,
    OPEN,
    PREPARED,
    IllegalTransitionError,
    TransactionState,
    check_transition,
)

S = TransactionState


def test_numbers_and_names_are_those_of_kafka() -> None:
    assert [(each.value, each.title) for each in S] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]
    assert all(BY_TITLE[each.title] is each for each in S)


def test_the_table_is_kafkas_read_backwards() -> None:
    before = {
        S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_EPOCH_FENCE: set(),
    }
    assert {after: {each for each in S if after in ALLOWED[each]} for after in S} == before


def test_every_stored_state_is_either_open_or_idle() -> None:
    assert set(S) - {S.DEAD, S.PREPARE_EPOCH_FENCE} == OPEN | IDLE
    assert not OPEN & IDLE
    assert PREPARED < OPEN


@pytest.mark.parametrize("before", S)
@pytest.mark.parametrize("after", S)
def test_what_the_table_does_not_allow_raises(before: TransactionState, after: TransactionState) -> None:
    if after in ALLOWED[before]:
        check_transition("x", before, after)
    else:
        with pytest.raises(IllegalTransitionError, match=f"'x' cannot go from {before.title} to {after.title}"):
            check_transition("x", before, after)
