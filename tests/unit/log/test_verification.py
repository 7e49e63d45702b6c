"""Batches that may begin a transaction, and markers that may end one (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.log.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import ProducerStates
from ottla.log.verification import Verification
from ottla.records import BatchOptions, Record, encode_batch, iter_batches, read_transaction_marker
from ottla.records.layout import TimestampType
from support.brokers.small_broker import small_broker

ID = 5
EXPIRATION_MS = 86_400_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    with small_broker(tmp_path) as broker:
        (partition,) = broker.topic()
        assert partition.log is not None
        yield partition.log


@pytest.fixture
def states(log: PartitionLog) -> ProducerStates:
    return log.producers


def append(log: PartitionLog, sequence: int = 0, epoch: int = 0, *, transactional: bool = True) -> None:
    options = BatchOptions(producer_id=ID, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
    log.append_as_leader(memoryview(encode_batch([Record(0, 100, None, b"v")], options)), 0)


def mark(log: PartitionLog, epoch: int = 0, *, version: int = 1, coordinator_epoch: int = 0) -> int:
    return log.append_marker(
        0,
        producer_id=ID,
        producer_epoch=epoch,
        committed=False,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def begin(states: ProducerStates, sequence: int = 0, epoch: int = 0, **options: bool) -> Verification | None:
    return states.begin_verification(ID, epoch, sequence, 1000, **options)


def test_an_open_transaction_needs_no_confirmation(log: PartitionLog, states: ProducerStates) -> None:
    append(log)
    assert begin(states, 1) is None
    states.check_verified(ID, 0, 1, None)
    assert begin(states, 0, epoch=1) is not None  # of a later epoch: another transaction
    mark(log)
    with pytest.raises(InvalidTransactionStateError):
        states.check_verified(ID, 0, 1, None)


def test_batches_that_wait_share_the_confirmation(log: PartitionLog, states: ProducerStates) -> None:
    first = begin(states)
    assert first is not None
    assert begin(states, 1) is first
    states.check_verified(ID, 0, 0, first)
    append(log)
    states.check_verified(ID, 0, 1, first)
    assert begin(states, 1) is None


@pytest.mark.parametrize("end", [mark, lambda log: log.producers.truncate_fully_and_start_at(0)])
def test_a_marker_or_a_truncation_cancels_it(
    log: PartitionLog, states: ProducerStates, end: Callable[[PartitionLog], object]
) -> None:
    former = begin(states)
    end(log)
    with pytest.raises(InvalidTransactionStateError):
        states.check_verified(ID, 0, 0, former)
    later = begin(states)
    assert later is not former
    with pytest.raises(InvalidTransactionStateError):
        states.check_verified(ID, 0, 0, former)
    states.check_verified(ID, 0, 0, later)


def test_the_marker_of_the_previous_transaction_does_not_cancel_it(log: PartitionLog, states: ProducerStates) -> None:
    append(log)
    waiting = begin(states, epoch=1, epoch_rises=True)
    mark(log, 1, version=2)  # ends the transaction of epoch 0
    states.check_verified(ID, 1, 0, waiting)
    append(log, epoch=1)
    mark(log, 2, version=2)
    former = begin(states, epoch=2, epoch_rises=True)
    mark(log, 3, version=2)  # ends the transaction that waits
    with pytest.raises(InvalidTransactionStateError):
        states.check_verified(ID, 2, 0, former)


def test_batches_behind_one_that_failed_do_not_overtake_it(states: ProducerStates) -> None:
    waiting = begin(states, 3)
    begin(states, 5)
    with pytest.raises(OutOfOrderSequenceError):
        states.check_verified(ID, 0, 5, waiting)
    states.check_verified(ID, 0, 3, waiting)
    begin(states, 1)
    with pytest.raises(OutOfOrderSequenceError):
        states.check_verified(ID, 0, 3, waiting)
    begin(states, 2, epoch=1)  # a new epoch counts anew
    states.check_verified(ID, 1, 2, waiting)
    begin(states, 0)  # of an epoch that is over
    states.check_verified(ID, 1, 2, waiting)


def test_sequences_begin_with_0_where_each_transaction_has_its_epoch(log: PartitionLog, states: ProducerStates) -> None:
    waiting = begin(states, 4, epoch_rises=True)
    with pytest.raises(OutOfOrderSequenceError):
        states.check_verified(ID, 0, 4, waiting)
    mark(log, 1, version=2)
    waiting = begin(states, 4, 1, epoch_rises=True)
    states.check_verified(ID, 1, 4, waiting)  # the entry of the producer refuses it
    with pytest.raises(OutOfOrderSequenceError):
        append(log, 4, 1)


def test_one_that_is_never_answered_expires(states: ProducerStates) -> None:
    waiting = begin(states)
    states.remove_expired(1000 + EXPIRATION_MS - 1)
    states.check_verified(ID, 0, 0, waiting)
    states.remove_expired(1000 + EXPIRATION_MS)
    with pytest.raises(InvalidTransactionStateError):
        states.check_verified(ID, 0, 0, waiting)


def test_a_marker_of_version_2_has_a_higher_epoch_than_the_transaction(log: PartitionLog) -> None:
    append(log, epoch=3)
    with pytest.raises(InvalidProducerEpochError, match="belongs to an earlier transaction"):
        mark(log, 3, version=2)
    with pytest.raises(InvalidProducerEpochError):
        mark(log, 2, version=2)
    assert mark(log, 4, version=2) == 2
    assert mark(log, 4, version=2) == 3  # a repetition, which ends nothing
    append(log, epoch=4)
    with pytest.raises(InvalidProducerEpochError):
        mark(log, 4, version=2)
    assert log.producers.first_undecided_offset == 3


def test_a_marker_of_version_1_has_the_epoch_of_the_transaction(log: PartitionLog) -> None:
    append(log, epoch=3)
    assert mark(log, 3, coordinator_epoch=7) == 2
    assert log.producers.first_undecided_offset is None
    with pytest.raises(CoordinatorFencedError):
        mark(log, 3, coordinator_epoch=6)
    assert log.next_offset == 2


def test_a_marker_is_found_in_the_log_as_it_was_written(log: PartitionLog) -> None:
    append(log)
    mark(log, coordinator_epoch=7)
    found = log.read(1, 1000, bound=2).slice
    assert found is not None
    (batch,) = iter_batches(found.read())
    marker = read_transaction_marker(batch)
    assert marker is not None
    assert (marker.offset, marker.producer_id, marker.producer_epoch) == (1, ID, 0)
    assert (marker.committed, marker.coordinator_epoch) == (False, 7)
    assert batch.header.timestamp_type is TimestampType.CREATE_TIME
    aborted = log.read(0, 1000, bound=2, with_aborted=True).aborted_transactions
    assert aborted is not None
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in aborted] == [(ID, 0, 1)]
