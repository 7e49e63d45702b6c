"""Every change of a transactional id, and every refusal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transactions.states import IllegalTransitionError, TransactionState
from ottla.coordinator.transactions.transaction import (
    LAST_EPOCH,
    TWO_PHASE_TIMEOUT_MS,
    ProducerIdentity,
    StillCompletingError,
    Transaction,
)

S = TransactionState
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ONE, TWO = frozenset({T0}), frozenset({T0, T1})
NOW = 9_000
NEW_ID = 77
LAST_USED = LAST_EPOCH - 1
"""The highest epoch that a producer gets."""

EMPTY = Transaction("x", 5, 3, 60_000, S.EMPTY, last_update_ms=1_000)
ONGOING = EMPTY._replace(state=S.ONGOING, partitions=frozenset({T0}), start_ms=2_000, last_update_ms=2_000)
ONGOING_2 = ONGOING._replace(client_version=2)
OWNER = ProducerIdentity(5, 3)
STALE = ProducerIdentity(5, 2)
OTHER = ProducerIdentity(6, 3)
BOTH = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])


def new_id() -> int:
    return NEW_ID


def no_id() -> int:
    raise AssertionError("needs no new id")


def refusal(act: Callable[..., object], *args: object, **options: object) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        act(*args, **options)
    return caught.value.code


def ended(
    transaction: Transaction,
    identity: ProducerIdentity = OWNER,
    *,
    committed: bool = True,
    version: int = 2,
    ids: Callable[[], int] = no_id,
) -> Transaction:
    return transaction.ended(identity, committed=committed, version=version, now_ms=NOW, new_id=ids)


def decided(transaction: Transaction, *, committed: bool = True, version: int = 2) -> Transaction:
    return ended(transaction, transaction.owner, committed=committed, version=version)


def complete(transaction: Transaction, *, committed: bool = True, version: int = 2) -> Transaction:
    return decided(transaction, committed=committed, version=version).completed(NOW)


# --- InitProducerId -------------------------------------------------------------------------------------------------


def test_a_new_id_begins_at_epoch_0() -> None:
    created = Transaction.created("x", 5, 60_000, NOW)
    assert created == Transaction("x", 5, 0, 60_000, S.EMPTY, last_update_ms=NOW)
    assert created.owner == (5, 0)


@pytest.mark.parametrize("before", [EMPTY, complete(ONGOING), complete(ONGOING, committed=False)], ids=str)
def test_a_new_producer_gets_the_next_epoch(before: Transaction) -> None:
    after = before.initialized(None, 70_000, NOW, no_id)
    assert (after.state, after.owner) == (S.EMPTY, (5, before.producer_epoch + 1))
    assert (after.timeout_ms, after.start_ms, after.last_update_ms) == (70_000, -1, NOW)
    assert (after.last_epoch, after.client_version, after.previous_producer_id) == (-1, 0, -1)


def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch_and_may_ask_again() -> None:
    after = EMPTY.initialized(OWNER, 60_000, NOW, no_id)
    assert (after.owner, after.last_epoch) == ((5, 4), 3)
    assert after.initialized(OWNER, 60_000, NOW, no_id) is after
    next_one = after.initialized(ProducerIdentity(5, 4), 60_000, NOW, no_id)
    assert next_one.owner == (5, 5)
    assert refusal(next_one.initialized, OWNER, 60_000, NOW, no_id) is ErrorCode.PRODUCER_FENCED


def test_a_producer_may_not_go_on_after_a_new_one_has_started() -> None:
    taken = EMPTY.initialized(None, 60_000, NOW, no_id)
    assert refusal(taken.initialized, OWNER, 60_000, NOW, no_id) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("expected", [STALE, OTHER, ProducerIdentity(5, 4), ProducerIdentity(5, -1)], ids=str)
def test_a_producer_with_another_identity_is_fenced(expected: ProducerIdentity) -> None:
    assert refusal(EMPTY.initialized, expected, 60_000, NOW, no_id) is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_that_a_producer_gets_is_the_one_before_the_last() -> None:
    before = EMPTY._replace(producer_epoch=LAST_USED - 1)
    last = before.initialized(None, 60_000, NOW, no_id)
    assert last.owner == (5, LAST_USED)
    after = last.initialized(None, 60_000, NOW, new_id)
    assert (after.owner, after.previous_producer_id, after.last_epoch) == ((NEW_ID, 0), -1, -1)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_producer_whose_epochs_are_used_up_gets_a_new_id_and_may_ask_again(is_loaded: bool) -> None:
    expected = ProducerIdentity(5, LAST_USED)
    after = EMPTY._replace(producer_epoch=LAST_USED).initialized(expected, 60_000, NOW, new_id)
    assert (after.owner, after.previous_producer_id) == ((NEW_ID, 0), 5)
    if is_loaded:
        after = after._replace(last_epoch=-1)
    assert after.initialized(expected, 60_000, NOW, no_id) is after
    begun = after.with_partitions(after.owner, {T0}, 0, NOW)
    gone_on = complete(begun, version=0)
    assert refusal(gone_on.initialized, expected, 60_000, NOW, no_id) is ErrorCode.PRODUCER_FENCED


def test_the_old_owner_of_a_used_up_id_is_fenced_if_a_new_producer_got_the_next_one() -> None:
    after = EMPTY._replace(producer_epoch=LAST_USED).initialized(None, 60_000, NOW, new_id)
    expected = ProducerIdentity(5, LAST_USED)
    assert refusal(after.initialized, expected, 60_000, NOW, no_id) is ErrorCode.PRODUCER_FENCED


@BOTH
def test_a_producer_cannot_start_before_the_decided_transaction_is_completed(committed: bool) -> None:
    with pytest.raises(StillCompletingError):
        decided(ONGOING, committed=committed).initialized(None, 60_000, NOW, no_id)


def test_an_open_transaction_must_be_aborted_before_a_producer_starts() -> None:
    with pytest.raises(IllegalTransitionError):
        ONGOING.initialized(None, 60_000, NOW, no_id)


def test_only_a_new_producer_or_the_owner_may_have_the_open_transaction_aborted() -> None:
    ONGOING.check_may_abort(None)
    ONGOING.check_may_abort(OWNER)
    for stale in (STALE, OTHER):
        assert refusal(ONGOING.check_may_abort, stale) is ErrorCode.PRODUCER_FENCED


# --- partitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [EMPTY, complete(ONGOING, version=0)], ids=str)
def test_the_first_partition_begins_a_transaction(before: Transaction) -> None:
    after = before.with_partitions(OWNER, {T0}, 2, NOW)
    assert (after.state, after.partitions, after.start_ms, after.client_version) == (S.ONGOING, ONE, NOW, 2)
    assert after.owner == OWNER


def test_more_partitions_join_the_transaction_and_those_in_it_change_nothing() -> None:
    after = ONGOING.with_partitions(OWNER, {T1}, 0, NOW)
    assert (after.partitions, after.start_ms, after.last_update_ms) == (TWO, 2_000, NOW)
    assert after.with_partitions(OWNER, {T0, T1}, 0, NOW + 1) is after


@pytest.mark.parametrize("before", [EMPTY, ONGOING, complete(ONGOING, version=0), decided(ONGOING, version=0)], ids=str)
def test_others_may_not_add_or_verify_partitions(before: Transaction) -> None:
    for identity, error in (
        (OTHER, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (STALE, ErrorCode.PRODUCER_FENCED),
        (ProducerIdentity(5, 4), ErrorCode.PRODUCER_FENCED),
    ):
        assert refusal(before.with_partitions, identity, {T0}, 0, NOW) is error
        assert refusal(before.missing, identity, {T0}) is error


@pytest.mark.parametrize("version", [0, 2])
def test_partitions_wait_for_the_completion_of_the_previous_transaction(version: int) -> None:
    before = decided(ONGOING, version=version)
    with pytest.raises(StillCompletingError):
        before.with_partitions(before.owner, {T0}, version, NOW)
    with pytest.raises(StillCompletingError):
        before.missing(before.owner, {T0})


def test_verification_tells_which_partitions_are_not_in_the_transaction() -> None:
    assert ONGOING.missing(OWNER, {T0, T1}) == {T1}
    assert EMPTY.missing(OWNER, {T0}) == {T0}
    assert complete(ONGOING, version=0).missing(OWNER, {T0}) == {T0}


# --- the end, version 0 ---------------------------------------------------------------------------------------------


@BOTH
def test_a_transaction_ends_with_the_epoch_that_it_had(committed: bool) -> None:
    prepared = decided(ONGOING, committed=committed, version=0)
    assert prepared.state is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)
    assert (prepared.owner, prepared.partitions, prepared.start_ms) == (OWNER, ONE, 2_000)
    completed = prepared.completed(NOW + 5)
    assert completed.state is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)
    assert (completed.owner, completed.partitions) == (OWNER, frozenset())
    assert (completed.start_ms, completed.last_update_ms) == (2_000, NOW + 5)


@BOTH
def test_the_same_end_again_changes_nothing_and_the_other_end_is_refused(committed: bool) -> None:
    prepared = decided(ONGOING, committed=committed, version=0)
    for transaction in (prepared, prepared.completed(NOW)):
        assert ended(transaction, committed=committed, version=0) is transaction
        other_end = refusal(ended, transaction, committed=not committed, version=0)
        assert other_end is ErrorCode.INVALID_TXN_STATE


@BOTH
def test_there_is_nothing_to_end_before_the_first_transaction(committed: bool) -> None:
    assert refusal(ended, EMPTY, committed=committed, version=0) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("before", [EMPTY, ONGOING, complete(ONGOING, version=0)], ids=str)
def test_others_may_not_end_a_transaction(before: Transaction, version: int) -> None:
    for identity, error in (
        (OTHER, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (STALE, ErrorCode.PRODUCER_FENCED),
        (ProducerIdentity(5, 4), ErrorCode.PRODUCER_FENCED),
    ):
        for committed in (True, False):
            found = refusal(ended, before, identity, committed=committed, version=version)
            assert found is error


# --- the end, version 2 ---------------------------------------------------------------------------------------------


@BOTH
def test_version_2_raises_the_epoch_with_the_end(committed: bool) -> None:
    prepared = decided(ONGOING, committed=committed)
    assert (prepared.producer_epoch, prepared.owner, prepared.client_version) == (4, (5, 4), 2)
    assert prepared.completed(NOW).owner == (5, 4)


@BOTH
def test_version_2_answers_the_same_end_again_and_refuses_the_other(committed: bool) -> None:
    prepared = decided(ONGOING, committed=committed)
    for transaction in (prepared, prepared.completed(NOW)):
        assert ended(transaction, OWNER, committed=committed) is transaction
        other_end = refusal(ended, transaction, OWNER, committed=not committed)
        assert other_end is ErrorCode.INVALID_TXN_STATE


@BOTH
def test_a_delayed_end_never_ends_the_next_transaction(committed: bool) -> None:
    completed = complete(ONGOING)
    next_one = completed.with_partitions(completed.owner, {T0}, 2, NOW)
    assert refusal(ended, next_one, OWNER, committed=committed) is ErrorCode.PRODUCER_FENCED
    after_it = complete(next_one)
    assert refusal(ended, after_it, OWNER, committed=committed) is ErrorCode.PRODUCER_FENCED


@BOTH
def test_the_end_of_the_next_transaction_waits_for_the_completion_of_this(committed: bool) -> None:
    prepared = decided(ONGOING)
    with pytest.raises(StillCompletingError):
        ended(prepared, prepared.owner, committed=committed)


@pytest.mark.parametrize("before", [EMPTY, complete(ONGOING), complete(ONGOING, committed=False)], ids=str)
def test_version_2_aborts_a_transaction_that_never_began(before: Transaction) -> None:
    prepared = ended(before, before.owner, committed=False)
    assert (prepared.state, prepared.partitions, prepared.start_ms) == (S.PREPARE_ABORT, frozenset(), NOW)
    assert prepared.owner == (5, before.producer_epoch + 1)
    assert refusal(ended, before, before.owner, committed=True) is ErrorCode.INVALID_TXN_STATE


def test_a_producer_of_the_new_protocol_is_not_mistaken_for_one_that_repeats_the_end_of_another() -> None:
    # The owner uses the old protocol, which does not raise the epoch: 2 is the epoch of its predecessor.
    completed = complete(ONGOING, version=0)
    assert refusal(ended, completed, STALE) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("is_loaded", [False, True])
@BOTH
def test_the_end_with_the_last_epoch_brings_a_new_id(committed: bool, is_loaded: bool) -> None:
    last = ProducerIdentity(5, LAST_USED)
    ongoing = ONGOING_2._replace(producer_epoch=LAST_USED)
    prepared = ended(ongoing, last, committed=committed, ids=new_id)
    assert (prepared.producer_id, prepared.producer_epoch) == (5, LAST_EPOCH)
    assert prepared.owner == (NEW_ID, 0)
    completed = prepared.completed(NOW)
    assert (completed.producer_id, completed.producer_epoch, completed.previous_producer_id) == (NEW_ID, 0, 5)
    for transaction in (prepared, completed):
        found = transaction._replace(last_epoch=-1) if is_loaded else transaction
        assert ended(found, last, committed=committed) is found
        other_end = refusal(ended, found, last, committed=not committed)
        assert other_end is ErrorCode.INVALID_TXN_STATE
    begun = completed.with_partitions(completed.owner, {T0}, 2, NOW)
    assert refusal(ended, begun, last) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    with pytest.raises(StillCompletingError):
        prepared.with_partitions(ProducerIdentity(NEW_ID, 0), {T0}, 2, NOW)


def test_a_producer_that_lost_the_answer_of_its_end_may_start_with_the_raised_epoch() -> None:
    completed = complete(ONGOING)
    assert completed.initialized(OWNER, 60_000, NOW, no_id).owner == (5, 4)


# --- aborts by the coordinator --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2])
def test_an_abort_by_the_coordinator_raises_the_epoch(version: int) -> None:
    ongoing = ONGOING._replace(client_version=version)
    aborted = ongoing.aborted_by_coordinator(NOW)
    assert (aborted.state, aborted.producer_epoch, aborted.partitions) == (S.PREPARE_ABORT, 4, ONE)
    assert aborted.client_version == version
    completed = aborted.completed(NOW)
    for transaction in (aborted, completed):
        if version == 0:
            assert refusal(ended, transaction, OWNER, version=0) is ErrorCode.PRODUCER_FENCED
        else:  # The producer learns that its transaction was aborted, and goes on.
            assert refusal(ended, transaction, OWNER) is ErrorCode.INVALID_TXN_STATE
            assert ended(transaction, OWNER, committed=False) is transaction
    assert refusal(completed.with_partitions, OWNER, {T0}, version, NOW) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_timed_out_may_go_on_with_version_2_only() -> None:
    completed = ONGOING.aborted_by_coordinator(NOW).completed(NOW)
    assert refusal(completed.initialized, OWNER, 60_000, NOW, no_id) is ErrorCode.PRODUCER_FENCED
    completed = ONGOING_2.aborted_by_coordinator(NOW).completed(NOW)
    assert completed.initialized(OWNER, 60_000, NOW, no_id).owner == (5, 4)


def test_the_owner_goes_on_after_the_abort_that_it_asked_for() -> None:
    completed = ONGOING.aborted_by_coordinator(NOW, owner_goes_on=True).completed(NOW)
    assert completed.initialized(OWNER, 60_000, NOW, no_id).owner == (5, 4)


@pytest.mark.parametrize("version", [0, 2])
def test_the_last_epoch_is_given_to_nobody(version: int) -> None:
    ongoing = ONGOING._replace(producer_epoch=LAST_USED, client_version=version)
    aborted = ongoing.aborted_by_coordinator(NOW)
    assert aborted.producer_epoch == LAST_EPOCH
    completed = aborted.completed(NOW)
    last, beyond = ProducerIdentity(5, LAST_USED), ProducerIdentity(5, LAST_EPOCH)
    for identity in (last, beyond):
        for committed in (True, False):
            found = refusal(ended, completed, identity, committed=committed, version=version)
            assert found is ErrorCode.PRODUCER_FENCED
    assert refusal(completed.with_partitions, beyond, {T0}, version, NOW) is ErrorCode.PRODUCER_FENCED
    assert refusal(completed.initialized, last, 60_000, NOW, no_id) is ErrorCode.PRODUCER_FENCED
    assert completed.initialized(None, 60_000, NOW, new_id).owner == (NEW_ID, 0)


def test_only_open_transactions_are_aborted() -> None:
    with pytest.raises(IllegalTransitionError):
        decided(ONGOING).aborted_by_coordinator(NOW)


def test_only_decided_transactions_are_completed() -> None:
    for before in (EMPTY, ONGOING, complete(ONGOING)):
        with pytest.raises(IllegalTransitionError):
            before.completed(NOW)


# --- two-phase commit -----------------------------------------------------------------------------------------------

PREPARED_2PC = ONGOING_2._replace(timeout_ms=TWO_PHASE_TIMEOUT_MS)
TAKEN_OVER = PREPARED_2PC.taken_over(TWO_PHASE_TIMEOUT_MS, NOW, no_id)


def test_a_new_process_takes_over_the_open_transaction() -> None:
    assert (TAKEN_OVER.state, TAKEN_OVER.partitions, TAKEN_OVER.start_ms) == (S.ONGOING, ONE, 2_000)
    assert (TAKEN_OVER.producer_id, TAKEN_OVER.producer_epoch) == (5, 3)
    assert TAKEN_OVER.owner == (5, 4)
    assert TAKEN_OVER.is_taken_over
    assert not PREPARED_2PC.is_taken_over
    again = TAKEN_OVER.taken_over(TWO_PHASE_TIMEOUT_MS, NOW, no_id)
    assert (again.producer_epoch, again.owner) == (3, (5, 5))


@BOTH
def test_the_new_process_ends_it_and_the_old_one_is_fenced(committed: bool) -> None:
    for version in (0, 2):
        found = refusal(ended, TAKEN_OVER, OWNER, committed=committed, version=version)
        assert found is ErrorCode.PRODUCER_FENCED
    prepared = ended(TAKEN_OVER, TAKEN_OVER.owner, committed=committed)
    assert prepared.state is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)
    assert (prepared.producer_id, prepared.producer_epoch) == (5, 4)  # the markers', above that of the transaction
    assert prepared.owner == (5, 5)
    completed = prepared.completed(NOW)
    assert (completed.owner, completed.next_producer_id, completed.next_producer_epoch) == ((5, 5), -1, -1)
    for transaction in (prepared, completed):
        assert ended(transaction, TAKEN_OVER.owner, committed=committed) is transaction
        assert refusal(ended, transaction, OWNER, committed=committed) is ErrorCode.PRODUCER_FENCED


def test_a_process_of_the_old_protocol_ends_it_and_keeps_its_epoch() -> None:
    prepared = ended(TAKEN_OVER, TAKEN_OVER.owner, version=0)
    assert (prepared.producer_epoch, prepared.owner) == (4, (5, 4))
    assert ended(prepared, TAKEN_OVER.owner, version=0) is prepared
    assert prepared.completed(NOW).owner == (5, 4)


def test_nobody_adds_partitions_to_a_transaction_that_was_taken_over() -> None:
    for identity, error in ((OWNER, ErrorCode.PRODUCER_FENCED), (TAKEN_OVER.owner, ErrorCode.INVALID_TXN_STATE)):
        assert refusal(TAKEN_OVER.with_partitions, identity, {T1}, 2, NOW) is error
        assert refusal(TAKEN_OVER.missing, identity, {T0}) is error


def test_a_transaction_that_was_taken_over_can_be_aborted_by_a_new_producer() -> None:
    aborted = TAKEN_OVER.aborted_by_coordinator(NOW)
    assert (aborted.producer_epoch, aborted.owner) == (4, (5, 5))
    assert aborted.completed(NOW).initialized(None, 60_000, NOW, no_id).owner == (5, 6)


def test_taking_over_with_the_last_epoch_brings_a_new_id() -> None:
    last = PREPARED_2PC._replace(producer_epoch=LAST_USED)
    taken = last.taken_over(TWO_PHASE_TIMEOUT_MS, NOW, new_id)
    assert (taken.producer_id, taken.producer_epoch, taken.owner) == (5, LAST_USED, (NEW_ID, 0))
    prepared = ended(taken, taken.owner)
    assert (prepared.producer_id, prepared.producer_epoch, prepared.owner) == (5, LAST_EPOCH, (NEW_ID, 1))
    assert prepared.completed(NOW).owner == (NEW_ID, 1)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_ending_with_the_last_epoch_of_the_new_process_brings_a_new_id(is_loaded: bool) -> None:
    taken = TAKEN_OVER._replace(next_producer_epoch=LAST_USED)
    prepared = ended(taken, taken.owner, ids=new_id)
    assert (prepared.producer_epoch, prepared.owner) == (4, (NEW_ID, 0))
    for transaction in (prepared, prepared.completed(NOW)):
        found = transaction._replace(last_epoch=-1) if is_loaded else transaction
        assert ended(found, taken.owner) is found


def test_a_prepared_transaction_never_gets_a_timeout() -> None:
    assert PREPARED_2PC.taken_over(60_000, NOW, no_id).timeout_ms == TWO_PHASE_TIMEOUT_MS
    assert ONGOING.taken_over(TWO_PHASE_TIMEOUT_MS, NOW, no_id).timeout_ms == TWO_PHASE_TIMEOUT_MS


# --- time -----------------------------------------------------------------------------------------------------------


def test_an_open_transaction_times_out_unless_it_is_one_of_two_phase_commit() -> None:
    assert not ONGOING.is_timed_out(62_000)
    assert ONGOING.is_timed_out(62_001)
    assert not ONGOING._replace(timeout_ms=TWO_PHASE_TIMEOUT_MS).is_timed_out(2**40)
    for other in (EMPTY, decided(ONGOING), complete(ONGOING)):
        assert not other.is_timed_out(2**40)


def test_an_id_expires_unless_a_transaction_is_open() -> None:
    assert EMPTY.is_expired(6_000, 5_000)
    assert not EMPTY.is_expired(5_999, 5_000)
    assert complete(ONGOING).is_expired(NOW + 5_000, 5_000)
    for other in (ONGOING, decided(ONGOING), decided(ONGOING, committed=False)):
        assert not other.is_expired(2**40, 5_000)


def test_epochs_never_go_back() -> None:
    with pytest.raises(IllegalTransitionError, match="would go back"):
        EMPTY._moved(S.EMPTY, producer_epoch=2)
