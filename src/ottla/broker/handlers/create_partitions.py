"""CreatePartitions (37): adds partitions to topics, by a total count or with replica assignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers import handles
from ottla.broker.requests.api import RequestContext
from ottla.controller.errors import ControllerError
from ottla.controller.state import TopicState
from ottla.controller.wanted_topics import NewPartitionCount
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(CreatePartitionsRequest)
async def create_partitions(
    broker: Broker, request: CreatePartitionsRequest, _context: RequestContext
) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    errors: dict[str, ControllerError] = {
        name: ControllerError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is in the request {count} times.")
        for name, count in times.items()
        if count > 1
    }
    wanted = [_wanted(topic) for topic in request.topics if times[topic.name] == 1]
    outcomes: Sequence[TopicState | ControllerError]
    try:
        outcomes = await broker.controller.grow_topics(wanted, validate_only=request.validate_only)
    except ControllerError as error:
        outcomes = [error] * len(wanted)
    for each, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, ControllerError):
            errors[each.name] = outcome
    return CreatePartitionsResponse(results=[_answer(name, errors.get(name)) for name in times])


def _wanted(topic: CreatePartitionsTopic) -> NewPartitionCount:
    by_hand = None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
    return NewPartitionCount(topic.name, topic.count, by_hand)


def _answer(name: str, error: ControllerError | None) -> CreatePartitionsTopicResponse:
    if error is None:
        return CreatePartitionsTopicResponse(name=name)
    return CreatePartitionsTopicResponse(name=name, error_code=error.code, error_message=error.reason)
