"""Questions to coordinators on other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.transactions.coordinator_queries import CoordinatorQueries, TransactionKey
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResponse,
    AddPartitionsToTxnTransactionResponse,
)
from ottla.wire.peer import PeerError
from support.waiting import until

FIRST = TransactionKey("first", 5, 0, True)
SECOND = TransactionKey("second", 6, 2, False)
HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Coordinator:
    def __init__(self) -> None:
        self.version = 5
        self.error = ErrorCode.NONE
        self.failure: Exception | None = None
        self.errors: dict[tuple[str, int], ErrorCode] = {}
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_closed = False

    async def version_of(self, _: object) -> int:
        return self.version

    async def send(self, request: AddPartitionsToTxnRequest, *_: object, **__: object) -> AddPartitionsToTxnResponse:
        self.asked.append(request)
        await self.may_answer.wait()
        if self.failure is not None or self.is_closed:
            raise self.failure or PeerError("closed")
        return AddPartitionsToTxnResponse(
            error_code=self.error,
            results_by_transaction=[
                AddPartitionsToTxnTransactionResponse(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResponse(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResponse(
                                    partition_index=index,
                                    partition_error_code=self.errors.get((each.transactional_id, index), 0),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ],
        )

    def close(self) -> None:
        self.is_closed = True
        self.may_answer.set()


def run(test: Callable[[CoordinatorQueries, Coordinator], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        coordinator = Coordinator()
        queries = CoordinatorQueries(lambda _: coordinator)  # type: ignore[arg-type,return-value]
        try:
            await asyncio.wait_for(test(queries, coordinator), 30)
        finally:
            await queries.close()

    asyncio.run(main())


async def answers(queries: CoordinatorQueries, *asked: tuple[TransactionKey, TopicPartition]) -> list[ErrorCode]:
    told: dict[int, ErrorCode] = {}
    for number, (key, partition) in enumerate(asked):
        queries.ask(2, key, partition, lambda error, number=number: told.update({number: error}))  # type: ignore[misc]
    assert not told
    await until(lambda: len(told) == len(asked), "not every question is answered")
    return [told[number] for number in range(len(asked))]


def test_questions_are_asked_together_and_answered_one_by_one() -> None:
    async def test(queries: CoordinatorQueries, coordinator: Coordinator) -> None:
        coordinator.errors = {("first", 1): ErrorCode.TRANSACTION_ABORTABLE}
        found = await answers(queries, (FIRST, HERE), (FIRST, THERE), (SECOND, THERE))
        assert found == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE]
        (request,) = coordinator.asked
        assert [
            (each.transactional_id, each.producer_id, each.producer_epoch, each.verify_only, each.topics[0].partitions)
            for each in request.transactions
        ] == [("first", 5, 0, True, [0, 1]), ("second", 6, 2, False, [1])]

    run(test)


def test_a_transactional_id_has_one_entry_in_a_request() -> None:
    async def test(queries: CoordinatorQueries, coordinator: Coordinator) -> None:
        newer = FIRST._replace(producer_epoch=1)
        assert await answers(queries, (FIRST, HERE), (newer, HERE)) == [ErrorCode.NONE] * 2
        asked = [[each.producer_epoch for each in request.transactions] for request in coordinator.asked]
        assert asked == [[0], [1]]

    run(test)


def test_one_request_at_a_time() -> None:
    async def test(queries: CoordinatorQueries, coordinator: Coordinator) -> None:
        coordinator.may_answer.clear()
        waiting = asyncio.create_task(answers(queries, (FIRST, HERE)))
        await until(lambda: coordinator.asked, "nothing is asked")
        more = asyncio.create_task(answers(queries, (FIRST, THERE), (SECOND, HERE)))
        await asyncio.sleep(0)
        assert len(coordinator.asked) == 1
        coordinator.may_answer.set()
        assert await waiting == [ErrorCode.NONE]
        assert await more == [ErrorCode.NONE] * 2
        assert len(coordinator.asked) == 2

    run(test)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_request_that_is_refused(error: ErrorCode, told: ErrorCode) -> None:
    async def test(queries: CoordinatorQueries, coordinator: Coordinator) -> None:
        coordinator.error = error
        assert await answers(queries, (FIRST, HERE)) == [told]

    run(test)


def test_a_broker_that_cannot_be_reached_or_asked() -> None:
    async def test(queries: CoordinatorQueries, coordinator: Coordinator) -> None:
        coordinator.failure = PeerError("no connection")
        assert await answers(queries, (FIRST, HERE)) == [ErrorCode.NETWORK_EXCEPTION]
        coordinator.version = 3  # before KIP-890
        assert await answers(queries, (FIRST, HERE)) == [ErrorCode.NONE]

    run(test)


def test_a_broker_that_is_gone_does_not_hold_up_its_questions() -> None:
    async def test(queries: CoordinatorQueries, coordinator: Coordinator) -> None:
        coordinator.may_answer.clear()
        waiting = asyncio.create_task(answers(queries, (FIRST, HERE)))
        await until(lambda: coordinator.asked, "nothing is asked")
        queries.brokers_changed(lambda _: True)
        assert not coordinator.is_closed
        queries.brokers_changed(lambda _: False)
        assert await waiting == [ErrorCode.NETWORK_EXCEPTION]

    run(test)


def test_a_request_that_fails_unexpectedly_is_answered() -> None:
    async def test(queries: CoordinatorQueries, coordinator: Coordinator) -> None:
        coordinator.failure = RuntimeError("a defect")
        assert await answers(queries, (FIRST, HERE), (SECOND, HERE)) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
        coordinator.failure = None
        assert await answers(queries, (FIRST, HERE)) == [ErrorCode.NONE]

    run(test)
