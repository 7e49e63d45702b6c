"""The in-sync replicas (ISR) of a partition as its leader sees them (KIP-497). A state machine without I/O.

The controller owns the ISR; the leader proposes changes, one at a time, and waits for the answer.

    state           event                                         next state       then
    Committed       a follower has caught up                      PendingExpand    propose
    Committed       members are behind                            PendingShrink    propose
    Pending*        committed, in this leader epoch and not older Committed        advance the high watermark
    Pending*        committed, but in an older state              the same         wait for the controller
    Pending*        INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED   last Committed
    Pending*        FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION,  the same         wait for the controller
                    INVALID_REQUEST, NEW_LEADER_ELECTED,
                    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
    Pending*        any other error                               the same         propose again
    any             the controller sends the partition's state    Committed

Until the answer comes nobody knows which of two sets the controller will use, so the leader counts on both: the
*maximal* ISR has every replica of either. The high watermark waits for all of it. A leader that shrank its ISR alone
could commit records that are then missing on the next leader, which the controller may still choose from the old set.

Only two errors say that the proposal was not and will not be applied; after any other one it may have been.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.replication.role import PartitionRole

_NOT_APPLIED: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_AWAIT_CONTROLLER: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


@dataclass(frozen=True, slots=True)
class Committed:
    """The ISR that the controller has stored."""

    isr: tuple[int, ...]

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """A replica is about to join."""

    committed: Committed
    joining: int
    maximal: tuple[int, ...]
    """All members, and the one that joins."""

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def proposed(self) -> tuple[int, ...]:
        return self.maximal


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """Members are about to leave. They count until the controller has removed them."""

    committed: Committed
    leaving: tuple[int, ...]
    proposed: tuple[int, ...]

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def maximal(self) -> tuple[int, ...]:
        return self.committed.isr


Pending = PendingExpand | PendingShrink
IsrState = Committed | PendingExpand | PendingShrink


class Next(Enum):
    """What a leader does after an answer."""

    COMMITTED = auto()
    """The new ISR counts."""
    RESET = auto()
    """The old ISR counts."""
    WAIT = auto()
    """The controller knows more than this leader and will send it."""
    RETRY = auto()


def expand(state: Committed, joining: int) -> PendingExpand:
    if joining in state.isr:
        raise ValueError(f"replica {joining} is in the ISR {state.isr} already")
    return PendingExpand(state, joining, (*state.isr, joining))


def shrink(state: Committed, leaving: Collection[int]) -> PendingShrink:
    """The last member never leaves: it is the only one that is known to have all records."""
    staying = tuple(member for member in state.isr if member not in leaving)
    if not staying or len(staying) == len(state.isr):
        raise ValueError(f"{tuple(leaving)} cannot leave the ISR {state.isr}")
    return PendingShrink(state, tuple(leaving), staying)


def answered(state: Pending, current: PartitionRole, error: ErrorCode, answer: PartitionRole) -> tuple[IsrState, Next]:
    """The next state after the controller's answer, which counts if there is no error. `current` is the role that the
    leader knows."""
    if error is ErrorCode.NONE:
        if answer.leader_epoch != current.leader_epoch or answer.partition_epoch < current.partition_epoch:
            return state, Next.WAIT
        return Committed(answer.isr), Next.COMMITTED
    if error in _NOT_APPLIED:
        return state.committed, Next.RESET
    return state, Next.WAIT if error in _AWAIT_CONTROLLER else Next.RETRY
