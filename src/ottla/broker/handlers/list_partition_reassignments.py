"""ListPartitionReassignments (46): the reassignments in progress (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.ids import TopicPartition
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.controller.errors import ControllerError
from ottla.controller.state import PartitionState
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(ListPartitionReassignmentsRequest)
async def list_partition_reassignments(
    broker: Broker, request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Skips partitions that are not being reassigned or do not exist."""
    names = None
    if request.topics is not None:
        names = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    try:
        moving = await broker.controller.reassignments(names)
    except ControllerError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.reason)
    topics: dict[str, OngoingTopicReassignment] = {}
    for name, partition in moving.items():
        topic = topics.setdefault(name.topic, OngoingTopicReassignment(name=name.topic))
        topic.partitions.append(_move(name.partition, partition))
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))


def _move(index: int, partition: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
