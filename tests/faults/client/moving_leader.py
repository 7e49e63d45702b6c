"""Two brokers that share one partition, of which one leads at a time: scripted, so that the lead moves when a test
wants, again and again, as a real cluster moves it only on bad days.

The partition outlives every move, as with acks=all; sequences of idempotent producers are held to as a broker holds to
them. Whoever does not lead says so, in one of the ways there are: by an error with or without the new leader's name, or
by hanging up. An answer may be lost after a batch was taken. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from types import TracebackType
from typing import Final, Self

from ottla.base.error_codes import ErrorCode
from ottla.records.batch import BatchView
from ottla.wire.messages.fetch import (
    FetchLeaderIdAndEpoch,
    FetchNodeEndpoint,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import (
    MetadataBroker,
    MetadataPartitionResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopicResponse,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochTopicResponse,
)
from ottla.wire.messages.produce import (
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ottla.wire.schema import Request
from support.clients.scripted_broker import TOPIC_ID, Answer, HangUp, ScriptedBroker

TOPIC: Final = "events"
_REMEMBERED: Final = 5
"""Batches of a producer whose duplicates are known, as in Kafka."""
_EARLIEST: Final = -2
_EMPTY_FETCH_S: Final = 0.01


class MovingLeader:
    """Listens from `async with` on."""

    def __init__(self, chance: random.Random, remembered: int = _REMEMBERED) -> None:
        """`remembered`: of how many batches of a producer a new leader knows, beside those that come to it. A Kafka
        that was restarted has it from a snapshot, which holds one."""
        self.batches: list[BatchView] = []
        self.moves = 0
        self._chance = chance
        self._remembered = remembered
        self._brokers = [
            ScriptedBroker(lambda request, node=node: self._answer(node, request))  # type: ignore[misc]
            for node in range(2)
        ]
        self._leader = 0
        self._known: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        """By producer id and epoch: first and last sequence and first offset of its last batches."""
        self._producer_ids = 1000
        self._silent_until: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        for broker in self._brokers:
            await broker.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self._brokers:
            await broker.__aexit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self._brokers)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def fall_silent(self) -> None:
        """The leader takes batches and answers none, as one that is about to crash; when the lead moves it hangs up."""
        self._silent_until = asyncio.Event()

    def move(self) -> None:
        if self._silent_until is not None:
            self._silent_until.set()
            self._silent_until = None
        self._leader = 1 - self._leader
        self.moves += 1
        for known in self._known.values():
            del known[: -self._remembered]

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, node: int, request: Request) -> Answer | Awaitable[Answer] | None:
        match request:
            case MetadataRequest():
                return self._metadata()
            case InitProducerIdRequest():
                return self._new_producer(request)
            case ProduceRequest():
                return self._produce(node, request)
            case FetchRequest():
                return self._fetch(node, request)
            case ListOffsetsRequest():
                return self._offsets(node, request)
            case OffsetForLeaderEpochRequest():
                return self._epoch_end(node, request)
        return None

    def _metadata(self) -> MetadataResponse:
        partition = MetadataPartitionResponse(
            partition_index=0,
            leader_id=self._leader,
            leader_epoch=self.moves,
            replica_nodes=[0, 1],
            isr_nodes=[0, 1],
        )
        return MetadataResponse(
            brokers=[
                MetadataBroker(node_id=node, host=broker.address.host, port=broker.address.port)
                for node, broker in enumerate(self._brokers)
            ],
            cluster_id="moving",
            controller_id=0,
            topics=[MetadataTopicResponse(name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])],
        )

    def _new_producer(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.producer_id >= 0:
            return InitProducerIdResponse(producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1)
        self._producer_ids += 1
        return InitProducerIdResponse(producer_id=self._producer_ids, producer_epoch=0)

    def _produce(self, node: int, request: ProduceRequest) -> Answer | Awaitable[Answer]:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        answer = ProducePartitionResponse(index=0, error_code=ErrorCode.NONE, base_offset=-1)
        response = ProduceResponse(
            responses=[ProduceTopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])]
        )
        if node != self._leader:
            if self._hangs_up():
                return HangUp()
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if self._tells():
                answer.current_leader = ProduceLeaderIdAndEpoch(leader_id=self._leader, leader_epoch=self.moves)
                response.node_endpoints = [
                    ProduceNodeEndpoint(node_id=self._leader, host=address.host, port=address.port)
                    for address in (self._brokers[self._leader].address,)
                ]
            return response
        answer.error_code, answer.base_offset = self._append(BatchView(bytearray(data.records or b"")))
        if self._silent_until is not None:
            return self._hang_up_at(self._silent_until)
        return HangUp() if self._chance.random() < 0.03 else response

    @staticmethod
    async def _hang_up_at(moment: asyncio.Event) -> Answer:
        await moment.wait()
        return HangUp()

    def _append(self, batch: BatchView) -> tuple[ErrorCode, int]:
        """What an idempotent producer may do, and nothing else."""
        known = self._known.setdefault((batch.producer_id, batch.producer_epoch), [])
        for first, last, offset in known:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                return ErrorCode.NONE, offset
        expected = known[-1][1] + 1 if known else 0
        # Of a producer that it does not know, Kafka takes any sequence.
        is_known = any(each[0] == batch.producer_id for each, batches in self._known.items() if batches)
        if is_known and batch.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = self.end_offset
        batch.assign_offset(offset)
        batch.assign_leader_epoch(self.moves)
        self.batches.append(batch)
        known.append((batch.base_sequence, batch.last_sequence, offset))
        del known[:-_REMEMBERED]
        return ErrorCode.NONE, offset

    async def _fetch(self, node: int, request: FetchRequest) -> Answer:
        response = FetchResponse(session_id=0)
        for topic in request.topics:
            for asked in topic.partitions:
                answer = FetchPartitionResponse(
                    partition_index=0, error_code=ErrorCode.NONE, high_watermark=self.end_offset, records=b""
                )
                response.responses.append(
                    FetchTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[answer])
                )
                if node != self._leader or asked.current_leader_epoch > self.moves:
                    if self._hangs_up():
                        return HangUp()
                    self._send_away(answer, response)
                elif -1 < asked.current_leader_epoch < self.moves:
                    answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
                elif asked.fetch_offset > self.end_offset:
                    answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                elif found := [batch for batch in self.batches if batch.last_offset >= asked.fetch_offset]:
                    count = self._chance.randrange(1, 6)
                    answer.records = b"".join(batch.data for batch in found[:count])
                else:
                    await asyncio.sleep(_EMPTY_FETCH_S)
        return response

    def _send_away(self, answer: FetchPartitionResponse, response: FetchResponse) -> None:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._tells():
            address = self._brokers[self._leader].address
            answer.current_leader = FetchLeaderIdAndEpoch(leader_id=self._leader, leader_epoch=self.moves)
            response.node_endpoints = [FetchNodeEndpoint(node_id=self._leader, host=address.host, port=address.port)]

    def _offsets(self, node: int, request: ListOffsetsRequest) -> Answer:
        (asked,) = request.topics[0].partitions
        answer = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.NONE, leader_epoch=self.moves)
        answer.offset = 0 if asked.timestamp == _EARLIEST else self.end_offset
        if node != self._leader:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[answer])])

    def _epoch_end(self, node: int, request: OffsetForLeaderEpochRequest) -> Answer:
        """Nothing was ever cut off: an epoch ends where the next one begins."""
        (asked,) = request.topics[0].partitions
        answer = OffsetForLeaderEpochPartitionResponse(partition=0, error_code=ErrorCode.NONE)
        if node != self._leader:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            later = [batch.base_offset for batch in self.batches if batch.leader_epoch > asked.leader_epoch]
            answer.leader_epoch = asked.leader_epoch
            answer.end_offset = later[0] if later else self.end_offset
        topics = [OffsetForLeaderEpochTopicResponse(topic=TOPIC, partitions=[answer])]
        return OffsetForLeaderEpochResponse(topics=topics)

    def _hangs_up(self) -> bool:
        return self._chance.random() < 0.2

    def _tells(self) -> bool:
        """Of the new leader (KIP-951)."""
        return self._chance.random() < 0.5
