"""CreatePartitions (37), all versions: topics grow, by a number or by assignments of the new partitions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.broker.api import RequestContext
from ottla.broker.handlers import handles
from ottla.controller.errors import ControllerError
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
    results = []
    for name, times in Counter(topic.name for topic in request.topics).items():
        if times > 1:
            reason = f"Topic '{name}' is in the request {times} times."
            results.append(_refused(name, ControllerError(ErrorCode.INVALID_REQUEST, reason)))
            continue
        topic = next(topic for topic in request.topics if topic.name == name)
        results.append(await _grow(broker, topic, validate_only=request.validate_only))
    return CreatePartitionsResponse(results=results)


async def _grow(broker: Broker, topic: CreatePartitionsTopic, *, validate_only: bool) -> CreatePartitionsTopicResponse:
    by_hand = None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
    try:
        await broker.controller.create_partitions(topic.name, topic.count, by_hand, validate_only=validate_only)
    except ControllerError as error:
        return _refused(topic.name, error)
    return CreatePartitionsTopicResponse(name=topic.name)


def _refused(name: str, error: ControllerError) -> CreatePartitionsTopicResponse:
    return CreatePartitionsTopicResponse(name=name, error_code=error.code, error_message=error.reason)
