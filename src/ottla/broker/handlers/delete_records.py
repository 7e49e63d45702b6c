"""DeleteRecords: advances the log start offset of partitions. Retention later deletes the segments before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.broker.requests.partition_access import led_partition
from ottla.controller.topic_names import is_internal
from ottla.log.errors import LogError
from ottla.replication.errors import ReplicationError
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


@handles(DeleteRecordsRequest)
def delete_records(broker: Broker, request: DeleteRecordsRequest, _: RequestContext) -> DeleteRecordsResponse:
    """Handles each partition independently."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResponse(
                name=topic.name, partitions=[_answer(broker, topic.name, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResponse:
    try:
        low_watermark = _delete(broker, topic, asked.partition_index, asked.offset)
    except (BrokerError, LogError, ReplicationError) as error:
        return DeleteRecordsPartitionResponse(
            partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResponse(partition_index=asked.partition_index, low_watermark=low_watermark)


def _delete(broker: Broker, topic: str, index: int, offset: int) -> int:
    if is_internal(topic):
        # Their records are the state of coordinators, which could not be loaded without the first records.
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = led_partition(broker, topic, index)
    if partition.log is not None and not partition.log.config.deletes:
        raise BrokerError(ErrorCode.POLICY_VIOLATION)  # a compacted topic keeps the last value of every key
    if offset < _HIGH_WATERMARK:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return partition.delete_records(offset)
