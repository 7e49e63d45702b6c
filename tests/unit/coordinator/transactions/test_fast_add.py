"""AddPartitionsToTxn by the fast path: answered as by the general one, or left to it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.transactions.fast_add import FastAdd, add_fast, add_reader
from ottla.coordinator.transactions.states import TransactionState
from ottla.coordinator.transactions.transaction import ProducerIdentity
from ottla.wire.codec import encode
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from support.coordinators import in_loop
from support.coordinators.classic_members import FakeCaller
from support.coordinators.transactional import T0, T1, Transactional

NONE = ErrorCode.NONE
VERSIONS = (0, 2, 3)


def request_of(owner: ProducerIdentity, *indexes: int, transactional_id: str = "x") -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=owner.producer_id,
        v3_and_below_producer_epoch=owner.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
    )


def read(request: AddPartitionsToTxnRequest, version: int = 3) -> FastAdd:
    found = add_reader(version)(memoryview(encode(request, version)))
    assert isinstance(found, FastAdd)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_read_as_by_the_codec(version: int) -> None:
    read_any = add_reader(version)
    first, second = (request_of(ProducerIdentity(5, 6), 0), request_of(ProducerIdentity(5, 7), 0))
    for request in (first, second, first):
        found = read_any(memoryview(encode(request, version)))
        assert isinstance(found, FastAdd)
        assert found.request == request
        assert found.identity == (5, request.v3_and_below_producer_epoch)
        assert found.partition == T0


@pytest.mark.parametrize("version", VERSIONS)
def test_other_requests_are_left_to_the_general_path(version: int) -> None:
    owner = ProducerIdentity(5, 6)
    nothing = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x")
    for request in (request_of(owner, 0, 1), request_of(owner), nothing, request_of(owner, 0, transactional_id="")):
        assert add_reader(version)(memoryview(encode(request, version))) == request
    with pytest.raises(ProtocolError):
        add_reader(version)(memoryview(encode(request_of(owner, 0), version)[:-3]))
    broker_request = AddPartitionsToTxnRequest(transactions=[])
    assert add_reader(4)(memoryview(encode(broker_request, 4))) == broker_request


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_what_is_accepted_is_answered_like_by_the_general_path(version: int) -> None:
    fast, general = Transactional(), Transactional()
    request = request_of(await fast.owner(), 0)
    assert request_of(await general.owner(), 0) == request
    for _ in range(2):  # the second adds nothing
        answer = add_fast(fast.coordinator, read(request, version))
        expected = general.coordinator.add_partitions(request, FakeCaller(version))
        assert isinstance(expected, AddPartitionsToTxnResponse)
        assert answer == encode(expected, version)
        assert fast.shard.transactions == general.shard.transactions
        assert fast.log.batches == general.log.batches
    assert fast.transaction().partitions == {T0}


@in_loop
async def test_what_is_refused_or_has_to_wait_is_left_to_the_general_path() -> None:
    setting = Transactional()
    owner = await setting.owner()
    before = setting.transaction()
    stranger = read(request_of(owner._replace(producer_epoch=owner.producer_epoch + 1), 0))
    assert add_fast(setting.coordinator, stranger) is None
    assert add_fast(setting.coordinator, read(request_of(owner, 0, transactional_id="unknown"))) is None
    setting.missing.add(T1)
    assert add_fast(setting.coordinator, read(request_of(owner, 1))) is None
    assert setting.transaction() is before
    await setting.add_old(owner, T0)
    await setting.end(owner, version=4)
    assert setting.transaction().state is TransactionState.PREPARE_COMMIT
    assert add_fast(setting.coordinator, read(request_of(owner, 0))) is None


@pytest.mark.parametrize(("version", "told"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (3, ErrorCode.PRODUCER_FENCED)])
@in_loop
async def test_the_answer_waits_until_it_is_committed(version: int, told: ErrorCode) -> None:
    for error, expected in ((NONE, NONE), (ErrorCode.PRODUCER_FENCED, told)):
        setting = Transactional()
        asked = read(request_of(await setting.owner(), 0), version)
        setting.log.hold_commits()
        answer: Any = add_fast(setting.coordinator, asked)
        assert isinstance(answer, Coroutine)
        task = await setting.start(answer)
        assert not task.done()
        if error:
            setting.log.fail_commits(error)
        else:
            setting.log.commit()
        await setting.settle()
        assert task.result() == asked.response(expected)
