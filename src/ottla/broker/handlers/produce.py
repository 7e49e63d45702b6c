"""Produce: appends a client's batches, and answers when as many replicas have them as it asked for.

Batches are views of the frame they came in: validated and patched there, written to the log from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.api import Deferred, EncodedResponse, RequestContext
from ottla.broker.handlers import handles
from ottla.broker.plain_produce import TOPIC_IDS_SINCE, AnswerTemplate, PlainProduce, ProduceTarget, produce_reader
from ottla.controller.topic_names import is_internal
from ottla.log.errors import InvalidRecordsError, LogError
from ottla.log.validation import AppendInfo
from ottla.replication.delayed import DelayedOperation
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition
from ottla.wire.messages.produce import (
    ProduceLeaderIdAndEpoch,
    ProducePartitionResponse,
    ProduceRecordError,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ottla.wire.schema import Bytes

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_NONE: Final = ErrorCode.NONE
_ALL: Final = -1
_NEW_LEADER_SINCE: Final = 10
_ADMIN_CLIENT: Final = "__admin_client"
"""Who calls itself so may write to the topics of coordinators, as in Kafka: for repairs."""
_HIDDEN: Final = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)

Waiting = dict[Partition, tuple[int, ProducePartitionResponse]]
"""Where the high watermark must be for a partition's answer."""
Answer = ProduceResponse | EncodedResponse | Deferred | ConnectionAbortedError | None


@handles(ProduceRequest, versions="3-13", advertised="0-13", reader=produce_reader)
def produce(broker: Broker, request: ProduceRequest | PlainProduce, context: RequestContext) -> Answer:
    """Older message sets than v3's are not served, but told: librdkafka takes the lowest version for a sign of what
    codecs there are."""
    if isinstance(request, PlainProduce):
        answer = _produce_plainly(broker, request)
        if answer is not None:
            return answer
        request = request.as_request()
    return _produce(broker, request, context)


def _produce_plainly(broker: Broker, request: PlainProduce) -> ProduceResponse | EncodedResponse | Deferred | None:
    """None, and nothing done, where there is more to think about than one append that somebody waits for."""
    target, records = request
    partition = target.partition
    if partition is None or not partition.is_leader:
        partition = target.partition = _found(broker, target)
        if partition is None or not partition.is_leader:
            return None
    log, acks = partition.log, target.acks
    if log is None:
        return None
    waiting: Waiting = {}
    try:
        info = partition.append(records, all_replicas=acks == _ALL)
    except (LogError, ReplicationError) as failure:
        answer = _failed(target.index, failure)
        broker.request_stats.api(ProduceRequest.api_key).count_error(answer.error_code)
    else:
        end = info.last_offset + 1
        if log.high_watermark >= end or (acks == 1 and not partition.waits_for_disk):
            template = target.template
            if template is None:
                template = target.template = AnswerTemplate.of(target)
            return template.fill(info)
        answer = _appended(target.index, info)
        waiting[partition] = (end, answer)
    topic = ProduceTopicResponse(name=target.name, topic_id=target.topic_id, partition_responses=[answer])
    return _answered(broker, ProduceResponse(responses=[topic]), waiting, target.timeout_ms)


def _found(broker: Broker, target: ProduceTarget) -> Partition | None:
    """Not the partitions of coordinators, nor where nobody waits for an answer, or not for a valid one."""
    name = target.name if target.version < TOPIC_IDS_SINCE else broker.metadata.name_of(target.topic_id) or ""
    if target.acks not in (1, _ALL) or is_internal(name):
        return None
    return broker.replicas.get(name, target.index)


def _answered(
    broker: Broker, response: ProduceResponse, waiting: Waiting, timeout_ms: int
) -> ProduceResponse | Deferred:
    if not waiting:
        return response
    delayed = DelayedProduce(response, waiting)
    broker.replicas.produces.wait(delayed, waiting, max(timeout_ms, 0) / 1000)
    return delayed.deferred


def _produce(broker: Broker, request: ProduceRequest, context: RequestContext) -> Answer:
    acks = request.acks
    by_id = context.version >= TOPIC_IDS_SINCE
    is_allowed = -1 <= acks <= 1 and request.transactional_id is None
    find = broker.replicas.get
    waiting: Waiting = {}
    responses = []
    has_failed = False
    for topic in request.topic_data:
        name = topic.name if not by_id else broker.metadata.name_of(topic.topic_id) or ""
        is_closed = name[:2] == "__" and is_internal(name) and context.client_id != _ADMIN_CLIENT
        answers = []
        for asked in topic.partition_data:
            partition = find(name, asked.index)
            error = _refusal(partition, asked.records, by_id=by_id, known=bool(name))
            if not is_allowed:
                error = ErrorCode.INVALID_REQUIRED_ACKS if acks not in (-1, 0, 1) else ErrorCode.INVALID_TXN_STATE
            elif is_closed:
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            if error or partition is None or asked.records is None:
                answer = _refused(partition, asked.index, error, context.version)
            else:
                try:
                    info = partition.append(asked.records, all_replicas=acks == _ALL)
                except (LogError, ReplicationError) as failure:
                    answer = _failed(asked.index, failure)
                else:
                    end = info.last_offset + 1
                    is_done = partition.high_watermark >= end or not (acks == _ALL or partition.waits_for_disk)
                    answer = _appended(asked.index, info)
                    if not is_done:
                        waiting[partition] = (end, answer)
            if answer.error_code:
                has_failed = True
                broker.request_stats.api(ProduceRequest.api_key).count_error(answer.error_code)
            answers.append(answer)
        responses.append(ProduceTopicResponse(name=name, topic_id=topic.topic_id, partition_responses=answers))
    if not acks:
        # Nobody waits for an answer; a client that lost records can be told only by hanging up.
        return ConnectionAbortedError("a produce request without acknowledgement failed") if has_failed else None
    return _answered(broker, ProduceResponse(responses=responses), waiting, request.timeout_ms)


def _refusal(partition: Partition | None, records: Bytes | None, *, by_id: bool, known: bool) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id and not known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not records:
        return ErrorCode.INVALID_RECORD
    return partition.check_leader()


def _refused(partition: Partition | None, index: int, error: ErrorCode, version: int) -> ProducePartitionResponse:
    answer = ProducePartitionResponse(index=index, error_code=error, base_offset=-1)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None and version >= _NEW_LEADER_SINCE:
        answer.current_leader = ProduceLeaderIdAndEpoch(
            leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
        )
    return answer


def _failed(index: int, failure: LogError | ReplicationError) -> ProducePartitionResponse:
    answer = ProducePartitionResponse(index=index, error_code=failure.code, base_offset=-1)
    if failure.code not in _HIDDEN:
        answer.error_message = str(failure)
    if isinstance(failure, InvalidRecordsError):
        answer.record_errors = [
            ProduceRecordError(batch_index=index, batch_index_error_message=reason) for index, reason in failure.faults
        ]
    return answer


def _appended(index: int, info: AppendInfo) -> ProducePartitionResponse:
    return ProducePartitionResponse(
        index=index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


class DelayedProduce(DelayedOperation[Partition]):
    """Waits until the high watermark has passed the appended records of every partition."""

    __slots__ = ("_response", "_waiting", "deferred")

    def __init__(self, response: ProduceResponse, waiting: Waiting) -> None:
        super().__init__()
        self.deferred = Deferred()
        self._response = response
        self._waiting = dict(waiting)

    def is_ready(self, key: Partition) -> bool:
        end, answer = self._waiting.get(key, (0, None))
        if answer is not None:
            error = key.check_leader()
            if error:
                self._refuse(answer, error)
                del self._waiting[key]
            elif key.high_watermark >= end:
                del self._waiting[key]
                if key.is_under_min_isr:
                    self._refuse(answer, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return not self._waiting

    def complete(self) -> None:
        for _, answer in self._waiting.values():
            self._refuse(answer, ErrorCode.REQUEST_TIMED_OUT)
        self.deferred.answer(self._response)

    @staticmethod
    def _refuse(answer: ProducePartitionResponse, error: ErrorCode) -> None:
        answer.error_code = error
        answer.base_offset = -1
        answer.log_append_time_ms = -1
