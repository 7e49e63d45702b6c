"""DeleteTopics (20), all versions: by name, or by id (KIP-516)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, format_uuid
from ottla.broker.api import BrokerError, RequestContext
from ottla.broker.handlers import handles
from ottla.controller.errors import ControllerError
from ottla.wire.messages.delete_topics import (
    DeletableTopic,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(DeleteTopicsRequest)
async def delete_topics(broker: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    asked = request.topics or [DeletableTopic(name=name) for name in request.topic_names]
    found = [_name_or_refusal(broker, topic, context.version) for topic in asked]
    # A topic that is named twice is deleted once, and both are told so.
    outcomes = await _delete(broker, list(dict.fromkeys(each for each in found if isinstance(each, str))))
    return DeleteTopicsResponse(
        responses=[
            _answer(topic, topic.name, each) if isinstance(each, BrokerError) else _answer(topic, each, outcomes[each])
            for topic, each in zip(asked, found, strict=True)
        ]
    )


def _answer(topic: DeletableTopic, name: str | None, error: BrokerError | None) -> DeletedTopic:
    return DeletedTopic(
        name=name,
        topic_id=topic.topic_id,
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=str(error) if error is not None else None,
    )


def _name_or_refusal(broker: Broker, topic: DeletableTopic, version: int) -> str | BrokerError:
    try:
        return _name_of(broker, topic, version)
    except BrokerError as refusal:
        return refusal


def _name_of(broker: Broker, topic: DeletableTopic, version: int) -> str:
    if not broker.config["delete.topic.enable"]:
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise BrokerError(code, "This broker deletes no topics: delete.topic.enable is false.")
    if topic.topic_id == ZERO_UUID:
        if topic.name is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "A topic to delete has neither a name nor an id.")
        return topic.name
    if topic.name is not None:
        reason = f"Topic '{topic.name}' is to be deleted both by its name and by an id; give one of them."
        raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
    name = broker.metadata.name_of(topic.topic_id)
    if name is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {format_uuid(topic.topic_id)}.")
    return name


async def _delete(broker: Broker, names: list[str]) -> dict[str, BrokerError | None]:
    if not names:
        return {}
    outcomes: Sequence[ControllerError | None]
    try:
        outcomes = await broker.controller.delete_topics(names)
    except ControllerError as error:
        outcomes = [error] * len(names)
    errors = [None if each is None else BrokerError(each.code, each.reason) for each in outcomes]
    return dict(zip(names, errors, strict=True))
