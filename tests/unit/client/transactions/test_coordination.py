"""Transactions on bad days: answers that are lost, refusals of every kind, calls that are interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.errors import (
    CallTimeoutError,
    FencedError,
    OttlaError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionFatalError,
    TransactionStateError,
)
from ottla.client.membership import GroupMetadata
from ottla.client.produce import AsyncProducer
from ottla.client.transactions.prepared import PreparedTransaction
from ottla.client.transactions.states import State
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.registry import apis
from ottla.wire.schema import Request
from support.clients.scripted_broker import Answer, HangUp, ScriptedBroker
from support.waiting import until
from unit.client.test_cluster import run
from unit.client.transactions.scripted_coordinator import (
    Coordinator,
    DoneThenHangUp,
    Fault,
    Held,
    state_of,
    transactional,
)

PLACE = TopicPartition("events", 0)
GROUP = GroupMetadata("group", 3, "member")
INIT_PRODUCER_ID = InitProducerIdRequest.api_key
versions = pytest.mark.parametrize("version", [1, 2])


async def one_of_each(producer: AsyncProducer) -> None:
    """A transaction that needs every request."""
    async with producer.transaction():
        for partition in range(3):
            await producer.send("events", b"%d" % partition, partition=partition)
        await producer.send_offsets_to_transaction({PLACE: 7}, GROUP)


async def stops(work: Awaitable[object], held: Held) -> None:
    """Begins the work, and cancels it when the broker has the request that it holds."""
    task = asyncio.ensure_future(work)
    await held.came.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.go_on.set()


# What is asked, and in what order.


def test_version_1_adds_partitions_and_offsets_before_they_are_written_to() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await one_of_each(producer)
            await one_of_each(producer)
            added = broker.of(AddPartitionsToTxnRequest)
            assert len(broker.of(AddOffsetsToTxnRequest)) == 2
            first_produce = next(i for i, one in enumerate(broker.requests) if isinstance(one, ProduceRequest))
            assert broker.requests.index(added[0]) < first_produce
            assert coordinator.ends == [("commit", 3), ("commit", 3)]
            assert coordinator.committed == {PLACE: 7}
            assert len(broker.of(InitProducerIdRequest)) == 1
        headers = coordinator.log.headers
        assert all(header.is_transactional for header in headers)
        # One epoch for all transactions, in which sequences go on.
        assert (
            sorted((header.producer_epoch, header.base_sequence) for header in headers) == [(0, 0)] * 3 + [(0, 1)] * 3
        )

    run(scenario)


def test_version_2_adds_nothing_and_begins_each_transaction_with_a_new_epoch() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await one_of_each(producer)
            await one_of_each(producer)
            assert not broker.of(AddPartitionsToTxnRequest) + broker.of(AddOffsetsToTxnRequest)
            assert {one.transactional_id for one in broker.of(ProduceRequest)} == {"t"}  # type: ignore[attr-defined]
            assert coordinator.ends == [("commit", 3), ("commit", 3)]
        headers = coordinator.log.headers
        assert (
            sorted((header.producer_epoch, header.base_sequence) for header in headers) == [(0, 0)] * 3 + [(1, 0)] * 3
        )

    run(scenario)


@pytest.mark.parametrize(
    ("version", "highest"),
    [
        (
            1,
            {
                "InitProducerId": 5,
                "AddPartitionsToTxn": 3,
                "AddOffsetsToTxn": 4,
                "TxnOffsetCommit": 4,
                "EndTxn": 4,
                "Produce": 11,
            },
        ),
        (2, {"InitProducerId": 5, "TxnOffsetCommit": 5, "EndTxn": 5, "Produce": 13}),
    ],
)
def test_requests_have_the_versions_of_the_transaction_protocol(version: int, highest: dict[str, int]) -> None:
    """A broker adds partitions by itself if the version of Produce, TxnOffsetCommit or EndTxn is newer."""

    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await one_of_each(producer)
            asked = {
                type(request).__name__.removesuffix("Request"): version
                for request, version in zip(broker.requests, broker.request_versions, strict=True)
            }
            assert {name: one for name, one in asked.items() if name not in ("Metadata", "FindCoordinator")} == highest

    run(scenario)


def test_partitions_that_are_new_at_once_are_added_at_once() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker, linger_ms=20) as producer:
            await producer.init_transactions()
            await producer.partitions_for("events")
            await producer.begin_transaction()
            for partition in range(3):
                await producer.send("events", b"1", partition=partition)
            await producer.commit_transaction()
            assert len(broker.of(AddPartitionsToTxnRequest)) <= 2
            assert coordinator.ends == [("commit", 3)]

    run(scenario)


@versions
def test_nothing_is_asked_for_a_transaction_without_records(version: int) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            async with producer.transaction():
                pass
            await producer.begin_transaction()
            await producer.abort_transaction()
            assert not broker.of(EndTxnRequest)

    run(scenario)


# What passes.

REQUESTS: list[type[Request]] = [
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
    ProduceRequest,
]


@versions
@pytest.mark.parametrize(
    "fault",
    [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, HangUp(), DoneThenHangUp()],
    ids=["concurrent", "loading", "hang up", "lost answer"],
)
def test_what_fails_for_a_moment_is_asked_again(version: int, fault: Fault) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            # InitProducerId is asked again too, and gets another epoch if the answer was lost.
            coordinator.faults = {request: [fault, fault] for request in REQUESTS}
            await one_of_each(producer)
            coordinator.faults = {request: [fault] for request in REQUESTS}
            await one_of_each(producer)
        assert [how for how, _ in coordinator.ends] == ["commit", "commit"]
        assert coordinator.committed == {PLACE: 7}
        for partition in range(3):
            assert coordinator.log.values(partition) == [b"%d" % partition] * 2

    run(scenario)


def test_a_coordinator_that_moved_is_looked_for() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        coordinator.faults = {
            InitProducerIdRequest: [ErrorCode.NOT_COORDINATOR],
            EndTxnRequest: [ErrorCode.COORDINATOR_NOT_AVAILABLE],
            TxnOffsetCommitRequest: [ErrorCode.NOT_COORDINATOR],
        }
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await one_of_each(producer)
            keys = [one.coordinator_keys for one in broker.of(FindCoordinatorRequest)]  # type: ignore[attr-defined]
            assert sorted(keys) == [["group"], ["group"], ["t"], ["t"], ["t"]]

    run(scenario)


# What does not.


@versions
@pytest.mark.parametrize(
    ("request_type", "code", "expected"),
    [
        (TxnOffsetCommitRequest, ErrorCode.ILLEGAL_GENERATION, TransactionAbortableError),
        (TxnOffsetCommitRequest, ErrorCode.FENCED_INSTANCE_ID, TransactionAbortableError),
        (TxnOffsetCommitRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, TransactionAbortableError),
        (TxnOffsetCommitRequest, ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (TxnOffsetCommitRequest, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, TransactionFatalError),
        (EndTxnRequest, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError),
        (EndTxnRequest, ErrorCode.PRODUCER_FENCED, FencedError),
        (EndTxnRequest, ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (EndTxnRequest, ErrorCode.INVALID_TXN_STATE, TransactionFatalError),
        (EndTxnRequest, ErrorCode.INVALID_PRODUCER_ID_MAPPING, TransactionFatalError),
        (EndTxnRequest, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionFatalError),
        (ProduceRequest, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError),
        (ProduceRequest, ErrorCode.INVALID_PRODUCER_EPOCH, TransactionAbortableError),
        (ProduceRequest, ErrorCode.INVALID_TXN_STATE, TransactionAbortableError),
        (ProduceRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TransactionAbortableError),
        (ProduceRequest, ErrorCode.PRODUCER_FENCED, FencedError),
        (ProduceRequest, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TransactionFatalError),
        (ProduceRequest, ErrorCode.INVALID_PRODUCER_ID_MAPPING, TransactionFatalError),
    ],
)
def test_errors_by_class(
    version: int, request_type: type[Request], code: ErrorCode, expected: type[TransactionError]
) -> None:
    run(lambda: _errors_by_class(version, request_type, code, expected))


@pytest.mark.parametrize(
    ("request_type", "code", "expected"),
    [
        (AddPartitionsToTxnRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TransactionAbortableError),
        (AddPartitionsToTxnRequest, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError),
        (AddPartitionsToTxnRequest, ErrorCode.UNKNOWN_PRODUCER_ID, TransactionAbortableError),
        (AddPartitionsToTxnRequest, ErrorCode.PRODUCER_FENCED, FencedError),
        (AddPartitionsToTxnRequest, ErrorCode.INVALID_TXN_STATE, TransactionFatalError),
        (AddOffsetsToTxnRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, TransactionAbortableError),
        (AddOffsetsToTxnRequest, ErrorCode.PRODUCER_FENCED, FencedError),
        (AddOffsetsToTxnRequest, ErrorCode.INVALID_PRODUCER_ID_MAPPING, TransactionFatalError),
    ],
)
def test_errors_by_class_that_only_version_1_has(
    request_type: type[Request], code: ErrorCode, expected: type[TransactionError]
) -> None:
    run(lambda: _errors_by_class(1, request_type, code, expected))


async def _errors_by_class(
    version: int, request_type: type[Request], code: ErrorCode, expected: type[TransactionError]
) -> None:
    coordinator = Coordinator(version)
    async with coordinator.broker() as broker, transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        coordinator.faults = {request_type: [code]}
        with pytest.raises(expected) as caught:  # noqa: PT012
            await producer.send("events", b"lost", partition=0)
            await producer.send_offsets_to_transaction({PLACE: 7}, GROUP)
            await producer.commit_transaction()
        assert type(caught.value) is expected
        assert caught.value.__cause__ is not None
        if expected is TransactionAbortableError:
            assert state_of(producer) is State.ABORTABLE_ERROR
            with pytest.raises(TransactionAbortableError):
                await producer.send("events", b"1")
            await producer.abort_transaction()
            await one_of_each(producer)
            assert coordinator.ends[-1] == ("commit", 3)
        else:
            assert state_of(producer) is State.FATAL_ERROR
            for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(expected):
                    await call()


def test_an_error_of_init_is_fatal() -> None:
    async def scenario() -> None:
        coordinator = Coordinator()
        coordinator.faults = {InitProducerIdRequest: [ErrorCode.INVALID_TRANSACTION_TIMEOUT]}
        async with coordinator.broker() as broker, transactional(broker) as producer:
            with pytest.raises(TransactionFatalError, match=r"set transaction\.timeout\.ms to at most"):
                await producer.init_transactions()

    run(scenario)


def test_two_phase_commit_needs_a_broker_that_has_it() -> None:
    async def scenario() -> None:
        coordinator = Coordinator()
        newest = dict.fromkeys(range(100), 99) | {INIT_PRODUCER_ID: 5}
        async with (
            coordinator.broker(newest=newest) as broker,
            transactional(broker, transaction_two_phase_commit_enable=True) as producer,
        ):
            with pytest.raises(TransactionFatalError, match="does not support two-phase commit"):
                await producer.init_transactions()

    run(scenario)


# New epochs.


def test_version_1_asks_for_an_epoch_after_a_batch_was_lost() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await one_of_each(producer)
            coordinator.faults = {ProduceRequest: [ErrorCode.INVALID_RECORD]}
            with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
                await one_of_each(producer)
            await one_of_each(producer)
            asked = [(one.producer_id, one.producer_epoch) for one in broker.of(InitProducerIdRequest)]  # type: ignore[attr-defined]
            assert asked == [(-1, -1), (100, 0)]
            last = coordinator.log.headers[-3:]
            assert [(header.producer_epoch, header.base_sequence) for header in last] == [(1, 0)] * 3

    run(scenario)


def test_without_another_epoch_a_lost_batch_is_fatal() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        newest = dict.fromkeys(range(100), 99) | {INIT_PRODUCER_ID: 2}
        async with coordinator.broker(newest=newest) as broker, transactional(broker) as producer:
            coordinator.faults = {ProduceRequest: [ErrorCode.INVALID_RECORD]}
            with pytest.raises(TransactionFatalError):
                await one_of_each(producer)

    run(scenario)


def test_when_the_cluster_begins_to_use_version_2_the_producer_gets_another_epoch() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await one_of_each(producer)
            broker.features = {"transaction.version": 2}
            coordinator.faults = {EndTxnRequest: [HangUp()]}  # the next connection tells
            await one_of_each(producer)
            assert len(broker.of(InitProducerIdRequest)) == 2
            coordinator.version = 2
            before = len(broker.of(AddPartitionsToTxnRequest))
            await one_of_each(producer)
            assert len(broker.of(AddPartitionsToTxnRequest)) == before
            assert [header.producer_epoch for header in coordinator.log.headers] == [0] * 6 + [1] * 3

    run(scenario)


def old_versions() -> dict[int, int]:
    """The highest version of every API, as Kafka 3.9 serves it where records of transactions are concerned."""
    highest = {key: api.request.versions.high for key, api in apis().items()}
    return highest | {ProduceRequest.api_key: 11, TxnOffsetCommitRequest.api_key: 4}


def test_what_brokers_without_version_2_do_not_add_is_added_before_it_is_written_to() -> None:
    """The coordinator has version 2, but leaders and the coordinators of groups are brokers that do not."""

    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await one_of_each(producer)
            broker.newest = old_versions() | {EndTxnRequest.api_key: 5}
            coordinator.leaders_are_old = True
            # The next connections tell.
            coordinator.faults = {ProduceRequest: [HangUp()], TxnOffsetCommitRequest: [HangUp()]}
            for _ in range(2):
                await one_of_each(producer)
            assert coordinator.ends == [("commit", 3)] * 3
            assert coordinator.committed == {PLACE: 7}
            assert len(broker.of(AddOffsetsToTxnRequest)) == 2
            assert [header.producer_epoch for header in coordinator.log.headers] == [0] * 3 + [1] * 3 + [2] * 3

    run(scenario)


def test_a_transaction_goes_on_with_a_leader_without_version_2_if_it_has_the_partition() -> None:
    """As when the data of a broker is moved to one of an older version: the partition need not be added, and could not
    be if the coordinator is as old."""

    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await (await producer.send("events", b"1", partition=0))
                broker.newest = old_versions()
                coordinator.leaders_are_old = True
                coordinator.faults = {ProduceRequest: [HangUp()]}
                await (await producer.send("events", b"2", partition=0))
                assert not broker.of(AddPartitionsToTxnRequest)
                await (await producer.send("events", b"3", partition=1))
                (added,) = broker.of(AddPartitionsToTxnRequest)
                assert [topic.partitions for topic in added.v3_and_below_topics] == [[1]]  # type: ignore[attr-defined]
            assert coordinator.ends == [("commit", 2)]

    run(scenario)


def test_records_that_cannot_be_added_any_more_are_given_up() -> None:
    """An earlier leader may have got them; they are not sent to one that would keep them in no transaction."""

    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            broker.newest = old_versions()
            coordinator.leaders_are_old = True
            coordinator.faults = {
                ProduceRequest: [HangUp()],
                AddPartitionsToTxnRequest: [ErrorCode.TRANSACTION_ABORTABLE],
            }
            delivery = await producer.send("events", b"1", partition=0)
            with pytest.raises(TransactionAbortedError):
                await delivery
            await producer.abort_transaction()
            await one_of_each(producer)
            assert coordinator.ends[-1] == ("commit", 3)

    run(scenario)


def test_a_prepared_transaction_whose_owner_has_another_producer_id_is_completed() -> None:
    """Another process took it over when the epochs of the first producer id were used up, and died."""
    prepared, owner = PreparedTransaction("t", 100, 32766), (200, 1)
    ended: list[tuple[int, int, bool]] = []

    def script(request: Request) -> Answer | Awaitable[Answer] | None:
        match request:
            case InitProducerIdRequest():
                assert request.keep_prepared_txn
                return InitProducerIdResponse(
                    producer_id=owner[0],
                    producer_epoch=owner[1],
                    ongoing_txn_producer_id=prepared.producer_id,
                    ongoing_txn_producer_epoch=prepared.producer_epoch,
                )
            case EndTxnRequest():
                if (request.producer_id, request.producer_epoch) != owner:
                    return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
                ended.append((request.producer_id, request.producer_epoch, request.committed))
                return EndTxnResponse(producer_id=owner[0], producer_epoch=owner[1] + 1)
        return Coordinator(2)(request)

    async def scenario() -> None:
        async with (
            ScriptedBroker(script, {"events": 3}, features={"transaction.version": 2}) as broker,
            transactional(broker, transaction_two_phase_commit_enable=True) as producer,
        ):
            await producer.complete_transaction(prepared, commit=True)
        assert ended == [(*owner, True)]

    run(scenario)


# Interruptions.


@versions
def test_a_commit_that_was_interrupted_is_called_again(version: int) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("events", b"1", partition=0)
            held = Held()
            coordinator.faults = {EndTxnRequest: [held]}
            await stops(producer.commit_transaction(), held)
            with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) did not finish: call it again"):
                await producer.send("events", b"2")
            with pytest.raises(TransactionStateError, match="may already have committed"):
                await producer.abort_transaction()
            await producer.commit_transaction()
            await one_of_each(producer)
            assert [how for how, _ in coordinator.ends] == ["commit", "commit"]

    run(scenario)


@versions
def test_a_commit_that_was_interrupted_before_it_was_decided_can_be_aborted(version: int) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("events", b"1", partition=0)
            held = Held()
            coordinator.faults = {ProduceRequest: [held]}
            await stops(producer.commit_transaction(), held)
            await producer.abort_transaction()
            await one_of_each(producer)
            assert [how for how, _ in coordinator.ends] == ["abort", "commit"]

    run(scenario)


@versions
@pytest.mark.parametrize("request_type", [EndTxnRequest, ProduceRequest])
def test_an_abort_that_was_interrupted_is_called_again(version: int, request_type: type[Request]) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            held = Held()
            coordinator.faults = {request_type: [held]}
            delivery = await producer.send("events", b"1", partition=0)
            if request_type is ProduceRequest:
                await held.came.wait()
            else:
                await delivery
            aborting = asyncio.create_task(producer.abort_transaction())
            await until(lambda: state_of(producer) is State.ABORTING)
            await stops(aborting, held)
            with pytest.raises(TransactionStateError, match=r"abort_transaction\(\) did not finish: call it again"):
                await producer.begin_transaction()
            await producer.abort_transaction()
            await one_of_each(producer)
            assert [how for how, _ in coordinator.ends] == ["abort", "commit"]

    run(scenario)


def test_an_abort_that_was_interrupted_while_it_got_an_epoch_is_called_again() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            coordinator.faults = {ProduceRequest: [ErrorCode.INVALID_RECORD]}
            with pytest.raises(OttlaError):
                await producer.send_and_wait("events", b"1", partition=0)
            held = Held()
            coordinator.faults = {InitProducerIdRequest: [held]}
            await stops(producer.abort_transaction(), held)
            await producer.abort_transaction()
            await one_of_each(producer)
            assert len(broker.of(EndTxnRequest)) == 2
            assert coordinator.ends[-1] == ("commit", 3)

    run(scenario)


def test_an_init_that_was_interrupted_is_called_again() -> None:
    async def scenario() -> None:
        coordinator = Coordinator()
        async with coordinator.broker() as broker, transactional(broker) as producer:
            held = Held()
            coordinator.faults = {InitProducerIdRequest: [held]}
            await stops(producer.init_transactions(), held)
            with pytest.raises(TransactionStateError, match=r"init_transactions\(\) did not finish: call it again"):
                await producer.begin_transaction()
            await producer.init_transactions()
            await one_of_each(producer)

    run(scenario)


def test_after_a_prepare_that_was_interrupted_more_can_be_sent() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("events", b"1", partition=0)
            held = Held()
            coordinator.faults = {ProduceRequest: [held]}
            preparing = asyncio.create_task(producer.prepare_transaction())
            await stops(preparing, held)
            await producer.send("events", b"2", partition=1)
            prepared = await producer.prepare_transaction()
            assert prepared == await producer.prepare_transaction() == ("t", 100, 0)
            await producer.complete_transaction(prepared, commit=True)
            assert coordinator.ends == [("commit", 2)]

    run(scenario)


@pytest.mark.parametrize("is_done", [True, False])
def test_offsets_whose_answer_nobody_waited_for_are_aborted(is_done: bool) -> None:
    """The coordinator may have begun a transaction, or not."""

    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            held = Held(is_lost=not is_done)
            coordinator.faults = {AddOffsetsToTxnRequest: [held]}
            await stops(producer.send_offsets_to_transaction({PLACE: 1}, GROUP), held)
            await producer.abort_transaction()
            await one_of_each(producer)
            assert coordinator.ends == ([("abort", 0)] if is_done else []) + [("commit", 3)]
            assert coordinator.producer[1] == 1

    run(scenario)


def test_after_offsets_whose_answer_nobody_waited_for_the_next_transaction_has_another_epoch() -> None:
    """They may still be on their way to the group's coordinator."""

    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            held = Held()
            coordinator.faults = {TxnOffsetCommitRequest: [held]}
            await stops(producer.send_offsets_to_transaction({PLACE: 1}, GROUP), held)
            await producer.abort_transaction()
            await one_of_each(producer)
            assert coordinator.producer[1] == 1

    run(scenario)


@versions
def test_a_block_aborts_when_its_commit_is_refused(version: int) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            coordinator.faults = {EndTxnRequest: [ErrorCode.TRANSACTION_ABORTABLE]}
            with pytest.raises(TransactionAbortableError):
                await one_of_each(producer)
            await one_of_each(producer)
            assert [how for how, _ in coordinator.ends] == ["abort", "commit"]

    run(scenario)


@pytest.mark.parametrize("call", ["init_transactions", "commit_transaction", "abort_transaction"])
def test_a_call_that_takes_too_long_can_be_made_again(call: str) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker, transactional(broker, max_block_ms=300) as producer:
            held = Held()
            if call == "init_transactions":
                coordinator.faults = {InitProducerIdRequest: [held]}
            else:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send_and_wait("events", b"1")
                coordinator.faults = {EndTxnRequest: [held]}
            again: Callable[[], Awaitable[None]] = getattr(producer, call)
            with pytest.raises(CallTimeoutError, match=rf"{call}\(\) did not finish within 0.3 s \(max.block.ms\)"):
                await again()
            held.go_on.set()
            await again()
            assert state_of(producer) is State.READY

    run(scenario)


# Records that are not sent.


@versions
def test_an_abort_drops_what_was_not_sent_and_waits_for_the_rest(version: int) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker, batch_size=1) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            held = Held()
            coordinator.faults = {ProduceRequest: [held]}
            sent = await producer.send("events", b"sent", partition=0)
            await held.came.wait()
            dropped = [await producer.send("events", b"dropped", partition=0) for _ in range(3)]
            aborting = asyncio.create_task(producer.abort_transaction())
            for delivery in dropped:
                with pytest.raises(TransactionAbortedError, match="because its transaction was aborted"):
                    await delivery
            assert not aborting.done()
            held.go_on.set()
            await aborting
            assert (await sent).offset == 0
            assert coordinator.log.values() == [b"sent"]

    run(scenario)


def test_records_behind_one_that_failed_are_dropped_with_its_reason() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker, transactional(broker, batch_size=1) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            held = Held()
            coordinator.faults = {ProduceRequest: [ErrorCode.INVALID_RECORD, held]}
            refused = await producer.send("events", b"refused", partition=0)
            behind = await producer.send("events", b"behind", partition=0)
            with pytest.raises(OttlaError, match="INVALID_RECORD"):
                await refused
            with pytest.raises(TransactionAbortedError, match=r"its transaction failed: .*INVALID_RECORD"):
                await behind
            with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
                await producer.flush()

    run(scenario)


@versions
def test_a_sequence_that_is_refused_makes_the_transaction_fail(version: int) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(version)
        async with coordinator.broker() as broker, transactional(broker, batch_size=1) as producer:
            await one_of_each(producer)
            await producer.begin_transaction()
            coordinator.faults = {ProduceRequest: [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 20}
            for _ in range(5):
                await producer.send("events", b"1", partition=0)
            with pytest.raises(TransactionAbortableError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
                await producer.commit_transaction()
            coordinator.faults = {}
            await producer.abort_transaction()
            await one_of_each(producer)
            assert coordinator.ends[-1] == ("commit", 3)

    run(scenario)


# The end.


@pytest.mark.parametrize("how", ["open", "failed", "prepared"])
def test_closing_ends_what_is_open_but_not_what_is_prepared(how: str) -> None:
    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker:
            async with transactional(broker) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send_and_wait("events", b"1")
                if how == "prepared":
                    await producer.prepare_transaction()
                elif how == "failed":
                    coordinator.faults = {ProduceRequest: [ErrorCode.INVALID_RECORD]}
                    await producer.send("events", b"2")
            assert coordinator.ends == ([] if how == "prepared" else [("abort", 1)])

    run(scenario)


def test_closing_finishes_a_commit_that_was_decided() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker:
            async with transactional(broker) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send_and_wait("events", b"1")
                held = Held()
                coordinator.faults = {EndTxnRequest: [held]}
                await stops(producer.commit_transaction(), held)
            assert coordinator.ends == [("commit", 1)]

    run(scenario)


def test_a_context_says_that_the_producer_is_fenced_when_the_abort_finds_out() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            await producer.init_transactions()
            coordinator.faults = {
                ProduceRequest: [ErrorCode.INVALID_PRODUCER_EPOCH],
                EndTxnRequest: [ErrorCode.PRODUCER_FENCED],
            }
            with pytest.raises(FencedError) as caught:
                await one_of_each(producer)
            assert isinstance(caught.value.__cause__, TransactionAbortableError)

    run(scenario)


def test_an_exception_of_a_block_is_raised_though_the_abort_fails() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(1)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            coordinator.faults = {EndTxnRequest: [ErrorCode.PRODUCER_FENCED]}
            with pytest.raises(ZeroDivisionError) as caught:  # noqa: PT012
                async with producer.transaction():
                    await producer.send_and_wait("events", b"1")
                    raise ZeroDivisionError
            assert "The transaction could not be aborted" in caught.value.__notes__[0]

    run(scenario)


def test_records_are_taken_by_the_fast_way_only_in_a_transaction() -> None:
    async def scenario() -> None:
        coordinator = Coordinator(2)
        async with coordinator.broker() as broker, transactional(broker) as producer:
            known = producer._core.accumulator.known
            await producer.init_transactions()
            assert not known
            async with producer.transaction():
                await producer.send("events", b"1")
                assert list(known) == ["events"]
            assert not known
            await producer.begin_transaction()
            assert list(known) == ["events"]
            await producer.abort_transaction()
            assert not known

    run(scenario)
