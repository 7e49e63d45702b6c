"""The states of a producer's transactions: which call is allowed when, and what becomes of errors. No I/O.

Every transition is in `_NEXT`; one that is not raises. There are two kinds of callers:

- Calls of the user (`begin_transaction` …) that are not allowed in the present state raise `TransactionStateError`,
  which says what to call instead, and change nothing. After an error of the transaction they raise that error.
- Answers of brokers fail the transaction: `fail` for errors after which it can only be aborted, `fail_fatally` for
  those after which the producer can do nothing more. Errors never take a state back to a better one.

A commit or an abort that was interrupted leaves COMMITTING or ABORTING, and the same call can be made again. A commit
can also be followed by an abort as long as it is not decided: EndTxn was not sent. After that nobody but the
coordinator knows what became of it.

    UNINITIALIZED ─▶ INITIALIZING ─▶ READY ─▶ IN_TRANSACTION ─▶ COMMITTING ─▶ READY
                                                │   └─▶ PREPARED ─┘ │ not decided
                                                │          └──────┐ │
                                                ├──────────────▶ ABORTING ─▶ READY
                                                └─▶ ABORTABLE_ERROR ─┘          any ─▶ FATAL_ERROR

Not thread-safe: whoever uses it holds the producer's lock.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.client.errors import (
    TransactionAbortableError,
    TransactionError,
    TransactionFatalError,
    TransactionStateError,
)
from ottla.client.transactions.identity import Identity


class State(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "failed, to be aborted"
    FATAL_ERROR = "failed for good"


_NEXT: Final[dict[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.INITIALIZING, State.READY, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset(
        {State.PREPARED, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.PREPARED: frozenset({State.PREPARED, State.COMMITTING, State.ABORTING, State.FATAL_ERROR}),
    State.COMMITTING: frozenset(
        {State.COMMITTING, State.READY, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.ABORTING: frozenset({State.ABORTING, State.READY, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}
"""Which states may follow a state. The same state twice: the call was interrupted and is made again."""

_ADVICE: Final[dict[State, str]] = {
    State.UNINITIALIZED: "call init_transactions() first",
    State.INITIALIZING: "init_transactions() did not finish: call it again",
    State.READY: "no transaction is open: call begin_transaction() first, or use `with producer.transaction():`",
    State.IN_TRANSACTION: "a transaction is open: end it with commit_transaction() or abort_transaction() first",
    State.PREPARED: "the transaction is prepared: end it with commit_transaction() or abort_transaction() first",
    State.COMMITTING: "commit_transaction() did not finish: call it again",
    State.ABORTING: "abort_transaction() did not finish: call it again",
}

TRANSACTION_VERSION_2: Final = 2
"""Partitions join a transaction by being written to, and the epoch rises with every transaction (KIP-890)."""


class TransactionStates:
    """Of one producer. See the module."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.identity: Identity | None = None
        """Of the producer, from the coordinator."""
        self.version = 1
        """Of the transaction protocol, for the transaction that is open or comes next."""
        self.error: TransactionError | None = None
        """Why the state is ABORTABLE_ERROR or FATAL_ERROR."""
        self.is_started = False
        """Whether the coordinator may know of the open transaction: something was sent that becomes part of it."""
        self.is_in_doubt = False
        """Whether it is not known if the coordinator does: a request that would tell it was not answered."""
        self.is_decided = False
        """Whether the coordinator may have been told to commit."""
        self.needs_new_epoch = False
        """Whether the next transaction must not use this epoch, because a sequence was lost (KIP-360)."""

    def _to(self, state: State) -> None:
        if state not in _NEXT[self.state]:
            raise TransactionStateError(f"a producer that is {self.state.value} cannot become {state.value}")
        self.state = state

    # Calls of the user.

    def begin_initializing(self) -> None:
        self.raise_error()
        if self.state not in (State.UNINITIALIZED, State.INITIALIZING):
            raise TransactionStateError(
                "init_transactions() cannot be called now: it was called before; once is enough for all transactions"
            )
        self._to(State.INITIALIZING)

    def check_beginning(self) -> None:
        self._allow("begin_transaction", State.READY)

    def begin(self) -> None:
        self.check_beginning()
        self._to(State.IN_TRANSACTION)

    def check_in_transaction(self, call: str) -> None:
        """Raises unless a transaction is open that can take more."""
        if self.state is not State.IN_TRANSACTION:
            self._allow(call, State.IN_TRANSACTION)

    def begin_commit(self) -> None:
        self._allow("commit_transaction", State.IN_TRANSACTION, State.PREPARED, State.COMMITTING)
        self._to(State.COMMITTING)

    def begin_abort(self) -> None:
        self._raise_fatal()
        if self.state is State.COMMITTING and self.is_decided:
            raise TransactionStateError(
                "abort_transaction() cannot be called now: the coordinator may already have committed; "
                "call commit_transaction() again to find out"
            )
        if self.state is not State.ABORTABLE_ERROR:
            self._allow("abort_transaction", State.IN_TRANSACTION, State.PREPARED, State.COMMITTING, State.ABORTING)
        self._to(State.ABORTING)
        self.error = None

    def check_preparing(self) -> None:
        self._allow("prepare_transaction", State.IN_TRANSACTION, State.PREPARED)

    def prepared(self) -> None:
        """All that was sent is acknowledged, and nothing more is taken."""
        self._to(State.PREPARED)

    def check_completing(self) -> None:
        """Raises unless another producer's transaction can be completed."""
        self.raise_error()
        if self.state is not State.UNINITIALIZED:
            raise TransactionStateError(
                "complete_transaction() cannot be called now: it must come before init_transactions(), which aborts "
                "the open transaction of this transactional.id"
            )

    def check_changing_id(self) -> None:
        """Raises unless no transaction is open that this producer is to end."""
        self._allow("change_transactional_id", State.UNINITIALIZED, State.READY, State.PREPARED)

    def raise_unless(self, state: State) -> None:
        """Raises what happened while a call waited in that state."""
        if self.state is not state:
            self.raise_error()
            raise TransactionStateError(
                f"the transaction was ended by another call: the producer is {self.state.value}"
            )

    def _allow(self, call: str, *states: State) -> None:
        if self.state in states:
            return
        self.raise_error()
        raise TransactionStateError(f"{call}() cannot be called now: {_ADVICE[self.state]}")

    def raise_error(self) -> None:
        """Raises what the transaction failed for, if it has."""
        self._raise_fatal()
        if self.state is State.ABORTABLE_ERROR and self.error is not None:
            raise again(self.error)

    def _raise_fatal(self) -> None:
        if self.state is State.FATAL_ERROR and self.error is not None:
            raise again(self.error)

    # What brokers answer.

    def initialized(self, identity: Identity, version: int) -> None:
        self._to(State.READY)
        self._take(identity, version)

    def decide(self) -> None:
        """EndTxn is about to be sent, with a commit."""
        self.is_decided = True

    def doubt(self) -> None:
        """The coordinator was asked to add to the transaction, and nobody waited for the answer."""
        self.is_in_doubt = self.needs_new_epoch = True

    def end_answered(self, identity: Identity) -> None:
        """The coordinator has committed or aborted, or given the producer another epoch."""
        if identity != self.identity:
            self.identity, self.needs_new_epoch = identity, False
        self.is_started = self.is_in_doubt = False

    def ended(self, identity: Identity, version: int) -> None:
        """The transaction is committed or aborted. The next one begins with that identity."""
        self._to(State.READY)
        self._take(identity, version)

    def _take(self, identity: Identity, version: int) -> None:
        self.identity, self.version = identity, version
        self.error = None
        self.is_started = self.is_in_doubt = self.is_decided = self.needs_new_epoch = False

    def fail(self, error: TransactionAbortableError) -> None:
        """The open transaction can only be aborted. One that is being aborted stays so."""
        if State.ABORTABLE_ERROR in _NEXT[self.state]:
            self._to(State.ABORTABLE_ERROR)
            self.error = error
            self.is_decided = False  # the coordinator has refused to commit

    def fail_fatally(self, error: TransactionFatalError) -> None:
        """The producer can do nothing more."""
        if self.state is not State.FATAL_ERROR:
            self._to(State.FATAL_ERROR)
            self.error = error

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that nobody has ended yet, and that nobody else is to end."""
        return self.state in (State.IN_TRANSACTION, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR)

    @property
    def drops_records(self) -> bool:
        """Whether records that were not sent yet will not be sent any more."""
        return self.state in (State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR)


def again(error: TransactionError) -> TransactionError:
    """The same error, to be raised by another call."""
    copy = type(error)(str(error))
    copy.__cause__ = error.__cause__
    return copy
