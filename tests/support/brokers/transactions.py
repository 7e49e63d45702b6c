"""A transactional producer at the level of requests, in any of their versions."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode
from ottla.records import decode_batch, iter_batches
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from support.brokers import Client, batch_of

OLD, NEW = 11, 12
"""Versions of Produce: producers add partitions themselves up to 11."""


class TransactionalProducer:
    """Sends requests; methods return the error."""

    def __init__(self, client: Client, transactional_id: str = "payments", *, version: int = OLD) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.producer_epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def init(self, timeout_ms: int = 60_000) -> ErrorCode:
        find = FindCoordinatorRequest(key=self.transactional_id, key_type=1)
        assert (await self.client.ask(find, FindCoordinatorResponse, 3)).error_code == 0
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )
        answer = await self.client.ask(request, InitProducerIdResponse, 5)
        if not answer.error_code:
            self._identify(answer.producer_id, answer.producer_epoch)
        return ErrorCode.of(answer.error_code)

    def _identify(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self.producer_id, self.producer_epoch):
            self.sequences.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    async def add(self, topic: str, *indexes: int) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        answer = await self.client.ask(request, AddPartitionsToTxnResponse, 3)
        (found,) = answer.results_by_topic_v3_and_below
        return ErrorCode.of(found.results_by_partition[0].partition_error_code)

    def request(self, value: bytes, topic: str = "orders", index: int = 0) -> ProduceRequest:
        """For the next batch of the partition."""
        sequence = self.sequences.get((topic, index), 0)
        self.sequences[topic, index] = sequence + 1
        records = batch_of(
            value,
            transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
        )
        partition = ProducePartition(index=index, records=records)
        return ProduceRequest(
            acks=-1,
            timeout_ms=20_000,
            transactional_id=self.transactional_id,
            topic_data=[ProduceTopic(name=topic, partition_data=[partition])],
        )

    async def produce(self, value: bytes, topic: str = "orders", index: int = 0) -> ErrorCode:
        self.client.send(self.request(value, topic, index), self.version)
        return await self.produced()

    async def produced(self) -> ErrorCode:
        """The outcome of the oldest produce request."""
        answer = await self.client.answer(ProduceResponse, self.version)
        return ErrorCode.of(answer.responses[0].partition_responses[0].error_code)

    async def end(self, *, committed: bool = True) -> ErrorCode:
        version = 5 if self.version >= NEW else 4
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        answer = await self.client.ask(request, EndTxnResponse, version)
        if not answer.error_code and version >= 5:
            self._identify(answer.producer_id, answer.producer_epoch)
        return ErrorCode.of(answer.error_code)


async def values_in(client: Client, topic: str = "orders", index: int = 0) -> list[bytes]:
    """What a consumer of committed records reads."""
    values: list[bytes] = []
    offset = 0
    aborted: set[int] = set()
    while True:
        asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=2**30)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=2**30,
            isolation_level=1,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        answer = (await client.ask(request, FetchResponse, 11)).responses[0].partitions[0]
        assert answer.error_code == 0
        if not answer.records:
            return values
        left = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        for batch in iter_batches(bytes(answer.records)):
            header = batch.header
            offset = header.next_offset
            while left and left[0][0] <= header.last_offset:
                aborted.add(left.pop(0)[1])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif header.producer_id not in aborted:
                values += [record.value or b"" for record in decode_batch(batch)]
