"""DescribeTopicPartitions (75): topics and their partitions, one page at a time (KIP-966).

Topics are sorted by name, so that the cursor, the first partition of the next page, stays valid when topics are created
or deleted in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.metadata.availability import leader_of, offline_replicas
from ottla.broker.requests.api import RequestContext
from ottla.broker.requests.authorized_operations import TOPIC_OPERATIONS
from ottla.controller.state import UNKNOWN_PARTITION, PartitionState, TopicState
from ottla.controller.topic_names import fault_of_name, is_internal
from ottla.wire.messages.describe_topic_partitions import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicPartitionsCursor,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    broker: Broker, request: DescribeTopicPartitionsRequest, _context: RequestContext
) -> DescribeTopicPartitionsResponse:
    topics = broker.metadata.topics
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        # The response has error codes only for topics.
        errors = [DescribedTopic(name=name, error_code=ErrorCode.INVALID_REQUEST) for name in sorted(asked)]
        return DescribeTopicPartitionsResponse(topics=errors)
    first_name = cursor.topic_name if cursor is not None else ""
    names = sorted(name for name in asked or topics if name >= first_name)
    room = max(1, min(request.response_partition_limit, broker.config["max.request.partition.size.limit"]))
    live = frozenset(broker.metadata.brokers)
    described: list[DescribedTopic] = []
    for name in names:
        if room == 0:
            return _page(described, name, 0)
        topic = topics.get(name)
        if topic is None:
            described.append(_missing(name))
            continue
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        end = min(len(topic.partitions), start + room)
        described.append(_described(topic, range(start, end), live))
        if end < len(topic.partitions):
            return _page(described, name, end)
        room -= max(0, end - start)
    return DescribeTopicPartitionsResponse(topics=described)


def _page(described: list[DescribedTopic], next_name: str, next_index: int) -> DescribeTopicPartitionsResponse:
    cursor = TopicPartitionsCursor(topic_name=next_name, partition_index=next_index)
    return DescribeTopicPartitionsResponse(topics=described, next_cursor=cursor)


def _missing(name: str) -> DescribedTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if fault_of_name(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribedTopic(
        error_code=error,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described(topic: TopicState, indexes: range, live: frozenset[int]) -> DescribedTopic:
    return DescribedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            _partition(index, topic.partitions[index], live)
            for index in indexes
            if topic.partitions[index] is not UNKNOWN_PARTITION
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(index: int, partition: PartitionState, live: frozenset[int]) -> DescribedPartition:
    return DescribedPartition(
        partition_index=index,
        leader_id=leader_of(partition, live),
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=offline_replicas(partition, live),
    )
