"""What a coordinator does by itself: markers, timeouts, expiry, and all of it again after a failover."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transactions.seams import EndMarker
from ottla.coordinator.transactions.states import TransactionState
from ottla.coordinator.transactions.transaction import ProducerIdentity
from ottla.records import BatchView
from ottla.records.new_batch import NewBatch
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from support.coordinators import in_loop
from support.coordinators.classic_members import FakeCaller
from support.coordinators.transactional import SETTINGS, T0, T1, Transactional

S = TransactionState
NONE = ErrorCode.NONE
NEXT = ProducerIdentity(1000, 1)


async def begun(setting: Transactional | None = None, **changes: Any) -> tuple[Transactional, ProducerIdentity]:
    setting = setting or Transactional()
    owner = await setting.owner(**changes)
    await setting.confirm(owner, T0)
    return setting, owner


def as_owner(answer: ErrorCode | ProducerIdentity) -> ProducerIdentity:
    assert isinstance(answer, ProducerIdentity)
    return answer


async def decided(*, committed: bool = True) -> Transactional:
    setting, owner = await begun()
    assert await setting.ended(owner, committed=committed) == NEXT
    return setting


# --- completion in the step that decides ----------------------------------------------------------------------------


@in_loop
async def test_a_transaction_is_completed_with_its_decision_if_nothing_has_to_be_waited_for() -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    request = EndTxnRequest(transactional_id="x", producer_id=1000, producer_epoch=0, committed=True)
    answer = setting.coordinator.end(request, FakeCaller(5))  # no turn of the loop in between
    assert isinstance(answer, EndTxnResponse)
    assert (answer.error_code, answer.producer_epoch) == (NONE, owner.producer_epoch + 1)
    assert setting.transaction().state is S.COMPLETE_COMMIT
    assert setting.markers.written_now == [(EndMarker(1000, 1, True, 5, 2), frozenset({T0}))]
    assert setting.coordinator.numbers().completed_commits == 1
    await setting.settle()
    assert setting.markers.writes == []


@in_loop
async def test_a_completion_is_written_with_what_comes_next() -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    owner = as_owner(await setting.ended(owner))
    (batches,) = setting.log.batches
    assert len(batches) == 3, "InitProducerId, the first partition, the decision"
    await setting.confirm(owner, T1)
    assert [BatchView(each).header.record_count for each in batches] == [1, 1, 1, 2]
    other = await setting.loaded_again()
    assert (other.transaction().state, other.transaction().partitions) == (S.ONGOING, frozenset({T1}))
    await setting.pass_ms(1_000)
    assert len(batches) == 4


@in_loop
async def test_a_completion_is_written_alone_if_nothing_else_is() -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    await setting.ended(owner)
    assert (await setting.loaded_again()).transaction().state is S.PREPARE_COMMIT
    await setting.pass_ms(1_000)
    assert (await setting.loaded_again()).transaction().state is S.COMPLETE_COMMIT


@in_loop
async def test_a_coordinator_that_dies_before_it_writes_a_completion_sends_the_markers_again() -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    await setting.ended(owner)
    other = await setting.loaded_again()
    (write,) = other.markers.writes
    assert (write.marker, write.partitions) == (setting.markers.written_now[0][0], frozenset({T0}))


@in_loop
async def test_a_coordinator_that_is_closed_writes_its_completions() -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    await setting.ended(owner)
    setting.coordinator.close()
    assert (await setting.loaded_again()).transaction().state is S.COMPLETE_COMMIT


@in_loop
async def test_markers_of_a_decision_that_is_not_committed_are_not_written() -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    setting.log.hold_commits()
    ending = await setting.end(owner)
    assert not ending.done()
    assert (setting.markers.written_now, setting.markers.writes) == ([], [])
    setting.log.commit()
    await setting.settle()
    assert ending.result().error_code == NONE
    assert [write.partitions for write in setting.markers.writes] == [{T0}]


@in_loop
async def test_a_completion_that_cannot_be_written_at_once_is_tried_again() -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    assert await setting.ended(owner) == NEXT
    setting.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    await setting.pass_ms(1_000)
    setting.log.refuse_appends = None
    assert (await setting.loaded_again()).transaction().state is S.PREPARE_COMMIT
    await setting.pass_ms(1_000)
    assert (await setting.loaded_again()).transaction().state is S.COMPLETE_COMMIT
    assert len(setting.markers.written_now) == 1


@in_loop
async def test_a_completion_outlives_the_refusal_of_the_write_that_it_would_have_come_with() -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    owner = as_owner(await setting.ended(owner))
    setting.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = (await setting.confirm(owner, T1)).result()
    assert refused == {T1: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    setting.log.refuse_appends = None
    assert (await setting.confirm(owner, T1)).result() == {T1: NONE}
    other = await setting.loaded_again()
    assert (other.transaction().state, other.transaction().partitions) == (S.ONGOING, frozenset({T1}))
    assert BatchView(setting.log.batches[0][-1]).header.record_count == 2


@in_loop
async def test_a_shard_that_was_loaded_again_writes_what_it_owed_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    setting, owner = await begun()
    setting.markers.are_written_now = True
    owner = as_owner(await setting.ended(owner))

    def broken(_index: int, _batch: NewBatch) -> int:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(setting.log, "append", broken)
        await setting.pass_ms(1_000)
    setting.markers.finish()  # of the shard that was loaded instead
    await setting.settle()
    assert setting.transaction().state is S.COMPLETE_COMMIT
    assert (await setting.confirm(owner, T1)).result() == {T1: NONE}
    await setting.pass_ms(5_000)
    assert (setting.transaction().state, setting.transaction().partitions) == (S.ONGOING, frozenset({T1}))


@in_loop
async def test_many_partitions_do_not_hold_up_the_answer() -> None:
    setting = Transactional()
    setting.markers.are_written_now = True
    owner = await setting.owner()
    await setting.confirm(owner, *(TopicPartition("t", index) for index in range(33)))
    assert await setting.ended(owner) == NEXT
    assert setting.markers.written_now == []
    assert len(setting.markers.writes) == 1


# --- loading --------------------------------------------------------------------------------------------------------


@in_loop
async def test_what_is_loaded_is_what_was_written() -> None:
    setting, owner = await begun()
    await setting.owner("y")
    await setting.confirm(owner, T1)
    other = await setting.loaded_again()
    assert other.shard.transactions == setting.shard.transactions
    assert other.shard.open == setting.shard.open == {"x"}
    assert other.markers.writes == []


@in_loop
async def test_a_decided_transaction_is_completed_by_the_next_coordinator() -> None:
    for committed in (True, False):
        setting = await decided(committed=committed)
        other = await setting.loaded_again()
        (write,) = other.markers.writes
        assert write.partitions == {T0}
        assert other.markers.finish() == EndMarker(1000, 1, committed, coordinator_epoch=5, transaction_version=2)
        await other.settle()
        assert other.transaction().state is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)


@in_loop
async def test_a_loaded_decision_waits_until_it_is_committed() -> None:
    setting = await decided()
    setting.log.hold_commits()
    setting.log.put(0, bytearray(setting.log.batches[0][-1]))
    setting.markers.writes.clear()
    setting.coordinator.resign(0)
    setting.coordinator.lead(0, 6)
    await setting.pass_ms(5_000)
    assert setting.transaction().state is S.PREPARE_COMMIT
    assert setting.markers.writes == []
    setting.log.commit()
    await setting.settle()
    assert setting.markers.finish().coordinator_epoch == 6


@in_loop
async def test_a_transaction_that_is_only_begun_stays_open() -> None:
    setting, owner = await begun()
    other = await setting.loaded_again()
    assert other.markers.writes == []
    assert await other.ended(owner) == NEXT


@in_loop
async def test_a_removed_id_is_not_loaded() -> None:
    setting = Transactional(replace(SETTINGS, id_expiration_ms=1_000))
    await setting.owner()
    await setting.pass_ms(3_600_000)
    other = await setting.loaded_again()
    assert other.shard.transactions == {}


# --- markers --------------------------------------------------------------------------------------------------------


@in_loop
async def test_markers_wait_until_the_decision_is_committed() -> None:
    setting, owner = await begun()
    setting.log.hold_commits()
    end = await setting.end(owner)
    await setting.pass_ms(60_000)
    assert setting.markers.writes == []
    setting.log.fail_commits(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # The client is told, the coordinator waits on.
    await setting.pass_ms(60_000)
    assert end.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert setting.markers.writes == []
    setting.log.commit()
    await setting.settle()
    assert len(setting.markers.writes) == 1


@in_loop
async def test_refused_markers_are_sent_again_with_the_epoch_of_that_time(caplog: pytest.LogCaptureFixture) -> None:
    setting = await decided()
    setting.markers.finish(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    await setting.settle()
    assert "TRANSACTION_COORDINATOR_FENCED" in caplog.text
    assert setting.transaction().state is S.PREPARE_COMMIT
    setting.coordinator.lead(0, 8)
    await setting.pass_ms(10_000)
    assert setting.markers.finish().coordinator_epoch == 8
    await setting.settle()
    assert setting.transaction().state is S.COMPLETE_COMMIT


@in_loop
async def test_a_completion_that_cannot_be_written_is_written_later() -> None:
    setting = await decided()
    setting.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    setting.markers.finish()
    await setting.pass_ms(5_000)
    assert setting.transaction().state is S.PREPARE_COMMIT
    setting.log.refuse_appends = None
    await setting.pass_ms(1_000)
    assert setting.transaction().state is S.COMPLETE_COMMIT
    assert setting.markers.writes == []


@in_loop
async def test_markers_that_are_written_after_the_shard_is_gone_change_nothing() -> None:
    setting = await decided()
    (write,) = setting.markers.writes
    written = len(setting.log.batches[0])
    setting.coordinator.resign(0)
    assert write.is_cancelled
    write.done(NONE)
    await setting.settle()
    assert len(setting.log.batches[0]) == written


# --- timeouts -------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_transaction_that_exceeds_its_timeout_is_aborted_and_its_producer_fenced() -> None:
    setting, owner = await begun(timeout_ms=15_000)
    await setting.pass_ms(10_000)
    assert setting.transaction().state is S.ONGOING
    await setting.pass_ms(10_000)
    assert setting.markers.finish() == EndMarker(1000, 1, committed=False, coordinator_epoch=5, transaction_version=2)
    await setting.settle()
    assert setting.transaction().state is S.COMPLETE_ABORT
    assert (await setting.confirm(owner, T0)).result() == {T0: ErrorCode.PRODUCER_FENCED}
    assert setting.coordinator.numbers().timed_out == 1


@in_loop
async def test_a_transaction_is_as_old_for_the_next_coordinator() -> None:
    setting, _ = await begun(timeout_ms=15_000)
    await setting.pass_ms(9_000)
    other = Transactional(log=setting.log.copy())
    other.time.advance_ms(9_000)
    await other.pass_ms(10_000)
    assert other.transaction().state is S.PREPARE_ABORT


@in_loop
async def test_a_transaction_of_two_phase_commit_never_times_out() -> None:
    setting, owner = await begun(enable2_pc=True)
    for _ in range(30):
        setting.time.advance_ms(2_000_000)
    await setting.pass_ms(1_000_000)
    assert setting.transaction().state is S.ONGOING
    assert await setting.ended(owner) == NEXT


@in_loop
async def test_many_transactions_time_out_in_pieces() -> None:
    setting = Transactional()
    for number in range(250):
        name = f"x{number}"
        owner = await setting.owner(name, timeout_ms=1_000)
        setting.coordinator.confirm(name, *owner, [TopicPartition("t", number)], verify_only=False)
    written = len(setting.log.batches[0])
    await setting.pass_ms(10_000)
    assert {each.state for each in setting.shard.transactions.values()} == {S.PREPARE_ABORT}
    assert len(setting.log.batches[0]) == written + 3
    assert len(setting.markers.writes) == 250


@in_loop
async def test_a_timeout_that_cannot_be_written_is_written_later() -> None:
    setting, _ = await begun(timeout_ms=1_000)
    setting.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    await setting.pass_ms(10_000)
    assert (setting.transaction().state, setting.coordinator.numbers().timed_out) == (S.ONGOING, 0)
    setting.log.refuse_appends = None
    await setting.pass_ms(10_000)
    assert (setting.transaction().state, setting.coordinator.numbers().timed_out) == (S.PREPARE_ABORT, 1)


@in_loop
async def test_large_transactions_time_out_in_small_batches() -> None:
    setting = Transactional()
    everything = [TopicPartition("t", index) for index in range(25_000)]  # 100 kB
    for name in ("a", "b", "c"):
        owner = await setting.owner(name, timeout_ms=1_000)
        setting.coordinator.confirm(name, *owner, everything, verify_only=False)
    written = len(setting.log.batches[0])
    await setting.pass_ms(10_000)
    assert {each.state for each in setting.shard.transactions.values()} == {S.PREPARE_ABORT}
    assert len(setting.log.batches[0]) == written + 2


@in_loop
async def test_timeouts_that_cannot_be_written_are_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Transactional()
    for number in range(101):
        name = f"x{number}"
        owner = await setting.owner(name, timeout_ms=1_000)
        setting.coordinator.confirm(name, *owner, [TopicPartition("t", number)], verify_only=False)
    append, attempts = setting.log.append, 0

    def refuse(index: int, batch: NewBatch) -> int:
        nonlocal attempts
        attempts += 1
        if attempts < 5:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return append(index, batch)

    monkeypatch.setattr(setting.log, "append", refuse)
    await setting.pass_ms(10_000)
    assert attempts == 1
    await setting.pass_ms(40_000)
    assert attempts == 6
    assert {each.state for each in setting.shard.transactions.values()} == {S.PREPARE_ABORT}


# --- expiry ---------------------------------------------------------------------------------------------------------


@in_loop
async def test_ids_that_are_not_used_are_removed_in_pieces() -> None:
    setting = Transactional(replace(SETTINGS, id_expiration_ms=3_000_000))
    for number in range(2_100):
        request = InitProducerIdRequest(transactional_id=f"x{number}", transaction_timeout_ms=1_000)
        await setting.coordinator.init_producer_id(request, FakeCaller(4))
    written = len(setting.log.batches[0])
    await setting.pass_ms(3_600_000)
    assert setting.shard.transactions == {}
    assert len(setting.log.batches[0]) == written + 3


@in_loop
async def test_ids_that_are_used_or_have_an_open_transaction_are_kept() -> None:
    setting, owner = await begun(Transactional(replace(SETTINGS, id_expiration_ms=3_000_000)), enable2_pc=True)
    await setting.owner("young")
    await setting.pass_ms(3_000_000)
    await setting.owner("young")
    await setting.owner("completed")
    await setting.pass_ms(600_000)
    assert set(setting.shard.transactions) == {"x", "young", "completed"}
    await setting.ended(owner)
    setting.markers.finish()
    await setting.pass_ms(3_600_000)
    assert set(setting.shard.transactions) == set()


# --- numbers --------------------------------------------------------------------------------------------------------


@in_loop
async def test_numbers_of_open_transactions() -> None:
    setting, _ = await begun()
    setting.time.advance_ms(300)
    owner = await setting.owner("y", enable2_pc=True)
    await setting.confirm(owner, T0, transactional_id="y")
    await setting.owner("z")
    numbers = setting.coordinator.numbers()
    assert (numbers.open, numbers.oldest_open_ms, numbers.prepared) == (2, 300, 1)
    assert Transactional().coordinator.numbers().oldest_open_ms == 0
