"""Sends records: gathered into a batch for each partition, a request for each broker, and again where that helps.

`send` puts a record into the open batch of its partition and returns at once, unless the buffer is full: then it waits.
A batch leaves when it is full, when it has lingered, or when someone flushes. A partition has one batch on its way at a
time, so records stay in order even when a batch has to be sent again; other partitions go on meanwhile. With acks=all
batches carry sequence numbers: one whose answer was lost is sent again and still is there once. With less than that it
may be there twice.

Belongs to one loop. `close` sends what is left; leaving the context by an exception drops it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition
from ottla.client.cluster import Cluster, Deadline, may_pass
from ottla.client.errors import ClientError, ClosedError, RefusedError, raise_if_refused
from ottla.client.metadata import NO_LEADER, TopicInfo
from ottla.client.partitioner import StickyPartitions, partition_of_key
from ottla.records import BatchOptions, Compression, Header, Record, encode_batch, sequence_after
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)

ALL_REPLICAS: Final = -1
_LAST_VERSION_BY_NAME: Final = 12
_NO_TRANSACTION: Final = 2**31 - 1
_RECORD_OVERHEAD_BYTES: Final = 24
"""About what a record takes beside its key and value."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How records are gathered and sent."""

    acks: int = ALL_REPLICAS
    linger_s: float = 0.005
    batch_bytes: int = 128 * 1024
    compression: Compression = Compression.NONE
    buffer_bytes: int = 32 * 1024 * 1024
    delivery_timeout_s: float = 120.0
    """From the first record of a batch to its acknowledgement, attempts and all."""
    request_timeout_s: float = 30.0
    idempotent: bool = True
    """Whether batches carry sequence numbers, by which a broker knows one that it has already. Needs acks=all."""
    create_topics: bool = True
    """Whether the broker is asked to make a topic that does not exist; it may be configured not to."""


class Acknowledged(NamedTuple):
    """Where a record is now. The offset is -1 if no acknowledgement was asked for."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int


class _Identity:
    """Who a producer is to brokers, and how far its sequence numbers are in each partition.

    A batch that is given up leaves a gap in them that no broker accepts: then the producer begins anew as another one.
    """

    __slots__ = ("_sequences", "epoch", "producer_id")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self._sequences: dict[TopicPartition, int] = {}

    def take_sequences(self, partition: TopicPartition, count: int) -> int:
        """The first of so many numbers that come next in the partition."""
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence_after(first, count)
        return first


class _Batch:
    """Records of one partition that travel together."""

    __slots__ = ("answer", "deadline", "encoded", "partition", "records", "ripe_at_s", "size_in_bytes")

    def __init__(self, partition: TopicPartition, options: ProducerOptions) -> None:
        loop = asyncio.get_running_loop()
        self.partition = partition
        self.records: list[Record] = []
        self.size_in_bytes = 0
        self.encoded: bytearray | None = None
        self.ripe_at_s = loop.time() + options.linger_s
        self.deadline = Deadline(options.delivery_timeout_s)
        self.answer: asyncio.Future[ProducePartitionResponse] = loop.create_future()
        # Not everyone looks at each delivery: `flush` tells of what failed.
        self.answer.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)


class Delivery:
    """A record on its way."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: _Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    async def acknowledged(self) -> Acknowledged:
        """Waits until the broker has it; raises what kept it from there."""
        answer = await asyncio.shield(self._batch.answer)
        stamped_ms = answer.log_append_time_ms
        timestamp_ms = self._batch.records[self._index].timestamp_ms if stamped_ms < 0 else stamped_ms
        offset = answer.base_offset + self._index if answer.base_offset >= 0 else -1
        return Acknowledged(self._batch.partition, offset, timestamp_ms)


class Producer:
    """Use it as an async context, or `close` it: it runs a task."""

    def __init__(self, cluster: Cluster, options: ProducerOptions | None = None) -> None:
        self.options = options or ProducerOptions()
        self._cluster = cluster
        self._queues: dict[TopicPartition, deque[_Batch]] = {}
        self._sticky: dict[str, StickyPartitions] = {}
        self._busy: set[TopicPartition] = set()
        self._not_before_s: dict[TopicPartition, float] = {}
        self._unfinished: set[_Batch] = set()
        self._first_failure: Exception | None = None
        self._identity: _Identity | None = None
        self._identifying = asyncio.Lock()
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._wake = asyncio.Event()
        self._flushing = 0
        self._is_closed = False
        self._requests: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._sender = self._loop.create_task(self._run(), name="ottla-producer")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abandon()

    # Records in.

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Takes the record; it is delivered in the background."""
        if timestamp_ms is not None and timestamp_ms < 0:
            raise ValueError(f"a record cannot have timestamp {timestamp_ms}: it is in milliseconds since 1970")
        while not self._room.is_set():
            await self._room.wait()
        info = self._cluster.known_topic(topic) or await self._find_topic(topic)
        if self._is_closed:
            raise ClosedError("the producer is closed")
        size = len(key or b"") + len(value or b"") + _RECORD_OVERHEAD_BYTES
        target = TopicPartition(topic, self._choose(info, key, partition, size))
        batch = self._open_batch(target, size)
        created_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        batch.records.append(Record(0, created_ms, key, value, tuple(headers)))
        batch.size_in_bytes += size
        self._buffered_bytes += size
        if self._buffered_bytes >= self.options.buffer_bytes:
            self._room.clear()
        if batch.size_in_bytes >= self.options.batch_bytes or len(batch.records) == 1:
            self._wake.set()
        return Delivery(batch, len(batch.records) - 1)

    async def _find_topic(self, name: str) -> TopicInfo:
        return await self._cluster.retry(lambda: self._cluster.topic(name, create=self.options.create_topics))

    def _choose(self, info: TopicInfo, key: bytes | None, partition: int | None, size: int) -> int:
        count = len(info.partitions)
        if partition is not None:
            if not 0 <= partition < count:
                raise ClientError(f"topic {info.name} has partitions 0 to {count - 1}, not {partition}")
            return partition
        if key is not None:
            return partition_of_key(key, count)
        sticky = self._sticky.get(info.name)
        if sticky is None:
            self._sticky[info.name] = sticky = StickyPartitions(self.options.batch_bytes)
        led = [one.index for one in info.partitions if one.leader_id != NO_LEADER]
        return sticky.choose(led or range(count), size)

    def _open_batch(self, target: TopicPartition, size: int) -> _Batch:
        queue = self._queues.get(target)
        if queue is None:
            self._queues[target] = queue = deque()
        # One that was encoded is or was on its way.
        if not queue or queue[-1].encoded or queue[-1].size_in_bytes + size > self.options.batch_bytes:
            batch = _Batch(target, self.options)
            queue.append(batch)
            self._unfinished.add(batch)
        return queue[-1]

    async def flush(self) -> None:
        """Waits until nothing is on its way; then raises the first failure since the last flush, if there was one."""
        self._flushing += 1
        self._wake.set()
        try:
            while self._unfinished:
                await asyncio.wait([batch.answer for batch in self._unfinished])
        finally:
            self._flushing -= 1
        failure, self._first_failure = self._first_failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Sends what is left, then ends; raises as `flush` does."""
        self._is_closed = True
        try:
            await self.flush()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Ends at once; what is not acknowledged by now has failed."""
        self._is_closed = True
        tasks = [self._sender, *self._requests]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for batch in list(self._unfinished):
            self._finish(batch, ClosedError("the producer was closed before the record was acknowledged"))
        self._first_failure = None

    # Batches out.

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            ready, next_at_s = self._take_ready()
            for leader_id, batches in self._by_leader(ready).items():
                task = self._loop.create_task(self._deliver(leader_id, batches))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)
            timeout_s = None if next_at_s is None else max(0.0, next_at_s - self._loop.time())
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _take_ready(self) -> tuple[list[_Batch], float | None]:
        """The batches whose time has come, their partitions busy from now on; and when the next one's will."""
        now_s = self._loop.time()
        ready: list[_Batch] = []
        next_at_s: float | None = None
        for partition, queue in self._queues.items():
            if not queue or partition in self._busy:
                continue
            batch = queue[0]
            is_full = len(queue) > 1 or batch.size_in_bytes >= self.options.batch_bytes
            at_s = 0.0 if is_full or batch.encoded or self._flushing else batch.ripe_at_s
            at_s = max(at_s, self._not_before_s.get(partition, 0.0))
            if at_s <= now_s:
                self._busy.add(partition)
                ready.append(batch)
            elif next_at_s is None or at_s < next_at_s:
                next_at_s = at_s
        return ready, next_at_s

    def _by_leader(self, batches: Iterable[_Batch]) -> dict[int, list[_Batch]]:
        by_leader: dict[int, list[_Batch]] = {}
        for batch in batches:
            leader_id = self._cluster.known_leader(batch.partition)
            by_leader.setdefault(NO_LEADER if leader_id is None else leader_id, []).append(batch)
        return by_leader

    async def _deliver(self, leader_id: int, batches: Sequence[_Batch]) -> None:
        """One request; what fails in a way that may pass is left in its queue, to be taken again a little later."""
        answers: dict[TopicPartition, ProducePartitionResponse] = {}
        failure: Exception | None = None
        try:
            if leader_id == NO_LEADER:
                await self._cluster.refresh({batch.partition.topic for batch in batches})
                failure = RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {batches[0].partition}")
                if all(self._cluster.known_leader(batch.partition) is not None for batch in batches):
                    self._release(batches)
                    return
            else:
                answers = await self._produce(leader_id, batches)
        except Exception as error:  # whatever it is, it must reach those who wait for the batches
            failure = error
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                self._settle(batch, failure or _unanswered(batch))
            elif answer.error_code and answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._settle(batch, _refused(batch, answer))
            else:
                self._finish(batch, answer)
        self._release(batches)

    async def _produce(
        self, leader_id: int, batches: Sequence[_Batch]
    ) -> dict[TopicPartition, ProducePartitionResponse]:
        connection = await self._cluster.connection(leader_id)
        infos = {batch.partition.topic: await self._cluster.topic(batch.partition.topic) for batch in batches}
        by_name = any(info.topic_id == ZERO_UUID for info in infos.values())
        version = connection.version_for(ProduceRequest, at_most=_LAST_VERSION_BY_NAME if by_name else None)
        identity = await self._identify()
        topics: dict[str, ProduceTopic] = {}
        for batch in batches:
            topic = batch.partition.topic
            if batch.encoded is None:
                batch.encoded = self._encode(batch, identity)
            data = topics.setdefault(topic, ProduceTopic(name=topic, topic_id=infos[topic].topic_id))
            data.partition_data.append(ProducePartition(index=batch.partition.partition, records=batch.encoded))
        options = self.options
        request = ProduceRequest(
            acks=options.acks, timeout_ms=int(options.request_timeout_s * 1000), topic_data=list(topics.values())
        )
        if options.acks == 0:
            await connection.send_unanswered(request, version=version)
            return {batch.partition: ProducePartitionResponse(base_offset=-1) for batch in batches}
        # The broker gives up first, and says so.
        answer = await connection.send(
            request, ProduceResponse, version=version, timeout_s=options.request_timeout_s + 5
        )
        names = {info.topic_id: name for name, info in infos.items()}
        return {
            TopicPartition(topic.name or names[topic.topic_id], one.index): one
            for topic in answer.responses
            for one in topic.partition_responses
        }

    async def _identify(self) -> _Identity | None:
        if not self.options.idempotent or self.options.acks != ALL_REPLICAS:
            return None
        async with self._identifying:
            if self._identity is None:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION)
                answer = await self._cluster.send_to_any(request, InitProducerIdResponse)
                raise_if_refused(answer.error_code, "an id for the producer")
                self._identity = _Identity(answer.producer_id, answer.producer_epoch)
            return self._identity

    def _encode(self, batch: _Batch, identity: _Identity | None) -> bytearray:
        """The bytes of the batch, which stay the same however often it is sent."""
        if identity is None:
            return encode_batch(batch.records, BatchOptions(compression=self.options.compression))
        options = BatchOptions(
            compression=self.options.compression,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=identity.take_sequences(batch.partition, len(batch.records)),
        )
        return encode_batch(batch.records, options)

    def _settle(self, batch: _Batch, error: Exception) -> None:
        """The attempt failed: leave the batch for another one, or give it up."""
        if may_pass(error) and not batch.deadline.is_over:
            self._cluster.distrust(batch.partition.topic)
            self._not_before_s[batch.partition] = self._loop.time() + self._cluster.options.retry_backoff_s
        else:
            self._finish(batch, error)

    def _finish(self, batch: _Batch, outcome: ProducePartitionResponse | Exception) -> None:
        self._unfinished.discard(batch)
        self._queues[batch.partition].remove(batch)
        self._buffered_bytes -= batch.size_in_bytes
        self._room.set()
        if isinstance(outcome, Exception):
            self._first_failure = self._first_failure or outcome
            self._identity = None
            batch.answer.set_exception(outcome)
        else:
            self._not_before_s.pop(batch.partition, None)
            batch.answer.set_result(outcome)

    def _release(self, batches: Iterable[_Batch]) -> None:
        self._busy.difference_update(batch.partition for batch in batches)
        self._wake.set()


def _refused(batch: _Batch, answer: ProducePartitionResponse) -> RefusedError:
    message = answer.error_message
    if answer.record_errors and answer.record_errors[0].batch_index_error_message:
        message = answer.record_errors[0].batch_index_error_message
    return RefusedError(answer.error_code, f"partition {batch.partition}", message)


def _unanswered(batch: _Batch) -> ClientError:
    return ClientError(f"the broker's answer does not mention partition {batch.partition}")
