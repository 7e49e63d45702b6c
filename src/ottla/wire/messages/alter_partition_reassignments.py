"""AlterPartitionReassignments (45): move partitions to other replicas, or call off a move under way (KIP-455).

The requester can forbid that a move changes the number of replicas since v1 (KIP-860).
"""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int16, int32, string


class AlterReassignmentsPartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(INT32, nullable="0+", default=None)  # null calls the move off


class AlterReassignmentsTopic(Struct):
    name: str = string()
    partitions: list[AlterReassignmentsPartition] = array(AlterReassignmentsPartition)


class AlterPartitionReassignmentsRequest(Request, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[AlterReassignmentsTopic] = array(AlterReassignmentsTopic)


class AlterReassignmentsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterReassignmentsTopicResponse(Struct):
    name: str = string()
    partitions: list[AlterReassignmentsPartitionResponse] = array(AlterReassignmentsPartitionResponse)


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[AlterReassignmentsTopicResponse] = array(AlterReassignmentsTopicResponse)
