"""ListPartitionReassignments (46): the reassignments in progress (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
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
def list_partition_reassignments(
    broker: Broker, request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Skips partitions that are not being reassigned or do not exist."""
    known = broker.metadata.topics
    asked: Iterable[tuple[str, Iterable[tuple[int, PartitionState]]]]
    if request.topics is None:
        asked = ((name, enumerate(topic.partitions)) for name, topic in known.items())
    else:
        asked = (
            (
                topic.name,
                (
                    (index, known[topic.name].partitions[index])
                    for index in topic.partition_indexes
                    if 0 <= index < len(known[topic.name].partitions)
                ),
            )
            for topic in request.topics
            if topic.name in known
        )
    moves = ((name, [_move(*entry) for entry in partitions if _is_moving(entry[1])]) for name, partitions in asked)
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in moves if partitions],
    )


def _is_moving(partition: PartitionState) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _move(index: int, partition: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
