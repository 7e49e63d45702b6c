"""Transactions: coordinators that move, brokers that do not know a filter, and transactions that end meanwhile."""

from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import HangingTransaction, SomeRefusedError, TransactionState
from ottla.client.errors import ArgumentError, UnsupportedApiError
from ottla.wire.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)
from ottla.wire.messages.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.wire.schema import Request
from support.clients.scripted_broker import BROKER_ID, KAFKA_2_1, Answer, ScriptedBroker
from unit.client.administer.scripted_admin import admin_of, run

PARTITION = TopicPartition("events", 0)
TRANSACTION = 1


def coordinators(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    assert request.key_type == TRANSACTION
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=BROKER_ID, host="", port=0, error_code=0, error_message=None)
            for key in request.coordinator_keys
        ]
    )


def described(name: str, code: int = 0, partitions: tuple[int, ...] = ()) -> DescribedTransaction:
    return DescribedTransaction(
        error_code=code,
        transactional_id=name,
        transaction_state="" if code else "Ongoing",
        transaction_timeout_ms=2**31 - 1,
        transaction_start_time_ms=-1,
        producer_id=5,
        producer_epoch=2,
        topics=[DescribedTransactionTopic(topic="events", partitions=[*partitions])] if partitions else [],
    )


def test_each_id_is_asked_for_until_it_is_answered() -> None:
    codes: dict[str, list[int]] = {
        "a": [ErrorCode.NOT_COORDINATOR, 0],
        "b": [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0],
        "c": [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND],
    }

    def script(request: Request) -> Answer | None:
        if isinstance(request, FindCoordinatorRequest):
            return coordinators(request)
        if isinstance(request, DescribeTransactionsRequest):
            return DescribeTransactionsResponse(
                transaction_states=[described(name, codes[name].pop(0), (2, 0)) for name in request.transactional_ids]
            )
        return None

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            with pytest.raises(SomeRefusedError) as refused:
                await admin.describe_transactions(["a", "b", "c"])
            assert list(refused.value.errors) == ["c"]
            assert str(refused.value).startswith("transactional id c: ")
            one = refused.value.results["a"]
            assert (one.state, one.start_time_ms, one.is_two_phase) == (TransactionState.ONGOING, None, True)
            assert one.partitions == (TopicPartition("events", 0), TopicPartition("events", 2))

    run(scenario)


def test_fencing_waits_for_the_previous_transaction() -> None:
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, 0]

    def script(request: Request) -> Answer | None:
        if isinstance(request, FindCoordinatorRequest):
            return coordinators(request)
        if isinstance(request, InitProducerIdRequest):
            assert (request.producer_id, request.producer_epoch) == (-1, -1)
            return InitProducerIdResponse(error_code=codes.pop(0), producer_id=9, producer_epoch=3)
        return None

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            fenced = (await admin.fence_producers(["a"]))["a"]
            assert (fenced.producer_id, fenced.producer_epoch) == (9, 3)

    run(scenario)


OPEN = {producer_id: 10 * producer_id for producer_id in range(1, 6)}
"""Producer ids with the start offsets of their transactions."""


def producers(open_ids: set[int]) -> DescribeProducersResponse:
    active = [
        ActiveProducer(
            producer_id=producer_id,
            producer_epoch=0,
            last_timestamp=0,
            coordinator_epoch=-1,
            current_txn_start_offset=start if producer_id in open_ids else -1,
        )
        for producer_id, start in OPEN.items()
    ]
    partition = DescribeProducersPartitionResponse(partition_index=0, active_producers=active)
    return DescribeProducersResponse(topics=[DescribeProducersTopicResponse(name="events", partitions=[partition])])


def test_hanging_and_running_transactions() -> None:
    looks = [{1, 2, 3, 4}, {1, 2, 4}]  # of the partition; the third ends in between

    def script(request: Request) -> Answer | None:
        if isinstance(request, FindCoordinatorRequest):
            return coordinators(request)
        if isinstance(request, DescribeProducersRequest):
            return producers(looks.pop(0))
        if isinstance(request, ListTransactionsRequest):
            assert request.producer_id_filters == [1, 2, 3, 4]
            return ListTransactionsResponse(
                transaction_states=[
                    ListedTransaction(transactional_id=f"id-{one}", producer_id=one, transaction_state="Ongoing")
                    for one in (1, 3, 4)
                ]
            )
        if isinstance(request, DescribeTransactionsRequest):
            return DescribeTransactionsResponse(
                transaction_states=[
                    described("id-1", partitions=(0,)),
                    described("id-3"),
                    described("id-4", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
                ]
            )
        return None

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            found = await admin.find_hanging_transactions([PARTITION])
            assert all(isinstance(one, HangingTransaction) for one in found)
            # The first is known to its coordinator. The second is known to none; the fourth has expired there.
            assert [(one.producer.producer_id, one.transactional_id) for one in found] == [(2, None), (4, "id-4")]
            assert looks == []

    run(scenario)


def test_nothing_open_asks_no_coordinator() -> None:
    def script(request: Request) -> Answer | None:
        return producers(set()) if isinstance(request, DescribeProducersRequest) else None

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            assert await admin.find_hanging_transactions() == []
            assert not broker.of(ListTransactionsRequest)

    run(scenario)


@pytest.mark.parametrize("states", [[], [TransactionState.EMPTY]])
def test_a_duration_selects_open_transactions_unless_states_are_given(states: list[TransactionState]) -> None:
    def script(request: Request) -> Answer | None:
        if isinstance(request, ListTransactionsRequest):
            return ListTransactionsResponse(error_code=0, unknown_state_filters=[], transaction_states=[])
        return None

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            await admin.list_transactions(states=states, min_duration=1.5)
            (asked,) = broker.of(ListTransactionsRequest)
            assert isinstance(asked, ListTransactionsRequest)
            expected = [str(state) for state in states] or ["Ongoing", "PrepareCommit", "PrepareAbort"]
            assert (asked.state_filters, asked.duration_filter) == (expected, 1500)

    run(scenario)


def test_what_old_brokers_cannot_do_is_said() -> None:
    async def scenario() -> None:
        old = {**KAFKA_2_1, 66: 0}
        async with ScriptedBroker(newest=old) as broker, admin_of(broker) as admin:
            with pytest.raises(UnsupportedApiError, match="too old to list transactions by duration"):
                await admin.list_transactions(min_duration=1.5)
            with pytest.raises(UnsupportedApiError, match="too old to list transactions by a pattern"):
                await admin.list_transactions(pattern="a.*")
            with pytest.raises(ArgumentError, match="max_transaction_timeout"):
                await admin.find_hanging_transactions(max_transaction_timeout=-1.0)

    run(scenario)


def test_states_of_a_newer_kafka() -> None:
    assert TransactionState("Dozing") is TransactionState.UNKNOWN
    assert TransactionState("prepareabort") is TransactionState.PREPARE_ABORT
    assert not TransactionState.COMPLETE_ABORT.is_open
