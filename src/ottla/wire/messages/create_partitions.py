"""CreatePartitions (37): give topics more partitions (KIP-195).

THROTTLING_QUOTA_EXCEEDED is answered since v3 (KIP-599).
"""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    """The replicas of one new partition."""

    broker_ids: list[int] = array(INT32)


class CreatePartitionsTopic(Struct):
    name: str = string(key=True)
    count: int = int32()  # partitions in all, not those to add
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Request, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResponse(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResponse] = array(CreatePartitionsTopicResponse)
