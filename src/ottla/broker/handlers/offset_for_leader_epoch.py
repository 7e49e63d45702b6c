"""OffsetForLeaderEpoch: the end offset of a leader epoch, for followers and consumers that check whether their history
diverges from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.broker.requests.partition_access import led_partition
from ottla.replication.errors import ReplicationError
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    broker: Broker, request: OffsetForLeaderEpochRequest, _: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Epoch and offset are -1, without an error, if the epoch is unknown."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochTopicResponse(
                topic=topic.topic, partitions=[_answer(broker, topic.topic, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, asked: OffsetForLeaderEpochPartition) -> OffsetForLeaderEpochPartitionResponse:
    try:
        partition = led_partition(broker, topic, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = partition.end_of_epoch(asked.leader_epoch)
    except (BrokerError, ReplicationError) as error:
        return OffsetForLeaderEpochPartitionResponse(partition=asked.partition, error_code=error.code)
    return OffsetForLeaderEpochPartitionResponse(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
