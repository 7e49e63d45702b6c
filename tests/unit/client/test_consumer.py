"""A consumer: what it makes of the batches that brokers send, and of brokers that have a bad day."""

from __future__ import annotations

import asyncio

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Cluster, ClusterOptions
from ottla.client.consumer import Consumer, Fetched
from ottla.client.errors import OffsetOutOfRangeError, RefusedError
from ottla.client.offsets import EARLIEST, LATEST, Place, offsets_at
from ottla.records import BatchOptions, Record, encode_batch, encode_transaction_marker
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.schema import Request
from unit.client.scripted_broker import TOPIC_ID, Answer, HangUp, ScriptedBroker
from unit.client.test_cluster import run

EVENTS = TopicPartition("events", 0)
QUICK = ClusterOptions(retry_backoff_s=0.001, retry_backoff_max_s=0.002, api_timeout_s=0.2)


def batch(first: int, count: int) -> bytearray:
    records = [Record(0, 1000 + offset, None, b"%d" % offset) for offset in range(first, first + count)]
    return encode_batch(records, BatchOptions(base_offset=first))


class Partition:
    """Batches that are fetched from the one on that holds the offset asked for; all at once, but for `chunk` bytes."""

    def __init__(self, *batches: bytearray, end: int, first: int = 0, chunk: int | None = None) -> None:
        self.batches = batches
        self.first = first
        self.end = end
        self.chunk = chunk
        self.before: list[ErrorCode | HangUp] = []

    def __call__(self, request: Request) -> Answer | None:
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request)
        if not isinstance(request, FetchRequest):
            return None
        special = self.before.pop(0) if self.before else ErrorCode.NONE
        if isinstance(special, HangUp):
            return special
        offset = request.topics[0].partitions[0].fetch_offset
        if not self.first <= offset <= self.end:
            special = ErrorCode.OFFSET_OUT_OF_RANGE
        found = [one for one in self.batches if _last_offset(one) >= offset] if not special else []
        data = bytes(b"".join(found))[: self.chunk]
        answer = FetchPartitionResponse(error_code=special, high_watermark=self.end, records=data)
        return FetchResponse(responses=[FetchTopicResponse(topic="events", topic_id=TOPIC_ID, partitions=[answer])])

    def _offsets(self, request: ListOffsetsRequest) -> Answer:
        timestamp = request.topics[0].partitions[0].timestamp
        offset = {-1: self.end, -2: self.first}.get(timestamp, -1 if timestamp > 10_000 else timestamp - 1000)
        one = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="events", partitions=[one])])


def _last_offset(data: bytearray) -> int:
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")


async def read(partition: Partition, place: Place | int) -> list[Fetched]:
    """Everything from the place to the end."""
    fetched: list[Fetched] = []
    async with (
        ScriptedBroker(partition) as broker,
        Cluster(broker.bootstrap, QUICK) as cluster,
        Consumer(cluster) as consumer,
    ):
        await consumer.assign({EVENTS: place})
        async for one in consumer:
            fetched.append(one)
            if one.is_at_end:
                consumer.forget(one.partition)
    return fetched


def offsets(fetched: list[Fetched]) -> list[int]:
    return [record.offset for one in fetched for record in one.records]


@pytest.mark.parametrize("start", [0, 3, 9])
def test_a_batch_that_holds_more_than_was_asked_for_is_cut(start: int) -> None:
    async def scenario() -> None:
        fetched = await read(Partition(batch(0, 5), batch(5, 5), end=10), start)
        assert offsets(fetched) == list(range(start, 10))
        assert [record.value for one in fetched for record in one.records] == [b"%d" % at for at in range(start, 10)]

    run(scenario)


def test_a_batch_that_is_cut_off_is_fetched_again() -> None:
    async def scenario() -> None:
        size = len(batch(0, 5))
        fetched = await read(Partition(batch(0, 5), batch(5, 5), end=10, chunk=size + 20), EARLIEST)
        assert offsets(fetched) == list(range(10))
        assert len(fetched) == 2

    run(scenario)


def test_markers_and_gaps_are_passed_over() -> None:
    async def scenario() -> None:
        marker = encode_transaction_marker(
            producer_id=1, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=1, base_offset=5
        )
        emptied = encode_batch([], BatchOptions(base_offset=6, last_offset_delta=3))
        fetched = await read(Partition(batch(0, 5), marker, emptied, end=10), EARLIEST)
        assert offsets(fetched) == [0, 1, 2, 3, 4]
        assert fetched[-1].next_offset == 10

    run(scenario)


def test_what_may_pass_is_fetched_again_without_loss_or_repetition() -> None:
    async def scenario() -> None:
        partition = Partition(batch(0, 5), batch(5, 5), end=10, chunk=len(batch(0, 5)))
        partition.before = [ErrorCode.NOT_LEADER_OR_FOLLOWER, HangUp(), ErrorCode.NONE, HangUp()]
        assert offsets(await read(partition, EARLIEST)) == list(range(10))
        assert not partition.before

    run(scenario)


def test_patience_ends() -> None:
    async def scenario() -> None:
        partition = Partition(end=10)
        partition.before = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000
        with pytest.raises(RefusedError, match="NOT_LEADER_OR_FOLLOWER"):
            await read(partition, 0)

    run(scenario)


def test_an_offset_that_is_not_there_is_told_with_those_that_are() -> None:
    async def scenario() -> None:
        with pytest.raises(OffsetOutOfRangeError, match=r"has offsets 3 to 9; 20 is not there"):
            await read(Partition(batch(3, 7), first=3, end=10), 20)
        with pytest.raises(OffsetOutOfRangeError, match=r"is empty, the next offset is 3"):
            await read(Partition(first=3, end=3), 1)

    run(scenario)


def test_places() -> None:
    async def scenario() -> None:
        partition = Partition(first=3, end=10)
        async with ScriptedBroker(partition) as broker, Cluster(broker.bootstrap) as cluster:
            for place, offset in {EARLIEST: 3, LATEST: 10, Place.at_time(1007): 7, Place.at_time(20_000): 10}.items():
                assert await offsets_at(cluster, {EVENTS: place}) == {EVENTS: offset}

    run(scenario)


def test_the_next_fetch_is_on_its_way_while_the_caller_looks_at_records() -> None:
    async def scenario() -> None:
        size = len(batch(0, 5))
        partition = Partition(batch(0, 5), batch(5, 5), end=10, chunk=size)
        async with (
            ScriptedBroker(partition) as broker,
            Cluster(broker.bootstrap) as cluster,
            Consumer(cluster) as consumer,
        ):
            await consumer.assign({EVENTS: 0})
            await consumer.poll()
            while len(broker.of(FetchRequest)) < 2:
                await asyncio.sleep(0)
            # No more than one ahead: memory is bounded.
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(broker.of(FetchRequest)) == 2

    run(scenario)


def test_closing_ends_the_fetches() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(Partition(batch(0, 5), end=5)) as broker, Cluster(broker.bootstrap) as cluster:
            async with Consumer(cluster) as consumer:
                await consumer.assign({EVENTS: 0})
                await consumer.poll()
            assert not [task for task in asyncio.all_tasks() if task.get_name() == "ottla-fetch"]

    run(scenario)
