"""A scripted broker's coordinator of transactions: keeps to Kafka's rules, except for the faults that a test orders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.produce import AsyncProducer
from ottla.client.transactions.states import State
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResponse,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.find_coordinator import Coordinator as FoundCoordinator
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartitionResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopicResponse,
)
from ottla.wire.schema import Request
from support.clients.scripted_broker import BROKER_ID, TOPIC_ID, Answer, HangUp, ScriptedBroker, Silence
from unit.client.produce.scripted_log import Log, settings

VERSION_2 = {"transaction.version": 2}


class DoneThenHangUp:
    """The request is carried out, and the connection ends before the answer leaves."""


class Held:
    """The request is carried out and answered when the test says so, or lost."""

    def __init__(self, *, is_lost: bool = False) -> None:
        self.is_lost = is_lost
        self.came = asyncio.Event()
        self.go_on = asyncio.Event()


Fault = ErrorCode | HangUp | Silence | DoneThenHangUp | Held


class Coordinator:
    """The script of a broker that leads and coordinates everything; of one transactional id."""

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.log = Log()
        self.faults: dict[type[Request], list[Fault | None]] = {}
        self.producer = (100, -1)
        self.state = "empty"
        self.partitions: set[TopicPartition] = set()
        self.pending: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.ends: list[tuple[str, int]] = []
        """How each transaction ended, and with how many partitions."""
        self.leaders_are_old = False
        """The leaders of partitions and the coordinators of groups do not have version 2."""
        self.is_group_added = False

    def broker(self, **changes: Any) -> ScriptedBroker:
        features = VERSION_2 if self.version >= 2 else {}
        return ScriptedBroker(self, {"events": 3}, features=features, **changes)

    def __call__(self, request: Request) -> Answer | Awaitable[Answer] | None:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(
                coordinators=[FoundCoordinator(key=key, node_id=BROKER_ID) for key in request.coordinator_keys]
            )
        ordered = self.faults.get(type(request), [])
        fault = ordered.pop(0) if ordered else None
        if isinstance(fault, Held):
            return self._held(request, fault)
        if isinstance(fault, HangUp | Silence):
            return fault
        if isinstance(fault, ErrorCode):
            return self._answer(request, fault)
        answer = self._carry_out(request)
        return HangUp() if isinstance(fault, DoneThenHangUp) else answer

    async def _held(self, request: Request, held: Held) -> Answer:
        held.came.set()
        await held.go_on.wait()
        if held.is_lost:
            return Silence()
        answer = self._carry_out(request)
        assert answer is not None
        return answer

    def _carry_out(self, request: Request) -> Answer | None:
        match request:
            case InitProducerIdRequest():
                return self._init(request)
            case AddPartitionsToTxnRequest():
                code = self._join(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
                if not code:
                    self.partitions |= {
                        TopicPartition(topic.name, index)
                        for topic in request.v3_and_below_topics
                        for index in topic.partitions
                    }
                return self._answer(request, code)
            case AddOffsetsToTxnRequest():
                self.is_group_added = True
                return self._answer(request, self._join(request.producer_id, request.producer_epoch))
            case TxnOffsetCommitRequest():
                code = self._check(request.producer_id, request.producer_epoch)
                if self.version >= 2 and not self.leaders_are_old:
                    code = self._join(request.producer_id, request.producer_epoch)
                elif self.leaders_are_old and not self.is_group_added:
                    return self._answer(request, ErrorCode.INVALID_TXN_STATE)
                for topic in request.topics:
                    for one in topic.partitions:
                        self.pending[TopicPartition(topic.name, one.partition_index)] = one.committed_offset
                return self._answer(request, code)
            case EndTxnRequest():
                return self._end(request)
            case ProduceRequest():
                return self._produce(request)
        return None

    def _check(self, producer_id: int, epoch: int) -> ErrorCode:
        return ErrorCode.NONE if (producer_id, epoch) == self.producer else ErrorCode.PRODUCER_FENCED

    def _join(self, producer_id: int, epoch: int) -> ErrorCode:
        code = self._check(producer_id, epoch)
        if not code:
            self.state = "ongoing"
        return code

    def _init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        given = (request.producer_id, request.producer_epoch)
        if given not in ((-1, -1), self.producer):
            is_repeated = given == (self.producer[0], self.producer[1] - 1)
            if not is_repeated:
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        else:
            self._finish("abort")
            self.producer = (self.producer[0], self.producer[1] + 1)
            self.state = "empty"
        return InitProducerIdResponse(producer_id=self.producer[0], producer_epoch=self.producer[1])

    def _end(self, request: EndTxnRequest) -> EndTxnResponse:
        how = "commit" if request.committed else "abort"
        given = (request.producer_id, request.producer_epoch)
        is_repeated = self.version >= 2 and given == (self.producer[0], self.producer[1] - 1)
        if not is_repeated and given != self.producer:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if is_repeated or (self.state == how and self.version < 2):
            if self.state != how:
                return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        elif self.state == "ongoing" or (self.version >= 2 and how == "abort"):
            self._finish(how)
            self.state = how
            if self.version >= 2:
                self.producer = (self.producer[0], self.producer[1] + 1)
        else:
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        if self.version < 2:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=self.producer[0], producer_epoch=self.producer[1])

    def _finish(self, how: str) -> None:
        if self.state == "ongoing":
            self.ends.append((how, len(self.partitions)))
        if how == "commit":
            self.committed |= self.pending
        self.pending, self.partitions, self.is_group_added = {}, set(), False

    def _produce(self, request: ProduceRequest) -> Answer | None:
        for topic in request.topic_data:
            for one in topic.partition_data:
                partition = TopicPartition("events", one.index)
                if self.version >= 2 and not self.leaders_are_old:
                    self.state = "ongoing"
                    self.partitions.add(partition)
                elif partition not in self.partitions:
                    return self._answer(request, ErrorCode.INVALID_TXN_STATE)
        return self.log(request)

    def _answer(self, request: Request, code: ErrorCode) -> Answer:
        match request:
            case InitProducerIdRequest():
                return InitProducerIdResponse(error_code=code)
            case AddOffsetsToTxnRequest():
                return AddOffsetsToTxnResponse(error_code=code)
            case EndTxnRequest():
                return EndTxnResponse(error_code=code)
            case AddPartitionsToTxnRequest():
                return AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=[
                        AddPartitionsToTxnTopicResponse(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResponse(partition_index=index, partition_error_code=code)
                                for index in topic.partitions
                            ],
                        )
                        for topic in request.v3_and_below_topics
                    ]
                )
            case TxnOffsetCommitRequest():
                return TxnOffsetCommitResponse(
                    topics=[
                        TxnOffsetCommitTopicResponse(
                            name=topic.name,
                            partitions=[
                                TxnOffsetCommitPartitionResponse(partition_index=one.partition_index, error_code=code)
                                for one in topic.partitions
                            ],
                        )
                        for topic in request.topics
                    ]
                )
            case ProduceRequest():
                return ProduceResponse(
                    responses=[
                        ProduceTopicResponse(
                            name="events",
                            topic_id=TOPIC_ID,
                            partition_responses=[
                                ProducePartitionResponse(index=one.index, error_code=code, base_offset=-1)
                                for topic in request.topic_data
                                for one in topic.partition_data
                            ],
                        )
                    ]
                )
        raise AssertionError(f"no answer to {request}")


def transactional(broker: ScriptedBroker, **changes: object) -> AsyncProducer:
    return AsyncProducer(settings(broker, transactional_id="t", **changes))


def state_of(producer: AsyncProducer) -> State:
    transactions = producer._core.transactions
    assert transactions is not None
    return transactions._states.state
