"""Appends the batches of any produce request, and answers when enough replicas have them (acks).

Batches are views of the request's frame, where they are validated and patched, and from where they are written to the
log. Batches that take long to validate are copied and appended later (`held_produce`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.producing.held_produce import AppendOutcome, Finish
from ottla.broker.requests.api import Deferred, EncodedResponse, RequestContext
from ottla.broker.requests.leader_hints import current_leader, endpoints_of
from ottla.broker.requests.partition_access import unhosted
from ottla.broker.transactions.verification import VerifiedBatch
from ottla.controller.topic_names import is_internal
from ottla.log.errors import InvalidRecordsError, LargeBatchError, LogError
from ottla.log.validation import AppendInfo
from ottla.records import Compression
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    LENGTH_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
)
from ottla.replication.delayed import DelayedOperation
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import AwaitedAppend, Partition
from ottla.wire.messages.produce import (
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRecordError,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from ottla.wire.schema import Bytes

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_NONE: Final = ErrorCode.NONE
ALL_REPLICAS: Final = -1
"""acks=all."""
TOPIC_IDS_SINCE: Final = 13
_ZSTD_SINCE: Final = 7
_NEW_LEADER_SINCE: Final = 10
_ADMIN_CLIENT: Final = "__admin_client"
"""A client with this id may write to internal topics, as in Kafka: for repairs."""
_HIDDEN: Final = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)

_LENGTH: Final = Struct(">i")
_SHORTEST: Final = 14
"""Bytes of a message of the oldest format, after its length: less than any batch."""
_ATTRIBUTES_LOW: Final = ATTRIBUTES_AT + 1
"""The byte of a batch with all attributes in use."""

Waiting = dict[Partition, tuple[AwaitedAppend, ProducePartitionResponse]]
"""The records that each partition's response waits for."""
AtOnce = ProduceResponse | EncodedResponse | Deferred | ConnectionAbortedError | None
Answer = AtOnce | Coroutine[Any, Any, ProduceResponse | Deferred | ConnectionAbortedError | None]


def answered(
    broker: Broker,
    response: ProduceResponse,
    waiting: Waiting,
    timeout_ms: int,
    context: RequestContext,
    *,
    is_late: bool = False,
) -> ProduceResponse | Deferred:
    """Now, or when everything in `waiting` is acknowledged. `is_late`: that may have happened since the append."""
    if not waiting:
        return response
    delayed = DelayedProduce(broker, response, waiting, context)
    if is_late and delayed.is_over():
        delayed.complete()
        return delayed.deferred
    produces = broker.replicas.produces
    produces.wait(delayed, waiting, max(timeout_ms, 0) / 1000)
    delayed.deferred.when_cancelled(partial(produces.cancel, delayed))
    return delayed.deferred


def is_transactional(records: Bytes | None) -> bool:
    """Whether the first batch is part of a transaction; there is only one batch per partition."""
    return (
        records is not None
        and len(records) > _ATTRIBUTES_LOW
        and bool(records[_ATTRIBUTES_LOW] & TRANSACTIONAL_BIT)
        and records[MAGIC_AT] == MAGIC_V2
    )


def produce(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    *,
    is_large: bool = False,
    transaction: VerifiedBatch | None = None,
) -> Answer:
    """`is_large`: the only batch of the request is known to be large. `transaction`: the only batch is part of one, and
    its coordinator has been asked already."""
    acks = request.acks
    by_id = context.version >= TOPIC_IDS_SINCE
    bad_acks = _NONE if -1 <= acks <= 1 else ErrorCode.INVALID_REQUIRED_ACKS
    transactional_id = request.transactional_id
    refusal = _NONE if transactional_id is not None else _refusal(request)
    partitions = broker.replicas.partitions
    held = broker.held_produces
    is_plain = not (bad_acks or refusal or is_large or held.queues)
    outcomes = _Outcomes(broker, acks)
    responses = []
    for topic in _once_each(request.topic_data, by_id=by_id):
        name = topic.name if not by_id else broker.metadata.name_of(topic.topic_id) or ""
        is_closed = name[:2] == "__" and is_internal(name) and context.client_id != _ADMIN_CLIENT
        answers: list[ProducePartitionResponse] = []
        for asked in topic.partition_data:
            partition = partitions.get((name, asked.index))  # type: ignore[call-overload]  # equal to its tuple
            if partition is None:  # a new partition may not have its log yet
                partition = broker.replicas.get(name, asked.index)
            records = asked.records
            if is_plain and partition is not None and records is not None and not is_closed:
                log = partition.log
                try:
                    offset = partition.append_sent(records)
                except ReplicationError as failure:  # of the disk
                    answers.append(outcomes.answer(partition, asked.index, failure))
                    continue
                if offset >= 0 and log is not None:
                    start = log.log_start_offset
                    answers.append(
                        ProducePartitionResponse(index=asked.index, base_offset=offset, log_start_offset=start)
                    )
                    continue
            error = refusal
            if error:
                pass
            elif partition is None:
                error = unhosted(broker, name, asked.index) if name or not by_id else ErrorCode.UNKNOWN_TOPIC_ID
            else:
                error = _fault(records, context.version)
                if bad_acks and not error:
                    error = _format_fault(records) or bad_acks
                error = error or (ErrorCode.INVALID_TOPIC_EXCEPTION if is_closed else partition.check_leader())
            if error or partition is None or records is None:
                answer = ProducePartitionResponse(index=asked.index, error_code=error, base_offset=-1)
                outcomes.note_error(answer)
                answers.append(answer)
                continue
            outcome: AppendOutcome | None = None
            if transaction is None and transactional_id is not None and is_transactional(records):
                verifier = broker.transactions.verifier
                transaction = verifier.batch(partition, transactional_id, records, version=context.version)
            may_append = not is_large and not held.holds_up(partition, records)
            if may_append and (transaction is None or transaction.is_settled()):
                try:
                    if transaction is not None:
                        transaction.check()
                    outcome = partition.append(records, all_replicas=acks == ALL_REPLICAS, bounded=True)
                except LargeBatchError:
                    pass
                except (LogError, ReplicationError) as failure:
                    outcome = failure
            if outcome is not None:
                answers.append(outcomes.answer(partition, asked.index, outcome))
            else:
                answers.append(ProducePartitionResponse(index=asked.index))
                finish = outcomes.later(partition, answers)
                all_replicas = acks == ALL_REPLICAS
                held.hold(partition, records, all_replicas=all_replicas, finish=finish, transaction=transaction)
            transaction = None
        responses.append(ProduceTopicResponse(name=name, topic_id=topic.topic_id, partition_responses=answers))
    response = ProduceResponse(responses=responses)
    if outcomes.open_count:
        return _answered_later(broker, response, outcomes, request.timeout_ms, context)
    if not acks:
        return _unacknowledged(broker, outcomes, context)
    if outcomes.first_error is not None:
        tell_leaders(broker, response, context)
    return answered(broker, response, outcomes.waiting, request.timeout_ms, context)


def _refusal(request: ProduceRequest) -> ErrorCode:
    """Kafka's error for transactional records without a transactional id; clients treat it as fatal."""
    for topic in request.topic_data:
        for asked in topic.partition_data:
            records = asked.records
            # The first tests are part of the last one, which costs a call for each partition.
            if (
                records is not None
                and len(records) > _ATTRIBUTES_LOW
                and records[_ATTRIBUTES_LOW] & TRANSACTIONAL_BIT
                and is_transactional(records)
            ):
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return _NONE


class _Outcomes:
    """The outcomes of a request's batches, as far as they are known."""

    __slots__ = ("_broker", "_is_complete", "acks", "first_error", "open_count", "waiting")

    def __init__(self, broker: Broker, acks: int) -> None:
        self._broker = broker
        self.acks = acks
        self._is_complete: asyncio.Future[None] | None = None
        self.waiting: Waiting = {}
        self.first_error: ProducePartitionResponse | None = None
        self.open_count = 0
        """The number of held batches."""

    def answer(self, partition: Partition, index: int, outcome: AppendOutcome) -> ProducePartitionResponse:
        if not isinstance(outcome, AppendInfo):
            answer = failed(partition, index, outcome)
            self.note_error(answer)
            return answer
        answer = appended(index, outcome)
        end, all_replicas = outcome.last_offset + 1, self.acks == ALL_REPLICAS
        if not partition.is_acknowledged(end, all_replicas=all_replicas):
            self.waiting[partition] = (AwaitedAppend(end, partition.leader_epoch, all_replicas), answer)
        return answer

    def note_error(self, answer: ProducePartitionResponse) -> None:
        self.first_error = self.first_error or answer
        self._broker.request_stats.api(ProduceRequest.api_key).count_error(answer.error_code)

    def later(self, partition: Partition, answers: list[ProducePartitionResponse]) -> Finish:
        """The callback for a held batch: replaces its placeholder, which is the last of `answers` now."""
        at = len(answers) - 1
        self.open_count += 1

        def finish(outcome: AppendOutcome) -> None:
            answers[at] = self.answer(partition, answers[at].index, outcome)
            self.open_count -= 1
            if not self.open_count and self._is_complete is not None and not self._is_complete.done():
                self._is_complete.set_result(None)

        return finish

    async def complete(self) -> None:
        """Waits until no batch is held."""
        if self.open_count:
            self._is_complete = asyncio.get_running_loop().create_future()
            await self._is_complete


async def _answered_later(
    broker: Broker, response: ProduceResponse, outcomes: _Outcomes, timeout_ms: int, context: RequestContext
) -> ProduceResponse | Deferred | ConnectionAbortedError | None:
    await outcomes.complete()
    if not outcomes.acks:
        return _unacknowledged(broker, outcomes, context)
    if outcomes.first_error is not None:
        tell_leaders(broker, response, context)
    return answered(broker, response, outcomes.waiting, timeout_ms, context, is_late=True)


def _unacknowledged(broker: Broker, outcomes: _Outcomes, context: RequestContext) -> ConnectionAbortedError | None:
    """With acks=0 there is no response: closing the connection is the only way to report a failure."""
    failed = outcomes.first_error
    if failed is None:
        return None
    reason = failed.error_message or ErrorCode.of(failed.error_code).description
    broker.complaints.warning(
        ("acks=0", context.client_host),
        "closed the connection of client %r from %s: its produce request with acks=0 failed for partition %d: %s",
        context.client_id,
        context.client_host,
        failed.index,
        reason,
    )
    return ConnectionAbortedError("a produce request with acks=0 failed")


def _once_each(topics: list[ProduceTopic], *, by_id: bool) -> list[ProduceTopic]:
    """The topics; if a partition appears more than once, only its last entry, as in Kafka."""
    names = {topic.topic_id if by_id else topic.name for topic in topics}
    if len(names) == len(topics) and all(
        len({asked.index for asked in topic.partition_data}) == len(topic.partition_data)
        for topic in topics
        if len(topic.partition_data) > 1
    ):
        return topics
    merged: dict[object, dict[int, ProducePartition]] = {}
    firsts: dict[object, ProduceTopic] = {}
    for topic in topics:
        key = topic.topic_id if by_id else topic.name
        firsts.setdefault(key, topic)
        merged.setdefault(key, {}).update((asked.index, asked) for asked in topic.partition_data)
    return [
        ProduceTopic(name=topic.name, topic_id=topic.topic_id, partition_data=list(merged[key].values()))
        for key, topic in firsts.items()
    ]


def _length_at(records: Bytes, position: int) -> int:
    """The length field of the batch at the position: its size after that field."""
    length: int = _LENGTH.unpack_from(records, position + LENGTH_AT)[0]
    return length


def _fault(records: Bytes | None, version: int) -> ErrorCode:
    """What is wrong with records whatever their partition, in the order in which Kafka looks: there must be one whole
    batch, as far as lengths tell, without zstd before KIP-110, and no second one."""
    if records is None or len(records) < LENGTH_PREFIX_SIZE:
        return ErrorCode.INVALID_RECORD
    size = _length_at(records, 0) + LENGTH_PREFIX_SIZE
    if size > len(records):
        return ErrorCode.INVALID_RECORD
    if (
        version < _ZSTD_SINCE
        and len(records) > _ATTRIBUTES_LOW
        and records[_ATTRIBUTES_LOW] & COMPRESSION_MASK == Compression.ZSTD
        and records[MAGIC_AT] == MAGIC_V2
    ):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if 0 < size < len(records):
        return _fault_after(records, size)
    return _NONE


def _fault_after(records: Bytes, position: int) -> ErrorCode:
    """A second batch is invalid, and bytes that cannot be a batch are corrupt."""
    left = len(records) - position
    if left < LENGTH_PREFIX_SIZE:
        return _NONE
    length = _length_at(records, position)
    if length < _SHORTEST or (left > MAGIC_AT and records[position + MAGIC_AT] > MAGIC_V2):
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.INVALID_RECORD if length + LENGTH_PREFIX_SIZE <= left else _NONE


def _format_fault(records: Bytes | None) -> ErrorCode:
    """The errors that Kafka finds in the first bytes of a batch. The log also finds them, with better messages."""
    if records is None or len(records) <= MAGIC_AT or records[MAGIC_AT] == MAGIC_V2:
        return _NONE
    return ErrorCode.INVALID_RECORD if records[MAGIC_AT] < MAGIC_V2 else ErrorCode.CORRUPT_MESSAGE


def tell_leaders(broker: Broker, response: ProduceResponse, context: RequestContext) -> None:
    """Names the leaders of partitions that this broker does not lead (KIP-951)."""
    if context.version < _NEW_LEADER_SINCE:
        return
    leaders: dict[int, None] = {}
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = current_leader(broker, topic.name, answer.index)
                answer.current_leader = ProduceLeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders[leader] = None
    response.node_endpoints = [
        ProduceNodeEndpoint(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
        for each in endpoints_of(broker, leaders, context.listener)
    ]


def failed(partition: Partition, index: int, failure: LogError | ReplicationError) -> ProducePartitionResponse:
    answer = ProducePartitionResponse(index=index, error_code=failure.code, base_offset=-1)
    if failure.tells_log_start and partition.log is not None:
        answer.log_start_offset = partition.log.log_start_offset
    if failure.code not in _HIDDEN:
        answer.error_message = str(failure)
    if isinstance(failure, InvalidRecordsError):
        answer.record_errors = [
            ProduceRecordError(batch_index=index, batch_index_error_message=reason) for index, reason in failure.faults
        ]
    return answer


def appended(index: int, info: AppendInfo) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        index=index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


class DelayedProduce(DelayedOperation[Partition]):
    """Waits until the appended records of every partition are where their producer wants them (acks)."""

    __slots__ = ("_broker", "_context", "_has_moved", "_response", "_waiting", "deferred")

    def __init__(self, broker: Broker, response: ProduceResponse, waiting: Waiting, context: RequestContext) -> None:
        super().__init__()
        self.deferred = Deferred()
        self._broker = broker
        self._context = context
        self._has_moved = False
        self._response = response
        self._waiting = dict(waiting)

    def is_ready(self, key: Partition) -> bool:
        waiting = self._waiting.get(key)
        if waiting is not None:
            append, answer = waiting
            error = key.outcome(append)
            if error is not None:
                del self._waiting[key]
                if error:
                    self._refuse(answer, error)
        return not self._waiting

    def is_over(self) -> bool:
        """Looks at every partition. Changes before `wait` are not reported, so a wait for them would not end."""
        for partition in list(self._waiting):
            self.is_ready(partition)
        return not self._waiting

    def complete(self) -> None:
        for _, answer in self._waiting.values():
            self._refuse(answer, ErrorCode.REQUEST_TIMED_OUT)
        if self._has_moved:
            tell_leaders(self._broker, self._response, self._context)
        self.deferred.answer(self._response)

    def _refuse(self, answer: ProducePartitionResponse, error: ErrorCode) -> None:
        self._has_moved = self._has_moved or error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer.error_code = error
        answer.base_offset = -1
        answer.log_append_time_ms = -1
