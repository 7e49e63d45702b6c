"""OffsetDelete (47): forget a group's committed offsets of partitions it no longer subscribes to (KIP-496)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, string


class OffsetDeletePartition(Struct):
    partition_index: int = int32()


class OffsetDeleteTopic(Struct):
    name: str = string(key=True)
    partitions: list[OffsetDeletePartition] = array(OffsetDeletePartition)


class OffsetDeleteRequest(Request, api_key=47, versions="0"):
    group_id: str = string()
    topics: list[OffsetDeleteTopic] = array(OffsetDeleteTopic)


class OffsetDeletePartitionResponse(Struct):
    partition_index: int = int32(key=True)
    error_code: int = int16()


class OffsetDeleteTopicResponse(Struct):
    name: str = string(key=True)
    partitions: list[OffsetDeletePartitionResponse] = array(OffsetDeletePartitionResponse)


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteTopicResponse] = array(OffsetDeleteTopicResponse)
