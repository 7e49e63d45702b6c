"""The states of a transactional id, with Kafka's names and numbers, and the transitions between them.

    Empty ──────────▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ─┐
      ▲                 │  ▲                                        │
      │                 │  └────────── next transaction ◀───────────┤
      │                 ▼                                           │
      │           PrepareAbort ──▶ CompleteAbort ───────────────────┤
      └──────────────── InitProducerId ◀────────────────────────────┘

- A transaction is *decided* when its Prepare… state is committed. From then on only one thing can happen: its markers
  are written, and it becomes Complete…. That is why a Prepare… state has exactly one successor.
- Ongoing follows itself: more partitions are added, or a new process takes over a prepared transaction (KIP-939).
- Empty follows itself and Complete…: a producer starts, or restarts after an error. It never follows Ongoing: the
  open transaction must be aborted first.
- PrepareAbort also follows Empty and Complete…: with transaction version 2, a producer that does not know whether its
  transaction ever began aborts it anyway, and gets a new epoch (KIP-890).
- Dead ends an id that expired. It is never stored: the record is deleted by a tombstone.
- PrepareEpochFence is Kafka's name for an abort that the coordinator starts itself, on its way to PrepareAbort. Here
  that is one step from Ongoing to PrepareAbort, so the state is never reached. It has a number only for tools.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """By the number that is stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return _TITLES[self]


S = TransactionState

ALLOWED: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    S.EMPTY: frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD}),
    S.ONGOING: frozenset({S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.COMPLETE_COMMIT}),
    S.PREPARE_ABORT: frozenset({S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD}),
    S.COMPLETE_ABORT: frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD}),
    S.DEAD: frozenset(),
    S.PREPARE_EPOCH_FENCE: frozenset(),
}
"""The states that may follow each state. See the module for the reasons."""

PREPARED: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
"""Decided, but not every partition has its marker."""
OPEN: Final = PREPARED | {S.ONGOING}
"""Some partition may have an open transaction."""
IDLE: Final = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
"""Nothing is open: a transaction can begin, a producer can take over, and the id can expire."""

_TITLES: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
BY_TITLE: Final = {title: state for state, title in _TITLES.items()}


class IllegalTransitionError(Exception):
    """A defect of the coordinator: it tried to write a state that cannot follow the present one."""


def check_transition(transactional_id: str, before: TransactionState, after: TransactionState) -> None:
    if after not in ALLOWED[before]:
        raise IllegalTransitionError(
            f"The transactional id {transactional_id!r} cannot go from {before.title} to {after.title}."
        )
