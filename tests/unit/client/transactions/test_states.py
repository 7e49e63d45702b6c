"""Which call is allowed in which state, and what it is told otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.errors import (
    FencedError,
    TransactionAbortableError,
    TransactionError,
    TransactionFatalError,
    TransactionStateError,
)
from ottla.client.transactions.identity import Identity
from ottla.client.transactions.states import State, TransactionStates
from support.examples import examples

ME = Identity(5, 0)
CALLS: dict[str, Callable[[TransactionStates], None]] = {
    "init": TransactionStates.begin_initializing,
    "begin": TransactionStates.begin,
    "send": lambda states: states.check_in_transaction("send"),
    "prepare": TransactionStates.check_preparing,
    "commit": TransactionStates.begin_commit,
    "abort": TransactionStates.begin_abort,
    "complete": TransactionStates.check_completing,
}
ANSWERS: dict[str, Callable[[TransactionStates], None]] = {
    "initialized": lambda states: states.initialized(ME, 1),
    "ended": lambda states: states.ended(ME, 1),
    "failed": lambda states: states.fail(TransactionAbortableError("failed")),
    "failed for good": lambda states: states.fail_fatally(FencedError("fenced")),
}
ALLOWED = {
    State.UNINITIALIZED: {"init", "complete"},
    State.INITIALIZING: {"init"},
    State.READY: {"begin"},
    State.IN_TRANSACTION: {"send", "prepare", "commit", "abort"},
    State.PREPARED: {"prepare", "commit", "abort"},
    State.COMMITTING: {"commit", "abort"},
    State.ABORTING: {"abort"},
    State.ABORTABLE_ERROR: {"abort"},
    State.FATAL_ERROR: set(),
}


def in_state(state: State) -> TransactionStates:
    states = TransactionStates("t")
    steps: dict[State, list[Callable[[TransactionStates], None]]] = {
        State.UNINITIALIZED: [],
        State.INITIALIZING: [CALLS["init"]],
        State.READY: [CALLS["init"], ANSWERS["initialized"]],
    }
    steps[State.IN_TRANSACTION] = [*steps[State.READY], CALLS["begin"]]
    steps[State.PREPARED] = [*steps[State.IN_TRANSACTION], TransactionStates.prepared]
    steps[State.COMMITTING] = [*steps[State.IN_TRANSACTION], CALLS["commit"]]
    steps[State.ABORTING] = [*steps[State.IN_TRANSACTION], CALLS["abort"]]
    steps[State.ABORTABLE_ERROR] = [*steps[State.IN_TRANSACTION], ANSWERS["failed"]]
    steps[State.FATAL_ERROR] = [*steps[State.IN_TRANSACTION], ANSWERS["failed for good"]]
    for step in steps[state]:
        step(states)
    assert states.state is state
    return states


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", State)
def test_calls_are_allowed_or_refused_without_a_change(state: State, call: str) -> None:
    states = in_state(state)
    if call in ALLOWED[state]:
        CALLS[call](states)
        return
    expected: type[TransactionError] = {
        State.ABORTABLE_ERROR: TransactionAbortableError,
        State.FATAL_ERROR: FencedError,
    }.get(state, TransactionStateError)
    with pytest.raises(expected) as caught:
        CALLS[call](states)
    assert states.state is state
    if expected is TransactionStateError:
        assert "() cannot be called now: " in str(caught.value)


@pytest.mark.parametrize(
    ("state", "call", "message"),
    [
        (State.READY, "init", "init_transactions() cannot be called now: it was called before"),
        (State.IN_TRANSACTION, "init", "init_transactions() cannot be called now: it was called before"),
        (State.UNINITIALIZED, "begin", "begin_transaction() cannot be called now: call init_transactions() first"),
        (State.INITIALIZING, "begin", "begin_transaction() cannot be called now: init_transactions() did not finish"),
        (State.READY, "send", "send() cannot be called now: no transaction is open: call begin_transaction() first"),
        (State.IN_TRANSACTION, "begin", "a transaction is open: end it with commit_transaction() or abort_"),
        (State.PREPARED, "send", "send() cannot be called now: the transaction is prepared: end it with commit_"),
        (State.COMMITTING, "send", "send() cannot be called now: commit_transaction() did not finish: call it again"),
        (State.ABORTING, "commit", "commit_transaction() cannot be called now: abort_transaction() did not finish"),
        (State.READY, "complete", "complete_transaction() cannot be called now: it must come before init_trans"),
    ],
)
def test_what_calls_at_the_wrong_time_are_told(state: State, call: str, message: str) -> None:
    with pytest.raises(TransactionStateError) as caught:
        CALLS[call](in_state(state))
    assert message in str(caught.value)


def test_a_commit_can_become_an_abort_until_it_is_decided() -> None:
    states = in_state(State.COMMITTING)
    states.begin_abort()
    assert states.state is State.ABORTING
    states = in_state(State.COMMITTING)
    states.decide()
    with pytest.raises(TransactionStateError, match=r"call commit_transaction\(\) again to find out"):
        states.begin_abort()
    states.begin_commit()
    states.ended(Identity(5, 1), 2)
    assert (states.state, states.identity, states.version, states.is_decided) == (State.READY, (5, 1), 2, False)


def test_an_error_in_an_abort_does_not_stop_it() -> None:
    states = in_state(State.ABORTING)
    states.fail(TransactionAbortableError("too late"))
    assert (states.state, states.error) == (State.ABORTING, None)
    states.fail_fatally(TransactionFatalError("gone"))
    assert states.state is State.FATAL_ERROR


def test_each_call_gets_an_error_of_its_own_with_the_same_cause() -> None:
    states = in_state(State.IN_TRANSACTION)
    error = TransactionAbortableError("failed")
    error.__cause__ = ValueError("why")
    states.fail(error)
    raised = []
    for _ in range(2):
        with pytest.raises(TransactionAbortableError, match="failed") as caught:
            states.begin_commit()
        raised.append(caught.value)
    assert raised[0] is not raised[1]
    assert raised[0].__cause__ is raised[1].__cause__ is error.__cause__


def test_a_new_epoch_is_not_needed_when_the_coordinator_gave_one() -> None:
    states = in_state(State.ABORTING)
    states.is_started = states.needs_new_epoch = True
    states.end_answered(ME)
    assert (states.is_started, states.needs_new_epoch) == (False, True)
    states.end_answered(Identity(5, 1))
    assert not states.needs_new_epoch


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from([*CALLS, *ANSWERS])))
def test_whatever_happens_a_fatal_error_is_the_end_and_refusals_change_nothing(steps: list[str]) -> None:
    states = TransactionStates("t")
    for step in steps:
        before = states.state
        try:
            (CALLS | ANSWERS)[step](states)
        except TransactionError:
            assert states.state is before
        if before is State.FATAL_ERROR:
            assert states.state is State.FATAL_ERROR
        assert (states.error is not None) == (states.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR))
