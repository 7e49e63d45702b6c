"""AlterPartitionReassignments (45): reassigns partitions to other replicas, or cancels a reassignment (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.controller.errors import ControllerError
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReassignmentsPartition,
    AlterReassignmentsPartitionResponse,
    AlterReassignmentsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    broker: Broker, request: AlterPartitionReassignmentsRequest, _context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    may_change_factor = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor,
        error_message=None,
        responses=[
            AlterReassignmentsTopicResponse(
                name=topic.name,
                partitions=[
                    await _reassign(broker, topic.name, partition, may_change_factor=may_change_factor)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


async def _reassign(
    broker: Broker, topic: str, partition: AlterReassignmentsPartition, *, may_change_factor: bool
) -> AlterReassignmentsPartitionResponse:
    index = partition.partition_index
    try:
        name = TopicPartition(topic, index)
        await broker.controller.reassign(name, partition.replicas, may_change_factor=may_change_factor)
    except ControllerError as error:
        return AlterReassignmentsPartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.reason
        )
    return AlterReassignmentsPartitionResponse(partition_index=index, error_code=ErrorCode.NONE, error_message=None)
