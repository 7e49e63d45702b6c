"""ConsumerGroupHeartbeat (68): how a member of a KIP-848 group joins, stays, leaves, and learns what it owns.

From v1 on a member may subscribe by a regular expression, and brings its own member id (KIP-1082).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import INT32, STRING, Request, Response, Struct, array, int16, int32, nested, string, uuid


class HeartbeatTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(INT32)


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions="0-1", flexible="0+"):
    """A null means that nothing has changed since the last heartbeat.

    An epoch of 0 joins, -1 leaves, and -2 leaves for a while, to come back under the same instance id.
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(STRING, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = array(
        HeartbeatTopicPartitions, nullable="0+", default=None
    )


class HeartbeatAssignment(Struct):
    topic_partitions: list[HeartbeatTopicPartitions] = array(HeartbeatTopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: HeartbeatAssignment | None = nested(HeartbeatAssignment, nullable="0+", default=None)
