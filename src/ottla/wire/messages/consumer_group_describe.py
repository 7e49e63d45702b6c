"""ConsumerGroupDescribe (69): the state of KIP-848 groups, with the members' present and target assignments.

From v1 on each member tells by which protocol it takes part (KIP-1099).
"""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    INT32,
    STRING,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nested,
    string,
    uuid,
)


class ConsumerGroupDescribeRequest(Request, api_key=69, versions="0-1", flexible="0+"):
    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


class DescribedTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


class DescribedConsumer(Struct):
    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: DescribedAssignment = nested(DescribedAssignment)
    target_assignment: DescribedAssignment = nested(DescribedAssignment)
    # -1: unknown, 0: classic protocol, 1: consumer protocol
    member_type: int = int8("1+", default=-1, ignorable=True)


class DescribedConsumerGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedConsumer] = array(DescribedConsumer)
    authorized_operations: int = int32(default=-(2**31))


class ConsumerGroupDescribeResponse(Response, api_key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
