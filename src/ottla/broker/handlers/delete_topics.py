"""DeleteTopics (20), all versions: by name, or by id (KIP-516).

As in Kafka 4, a topic that appears more than once is not deleted, and the response has one entry for it. (Kafka 3.9 in
ZooKeeper mode deletes it, and has an entry for each appearance.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, Uuid, format_uuid
from ottla.broker.handlers import handles
from ottla.broker.requests.api import BrokerError, RequestContext
from ottla.controller.errors import ControllerError
from ottla.wire.messages.delete_topics import DeletedTopic, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


@handles(DeleteTopicsRequest)
async def delete_topics(broker: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    asked = Counter((topic.name, topic.topic_id) for topic in request.topics)
    asked.update((name, ZERO_UUID) for name in request.topic_names)
    refused: list[DeletedTopic] = []
    found: dict[str, int] = {}
    given_ids: dict[str, Uuid] = {}
    for (name, topic_id), times in asked.items():
        try:
            known_name = _name_of(broker, name, topic_id, context.version)
        except BrokerError as error:
            refused.append(_answer(name, topic_id, error))
        else:
            found[known_name] = found.get(known_name, 0) + times
            if topic_id != ZERO_UUID:
                given_ids[known_name] = topic_id
    # Before they are deleted: their ids are unknown afterwards.
    ids = {name: _id_of(broker, name) for name in found}
    outcomes = await _delete(broker, [name for name, times in found.items() if times == 1], given_ids)
    answers = []
    for name, times in found.items():
        if times > 1:
            outcomes[name] = BrokerError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is in the request {times} times.")
        failure = outcomes[name]
        is_gone = failure is not None and failure.code is ErrorCode.UNKNOWN_TOPIC_ID  # since its name was looked up
        answers.append(_answer(None if is_gone else name, ids[name], failure))
    return DeleteTopicsResponse(responses=[*answers, *refused])


def _answer(name: str | None, topic_id: Uuid, error: BrokerError | None) -> DeletedTopic:
    return DeletedTopic(
        name=name,
        topic_id=topic_id,
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=str(error) if error is not None else None,
    )


def _name_of(broker: Broker, name: str | None, topic_id: Uuid, version: int) -> str:
    if not broker.config["delete.topic.enable"]:
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise BrokerError(code, "Deleting topics is disabled: delete.topic.enable is false.")
    if topic_id == ZERO_UUID:
        if name is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "A topic to delete has neither a name nor an id.")
        return name
    if name is not None:
        reason = f"Topic '{name}' has both a name and an id in the request; give only one of them."
        raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
    known_name = broker.metadata.name_of(topic_id)
    if known_name is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"Topic with the id {format_uuid(topic_id)} does not exist.")
    return known_name


def _id_of(broker: Broker, name: str) -> Uuid:
    topic = broker.metadata.topic(name)
    return ZERO_UUID if topic is None else topic.topic_id


async def _delete(broker: Broker, names: list[str], ids: dict[str, Uuid]) -> dict[str, BrokerError | None]:
    if not names:
        return {}
    outcomes: Sequence[ControllerError | None]
    try:
        outcomes = await broker.controller.delete_topics(names, ids)
    except ControllerError as error:
        outcomes = [error] * len(names)
    errors = [None if each is None else BrokerError(each.code, each.reason) for each in outcomes]
    return dict(zip(names, errors, strict=True))
