"""ListPartitionReassignments (46): which partitions are being moved, from where and to where (KIP-455)."""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, int16, int32, string


class ListReassignmentsTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(INT32)


class ListPartitionReassignmentsRequest(Request, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = int32(default=60_000)
    topics: list[ListReassignmentsTopic] | None = array(ListReassignmentsTopic, nullable="0+", default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(INT32)  # all of them, those to be added and to be removed included
    adding_replicas: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
