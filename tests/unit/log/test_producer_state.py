from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.disk import Buffer
from ottla.base.error_codes import ErrorCode
from ottla.log.append_origin import AppendOrigin
from ottla.log.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidRecordsError,
    InvalidTransactionStateError,
    LogError,
    OutOfOrderSequenceError,
    ReusedSequenceError,
)
from ottla.log.local_disk import LocalDisk
from ottla.log.producer_entry import RecentBatch
from ottla.log.producer_snapshot import ProducerRow, decode_snapshot, encode_snapshot
from ottla.log.producer_state import DuplicateBatch, ProducerStates
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import BatchHeader, BatchView, read_header
from ottla.records.control import encode_transaction_marker
from ottla.records.plain import BatchOptions, encode_batch
from ottla.records.record import Record
from support.examples import examples

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
LAST_SEQUENCE = 2**31 - 1


class ForgetfulDisk(LocalDisk):
    """Has no producers' snapshots, for properties that need none."""

    def list(self, _: Path) -> list[str]:
        return []


class Log:
    """Appends to a state as a log would, and remembers what it appended."""

    def __init__(self, states: ProducerStates, next_offset: int = 0) -> None:
        self.states = states
        self.next_offset = next_offset
        self.appended: list[tuple[BatchHeader, bytes]] = []

    def append(
        self, *batches: bytearray, origin: AppendOrigin = CLIENT
    ) -> DuplicateBatch | Sequence[AbortedTransaction]:
        offset = self.next_offset
        for batch in batches:
            BatchView(batch).assign_offset(offset)
            offset = read_header(batch).next_offset
        headers, data = [read_header(batch) for batch in batches], b"".join(batches)
        duplicate = self.states.check(headers, data, origin)
        if duplicate is not None:
            return duplicate
        aborted = self.states.update(headers, data)
        self.states.map_end_offset = self.next_offset = offset
        self.appended += zip(headers, map(bytes, batches), strict=True)
        return aborted

    def replay(self) -> list[AbortedTransaction]:
        """All that the state does not know yet."""
        found = []
        for header, batch in self.appended:
            if self.states.map_end_offset <= header.base_offset < self.next_offset:
                found.append(self.states.replay(header, partial(bytes, batch)))
        self.states.map_end_offset = self.next_offset
        return [transaction for transaction in found if transaction is not None]


@pytest.fixture
def states(tmp_path: Path) -> ProducerStates:
    return ProducerStates(LocalDisk(), tmp_path, expiration_ms=1000)


@pytest.fixture
def log(states: ProducerStates) -> Log:
    return Log(states)


def data(
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    *,
    transactional: bool = False,
    timestamp_ms: int = 100,
) -> bytearray:
    options = BatchOptions(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    return encode_batch(
        [Record(offset=at, timestamp_ms=timestamp_ms, key=None, value=b"v") for at in range(count)], options
    )


def marker(
    producer_id: int = 1,
    epoch: int = 0,
    *,
    committed: bool = True,
    coordinator_epoch: int = 0,
    timestamp_ms: int = 100,
) -> bytearray:
    return encode_transaction_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
    )


def picture(states: ProducerStates) -> dict[int, tuple[object, ...]]:
    return {
        producer_id: (
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.last_timestamp_ms,
            entry.current_transaction_first_offset,
            tuple(entry.batches),
        )
        for producer_id, entry in states.entries.items()
    }


def bounds(states: ProducerStates) -> tuple[int | None, int | None]:
    """Where what is not decided begins: on all replicas, and here."""
    return states.first_unstable_offset, states.first_undecided_offset


# --- sequences ------------------------------------------------------------------------------------------------------


def test_batches_without_a_producer_leave_no_trace(log: Log) -> None:
    log.append(data(producer_id=-1, epoch=-1, sequence=-1))
    log.append(data(producer_id=-1, epoch=-1, sequence=-1), data(producer_id=-1, epoch=-1, sequence=-1))
    assert log.states.is_empty
    assert log.states.map_end_offset == 3


def test_sequences_follow_each_other(log: Log) -> None:
    log.append(data(sequence=0, count=3, timestamp_ms=7))
    log.append(data(sequence=3, count=2, timestamp_ms=8))
    entry = log.states.entries[1]
    assert entry.batches == [RecentBatch(2, 2, 2, 7), RecentBatch(4, 4, 1, 8)]
    assert (entry.first_sequence, entry.last_sequence, entry.last_offset, entry.last_timestamp_ms) == (0, 4, 4, 8)
    before = picture(log.states)
    for sequence in (6, 1, LAST_SEQUENCE):
        with pytest.raises(
            OutOfOrderSequenceError, match=f"sequence {sequence} cannot be next, sequence 4 was"
        ) as refused:
            log.append(data(sequence=sequence))
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert picture(log.states) == before


def test_sequences_wrap_around(log: Log) -> None:
    log.append(data(sequence=LAST_SEQUENCE - 1))
    log.append(data(sequence=LAST_SEQUENCE))
    log.append(data(sequence=0))
    log.append(data(sequence=1, count=2))
    assert log.append(data(sequence=LAST_SEQUENCE)) == (1, 1, 100)


def test_a_batch_may_wrap_around(log: Log) -> None:
    log.append(data(sequence=LAST_SEQUENCE - 1, count=4))
    entry = log.states.entries[1]
    assert (entry.first_sequence, entry.last_sequence) == (LAST_SEQUENCE - 1, 1)
    assert log.append(data(sequence=LAST_SEQUENCE - 1, count=4)) == (0, 3, 100)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(sequence=0))
    log.append(data(sequence=2))


def test_a_wrap_is_only_from_the_last_number(log: Log) -> None:
    log.append(data(sequence=LAST_SEQUENCE - 1))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(sequence=0))


def test_one_of_the_last_five_batches_is_a_duplicate(log: Log) -> None:
    for sequence in range(7):
        log.append(data(sequence=sequence, timestamp_ms=1000 + sequence))
    for sequence in range(2, 7):
        assert log.append(data(sequence=sequence)) == DuplicateBatch(sequence, sequence, 1000 + sequence)
    for sequence in (0, 1):
        with pytest.raises(OutOfOrderSequenceError):
            log.append(data(sequence=sequence))
    assert log.next_offset == 7


def test_only_the_very_same_range_is_a_duplicate(log: Log) -> None:
    log.append(data(sequence=0, count=3))
    assert log.append(data(sequence=0, count=3)) == DuplicateBatch(0, 2, 100)
    for sequence, count in ((0, 2), (1, 2), (0, 4), (2, 1)):
        with pytest.raises(OutOfOrderSequenceError):
            log.append(data(sequence=sequence, count=count))


def test_only_a_clients_batch_can_be_a_duplicate(log: Log) -> None:
    log.append(data(sequence=0))
    assert log.append(data(sequence=0), origin=COORDINATOR) == ()
    assert log.append(data(sequence=0), origin=REPLICATION) == ()
    assert log.next_offset == 3


def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    log.append(data(sequence=41, epoch=3))
    log.append(data(sequence=42, epoch=3))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(sequence=44, epoch=3))


def test_producers_do_not_disturb_each_other(log: Log) -> None:
    log.append(data(1, sequence=0))
    log.append(data(2, sequence=9))
    log.append(data(1, sequence=1))
    log.append(data(2, sequence=10))
    assert {entry.producer_id: entry.last_sequence for entry in log.states.entries.values()} == {1: 1, 2: 10}


# --- epochs ---------------------------------------------------------------------------------------------------------


def test_a_new_epoch_begins_with_sequence_0(log: Log) -> None:
    log.append(data(epoch=0, sequence=0))
    with pytest.raises(OutOfOrderSequenceError, match="a new epoch begins with sequence 0"):
        log.append(data(epoch=1, sequence=1))
    log.append(data(epoch=1, sequence=0))
    assert log.states.entries[1].batches == [RecentBatch(0, 1, 0, 100)]
    with pytest.raises(InvalidProducerEpochError, match="epoch 0, but 1 has written since") as fenced:
        log.append(data(epoch=0, sequence=0))
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(InvalidProducerEpochError):
        log.append(data(epoch=0, sequence=1), origin=COORDINATOR)


def test_a_coordinators_batches_need_no_sequence(log: Log) -> None:
    log.append(data(sequence=-1), origin=COORDINATOR)
    log.append(data(sequence=-1), origin=COORDINATOR)
    log.append(data(sequence=-1, epoch=4), origin=COORDINATOR)
    assert log.states.entries[1].last_sequence == -1


def test_replication_is_believed(log: Log) -> None:
    log.append(data(epoch=5, sequence=7), origin=REPLICATION)
    log.append(data(epoch=5, sequence=99), origin=REPLICATION)
    log.append(data(epoch=3, sequence=12), origin=REPLICATION)
    assert (log.states.entries[1].producer_epoch, log.states.entries[1].batches) == (3, [RecentBatch(12, 2, 0, 100)])


def test_a_marker_raises_the_epoch_and_forgets_the_sequences(log: Log) -> None:
    log.append(data(sequence=0, transactional=True))
    log.append(marker(epoch=1), origin=COORDINATOR)
    assert log.states.entries[1].batches == []
    with pytest.raises(OutOfOrderSequenceError, match="sequence -1 was the last"):
        log.append(data(epoch=1, sequence=1))
    log.append(data(epoch=1, sequence=0))


def test_a_marker_of_the_same_epoch_keeps_the_sequences(log: Log) -> None:
    log.append(data(sequence=0, transactional=True))
    log.append(marker(epoch=0), origin=COORDINATOR)
    log.append(data(sequence=1, transactional=True))
    assert log.append(data(sequence=1, transactional=True)) == DuplicateBatch(2, 2, 100)


def test_sequences_of_a_transaction_that_has_ended_are_not_repeated(log: Log) -> None:
    """librdkafka uses them for other records."""
    log.append(data(sequence=0, transactional=True))
    log.append(marker(epoch=0), origin=COORDINATOR)
    with pytest.raises(ReusedSequenceError, match=r"sequence 0 was used at offset 0, in a transaction that has ended"):
        log.append(data(sequence=0, transactional=True))
    log.append(data(sequence=1, transactional=True))
    with pytest.raises(ReusedSequenceError) as refused:
        log.append(data(sequence=0, transactional=True))
    assert refused.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    log.append(data(sequence=0, epoch=1, transactional=True))  # what a client does then


def test_markers_are_fenced(log: Log) -> None:
    log.append(data(epoch=2, sequence=0, transactional=True))
    with pytest.raises(InvalidProducerEpochError):
        log.append(marker(epoch=1), origin=COORDINATOR)
    log.append(marker(epoch=2, coordinator_epoch=7), origin=COORDINATOR)
    with pytest.raises(CoordinatorFencedError, match="coordinator epoch 6, but 7 has written since") as fenced:
        log.append(marker(epoch=2, coordinator_epoch=6), origin=COORDINATOR)
    assert fenced.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.append(marker(epoch=2, coordinator_epoch=7), origin=COORDINATOR)
    log.append(marker(epoch=1, coordinator_epoch=6), origin=REPLICATION)
    assert (log.states.entries[1].producer_epoch, log.states.entries[1].coordinator_epoch) == (1, 6)


# --- transactions ---------------------------------------------------------------------------------------------------


def test_a_transaction_holds_back_the_first_unstable_offset(log: Log, states: ProducerStates) -> None:
    log.append(data(9, sequence=0))
    assert bounds(states)[0] is None
    log.append(data(1, sequence=0, transactional=True))
    log.append(data(2, sequence=0, transactional=True))
    log.append(data(1, sequence=1, transactional=True))
    assert bounds(states) == (1, 1)
    assert log.append(marker(1), origin=COORDINATOR) == []
    # Decided, but nobody else may know it yet.
    assert bounds(states) == (1, 2)
    states.on_high_watermark_updated(4)
    assert bounds(states)[0] == 1
    states.on_high_watermark_updated(5)
    assert bounds(states)[0] == 2
    log.append(marker(2), origin=COORDINATOR)
    states.on_high_watermark_updated(6)
    assert bounds(states) == (None, None)


def test_the_oldest_of_the_decided_counts_whatever_the_order(log: Log, states: ProducerStates) -> None:
    for producer_id in (1, 2, 3):
        log.append(data(producer_id, sequence=0, transactional=True))
    for producer_id in (3, 1, 2):  # at 3, 4, 5
        log.append(marker(producer_id), origin=COORDINATOR)
    assert bounds(states)[0] == 0
    states.on_high_watermark_updated(4)
    assert bounds(states)[0] == 0
    states.on_high_watermark_updated(5)
    assert bounds(states)[0] == 1
    states.on_high_watermark_updated(6)
    assert bounds(states)[0] is None


def test_aborts_go_to_the_transaction_index(log: Log) -> None:
    log.append(data(1, sequence=0, transactional=True))
    log.append(data(2, sequence=0, transactional=True))
    assert log.append(marker(1, committed=False), origin=COORDINATOR) == [AbortedTransaction(1, 0, 2, 1)]
    assert log.append(marker(2, committed=False), origin=COORDINATOR) == [AbortedTransaction(2, 1, 3, 4)]
    assert log.append(marker(2, committed=False), origin=COORDINATOR) == []  # nothing was open


def test_a_marker_alone_is_remembered(log: Log, states: ProducerStates) -> None:
    log.append(marker(5, epoch=3, coordinator_epoch=2, timestamp_ms=44), origin=COORDINATOR)
    assert picture(states) == {5: (3, 2, 44, None, ())}
    assert bounds(states)[0] is None


def test_a_batch_outside_of_the_open_transaction_is_refused(log: Log) -> None:
    log.append(data(sequence=0, transactional=True))
    before = picture(log.states)
    for origin in AppendOrigin:
        with pytest.raises(InvalidTransactionStateError, match="its transaction since offset 0 is open") as refused:
            log.append(data(sequence=1), origin=origin)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert picture(log.states) == before


def test_a_batch_that_is_no_marker_is_refused(log: Log) -> None:
    batch = encode_batch(
        [Record(offset=0, timestamp_ms=0, key=b"\x00", value=b"")],
        BatchOptions(producer_id=1, producer_epoch=0, transactional=True, control=True),
    )
    with pytest.raises(InvalidRecordsError, match="control record"):
        log.append(batch, origin=COORDINATOR)


def test_a_marker_that_compaction_emptied_ends_nothing(log: Log, states: ProducerStates) -> None:
    log.append(data(sequence=0, transactional=True))
    emptied = BatchOptions(producer_id=1, producer_epoch=9, transactional=True, control=True, base_offset=1)
    batch = encode_batch([], emptied)
    states.replay(read_header(batch), lambda: batch)
    assert states.first_undecided_offset == 0
    assert states.entries[1].producer_epoch == 0


def test_late_transactions(log: Log, states: ProducerStates) -> None:
    minute_ms = 60_000
    assert not states.has_late_transaction(10**9, 15 * minute_ms)
    log.append(data(1, sequence=0, transactional=True, timestamp_ms=minute_ms))
    log.append(data(2, sequence=0, transactional=True, timestamp_ms=5))
    assert not states.has_late_transaction(21 * minute_ms, 15 * minute_ms)
    assert states.has_late_transaction(21 * minute_ms + 1, 15 * minute_ms)
    log.append(data(1, sequence=1, transactional=True, timestamp_ms=2 * minute_ms))
    assert not states.has_late_transaction(22 * minute_ms, 15 * minute_ms)


def test_a_transaction_without_a_timestamp_is_never_late(log: Log, states: ProducerStates) -> None:
    log.append(data(1, sequence=0, transactional=True, timestamp_ms=0))
    assert not states.has_late_transaction(10**12, 0)


# --- several batches at once ----------------------------------------------------------------------------------------


def test_an_append_is_checked_as_a_whole_before_anything_changes(log: Log) -> None:
    log.append(data(1, sequence=0))
    before = picture(log.states)
    with pytest.raises(OutOfOrderSequenceError, match="sequence 2 was the last"):
        log.append(data(1, sequence=1), data(2, sequence=0), data(1, sequence=2), data(1, sequence=4))
    with pytest.raises(InvalidTransactionStateError):
        log.append(data(1, sequence=1, transactional=True), data(1, sequence=2), origin=REPLICATION)
    assert picture(log.states) == before
    log.append(data(1, sequence=1), data(2, sequence=0), data(1, sequence=2), data(1, sequence=3))
    assert [batch.last_offset for batch in log.states.entries[1].batches] == [0, 1, 3, 4]


def test_an_unknown_producer_may_leave_gaps_within_its_first_append(log: Log) -> None:
    log.append(data(1, sequence=5), data(1, sequence=9))
    with pytest.raises(OutOfOrderSequenceError, match="a new epoch begins with sequence 0"):
        log.append(data(2, sequence=5), data(2, epoch=1, sequence=6))


def test_a_duplicate_among_several_answers_for_all(log: Log) -> None:
    log.append(data(1, sequence=0), data(1, sequence=1, count=2))
    assert log.append(data(2, sequence=0), data(1, sequence=1, count=2)) == DuplicateBatch(1, 2, 100)
    assert 2 not in log.states.entries


def test_a_follower_gets_whole_transactions_at_once(log: Log, states: ProducerStates) -> None:
    aborted = log.append(
        data(1, sequence=0, transactional=True),
        data(7, sequence=0),
        data(-1, epoch=-1, sequence=-1),
        marker(1, committed=False),
        data(1, sequence=1, transactional=True),
        marker(1),
        data(2, sequence=0, transactional=True),
        origin=REPLICATION,
    )
    assert aborted == [AbortedTransaction(1, 0, 3, 4)]
    assert bounds(states) == (0, 6)


# --- expiry ---------------------------------------------------------------------------------------------------------


def test_silent_producers_expire_but_for_those_in_a_transaction(log: Log, states: ProducerStates) -> None:
    log.append(data(1, sequence=0, timestamp_ms=100))
    log.append(data(2, sequence=0, timestamp_ms=101))
    log.append(data(3, sequence=0, timestamp_ms=100, transactional=True))
    assert states.remove_expired(1099) == 0
    assert states.remove_expired(1100) == 1
    assert set(states.entries) == {2, 3}
    states.expiration_ms = 2000
    assert states.remove_expired(1101) == 0
    states.expiration_ms = 1000
    assert states.remove_expired(10**9) == 1
    assert set(states.entries) == {3}
    log.append(data(1, sequence=55))  # unknown again


# --- snapshots ------------------------------------------------------------------------------------------------------


def test_a_snapshot_brings_everything_but_older_batches_back(log: Log, states: ProducerStates, tmp_path: Path) -> None:
    log.append(data(1, sequence=0, count=3, timestamp_ms=500))
    log.append(data(1, sequence=3, count=2, timestamp_ms=600))
    log.append(data(2, epoch=4, sequence=0, transactional=True, timestamp_ms=700))
    log.append(marker(3, epoch=9, coordinator_epoch=8, timestamp_ms=800), origin=COORDINATOR)
    path = states.take_snapshot(7)
    assert path == tmp_path / "00000000000000000007.snapshot"
    assert decode_snapshot(path, path.read_bytes()) == [
        ProducerRow(1, 0, 4, 4, 1, 600, -1, -1),
        ProducerRow(2, 4, 0, 5, 0, 700, -1, 5),
        ProducerRow(3, 9, -1, -1, 0, 800, 8, -1),
    ]
    again = ProducerStates(LocalDisk(), tmp_path, expiration_ms=1000)
    again.truncate_and_reload(0, 7, 1000)
    assert (again.map_end_offset, again.first_unstable_offset) == (7, 5)
    assert picture(again) == {**picture(states), 1: (0, -1, 600, None, (RecentBatch(4, 4, 1, 600),))}
    log_again = Log(again, 7)
    assert log_again.append(data(1, sequence=3, count=2)) == DuplicateBatch(3, 4, 600)
    log_again.append(data(1, sequence=5))
    assert log_again.append(marker(2, epoch=4, committed=False), origin=COORDINATOR) == [AbortedTransaction(2, 5, 8, 9)]


def test_expired_producers_are_not_loaded(log: Log, states: ProducerStates, tmp_path: Path) -> None:
    log.append(data(1, sequence=0, timestamp_ms=100))
    log.append(data(2, sequence=0, timestamp_ms=100, transactional=True))
    states.take_snapshot(2)
    again = ProducerStates(LocalDisk(), tmp_path, expiration_ms=1000)
    again.truncate_and_reload(0, 2, 1100)
    assert set(again.entries) == {2}


def test_open_transactions_are_loaded_in_order_of_their_offsets(tmp_path: Path) -> None:
    rows = [ProducerRow(pid, 0, 0, first, 0, 1, -1, first) for pid, first in ((1, 30), (2, 10), (3, 20))]
    (tmp_path / "00000000000000000040.snapshot").write_bytes(encode_snapshot(rows))
    states = ProducerStates(LocalDisk(), tmp_path)
    states.truncate_and_reload(0, 40, 2)
    assert bounds(states)[0] == 10
    log = Log(states, 40)
    assert log.append(marker(2, committed=False), origin=COORDINATOR) == [AbortedTransaction(2, 10, 40, 20)]


def test_no_second_snapshot_at_the_same_offset(log: Log, states: ProducerStates) -> None:
    assert states.take_snapshot(0) is None
    log.append(data(sequence=0))
    assert states.take_snapshot(1, sync=True) is not None
    assert states.take_snapshot(1) is None
    assert states.take_snapshot(5) is not None
    assert (states.snapshots.offsets, states.map_end_offset) == ((1, 5), 5)


@pytest.mark.parametrize("damage", [b"", b"\x00" * 56, b"\x00\x01garbage"])
def test_a_corrupt_snapshot_goes_and_the_next_older_serves(
    log: Log, states: ProducerStates, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    log.append(data(sequence=0))
    states.take_snapshot(1)
    log.append(data(sequence=1))
    states.take_snapshot(2)
    log.append(data(sequence=2))
    newest = tmp_path / "00000000000000000002.snapshot"
    newest.write_bytes(damage)
    again = ProducerStates(LocalDisk(), tmp_path, expiration_ms=1000)
    again.truncate_and_reload(0, 3, 200)
    assert (again.map_end_offset, again.entries[1].last_sequence) == (1, 0)
    assert not newest.exists()
    assert str(newest) in caplog.text
    (tmp_path / "00000000000000000001.snapshot").write_bytes(damage)
    again = ProducerStates(LocalDisk(), tmp_path, expiration_ms=1000)
    again.truncate_and_reload(0, 3, 200)
    assert (again.map_end_offset, again.is_empty, again.snapshots.offsets) == (0, True, ())


def test_truncation_goes_back_to_the_snapshot_before(log: Log, states: ProducerStates) -> None:
    for sequence in range(6):
        log.append(data(sequence=sequence))
        states.take_snapshot(sequence + 1)
    states.truncate_and_reload(2, 4, 200)
    assert (states.snapshots.offsets, states.map_end_offset) == ((3, 4), 4)
    assert states.entries[1].last_sequence == 3
    Log(states, 4).append(data(sequence=4))


def test_truncation_to_where_the_state_is_keeps_it(log: Log, states: ProducerStates) -> None:
    for sequence in range(3):
        log.append(data(sequence=sequence))
    states.take_snapshot(3)
    log.append(data(sequence=3))
    before = picture(states)
    states.truncate_and_reload(0, 4, 10**9)
    assert (picture(states), states.map_end_offset) == (before, 4)


def test_truncation_forgets_what_was_decided_after_it(log: Log, states: ProducerStates) -> None:
    log.append(data(sequence=0))
    states.take_snapshot(1)
    log.append(data(sequence=1, transactional=True))
    log.append(marker(), origin=COORDINATOR)
    log.append(data(2, sequence=0, transactional=True))
    assert bounds(states)[0] == 1
    states.truncate_and_reload(0, 1, 200)
    assert (bounds(states), set(states.entries)) == ((None, None), {1})


def test_without_a_snapshot_the_state_begins_at_the_log_start(log: Log, states: ProducerStates) -> None:
    log.append(data(sequence=0))
    states.truncate_and_reload(7, 20, 200)
    assert (states.map_end_offset, states.is_empty) == (7, True)
    assert states.take_snapshot(7) is None  # it would hold nothing
    assert states.take_snapshot(20) is not None


def test_starting_over(log: Log, states: ProducerStates, tmp_path: Path) -> None:
    log.append(data(sequence=0, transactional=True))
    states.take_snapshot(1)
    states.truncate_fully_and_start_at(50)
    assert (states.map_end_offset, states.is_empty, states.first_unstable_offset) == (50, True, None)
    assert list(tmp_path.iterdir()) == []
    assert states.take_snapshot(50) is not None


def test_the_log_start_leaves_producers_in_memory(log: Log, states: ProducerStates) -> None:
    for sequence in range(4):
        log.append(data(sequence=sequence, transactional=True))
        states.take_snapshot(sequence + 1)
    log.append(marker(), origin=COORDINATOR)
    states.delete_snapshots_before(3)
    assert states.snapshots.offsets == (3, 4)
    states.on_log_start_advanced(4)
    assert (states.entries[1].last_sequence, states.first_unstable_offset) == (3, 0)
    states.on_log_start_advanced(5)
    assert bounds(states)[0] is None
    states.on_log_start_advanced(9)
    assert states.map_end_offset == 9


def test_stray_snapshots_go_when_a_log_is_opened(states: ProducerStates) -> None:
    for offset in (5, 10, 15):
        states.take_snapshot(offset)
    states.remove_stray_snapshots([0, 5])
    assert states.snapshots.offsets == (5, 15)


def test_follows_its_folder(states: ProducerStates, tmp_path: Path) -> None:
    folder = tmp_path / "renamed"
    folder.mkdir()
    states.move_to(folder)
    assert states.take_snapshot(3) == folder / "00000000000000000003.snapshot"


# --- properties -----------------------------------------------------------------------------------------------------


class SequenceModel:
    """What an idempotent producer may send, kept as naively as possible: every batch ever accepted of each producer."""

    def __init__(self) -> None:
        self.accepted: dict[int, list[tuple[int, int, int, int]]] = {}

    def answer(self, producer_id: int, epoch: int, sequence: int, count: int, offset: int) -> object:
        batches = self.accepted.setdefault(producer_id, [])
        newest = max((batch[0] for batch in batches), default=-1)
        of_epoch = [batch for batch in batches if batch[0] == newest]
        for known_epoch, known_sequence, known_count, known_offset in of_epoch[-5:]:
            if (known_epoch, known_sequence, known_count) == (epoch, sequence, count):
                return known_offset, known_offset + count - 1, 100
        if epoch < newest:
            return InvalidProducerEpochError
        if batches:
            expected = (of_epoch[-1][1] + of_epoch[-1][2]) % 2**31 if epoch == newest else 0
            if sequence != expected:
                return OutOfOrderSequenceError
        batches.append((epoch, sequence, count, offset))
        return None


sends = st.tuples(
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 4) | st.integers(2**31 - 4, 2**31 - 1),
    st.integers(1, 3),
    st.booleans(),
)


@settings(deadline=None, max_examples=examples(80))
@given(st.lists(sends, max_size=40))
def test_a_naive_model_gives_the_same_answers(sends: list[tuple[int, int, int, int, bool]]) -> None:
    log, model = Log(ProducerStates(ForgetfulDisk(), Path("folder"))), SequenceModel()
    for producer_id, epoch, sequence, count, follow in sends:
        if follow and (entry := log.states.entries.get(producer_id)) is not None:  # otherwise most would be refused
            epoch, sequence = entry.producer_epoch, (entry.last_sequence + 1) % 2**31
        expected = model.answer(producer_id, epoch, sequence, count, log.next_offset)
        answer: object
        try:
            answer = log.append(data(producer_id, epoch, sequence, count)) or None
        except LogError as error:
            answer = type(error)
        assert answer == expected


class TransactionModel:
    """Transactions as a plain list of (producer, first offset, marker's offset or None)."""

    def __init__(self) -> None:
        self.transactions: list[tuple[int, int, int | None]] = []

    def begin(self, producer_id: int, offset: int) -> None:
        if not any(producer == producer_id and end is None for producer, _, end in self.transactions):
            self.transactions.append((producer_id, offset, None))

    def end(self, producer_id: int, offset: int) -> tuple[int, int] | None:
        """First offset and last stable offset of what ended."""
        for index, (producer, first, end) in enumerate(self.transactions):
            if producer == producer_id and end is None:
                self.transactions[index] = (producer, first, offset)
                return first, min((start for _, start, end in self.transactions if end is None), default=offset + 1)
        return None

    def first_unstable(self, high_watermark: int) -> int | None:
        unstable = [first for _, first, end in self.transactions if end is None or end >= high_watermark]
        return min(unstable, default=None)


transaction_steps = st.lists(
    st.tuples(st.sampled_from(["write", "write", "commit", "abort"]), st.integers(0, 3))
    | st.tuples(st.just("watermark"), st.integers(0, 12)),
    max_size=50,
)


@settings(deadline=None, max_examples=examples(80))
@given(transaction_steps)
def test_transactions_are_those_of_a_plain_list(steps: list[tuple[str, int]]) -> None:
    log, model, high_watermark = Log(ProducerStates(ForgetfulDisk(), Path("folder"))), TransactionModel(), 0
    for step, number in steps:
        offset = log.next_offset
        if step == "watermark":
            high_watermark = max(high_watermark, offset - number)
            log.states.on_high_watermark_updated(high_watermark)
        elif step == "write":
            model.begin(number, offset)
            log.append(data(number, sequence=-1, transactional=True), origin=COORDINATOR)
        else:
            ended = model.end(number, offset)
            aborted = log.append(marker(number, committed=step == "commit"), origin=COORDINATOR)
            expected = []
            if ended is not None and step == "abort":
                expected.append(AbortedTransaction(number, ended[0], offset, ended[1]))
            assert aborted == expected
        assert log.states.first_unstable_offset == model.first_unstable(high_watermark)


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_a_snapshot_and_the_batches_after_it_give_the_same_state(draw: st.DataObject) -> None:
    """Cut anywhere, reloaded from any snapshot: the state is that of a log that was never longer."""
    contents: dict[str, bytes] = {}

    class DiskInMemory(LocalDisk):
        def list(self, _: Path) -> list[str]:
            return sorted(contents)

        def read(self, path: Path) -> bytes:
            return contents[path.name]

        def write(self, path: Path, data: Buffer) -> None:
            contents[path.name] = bytes(data)

        def remove(self, path: Path) -> None:
            contents.pop(path.name, None)

        def sync_directory(self, path: Path) -> None:
            pass

    log = Log(ProducerStates(DiskInMemory(), Path("folder")))
    for _ in range(draw.draw(st.integers(0, 25))):
        producer_id, kind = draw.draw(st.integers(0, 2)), draw.draw(st.sampled_from("ddddmms"))
        if kind == "d":
            entry = log.states.entries.get(producer_id)
            sequence = 0 if entry is None else entry.last_sequence + 1
            log.append(data(producer_id, 0, sequence, draw.draw(st.integers(1, 2)), transactional=True))
        elif kind == "m":
            log.append(marker(producer_id, committed=draw.draw(st.booleans())), origin=COORDINATOR)
        else:
            log.states.take_snapshot(log.next_offset)
    cuts = [0, *(header.next_offset for header, _ in log.appended)]
    log.next_offset = draw.draw(st.sampled_from(cuts))
    log.appended = [(header, batch) for header, batch in log.appended if header.base_offset < log.next_offset]
    log.states.truncate_and_reload(0, log.next_offset, 100)
    log.replay()

    fresh = Log(ProducerStates(ForgetfulDisk(), Path("folder")), log.next_offset)
    fresh.appended = log.appended
    fresh.replay()
    assert log.states.first_undecided_offset == fresh.states.first_undecided_offset
    shortened = {
        producer_id: (*fields[:-1], fresh.states.entries[producer_id].batches[-1:])
        for producer_id, fields in picture(fresh.states).items()
    }
    assert {
        producer_id: (*fields[:-1], log.states.entries[producer_id].batches[-1:])
        for producer_id, fields in picture(log.states).items()
    } == shortened
    for producer_id, entry in log.states.entries.items():
        assert entry.batches == fresh.states.entries[producer_id].batches[-len(entry.batches) :] or not entry.batches
