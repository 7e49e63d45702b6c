"""Produce: appends a client's batches, and answers when as many replicas have them as it asked for.

Batches are views of the frame they came in: validated and patched there, written to the log from there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.api import Deferred, RequestContext
from ottla.broker.handlers import handles
from ottla.log.errors import InvalidRecordsError, LogError
from ottla.replication.delayed import DelayedOperation
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition
from ottla.wire.messages.produce import (
    ProduceLeaderIdAndEpoch,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRecordError,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ottla.wire.schema import Bytes

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_ALL: Final = -1
_TOPIC_IDS_SINCE: Final = 13
_NEW_LEADER_SINCE: Final = 10
_HIDDEN: Final = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)


@handles(ProduceRequest, versions="3-13", advertised="0-13")
def produce(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Deferred | ConnectionAbortedError | None:
    """Older message sets than v3's are not served, but told: librdkafka takes the lowest version for a sign of what
    codecs there are."""
    acks = request.acks
    by_id = context.version >= _TOPIC_IDS_SINCE
    waiting: dict[Partition, tuple[int, ProducePartitionResponse]] = {}
    responses = []
    has_failed = False
    is_allowed = -1 <= acks <= 1 and request.transactional_id is None
    partitions = broker.replicas.partitions
    for topic in request.topic_data:
        name = topic.name if not by_id else broker.metadata.name_of(topic.topic_id) or ""
        answers = []
        for asked in topic.partition_data:
            answer = ProducePartitionResponse(index=asked.index, base_offset=-1)
            answers.append(answer)
            partition = partitions.get((name, asked.index))  # type: ignore[call-overload]  # equal to its tuple
            error = _refusal(partition, asked.records, by_id=by_id, known=bool(name))
            if not is_allowed:
                error = ErrorCode.INVALID_REQUIRED_ACKS if acks not in (-1, 0, 1) else ErrorCode.INVALID_TXN_STATE
            if error or partition is None:
                answer.error_code = error
                broker.request_stats.api(ProduceRequest.api_key).count_error(error)
                if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition and context.version >= _NEW_LEADER_SINCE:
                    leader = ProduceLeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
                    answer.current_leader = leader
                has_failed = True
                continue
            end = _append(partition, asked, answer, all_replicas=acks == _ALL)
            if end < 0:
                broker.request_stats.api(ProduceRequest.api_key).count_error(answer.error_code)
                has_failed = True
            elif partition.high_watermark < end:
                waiting[partition] = (end, answer)
        topic_answer = ProduceTopicResponse(name=name, topic_id=topic.topic_id, partition_responses=answers)
        responses.append(topic_answer)
    if not acks:
        # Nobody waits for an answer; a client that lost records can be told only by hanging up.
        return ConnectionAbortedError("a produce request without acknowledgement failed") if has_failed else None
    response = ProduceResponse(responses=responses)
    if not waiting or not _must_wait(acks, waiting):
        return response
    delayed = DelayedProduce(response, waiting)
    broker.replicas.produces.wait(delayed, waiting, max(request.timeout_ms, 0) / 1000)
    return delayed.deferred


def _must_wait(acks: int, waiting: dict[Partition, tuple[int, ProducePartitionResponse]]) -> bool:
    """For all replicas; or for the disk, where the topic wants every record there before anyone is told."""
    return acks == _ALL or any(
        partition.log is not None and partition.log.config.flush_messages == 1 for partition in waiting
    )


def _refusal(partition: Partition | None, records: Bytes | None, *, by_id: bool, known: bool) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id and not known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not records:
        return ErrorCode.INVALID_RECORD
    return partition.check_leader()


def _append(
    partition: Partition, asked: ProducePartition, answer: ProducePartitionResponse, *, all_replicas: bool
) -> int:
    """Fills the answer; where the appended records end, or -1 if they were refused."""
    try:
        info = partition.append(asked.records, all_replicas=all_replicas)  # type: ignore[arg-type]  # seen not to be None
    except (LogError, ReplicationError) as error:
        answer.error_code = error.code
        if error.code not in _HIDDEN:
            answer.error_message = str(error)
        if isinstance(error, InvalidRecordsError) and error.record_index is not None:
            answer.record_errors = [
                ProduceRecordError(batch_index=error.record_index, batch_index_error_message=str(error))
            ]
        return -1
    answer.base_offset = info.first_offset
    answer.log_append_time_ms = info.log_append_time_ms
    answer.log_start_offset = info.log_start_offset
    return info.last_offset + 1


class DelayedProduce(DelayedOperation[Partition]):
    """Waits until the high watermark has passed the appended records of every partition."""

    __slots__ = ("_response", "_waiting", "deferred")

    def __init__(
        self, response: ProduceResponse, waiting: dict[Partition, tuple[int, ProducePartitionResponse]]
    ) -> None:
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
