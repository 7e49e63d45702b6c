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
    wanted = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    try:
        outcomes = await broker.controller.reassign_all(wanted, may_change_factor=may_change_factor)
    except ControllerError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_change_factor, error_code=error.code, error_message=error.reason
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor,
        error_message=None,
        responses=[
            AlterReassignmentsTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(partition.partition_index, outcomes[TopicPartition(topic.name, partition.partition_index)])
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _answer(index: int, error: ControllerError | None) -> AlterReassignmentsPartitionResponse:
    if error is None:
        return AlterReassignmentsPartitionResponse(partition_index=index, error_code=ErrorCode.NONE, error_message=None)
    return AlterReassignmentsPartitionResponse(partition_index=index, error_code=error.code, error_message=error.reason)
