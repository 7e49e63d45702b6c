"""TxnOffsetCommit: offsets that count when their transaction commits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopic,
)
from support.brokers import Client, with_client
from support.brokers.transactions import NEW, OLD, TransactionalProducer
from support.waiting import until

NONE = ErrorCode.NONE
FEW = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "2"}
VERSIONS = [(0, OLD), (2, OLD), (3, OLD), (4, OLD), (5, NEW)]
"""Of TxnOffsetCommit, and of the producer's other requests."""


async def started(client: Client, version: int = OLD) -> TransactionalProducer:
    await client.create_topic("orders", 2)
    found = await client.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 3)
    assert found.error_code == 0
    producer = TransactionalProducer(client, version=version)
    assert await producer.init() is NONE
    return producer


async def add(producer: TransactionalProducer, group_id: str = "g") -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group_id,
    )
    assert (await producer.client.ask(request, AddOffsetsToTxnResponse, 4)).error_code == 0


async def commit(
    producer: TransactionalProducer,
    version: int,
    *offsets: int,
    group_id: str = "g",
    generation: int = -1,
    member_id: str = "",
    index: int = 0,
) -> list[ErrorCode]:
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id=generation,
        member_id=member_id,
        topics=[
            TxnOffsetCommitTopic(
                name="orders",
                partitions=[
                    TxnOffsetCommitPartition(partition_index=index + at, committed_offset=offset)
                    for at, offset in enumerate(offsets)
                ],
            )
        ],
    )
    answer = await producer.client.ask(request, TxnOffsetCommitResponse, version)
    return [ErrorCode.of(each.error_code) for each in answer.topics[0].partitions]


async def committed(client: Client, *, stable: bool = False) -> int | ErrorCode:
    topic = OffsetFetchGroupTopic(name="orders", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=[topic])], require_stable=stable)
    answer = (await client.ask(request, OffsetFetchResponse, 8)).groups[0].topics[0].partitions[0]
    return ErrorCode.of(answer.error_code) if answer.error_code else answer.committed_offset


@pytest.mark.parametrize(("version", "produce_version"), VERSIONS)
def test_offsets_count_when_the_transaction_commits(tmp_path: Path, version: int, produce_version: int) -> None:
    async def work(client: Client) -> None:
        producer = await started(client, produce_version)
        for offset, commits, expected in ((5, False, -1), (7, True, 7), (9, False, 7)):
            if version < 5:
                await add(producer)
            assert await commit(producer, version, offset) == [NONE]
            assert await committed(client, stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await producer.end(committed=commits) is NONE
            for _ in range(100):
                found = await committed(client, stable=True)
                if found is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    break
                await asyncio.sleep(0)
            assert found == expected

    with_client(tmp_path, work, **FEW)


def test_a_group_that_nobody_has_joined_may_be_the_first(tmp_path: Path) -> None:
    """Its coordinator was never looked for, so the topic of groups is not there yet."""

    async def work(client: Client) -> None:
        producer = TransactionalProducer(client)
        assert await producer.init() is NONE
        assert client.broker.metadata.topic("__consumer_offsets") is None
        await add(producer)
        assert await producer.end() is NONE

    with_client(tmp_path, work, **FEW)


@pytest.mark.parametrize(
    ("version", "error"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE), (5, NONE)]
)
def test_offsets_that_were_not_added(tmp_path: Path, version: int, error: ErrorCode) -> None:
    async def work(client: Client) -> None:
        producer = await started(client)
        assert await commit(producer, version, 5) == [error]
        assert await committed(client, stable=True) == (-1 if error else ErrorCode.UNSTABLE_OFFSET_COMMIT)

    with_client(tmp_path, work, **FEW)


def test_what_is_refused(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        producer = await started(client)
        await add(producer)
        unknown, illegal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ILLEGAL_GENERATION
        assert await commit(producer, 4, 1, 2, index=1) == [NONE, unknown]
        assert await commit(producer, 4, 1, generation=3, member_id="gone", group_id="g") != [NONE]
        assert await commit(producer, 4, 1, group_id="") == [ErrorCode.INVALID_GROUP_ID]
        await add(producer, "new")
        assert await commit(producer, 4, 1, group_id="new", generation=3, member_id="gone") == [illegal]
        zombie = producer
        assert await TransactionalProducer(client).init() is NONE
        assert await commit(zombie, 4, 5) == [ErrorCode.INVALID_PRODUCER_EPOCH]

    with_client(tmp_path, work, **FEW)


def test_the_coordinator_of_the_transaction_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        producer = await started(client)
        await add(producer)
        service = client.broker.transactions.service
        confirm = service.confirm
        answers = [NONE]
        may_answer = asyncio.Event()

        async def later(*args: object, **options: object) -> dict[TopicPartition, ErrorCode]:
            await may_answer.wait()
            found = confirm(*args, **options)  # type: ignore[arg-type]
            assert isinstance(found, dict)
            return found if answers[0] is NONE else dict.fromkeys(found, answers[0])

        monkeypatch.setattr(service, "confirm", later)
        waiting = asyncio.create_task(commit(producer, 4, 5))
        await until(lambda: client.broker.transactions._tasks, "nothing is asked")
        assert not client.is_answered
        may_answer.set()
        assert await waiting == [NONE]
        assert await producer.end() is NONE
        await add(producer)
        for answers[0], told in (
            (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
            (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        ):
            assert await commit(producer, 4, 5) == [told]
        answers[0] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await commit(producer, 1, 5) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    with_client(tmp_path, work, **FEW)
