"""Transactions on one broker, at the level of requests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.wire.messages.write_txn_markers import (
    TxnMarker,
    TxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.brokers import Client, with_client
from support.brokers.transactions import NEW, OLD, TransactionalProducer, values_in
from support.waiting import until

NONE = ErrorCode.NONE
FEW = {"transaction_state_log_num_partitions": "2", "offsets_topic_num_partitions": "2"}


def log_of(client: Client, topic: str = "orders", index: int = 0) -> PartitionLog:
    partition = client.broker.replicas.get(topic, index)
    assert partition is not None
    assert partition.log is not None
    return partition.log


async def started(client: Client, version: int, transactional_id: str = "payments") -> TransactionalProducer:
    producer = TransactionalProducer(client, transactional_id, version=version)
    assert await producer.init() is NONE
    return producer


async def began(producer: TransactionalProducer, *indexes: int) -> None:
    """Adds the partitions where the producer has to."""
    if producer.version < NEW:
        assert await producer.add("orders", *indexes) is NONE


async def decided(client: Client, index: int = 0) -> None:
    """Waits until no transaction is open in the partition."""
    log = log_of(client, "orders", index)
    await until(lambda: log.first_unstable_offset is None, "a transaction is not ended")


@pytest.mark.parametrize("version", [OLD, NEW])
def test_committed_records_are_read_and_aborted_ones_are_not(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        producer = await started(client, version)
        await began(producer, 0, 1)
        assert await producer.produce(b"a", index=0) is NONE
        assert await producer.produce(b"b", index=1) is NONE
        assert await values_in(client) == []
        assert await producer.end() is NONE
        await decided(client)
        await decided(client, 1)
        assert (await values_in(client), await values_in(client, index=1)) == ([b"a"], [b"b"])
        epoch = producer.producer_epoch
        await began(producer, 0)
        assert await producer.produce(b"c") is NONE
        assert await producer.end(committed=False) is NONE
        await decided(client)
        assert await values_in(client) == [b"a"]
        assert producer.producer_epoch == (epoch + 1 if version >= NEW else epoch)
        await began(producer, 0)
        assert await producer.produce(b"d") is NONE
        assert await producer.produce(b"e") is NONE
        assert await producer.end() is NONE
        await decided(client)
        assert await values_in(client) == [b"a", b"d", b"e"]

    with_client(tmp_path, work, **FEW)


@pytest.mark.parametrize(
    ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (OLD, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_partition_that_was_not_added_is_refused(tmp_path: Path, version: int, error: ErrorCode) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders", 2)
        producer = await started(client, version)
        await began(producer, 1)
        assert await producer.produce(b"a", index=0) is error
        assert await producer.produce(b"a", index=1) is NONE
        assert log_of(client).next_offset == 0
        assert client.broker.transactions.verifier.stats.failures == 1

    with_client(tmp_path, work, **FEW)


def test_internal_topics_cannot_be_added(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, OLD)
        assert await producer.add("__transaction_state", 0) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await producer.produce(b"a") is ErrorCode.TRANSACTION_ABORTABLE  # nothing was added

    with_client(tmp_path, work, **FEW)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_batch_without_a_transactional_id_does_not_join_an_open_transaction(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, version)
        await began(producer, 0)
        assert await producer.produce(b"a") is NONE
        request = producer.request(b"b")
        request.transactional_id = None
        client.send(request, version)
        assert await producer.produced() is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        request.transactional_id = "payments"
        client.send(request, version)
        assert await producer.produced() is NONE
        assert await producer.end() is NONE
        assert await values_in(client) == [b"a", b"b"]

    with_client(tmp_path, work, **FEW)


def test_verification_can_be_disabled(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, OLD)
        assert await producer.produce(b"a") is NONE
        assert log_of(client).first_unstable_offset == 0

    with_client(tmp_path, work, **FEW, transaction_partition_verification_enable="false")


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_replaced_producer_is_refused(tmp_path: Path, version: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        zombie = await started(client, version)
        await began(zombie, 0)
        assert await zombie.produce(b"a") is NONE
        await started(client, version)
        await decided(client)
        assert await zombie.produce(b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.end() in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert await values_in(client) == []

    with_client(tmp_path, work, **FEW)


def test_a_first_sequence_number_above_0_is_refused(tmp_path: Path) -> None:
    """The batch before it was lost."""

    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, NEW)
        producer.request(b"lost")
        assert await producer.produce(b"a") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    with_client(tmp_path, work, **FEW)


def test_an_unknown_transactional_id_is_refused(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = TransactionalProducer(client, "unknown")
        producer.producer_id, producer.producer_epoch = 7, 0
        # Nobody has asked for a coordinator: there is no topic.
        assert await producer.produce(b"a") is ErrorCode.NOT_ENOUGH_REPLICAS
        await started(client, OLD)
        assert await producer.produce(b"a") is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    with_client(tmp_path, work, **FEW)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_batches_that_wait_for_the_coordinator_keep_their_order(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, version)
        await began(producer, 0)
        service = client.broker.transactions.service
        confirm = service.confirm

        async def later(*args: object, **options: object) -> dict[TopicPartition, ErrorCode]:
            answer = confirm(*args, **options)  # type: ignore[arg-type]
            assert isinstance(answer, dict)
            return answer

        monkeypatch.setattr(service, "confirm", later)
        for value in (b"a", b"b", b"c"):
            client.send(producer.request(value), version)
        assert not client.is_answered
        assert log_of(client).next_offset == 0
        assert [await producer.produced() for _ in range(3)] == [NONE] * 3
        assert not client.broker.held_produces.queues
        assert await producer.end() is NONE
        await decided(client)
        assert await values_in(client) == [b"a", b"b", b"c"]

    with_client(tmp_path, work, **FEW)


def test_other_producers_are_not_held_up_by_a_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer, other = await started(client, NEW), await started(client, NEW, "other")
        assert await other.produce(b"a") is NONE
        may_answer = asyncio.Event()
        service = client.broker.transactions.service
        confirm = service.confirm

        async def later(*args: object, **options: object) -> dict[TopicPartition, ErrorCode]:
            await may_answer.wait()
            answer = confirm(*args, **options)  # type: ignore[arg-type]
            assert isinstance(answer, dict)
            return answer

        monkeypatch.setattr(service, "confirm", later)
        for sender, value in ((producer, b"c"), (other, b"b"), (producer, b"d")):
            client.send(sender.request(value), NEW)
        assert log_of(client).next_offset == 2
        may_answer.set()
        assert [await producer.produced() for _ in range(3)] == [NONE] * 3
        assert await producer.end() is NONE
        assert await other.end() is NONE
        await decided(client)
        assert await values_in(client) == [b"a", b"b", b"c", b"d"]

    with_client(tmp_path, work, **FEW)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_marker_between_confirmation_and_append_cancels_the_append(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, version)
        await began(producer, 0)

        async def later(*_: object, **__: object) -> dict[TopicPartition, ErrorCode]:
            assert partition is not None
            partition.append_marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch + (version == NEW),
                committed=False,
                coordinator_epoch=0,
                transaction_version=2 if version == NEW else 1,
            )
            return {partition.name: NONE}

        partition = client.broker.replicas.get("orders", 0)
        monkeypatch.setattr(client.broker.transactions.service, "confirm", later)
        assert await producer.produce(b"a") is ErrorCode.INVALID_TXN_STATE
        assert log_of(client).next_offset == 1

    with_client(tmp_path, work, **FEW)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_batches_behind_one_that_must_be_retried_are_not_appended_before_it(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, version)
        await began(producer, 0)
        name = TopicPartition("orders", 0)
        with monkeypatch.context() as patch:
            service = client.broker.transactions.service
            patch.setattr(service, "confirm", lambda *_, **__: {name: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
            assert await producer.produce(b"a") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await producer.produce(b"b") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer.sequences.clear()
        assert await producer.produce(b"a") is NONE
        assert await producer.produce(b"b") is NONE

    with_client(tmp_path, work, **FEW)


def marker(producer: TransactionalProducer, *, version: int = 0, coordinator_epoch: int = 0) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            TxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[TxnMarkerTopic(name="orders", partition_indexes=[0, 9])],
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
            )
        ]
    )


async def written(client: Client, request: WriteTxnMarkersRequest) -> list[ErrorCode]:
    answer = await client.ask(request, WriteTxnMarkersResponse, 2)
    return [ErrorCode.of(each.error_code) for each in answer.markers[0].topics[0].partitions]


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, -1), (-1, 0), (5, -1)])
def test_a_marker_without_a_producer_is_refused(tmp_path: Path, producer_id: int, producer_epoch: int) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = TransactionalProducer(client, "payments", version=OLD)
        producer.producer_id, producer.producer_epoch = producer_id, producer_epoch
        assert await written(client, marker(producer)) == [ErrorCode.INVALID_REQUEST] * 2
        assert log_of(client).next_offset == 0

    with_client(tmp_path, work, **FEW)


def test_markers_of_other_brokers_are_written(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        await client.create_topic("orders")
        producer = await started(client, OLD)
        await began(producer, 0)
        assert await producer.produce(b"a") is NONE
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # The epoch of an open transaction: the marker belongs to an earlier one.
        assert await written(client, marker(producer, version=2)) == [ErrorCode.INVALID_PRODUCER_EPOCH, unknown]
        assert log_of(client).first_unstable_offset == 0
        assert await written(client, marker(producer, coordinator_epoch=3)) == [NONE, unknown]
        assert log_of(client).first_unstable_offset is None
        assert await written(client, marker(producer, version=2, coordinator_epoch=3)) == [NONE, unknown]
        assert await written(client, marker(producer)) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED, unknown]
        client.connection.listener = "ELSEWHERE"
        client.connection.attachment = None
        client.send(marker(producer), 2)  # an error that its response cannot carry
        assert client.connection.is_closed

    with_client(tmp_path, work, **FEW)
