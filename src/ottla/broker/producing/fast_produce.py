"""The fast path for the produce requests that most producers send, without an object for each part of a request.

A request takes it if its version has compact fields and it has one batch for one partition. All bytes before the batch
are then the same in every request of a producer to that partition: the codec reads them once, and they are recognised
from then on. All other requests are decoded as declared and served by `general_produce`.
A request that turns out to need more than an append also falls back to it, before anything is appended.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.broker.producing.general_produce import (
    ALL_REPLICAS,
    TOPIC_IDS_SINCE,
    Answer,
    DelayedProduce,
    appended,
    failed,
    is_transactional,
    produce,
    tell_leaders,
)
from ottla.broker.producing.held_produce import AppendOutcome
from ottla.broker.requests.api import Deferred, EncodedResponse, RequestContext
from ottla.broker.transactions.verification import VerifiedBatch
from ottla.controller.topic_names import is_internal
from ottla.log.errors import LargeBatchError, LogError
from ottla.log.partition_log import PartitionLog
from ottla.log.validation import AppendInfo
from ottla.records import Compression
from ottla.records.layout import ATTRIBUTES_AT, HEADER_SIZE, NO_TIMESTAMP, PRODUCER_ID_AT, TRANSACTIONAL_BIT
from ottla.replication.delayed import DelayedOperation
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import AwaitedAppend, Partition
from ottla.wire.codec import encode, reader_of
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

FAST_SINCE: Final = 9
"""The first version with compact fields."""

_NAME_AT: Final = 8
"""After the transactional id, acks, timeout and the number of topics; further back by the length of the id."""
_BEHIND_TOPIC: Final = 5
"""The number of partitions, and the index of the only one."""
_ID_SIZE: Final = 16
_EMPTY_BATCH: Final = b"\x01"
_NO_TAGS: Final = b"\x00\x00\x00"
"""Empty tagged fields of the partition, the topic and the request."""
_LONGER: Final = 0x80
"""In a byte of a varint: more bytes follow."""
_REMEMBERED_MAX: Final = 20_000
_PRODUCER: Final = struct.Struct(">qh")
"""Producer id and producer epoch of a batch."""
_NONE: Final = ErrorCode.NONE
_SHARED_BYTES: Final = 64 * 1024
"""The size of a batch whose decompression costs more than handing it to a thread does."""
_ATTRIBUTES_LOW: Final = ATTRIBUTES_AT + 1
_ZSTD: Final = int(Compression.ZSTD)
"""All attributes of a batch in zstd that is not part of a transaction."""


class AnswerTemplate:
    """The response to a producer of one partition, with gaps for three numbers. Made from what the codec writes, so
    only the codec knows about versions."""

    __slots__ = ("_body", "_head", "_tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self._head = head
        self._tail = tail
        self._body = struct.Struct(f">{len(head)}sqqq{len(tail)}s")

    @classmethod
    def of(cls, target: ProduceTarget) -> AnswerTemplate:
        """All versions of the fast path have the three numbers."""
        numbers = (0x5A00_0000_0000_0001, 0x5A00_0000_0000_0002, 0x5A00_0000_0000_0003)
        answer = ProducePartitionResponse(
            index=target.index, base_offset=numbers[0], log_append_time_ms=numbers[1], log_start_offset=numbers[2]
        )
        topic = ProduceTopicResponse(name=target.name, topic_id=target.topic_id, partition_responses=[answer])
        written = encode(ProduceResponse(responses=[topic]), target.version)
        head, _, tail = written.rpartition(struct.pack(">qqq", *numbers))
        return cls(head, tail)

    def fill(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> EncodedResponse:
        return self._body.pack(self._head, base_offset, log_append_time_ms, log_start_offset, self._tail)


@dataclass(slots=True)
class ProduceTarget:
    """Where a batch goes, and how it is answered. Caches what the handler found for the last request: with many
    partitions, each lookup in a large table is a CPU cache miss."""

    version: int
    acks: int
    timeout_ms: int
    name: str
    topic_id: Uuid
    index: int
    transactional_id: str | None = None
    partition: Partition | None = None
    """Looked up again if this broker does not lead it: it may have been deleted, and created again with the same
    name."""
    template: AnswerTemplate | None = None

    def answer_to(self, info: AppendInfo) -> EncodedResponse:
        """The response to a batch that was appended."""
        return self.answer(info.first_offset, info.log_append_time_ms, info.log_start_offset)

    def answer(self, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> EncodedResponse:
        if self.template is None:
            self.template = AnswerTemplate.of(self)
        return self.template.fill(base_offset, log_append_time_ms, log_start_offset)


class FastProduce(NamedTuple):
    """A request; its batch is a view of the request's frame."""

    target: ProduceTarget
    records: memoryview

    def as_request(self) -> ProduceRequest:
        """The same request as the declared message."""
        target = self.target
        partition = ProducePartition(index=target.index, records=self.records)
        topic = ProduceTopic(name=target.name, topic_id=target.topic_id, partition_data=[partition])
        return ProduceRequest(
            transactional_id=target.transactional_id,
            acks=target.acks,
            timeout_ms=target.timeout_ms,
            topic_data=[topic],
        )


def produce_reader(version: int) -> Callable[[memoryview], FastProduce | ProduceRequest]:
    """Reads requests of that version."""
    read: Callable[[memoryview], ProduceRequest] = reader_of(ProduceRequest, version)
    if version < FAST_SINCE:
        return read
    by_id = version >= TOPIC_IDS_SINCE
    targets: dict[bytes, ProduceTarget | None] = {}
    behind_id = _NAME_AT + _ID_SIZE + _BEHIND_TOPIC
    new = tuple.__new__

    def learn(start: bytes) -> ProduceTarget | None:
        if len(targets) >= _REMEMBERED_MAX:
            targets.clear()
        targets[start] = target = _target_of(start, read, version)
        return target

    def read_any(frame: memoryview) -> FastProduce | ProduceRequest:
        size = len(frame)
        if size <= behind_id:  # too short for a topic name and a batch
            return read(frame)
        # The size of a compact string is its length plus one, and 0 for null.
        at = behind_id if by_id else _NAME_AT + frame[_NAME_AT] + _BEHIND_TOPIC
        if id_size := frame[0]:  # of a transactional id
            moved = id_size - 1
            if id_size >= _LONGER or size <= behind_id + moved:
                return read(frame)
            at = behind_id + moved if by_id else _NAME_AT + moved + frame[_NAME_AT + moved] + _BEHIND_TOPIC
        start = bytes(frame[:at])
        target = targets[start] if start in targets else learn(start)
        if target is None or at + 3 > size:
            return read(frame)
        length = frame[at]
        at += 1
        if length >= _LONGER:
            shift = 7
            length &= 0x7F
            while at < size:
                byte = frame[at]
                at += 1
                length |= (byte & 0x7F) << shift
                if byte < _LONGER:
                    break
                shift += 7
        behind = at + length - 1
        if behind <= at or behind + 3 != size or bytes(frame[behind:]) != _NO_TAGS:
            return read(frame)
        return new(FastProduce, (target, frame[at:behind]))

    return read_any


def _target_of(start: bytes, read: Callable[[memoryview], ProduceRequest], version: int) -> ProduceTarget | None:
    """None if the request does not qualify, or if the bytes do not begin one."""
    try:
        request = read(memoryview(start + _EMPTY_BATCH + _NO_TAGS))
    except (ProtocolError, IndexError):
        return None
    if len(request.topic_data) != 1:
        return None
    topic = request.topic_data[0]
    if len(topic.partition_data) != 1:
        return None
    index = topic.partition_data[0].index
    return ProduceTarget(
        version, request.acks, request.timeout_ms, topic.name, topic.topic_id, index, request.transactional_id
    )


def produce_fast(broker: Broker, request: FastProduce, context: RequestContext) -> Answer:
    """Appends the batch and answers. Returns None, with nothing done, if the request needs the general path; raises
    `LargeBatchError`, also with nothing done, if the batch is to be validated in a thread."""
    target, records = request
    partition = target.partition
    if partition is None or not partition.is_leader:
        partition = target.partition = _found(broker, target)
        if partition is None or not partition.is_leader:
            return None
    log = partition.log
    if log is None:
        return None
    held = broker.held_produces
    if len(records) > _SHARED_BYTES and records[_ATTRIBUTES_LOW] == _ZSTD and held.should_share(partition):
        return _append_in_thread(broker, target, partition, records, context)
    if partition in held.queues:
        return None
    transaction: VerifiedBatch | None = None
    attributes = 0
    if is_transactional(records):
        attributes = TRANSACTIONAL_BIT
        if target.transactional_id is None:
            return None
        if not _is_open(log, records):
            verifier = broker.transactions.verifier
            transaction = verifier.batch(partition, target.transactional_id, records, version=target.version)
        if transaction is not None and not transaction.is_settled():
            return produce(broker, request.as_request(), context, transaction=transaction)
    all_replicas = target.acks == ALL_REPLICAS
    try:
        if transaction is not None:
            transaction.check()
        if (offset := partition.append_sent(records, attributes)) >= 0:
            return target.answer(offset, NO_TIMESTAMP, log.log_start_offset)
        info = partition.append(records, all_replicas=all_replicas, bounded=True)
    except LargeBatchError:
        raise
    except (LogError, ReplicationError) as failure:
        answer = failed(partition, target.index, failure)
        broker.request_stats.api(ProduceRequest.api_key).count_error(answer.error_code)
    else:
        end = info.last_offset + 1
        if partition.is_acknowledged(end, all_replicas=all_replicas):
            return target.answer_to(info)
        append = AwaitedAppend(end, partition.leader_epoch, all_replicas)
        delayed = FastDelayedProduce(broker, target, partition, append, info, context)
        produces = broker.replicas.produces
        produces.wait(delayed, (partition,), max(target.timeout_ms, 0) / 1000)
        delayed.deferred.when_cancelled(partial(produces.cancel, delayed))
        return delayed.deferred
    return _response_of(target, partition, answer)


def _append_in_thread(
    broker: Broker, target: ProduceTarget, partition: Partition, records: memoryview, context: RequestContext
) -> Deferred:
    """Appends the batch when a thread has validated it, and then answers as `produce_fast` does."""
    deferred = Deferred()
    all_replicas = target.acks == ALL_REPLICAS

    def finish(outcome: AppendOutcome) -> None:
        if isinstance(outcome, AppendInfo):
            end = outcome.last_offset + 1
            if partition.is_acknowledged(end, all_replicas=all_replicas):
                deferred.answer(target.answer_to(outcome))
                return
            append = AwaitedAppend(end, partition.leader_epoch, all_replicas)
            delayed = FastDelayedProduce(broker, target, partition, append, outcome, context)
            delayed.deferred = deferred
            produces = broker.replicas.produces
            produces.wait(delayed, (partition,), max(target.timeout_ms, 0) / 1000)
            deferred.when_cancelled(partial(produces.cancel, delayed))
            return
        answer = failed(partition, target.index, outcome)
        broker.request_stats.api(ProduceRequest.api_key).count_error(answer.error_code)
        response = _response_of(target, partition, answer)
        tell_leaders(broker, response, context)
        deferred.answer(response)

    broker.held_produces.hold(partition, records, all_replicas=all_replicas, finish=finish, is_shared=True)
    return deferred


def _response_of(target: ProduceTarget, partition: Partition, answer: ProducePartitionResponse) -> ProduceResponse:
    topic = ProduceTopicResponse(name=partition.name.topic, topic_id=target.topic_id, partition_responses=[answer])
    return ProduceResponse(responses=[topic])


class FastDelayedProduce(DelayedOperation[Partition]):
    """Waits until one batch is where its producer wants it. Anything but success is answered as `DelayedProduce`
    does."""

    __slots__ = ("_append", "_broker", "_context", "_info", "_is_acknowledged", "_partition", "_target", "deferred")

    def __init__(
        self,
        broker: Broker,
        target: ProduceTarget,
        partition: Partition,
        append: AwaitedAppend,
        info: AppendInfo,
        context: RequestContext,
    ) -> None:
        super().__init__()
        self.deferred = Deferred()
        self._broker = broker
        self._target = target
        self._partition = partition
        self._append = append
        self._info = info
        self._context = context
        self._is_acknowledged = False

    def is_ready(self, key: Partition) -> bool:
        error = key.outcome(self._append)
        self._is_acknowledged = error is _NONE
        return error is not None

    def complete(self) -> None:
        if self._is_acknowledged:
            self.deferred.answer(self._target.answer_to(self._info))
            return
        target, partition = self._target, self._partition
        answer = appended(target.index, self._info)
        response = _response_of(target, partition, answer)
        general = DelayedProduce(self._broker, response, {partition: (self._append, answer)}, self._context)
        general.deferred = self.deferred
        general.is_ready(partition)
        general.complete()


def _is_open(log: PartitionLog, records: memoryview) -> bool:
    """Whether the batch continues a transaction that is open in the partition: then nothing has to be confirmed."""
    if len(records) < HEADER_SIZE:
        return False
    return log.producers.is_in_transaction(*_PRODUCER.unpack_from(records, PRODUCER_ID_AT))


def _found(broker: Broker, target: ProduceTarget) -> Partition | None:
    """The partition; None for internal topics, for acks=0 and for invalid acks."""
    name = target.name if target.version < TOPIC_IDS_SINCE else broker.metadata.name_of(target.topic_id) or ""
    if target.acks not in (1, ALL_REPLICAS) or is_internal(name):
        return None
    return broker.replicas.get(name, target.index)
