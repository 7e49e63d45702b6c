"""DeleteRecords: advances the log start offset of partitions. Retention later deletes the segments before it.

Followers take over the leader's log start with their next fetch; the response waits for those that are alive."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, Deferred, RequestContext
from ottla.broker.requests.partition_access import led_partition
from ottla.controller.topic_names import is_internal
from ottla.log.errors import LogError
from ottla.replication.delayed import DelayedOperation
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_HIGH_WATERMARK: Final = -1
_NO_LOW_WATERMARK: Final = -1

Waiting = dict[Partition, list[tuple[int, DeleteRecordsPartitionResponse]]]
"""The offset at which all replicas must start before a partition can be answered, and its response."""


@handles(DeleteRecordsRequest)
def delete_records(
    broker: Broker, request: DeleteRecordsRequest, _: RequestContext
) -> DeleteRecordsResponse | Deferred:
    """Handles each partition independently. Answers when all live replicas have deleted the records."""
    response = DeleteRecordsResponse()
    waiting: Waiting = {}
    for topic in request.topics:
        answers = [_answer(broker, topic.name, asked, waiting) for asked in topic.partitions]
        response.topics.append(DeleteRecordsTopicResponse(name=topic.name, partitions=answers))
    if not waiting:
        return response
    delayed = DelayedDeletion(response, waiting)
    deletes = broker.replicas.deletes
    deletes.wait(delayed, waiting, max(request.timeout_ms, 0) / 1000)
    delayed.deferred.when_cancelled(partial(deletes.cancel, delayed))
    return delayed.deferred


def _answer(
    broker: Broker, topic: str, asked: DeleteRecordsPartition, waiting: Waiting
) -> DeleteRecordsPartitionResponse:
    answer = DeleteRecordsPartitionResponse(partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK)
    try:
        partition, wanted = _delete(broker, topic, asked.partition_index, asked.offset)
    except (BrokerError, LogError, ReplicationError) as error:
        answer.error_code = error.code
    else:
        answer.low_watermark = partition.low_watermark()
        if answer.low_watermark < wanted:
            waiting.setdefault(partition, []).append((wanted, answer))
    return answer


def _delete(broker: Broker, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    """Returns the partition and the offset before which nothing is left here."""
    if is_internal(topic):
        # Their records are the state of coordinators, which could not be loaded without the first records.
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = led_partition(broker, topic, index)
    if partition.log is not None and not partition.log.config.deletes:
        raise BrokerError(ErrorCode.POLICY_VIOLATION)  # a compacted topic keeps the last value of every key
    if offset < _HIGH_WATERMARK:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
    wanted = partition.high_watermark if offset == _HIGH_WATERMARK else offset
    partition.delete_records(wanted)
    return partition, wanted


class DelayedDeletion(DelayedOperation[Partition]):
    """Waits until all live replicas of each partition start at the wanted offset."""

    __slots__ = ("_response", "_waiting", "deferred")

    def __init__(self, response: DeleteRecordsResponse, waiting: Waiting) -> None:
        super().__init__()
        self.deferred = Deferred()
        self._response = response
        self._waiting = dict(waiting)

    def is_ready(self, key: Partition) -> bool:
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return not self._waiting
        error = key.check_leader()
        low_watermark = _NO_LOW_WATERMARK if error else key.low_watermark()
        left = []
        for wanted, answer in waiting:
            if error or low_watermark >= wanted:
                answer.error_code, answer.low_watermark = error, low_watermark
            else:
                left.append((wanted, answer))
        if left:
            self._waiting[key] = left
        return not self._waiting

    def complete(self) -> None:
        for waiting in self._waiting.values():
            for _, answer in waiting:
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.deferred.answer(self._response)
