"""DescribeTopicPartitions (75): topics and their partitions, page by page, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int16, int32, nested, string, uuid


class DescribeTopicPartitionsTopic(Struct):
    name: str = string()


class TopicPartitionsCursor(Struct):
    """The first partition of the next page."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Request, api_key=75, versions="0", flexible="0+"):
    topics: list[DescribeTopicPartitionsTopic] = array(DescribeTopicPartitionsTopic)
    response_partition_limit: int = int32(default=2000)
    cursor: TopicPartitionsCursor | None = nested(TopicPartitionsCursor, nullable="0+", default=None)


class DescribedPartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    eligible_leader_replicas: list[int] | None = array(INT32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(INT32, nullable="0+", default=None)
    offline_replicas: list[int] = array(INT32, ignorable=True)


class DescribedTopic(Struct):
    error_code: int = int16()
    name: str | None = string(nullable="0+", key=True)
    topic_id: Uuid = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribedPartition] = array(DescribedPartition)
    topic_authorized_operations: int = int32(default=-(2**31))


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribedTopic] = array(DescribedTopic)
    next_cursor: TopicPartitionsCursor | None = nested(TopicPartitionsCursor, nullable="0+", default=None)
