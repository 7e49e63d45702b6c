"""Versions of requests to other brokers that depend on their content.

Topics that were created by old tools have no id, while the newest versions of some requests name topics only by id.
Kafka then uses the last version with names for the whole request, and so does this.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from ottla.base.ids import ZERO_UUID
from ottla.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
)
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.schema import Request

_FETCH_BY_NAME: Final = 12
_FETCH_WITH_STATE: Final = 15
_ALTER_PARTITION_BY_NAME: Final = 1
_ALTER_PARTITION_WITH_EPOCHS: Final = 3


def highest_version(request: Request) -> int | None:
    """The highest version that can carry the request; None if every version can."""
    if isinstance(request, FetchRequest):
        for topic in request.topics:
            if topic.topic_id == ZERO_UUID:
                return _FETCH_BY_NAME
        for forgotten in request.forgotten_topics_data:
            if forgotten.topic_id == ZERO_UUID:
                return _FETCH_BY_NAME
    elif isinstance(request, AlterPartitionRequest) and any(topic.topic_id == ZERO_UUID for topic in request.topics):
        return _ALTER_PARTITION_BY_NAME
    return None


def as_of(request: Request, version: int) -> Request:
    """The request with the fields that this version has in place of newer ones. The given one is not changed."""
    if isinstance(request, FetchRequest):
        if version < _FETCH_WITH_STATE and request.replica_state is not None:
            older = copy(request)
            older.replica_id, older.replica_state = request.replica_state.replica_id, None
            return older
    elif isinstance(request, AlterPartitionRequest) and version < _ALTER_PARTITION_WITH_EPOCHS:
        return AlterPartitionRequest(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            topics=[
                AlterPartitionTopic(
                    topic_name=topic.topic_name,
                    topic_id=topic.topic_id,
                    partitions=[_without_epochs(each) for each in topic.partitions],
                )
                for topic in request.topics
            ],
        )
    return request


def _without_epochs(partition: AlterPartitionPartition) -> AlterPartitionPartition:
    older = copy(partition)
    older.new_isr = partition.new_isr or [member.broker_id for member in partition.new_isr_with_epochs]
    older.new_isr_with_epochs = []
    return older
