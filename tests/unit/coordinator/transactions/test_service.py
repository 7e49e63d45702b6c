"""The APIs of producers: what each request is answered, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.transactions.seams import EndMarker
from ottla.coordinator.transactions.states import TransactionState
from ottla.coordinator.transactions.transaction import LAST_EPOCH, TWO_PHASE_TIMEOUT_MS, ProducerIdentity
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.coordinators import in_loop
from support.coordinators.classic_members import FakeCaller
from support.coordinators.transactional import OFFSETS, SETTINGS, T0, T1, Transactional

S = TransactionState
NONE = ErrorCode.NONE
OWNER = ProducerIdentity(1000, 0)


async def begun(*, version: int = 2) -> tuple[Transactional, ProducerIdentity]:
    """A producer with an open transaction in one partition."""
    setting = Transactional()
    owner = await setting.owner()
    adding = setting.confirm(owner, T0) if version == 2 else setting.add_old(owner, T0)
    assert (await adding).result() == {T0: NONE}
    return setting, owner


async def set_epoch(setting: Transactional, epoch: int) -> None:
    """As if that many transactions had been."""
    shard = setting.shard
    for transactional_id, transaction in shard.transactions.items():
        shard.transactions[transactional_id] = transaction._replace(producer_epoch=epoch)


# --- InitProducerId -------------------------------------------------------------------------------------------------


@in_loop
async def test_a_producer_starts_with_a_new_id_and_the_next_gets_the_next_epoch() -> None:
    setting = Transactional()
    first = (await setting.init()).result()
    assert first == InitProducerIdResponse(producer_id=1000, producer_epoch=0)
    assert (await setting.init()).result() == InitProducerIdResponse(producer_id=1000, producer_epoch=1)
    assert (await setting.init("y")).result().producer_id == 1001
    assert setting.ids.asked == 2


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 3}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"expected": ProducerIdentity(3, 3), "keep_prepared_txn": True}, ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
@in_loop
async def test_a_bad_request_is_refused(changes: dict[str, object], error: ErrorCode) -> None:
    setting = Transactional()
    response = (await setting.init(**changes)).result()  # type: ignore[arg-type]
    assert response == InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
    assert setting.log.batches == [[]]


@in_loop
async def test_a_fenced_producer_is_told_so_in_the_words_that_its_version_knows() -> None:
    setting = Transactional()
    owner = await setting.owner()
    await setting.owner()
    for version, error in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)):
        assert (await setting.init(expected=owner, version=version)).result().error_code == error


@in_loop
async def test_without_a_producer_id_to_give_nothing_is_written() -> None:
    setting = Transactional()
    setting.ids.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    response = (await setting.init()).result()
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert setting.log.batches == [[]]


@in_loop
async def test_an_id_that_was_not_needed_is_given_to_the_next_producer() -> None:
    setting = Transactional()
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
    asked = [asyncio.create_task(setting.coordinator.init_producer_id(request, FakeCaller(4))) for _ in range(2)]
    await setting.settle()
    assert [(each.result().producer_id, each.result().producer_epoch) for each in asked] == [(1000, 0), (1000, 1)]
    assert setting.ids.asked == 2
    assert (await setting.init("y")).result().producer_id == 1001
    assert setting.ids.asked == 2


@in_loop
async def test_a_new_producer_aborts_the_open_transaction_and_waits_until_that_is_done() -> None:
    setting, owner = await begun()
    started = await setting.init()
    assert not started.done()
    assert setting.transaction().state is S.PREPARE_ABORT
    assert setting.markers.finish() == EndMarker(1000, 1, committed=False, coordinator_epoch=5, transaction_version=2)
    await setting.settle()
    assert (started.result().producer_id, started.result().producer_epoch) == (1000, 2)
    assert (await setting.confirm(owner, T0)).result() == {T0: ErrorCode.PRODUCER_FENCED}
    assert setting.coordinator.numbers().fenced == 1


@in_loop
async def test_a_new_producer_is_told_to_try_again_if_the_abort_takes_too_long() -> None:
    setting, _ = await begun()
    started = await setting.init()
    await setting.pass_ms(999)
    assert not started.done()
    await setting.pass_ms(1)
    assert started.result().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(setting.markers.writes) == 1
    again = await setting.init()
    setting.markers.finish()
    await setting.settle()
    assert again.result().producer_epoch == 2


@in_loop
async def test_the_owner_that_restarts_after_an_error_aborts_its_transaction_and_goes_on() -> None:
    for version in (0, 2):
        setting, owner = await begun(version=version)
        started = await setting.init(expected=owner)
        setting.markers.finish()
        await setting.settle()
        assert (started.result().error_code, started.result().producer_epoch) == (NONE, 1)


@in_loop
async def test_a_fenced_producer_that_restarts_does_not_abort_the_transaction_of_another() -> None:
    setting = Transactional()
    zombie = await setting.owner()
    owner = await setting.owner()
    await setting.confirm(owner, T0)
    assert (await setting.init(expected=zombie)).result().error_code == ErrorCode.PRODUCER_FENCED
    assert setting.transaction().state is S.ONGOING


@in_loop
async def test_a_producer_whose_epochs_are_used_up_gets_a_new_id() -> None:
    setting = Transactional()
    await setting.owner()
    await set_epoch(setting, LAST_EPOCH - 1)
    assert await setting.owner() == (1001, 0)


# --- AddPartitionsToTxn ---------------------------------------------------------------------------------------------


@in_loop
async def test_partitions_are_added_by_producers_and_by_brokers() -> None:
    setting = Transactional()
    owner = await setting.owner()
    assert (await setting.add_old(owner, T0)).result() == {T0: NONE}
    assert (setting.transaction().partitions, setting.transaction().client_version) == (frozenset({T0}), 0)
    assert (await setting.confirm(owner, T0, T1)).result() == {T0: NONE, T1: NONE}
    assert (setting.transaction().partitions, setting.transaction().client_version) == (frozenset({T0, T1}), 2)
    written = len(setting.log.batches[0])
    assert (await setting.confirm(owner, T1)).result() == {T1: NONE}
    assert len(setting.log.batches[0]) == written


@in_loop
async def test_if_a_partition_does_not_exist_none_is_added() -> None:
    setting = Transactional()
    owner = await setting.owner()
    setting.missing.add(T1)
    assert (await setting.add_old(owner, T0, T1)).result() == {
        T0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        T1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert setting.transaction().state is S.EMPTY


@in_loop
async def test_refusals_of_partitions_depend_on_the_version() -> None:
    setting = Transactional()
    owner = await setting.owner()
    stale, other = ProducerIdentity(1000, 9), ProducerIdentity(1, 0)
    assert (await setting.add_old(stale, T0, version=1)).result() == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert (await setting.add_old(stale, T0, version=2)).result() == {T0: ErrorCode.PRODUCER_FENCED}
    assert (await setting.add_old(other, T0)).result() == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    unknown = await setting.add_old(owner, T0, transactional_id="unknown")
    assert unknown.result() == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert (await setting.add_old(owner, T0, transactional_id="")).result() == {T0: ErrorCode.INVALID_REQUEST}
    assert (await setting.confirm(owner, T0, transactional_id="")).result() == {T0: ErrorCode.INVALID_REQUEST}


def batched(*asked: tuple[str, ProducerIdentity, bool]) -> AddPartitionsToTxnRequest:
    """Transactional id, producer, and whether only to verify; always the partition t-0."""
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=owner.producer_id,
                producer_epoch=owner.producer_epoch,
                verify_only=verify_only,
                topics=topics,
            )
            for transactional_id, owner, verify_only in asked
        ]
    )


async def answer(setting: Transactional, request: AddPartitionsToTxnRequest, version: int) -> dict[str, ErrorCode]:
    found = setting.coordinator.add_partitions(request, FakeCaller(version))
    response = await found if isinstance(found, Coroutine) else found
    return {
        each.transactional_id: ErrorCode(each.topic_results[0].results_by_partition[0].partition_error_code)
        for each in response.results_by_transaction
    }


@in_loop
async def test_brokers_ask_for_many_transactions_at_once() -> None:
    setting = Transactional()
    x, y = await setting.owner("x"), await setting.owner("y")
    asked = batched(("x", x, False), ("y", y, True), ("z", x, True))
    assert await answer(setting, asked, 5) == {
        "x": NONE,
        "y": ErrorCode.TRANSACTION_ABORTABLE,
        "z": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
    assert await answer(setting, batched(("x", x, True), ("y", y, True)), 4) == {
        "x": NONE,
        "y": ErrorCode.INVALID_TXN_STATE,
    }
    assert setting.transaction("y").state is S.EMPTY


@in_loop
async def test_a_transaction_that_is_completing_does_not_delay_the_answer_to_a_broker() -> None:
    setting, owner = await begun()
    y = await setting.owner("y")
    await setting.ended(owner)
    asked = batched(("x", ProducerIdentity(1000, 1), False), ("y", y, False))
    assert await answer(setting, asked, 5) == {"x": ErrorCode.CONCURRENT_TRANSACTIONS, "y": NONE}
    verified = batched(("x", ProducerIdentity(1000, 1), True))
    assert await answer(setting, verified, 5) == {"x": ErrorCode.CONCURRENT_TRANSACTIONS}
    setting.markers.finish()
    await setting.settle()
    assert await answer(setting, asked, 5) == {"x": NONE, "y": NONE}


@in_loop
async def test_on_one_broker_nothing_waits() -> None:
    setting, owner = await begun()
    assert not isinstance(setting.coordinator.confirm("x", *owner, [T0, T1], verify_only=False), Coroutine)
    assert not isinstance(setting.coordinator.confirm("x", *owner, [T0], verify_only=True), Coroutine)


@in_loop
async def test_a_partition_is_confirmed_only_when_that_is_committed() -> None:
    setting, owner = await begun()
    setting.log.hold_commits()
    adding = await setting.confirm(owner, T1)
    verifying = await setting.confirm(owner, T1, verify_only=True)
    assert not adding.done()
    assert not verifying.done()
    setting.log.commit()
    await setting.settle()
    assert adding.result() == verifying.result() == {T1: NONE}


# --- AddOffsetsToTxn ------------------------------------------------------------------------------------------------


@in_loop
async def test_the_offsets_of_a_group_join_the_transaction() -> None:
    setting = Transactional()
    owner = await setting.owner()
    assert await setting.add_offsets(owner) is NONE
    assert setting.transaction().partitions == {OFFSETS}
    stale = ProducerIdentity(1000, 9)
    assert await setting.add_offsets(stale, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await setting.add_offsets(stale, version=2) is ErrorCode.PRODUCER_FENCED
    setting.groups.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await setting.add_offsets(owner) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- EndTxn ---------------------------------------------------------------------------------------------------------


@in_loop
async def test_an_end_is_answered_when_it_is_decided_and_completed_when_the_markers_are_written() -> None:
    for committed in (True, False):
        setting, owner = await begun()
        assert await setting.ended(owner, committed=committed) == (1000, 1)
        assert setting.transaction().state is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)
        (write,) = setting.markers.writes
        assert write.partitions == {T0}
        assert setting.markers.finish() == EndMarker(1000, 1, committed, coordinator_epoch=5, transaction_version=2)
        await setting.settle()
        assert setting.transaction().state is (S.COMPLETE_COMMIT if committed else S.COMPLETE_ABORT)
        numbers = setting.coordinator.numbers()
        assert (numbers.completed_commits, numbers.completed_aborts) == ((1, 0) if committed else (0, 1))


@in_loop
async def test_the_old_protocol_ends_with_the_same_epoch() -> None:
    setting, owner = await begun(version=0)
    assert await setting.ended(owner, version=4) == owner
    assert setting.markers.finish() == EndMarker(1000, 0, committed=True, coordinator_epoch=5, transaction_version=0)
    await setting.settle()
    assert (await setting.add_old(owner, T1)).result() == {T1: NONE}


@in_loop
async def test_a_repeated_end_is_answered_like_the_first() -> None:
    setting, owner = await begun()
    for _ in range(2):
        assert await setting.ended(owner) == (1000, 1)
    assert len(setting.markers.writes) == 1
    setting.markers.finish()
    await setting.settle()
    assert await setting.ended(owner) == (1000, 1)
    assert await setting.ended(owner, committed=False) is ErrorCode.INVALID_TXN_STATE
    after = await setting.loaded_again()
    assert await after.ended(owner) == (1000, 1)


@in_loop
async def test_a_repeated_end_waits_until_the_decision_is_committed() -> None:
    setting, owner = await begun()
    setting.log.hold_commits()
    ends = [await setting.end(owner) for _ in range(2)]
    assert not any(each.done() for each in ends)
    assert setting.markers.writes == []
    setting.log.commit()
    await setting.settle()
    assert [each.result().producer_epoch for each in ends] == [1, 1]
    assert len(setting.markers.writes) == 1


@in_loop
async def test_the_end_that_uses_up_the_epochs_brings_a_new_id_also_when_it_is_repeated() -> None:
    setting, _ = await begun()
    await set_epoch(setting, LAST_EPOCH - 1)
    last = ProducerIdentity(1000, LAST_EPOCH - 1)
    assert await setting.ended(last) == (1001, 0)
    adding = await setting.confirm(ProducerIdentity(1001, 0), T0)
    assert await setting.ended(last) == (1001, 0)
    assert not adding.done()
    assert setting.markers.finish()[:2] == (1000, LAST_EPOCH)
    await setting.settle()
    assert adding.result() == {T0: NONE}
    assert await setting.ended(last) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@in_loop
async def test_the_next_transaction_waits_until_this_is_completed() -> None:
    setting, owner = await begun()
    await setting.ended(owner)
    next_owner = ProducerIdentity(1000, 1)
    waiting = [
        await setting.confirm(next_owner, T1),
        await setting.confirm(next_owner, T1, verify_only=True),
        await setting.add_old(next_owner, T1),
    ]
    assert not any(each.done() for each in waiting)
    setting.markers.finish()
    await setting.settle()
    assert [each.result() for each in waiting] == [{T1: NONE}] * 3
    assert setting.transaction().partitions == {T1}


@in_loop
async def test_the_next_transaction_is_refused_if_the_completion_takes_too_long() -> None:
    setting, owner = await begun()
    await setting.ended(owner)
    waiting = await setting.confirm(ProducerIdentity(1000, 1), T1)
    await setting.pass_ms(1_000)
    assert waiting.result() == {T1: ErrorCode.CONCURRENT_TRANSACTIONS}
    setting.markers.finish()
    await setting.settle()
    assert setting.transaction().state is S.COMPLETE_COMMIT


@in_loop
async def test_what_waits_for_a_completion_is_answered_when_the_shard_goes() -> None:
    setting, owner = await begun()
    await setting.ended(owner)
    waiting = await setting.confirm(ProducerIdentity(1000, 1), T1)
    (write,) = setting.markers.writes
    setting.coordinator.resign(0)
    await setting.settle()
    assert waiting.result() == {T1: ErrorCode.NOT_COORDINATOR}
    assert write.is_cancelled


@in_loop
async def test_a_client_that_disconnects_undoes_nothing() -> None:
    setting, owner = await begun()
    setting.log.hold_commits()
    end = await setting.end(owner)
    started = await setting.init()
    for task in (end, started):
        task.cancel()
    setting.log.commit()
    await setting.settle()
    setting.markers.finish()
    await setting.settle()
    assert setting.transaction().state is S.COMPLETE_COMMIT


@in_loop
async def test_aborting_what_never_began_needs_no_markers() -> None:
    setting = Transactional()
    owner = await setting.owner()
    assert await setting.ended(owner, committed=True) is ErrorCode.INVALID_TXN_STATE
    assert await setting.ended(owner, committed=False) == (1000, 1)
    assert setting.transaction().state is S.COMPLETE_ABORT
    assert setting.markers.writes == []
    assert (await setting.confirm(ProducerIdentity(1000, 1), T0)).result() == {T0: NONE}


@in_loop
async def test_refusals_of_an_end_depend_on_the_version() -> None:
    setting, owner = await begun()
    stale = ProducerIdentity(1000, 9)
    assert await setting.ended(stale, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await setting.ended(stale, version=2) is ErrorCode.PRODUCER_FENCED
    assert await setting.ended(owner, transactional_id="") is ErrorCode.INVALID_REQUEST
    assert await setting.ended(owner, transactional_id="unknown") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@in_loop
async def test_nothing_is_served_by_a_coordinator_that_does_not_lead() -> None:
    setting = Transactional()
    owner = await setting.owner()
    setting.coordinator.close()
    error = ErrorCode.NOT_COORDINATOR
    assert (await setting.init()).result().error_code == error
    assert (await setting.confirm(owner, T0)).result() == {T0: error}
    assert (await setting.add_old(owner, T0)).result() == {T0: error}
    assert await setting.add_offsets(owner) is error
    assert await setting.ended(owner) is error


# --- two-phase commit -----------------------------------------------------------------------------------------------


@in_loop
async def test_a_prepared_transaction_is_completed_by_another_process() -> None:
    for committed in (True, False):
        setting = Transactional()
        owner = await setting.owner(enable2_pc=True)
        assert setting.transaction().timeout_ms == TWO_PHASE_TIMEOUT_MS
        await setting.confirm(owner, T0)
        assert setting.coordinator.numbers().prepared == 1
        setting = await setting.loaded_again()
        response = (await setting.init(enable2_pc=True, keep_prepared_txn=True)).result()
        assert (response.producer_id, response.producer_epoch) == (1000, 1)
        assert (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch) == (1000, 0)
        assert await setting.ended(owner, committed=committed) is ErrorCode.PRODUCER_FENCED
        setting = await setting.loaded_again()
        taken = ProducerIdentity(1000, 1)
        assert await setting.ended(taken, committed=committed) == (1000, 2)
        setting = await setting.loaded_again()
        assert await setting.ended(taken, committed=committed) == (1000, 2)
        assert setting.markers.finish() == EndMarker(1000, 1, committed, coordinator_epoch=5, transaction_version=2)
        await setting.settle()
        assert await setting.ended(taken, committed=committed) == (1000, 2)
        assert (await setting.confirm(ProducerIdentity(1000, 2), T0)).result() == {T0: NONE}


@in_loop
async def test_there_may_be_no_prepared_transaction_to_keep() -> None:
    setting = Transactional()
    for epoch in (0, 1):
        response = (await setting.init(enable2_pc=True, keep_prepared_txn=True)).result()
        assert response == InitProducerIdResponse(producer_id=1000, producer_epoch=epoch)


@in_loop
async def test_two_phase_commit_can_be_forbidden() -> None:
    setting = Transactional(replace(SETTINGS, two_phase_commit=False))
    for asked in ("enable2_pc", "keep_prepared_txn"):
        response = (await setting.init(**{asked: True})).result()  # type: ignore[arg-type]
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
