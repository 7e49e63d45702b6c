"""What the coordinator knows of one transactional id, and every change of it. Without I/O, time or event loop.

A change is a method that returns the next `Transaction`. It raises `CoordinatorError` if the request is refused,
`StillCompletingError` if the markers of the previous transaction have to be written first, and whatever `new_id`
raises if it needs a producer id and there is none yet. Nothing is changed in place, so a change that is not written to
the log did not happen.

**Who owns the id.** `owner` is the producer id and epoch with which the producer goes on. Usually these are
`producer_id` and `producer_epoch`. They differ in two cases, in which the open transaction still has the old ones:

- The epochs of a producer id are used up when a transaction ends with version 2 (KIP-890). The markers carry the last
  epoch, and the producer goes on with a new producer id and epoch 0: `next_producer_id` is set.
- A new process took over a prepared transaction (KIP-939): `next_producer_id` and `next_producer_epoch` are its own.
  It may only end the transaction. The process that began it is fenced.

**Epochs.** The last epoch of a producer id (32767) is never given to a producer, so that there is always a higher one
for the marker of a transaction that the coordinator aborts.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transactions.states import (
    IDLE,
    PREPARED,
    IllegalTransitionError,
    TransactionState,
    check_transition,
)

NO_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 2**15 - 1
TWO_PHASE_TIMEOUT_MS: Final = 2**31 - 1
"""A transaction with this timeout is one of two-phase commit: only its application ends it."""
VERSION_2: Final = 2
"""The transaction version that raises the epoch at the end of every transaction (KIP-890)."""
_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

NewId: TypeAlias = Callable[[], int]
"""Returns a producer id that was never used before."""


class ProducerIdentity(NamedTuple):
    """A producer as partitions know it."""

    producer_id: int
    producer_epoch: int


class StillCompletingError(Exception):
    """The previous transaction of this id is decided, but its markers are not all written. Try again afterwards."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"The previous transaction of {transactional_id!r} is still being completed.")
        self.transactional_id = transactional_id


def _fenced(reason: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.PRODUCER_FENCED, reason)


def is_exhausted(epoch: int) -> bool:
    """Whether a producer with this epoch cannot be given the next one."""
    return epoch >= LAST_EPOCH - 1


class Transaction(NamedTuple):
    """See the module. A tuple, because that is copied fastest: every request of a producer makes a changed copy."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = _NO_PARTITIONS
    start_ms: int = -1
    """When the first partition was added; -1 if there has been no transaction since InitProducerId."""
    last_update_ms: int = -1
    previous_producer_id: int = NO_ID
    """The producer id that the present owner had before its epochs were used up: its requests may be repeated."""
    next_producer_id: int = NO_ID
    next_producer_epoch: int = NO_EPOCH
    client_version: int = 0
    """The transaction version that the producer used last."""
    last_epoch: int = NO_EPOCH
    """The epoch that the present owner had before; -1 if the owner is new. A repeated InitProducerId brings it
    (KIP-360). Not stored, as in Kafka: after a failover, such a repetition is refused."""

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def owner(self) -> ProducerIdentity:
        if self.next_producer_id == NO_ID:
            return ProducerIdentity(self.producer_id, self.producer_epoch)
        return ProducerIdentity(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_taken_over(self) -> bool:
        """Whether a new process owns the prepared transaction (KIP-939)."""
        return self.state is TransactionState.ONGOING and self.next_producer_epoch != NO_EPOCH

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == TWO_PHASE_TIMEOUT_MS

    @property
    def is_committing(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def is_timed_out(self, now_ms: int) -> bool:
        if self.state is not TransactionState.ONGOING or self.is_two_phase:
            return False
        return self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in IDLE and self.last_update_ms <= now_ms - expiration_ms

    # --- InitProducerId ---------------------------------------------------------------------------------------------

    @classmethod
    def created(cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        return cls(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            last_update_ms=now_ms,
        )

    def initialized(
        self, expected: ProducerIdentity | None, timeout_ms: int, now_ms: int, new_id: NewId
    ) -> Transaction:
        """The next epoch, for a new producer or, with the identity that it has (`expected`), for the present one that
        goes on after an error (KIP-360). The same transaction if this is a repeated request."""
        self._check_not_completing()
        if expected is None:
            return self._restarted(self._next_identity(new_id), timeout_ms, now_ms)
        if expected == self.owner:
            restarted = self._restarted(self._next_identity(new_id), timeout_ms, now_ms)
            is_same_id = restarted.producer_id == self.producer_id
            previous_id = NO_ID if is_same_id else self.producer_id
            return restarted._replace(last_epoch=expected.producer_epoch, previous_producer_id=previous_id)
        is_repeated = self.last_epoch != NO_EPOCH and expected == (self.producer_id, self.last_epoch)
        if (is_repeated or self._was_owned_until_exhausted(expected)) and self.producer_epoch < LAST_EPOCH:
            return self
        raise _fenced("A newer producer uses this transactional id.")

    def _restarted(self, identity: ProducerIdentity, timeout_ms: int, now_ms: int) -> Transaction:
        return self._moved(
            TransactionState.EMPTY,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            timeout_ms=timeout_ms,
            start_ms=-1,
            last_update_ms=now_ms,
            previous_producer_id=NO_ID,
            client_version=0,
            last_epoch=NO_EPOCH,
        )

    def check_may_abort(self, expected: ProducerIdentity | None) -> None:
        """Whether InitProducerId may abort the open transaction: a new producer may, and the one that owns it."""
        if expected is not None and expected != self.owner:
            raise _fenced("A newer producer uses this transactional id.")

    def taken_over(self, timeout_ms: int, now_ms: int, new_id: NewId) -> Transaction:
        """The open transaction goes on; a new process owns it (KIP-939). It never gets a timeout that it did not have,
        because its application may have prepared it."""
        owner = self._next_identity(new_id)
        return self._moved(
            TransactionState.ONGOING,
            next_producer_id=owner.producer_id,
            next_producer_epoch=owner.producer_epoch,
            timeout_ms=max(timeout_ms, self.timeout_ms),
            last_update_ms=now_ms,
            last_epoch=NO_EPOCH,
        )

    def _next_identity(self, new_id: NewId) -> ProducerIdentity:
        owner = self.owner
        if is_exhausted(owner.producer_epoch):
            return ProducerIdentity(new_id(), 0)
        return ProducerIdentity(owner.producer_id, owner.producer_epoch + 1)

    # --- partitions -------------------------------------------------------------------------------------------------

    def with_partitions(
        self, identity: ProducerIdentity, added: Set[TopicPartition], version: int, now_ms: int
    ) -> Transaction:
        """Makes partitions part of the transaction, which this begins if there is none. The same transaction if they
        are part of it already."""
        self._check_open_to(identity)
        is_ongoing = self.state is TransactionState.ONGOING
        if is_ongoing and added <= self.partitions:
            return self
        return self._moved(
            TransactionState.ONGOING,
            partitions=self.partitions | added,
            start_ms=self.start_ms if is_ongoing else now_ms,
            last_update_ms=now_ms,
            previous_producer_id=NO_ID,
            client_version=version,
        )

    def missing(self, identity: ProducerIdentity, asked: Set[TopicPartition]) -> Set[TopicPartition]:
        """Which of the partitions are not part of the producer's transaction."""
        self._check_open_to(identity)
        return asked - self.partitions if self.state is TransactionState.ONGOING else asked

    def _check_open_to(self, identity: ProducerIdentity) -> None:
        self._check_owner(identity)
        self._check_not_completing()
        if self.is_taken_over:
            raise CoordinatorError(
                ErrorCode.INVALID_TXN_STATE, "The transaction was taken over: it can only be committed or aborted."
            )

    # --- the end ----------------------------------------------------------------------------------------------------

    def ended(
        self, identity: ProducerIdentity, *, committed: bool, version: int, now_ms: int, new_id: NewId
    ) -> Transaction:
        """What EndTxn makes of it: a Prepare… state; the same transaction if this is a repeated request."""
        if version >= VERSION_2:
            return self._ended_with_new_epoch(identity, committed, now_ms, new_id)
        self._check_owner(identity)
        if self.state is TransactionState.ONGOING:
            return self._prepared(committed, version, now_ms, new_id)
        if self.state is TransactionState.EMPTY or self.is_committing != committed:
            raise self._wrong_end(committed)
        return self

    def _ended_with_new_epoch(
        self, identity: ProducerIdentity, committed: bool, now_ms: int, new_id: NewId
    ) -> Transaction:
        """With version 2, the owner's epoch says which transaction is meant: the epoch before it, the one that just
        ended; the epoch itself, the next one, of which the coordinator may know nothing yet."""
        if self._is_end_again(identity):
            if self.is_committing != committed:
                raise self._wrong_end(committed)
            return self
        self._check_owner(identity)
        self._check_not_completing()
        if self.state is not TransactionState.ONGOING and committed:
            raise self._wrong_end(committed)
        return self._prepared(committed, VERSION_2, now_ms, new_id)

    def _is_end_again(self, identity: ProducerIdentity) -> bool:
        """Whether the identity is the one that the owner had before its last transaction ended with version 2."""
        if self.state in (TransactionState.EMPTY, TransactionState.ONGOING) or self.client_version < VERSION_2:
            return False
        owner = self.owner
        if owner.producer_epoch == LAST_EPOCH:  # Aborted by the coordinator. No producer may go on with this epoch.
            return False
        is_epoch_before = identity == (owner.producer_id, owner.producer_epoch - 1)
        return is_epoch_before or self._was_owned_until_exhausted(identity)

    def _was_owned_until_exhausted(self, identity: ProducerIdentity) -> bool:
        return (
            self.owner.producer_epoch == 0
            and self.previous_producer_id != NO_ID
            and identity == (self.previous_producer_id, LAST_EPOCH - 1)
        )

    def _prepared(self, committed: bool, version: int, now_ms: int, new_id: NewId) -> Transaction:
        changes: dict[str, Any] = {"client_version": version, "last_update_ms": now_ms}
        if self.state is not TransactionState.ONGOING:  # Nothing was ever added to the transaction.
            changes["start_ms"] = now_ms
        if self.is_taken_over:
            changes["producer_epoch"] = self.producer_epoch + 1
            if version >= VERSION_2:
                owner = self._next_identity(new_id)
                changes["next_producer_id"], changes["next_producer_epoch"] = owner
                if owner.producer_id != self.owner.producer_id:
                    changes["previous_producer_id"] = self.owner.producer_id
        elif version >= VERSION_2:
            if is_exhausted(self.producer_epoch):
                changes["next_producer_id"] = new_id()
                changes["previous_producer_id"] = self.producer_id
            changes["producer_epoch"] = self.producer_epoch + 1
        if version >= VERSION_2:
            changes["last_epoch"] = self.owner.producer_epoch
        return self._moved(TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT, **changes)

    def aborted_by_coordinator(self, now_ms: int, *, owner_goes_on: bool = False) -> Transaction:
        """The abort of an open transaction that nobody asked for: it timed out, or InitProducerId came. The epoch is
        raised, so that its producer can no longer write, whatever its version. The raised epoch is given to nobody,
        except to the owner if it asks for it, with the epoch that it had."""
        changes: dict[str, Any] = {"producer_epoch": self.producer_epoch + 1, "last_update_ms": now_ms}
        if self.is_taken_over:
            changes["next_producer_epoch"] = self.next_producer_epoch + 1
        knows_last = owner_goes_on or self.client_version >= VERSION_2
        changes["last_epoch"] = self.owner.producer_epoch if knows_last else NO_EPOCH
        return self._moved(TransactionState.PREPARE_ABORT, **changes)

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        owner = self.owner
        return self._moved(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            next_producer_id=NO_ID,
            next_producer_epoch=NO_EPOCH,
            partitions=_NO_PARTITIONS,
            last_update_ms=now_ms,
        )

    # --- checks -----------------------------------------------------------------------------------------------------

    def _check_owner(self, identity: ProducerIdentity) -> None:
        owner = self.owner
        if identity.producer_id != owner.producer_id:
            raise CoordinatorError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"The transactional id {self.transactional_id!r} has another producer id.",
            )
        if identity.producer_epoch != owner.producer_epoch or owner.producer_epoch == LAST_EPOCH:
            raise _fenced("A newer producer uses this transactional id, or the transaction timed out.")

    def _check_not_completing(self) -> None:
        if self.state in PREPARED:
            raise StillCompletingError(self.transactional_id)

    def _wrong_end(self, committed: bool) -> CoordinatorError:
        asked = "commit" if committed else "abort"
        return CoordinatorError(
            ErrorCode.INVALID_TXN_STATE, f"A transaction in state {self.state.title} cannot {asked}."
        )

    def _moved(self, state: TransactionState, **changes: Any) -> Transaction:
        check_transition(self.transactional_id, self.state, state)
        moved = self._replace(state=state, **changes)
        before, after = self.owner, moved.owner
        if before.producer_id == after.producer_id and before.producer_epoch > after.producer_epoch:
            raise IllegalTransitionError(
                f"The epoch of {self.transactional_id!r} would go back from {before} to {after}."
            )
        return moved
