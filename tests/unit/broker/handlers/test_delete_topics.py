from __future__ import annotations

import asyncio

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, Uuid
from ottla.broker.handlers.delete_topics import delete_topics
from ottla.wire.codec import encode
from ottla.wire.messages.delete_topics import DeletableTopic, DeletedTopic, DeleteTopicsRequest
from support.brokers.lone_broker import LoneBroker, on_tree
from support.brokers.small_broker import context

NOBODYS_ID = Uuid(b"2" * 16)


async def ask(broker: LoneBroker, *topics: DeletableTopic | str, version: int = 6) -> list[DeletedTopic]:
    by_name = [topic for topic in topics if isinstance(topic, str)]
    request = DeleteTopicsRequest(
        topics=[topic for topic in topics if isinstance(topic, DeletableTopic)], topic_names=by_name
    )
    response = await delete_topics(broker, request, context(version))  # type: ignore[arg-type]
    encode(response, version)
    return response.responses


@pytest.mark.parametrize("version", range(6))
@on_tree
async def test_by_name(broker: LoneBroker, version: int) -> None:
    await broker.create("events")
    await broker.create("kept")
    deleted, unknown = await ask(broker, "events", "other", version=version)
    assert (deleted.name, deleted.error_code, deleted.error_message) == ("events", ErrorCode.NONE, None)
    assert (unknown.name, unknown.error_code) == ("other", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert unknown.error_message == "Topic 'other' does not exist."
    assert list(broker.controller.topics) == ["kept"]
    await broker.controller.close()  # the answer does not wait for the files
    assert [topic.name for topic in broker.removed] == ["events"]


@on_tree
async def test_by_name_or_id(broker: LoneBroker) -> None:
    topic = await broker.create("by-id")
    named = await broker.create("by-name")
    answers = await ask(
        broker,
        DeletableTopic(topic_id=topic.topic_id),
        DeletableTopic(name="by-name"),
        DeletableTopic(topic_id=NOBODYS_ID),
    )
    assert [(answer.name, answer.topic_id != NOBODYS_ID, answer.error_code) for answer in answers] == [
        ("by-id", True, ErrorCode.NONE),
        ("by-name", True, ErrorCode.NONE),
        (None, False, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert [answer.topic_id for answer in answers] == [topic.topic_id, named.topic_id, NOBODYS_ID]
    assert broker.controller.topics == {}


@pytest.mark.parametrize("by_id", [False, True])
@on_tree
async def test_a_topic_of_another_id_that_has_the_name_by_then_stays(broker: LoneBroker, *, by_id: bool) -> None:
    """The topic is deleted and made again between the request and its turn. A name means whatever has it."""
    topic = await broker.create("events")
    deleting = asyncio.create_task(broker.controller.delete_topic("events"))
    making = asyncio.create_task(broker.create("events"))
    again = DeletableTopic(topic_id=topic.topic_id) if by_id else DeletableTopic(name="events")
    (answer,) = await asyncio.create_task(ask(broker, again))
    await deleting
    made = await making
    assert made.topic_id != topic.topic_id
    if by_id:
        assert (answer.name, answer.topic_id) == (None, topic.topic_id)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert broker.controller.topics["events"].topic_id == made.topic_id
    else:
        assert answer.error_code == ErrorCode.NONE
        assert broker.controller.topics == {}


@on_tree
async def test_a_name_that_is_unknown_has_no_id(broker: LoneBroker) -> None:
    (unknown,) = await ask(broker, DeletableTopic(name="other"))
    assert (unknown.name, unknown.topic_id) == ("other", ZERO_UUID)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_tree
async def test_name_and_id_together_are_refused(broker: LoneBroker) -> None:
    topic = await broker.create("events")
    both, neither = await ask(broker, DeletableTopic(name="events", topic_id=topic.topic_id), DeletableTopic())
    assert both.error_code == neither.error_code == ErrorCode.INVALID_REQUEST
    assert "both" in (both.error_message or "")
    assert "neither" in (neither.error_message or "")
    assert list(broker.controller.topics) == ["events"]


@pytest.mark.parametrize("given", ["names", "ids", "both"])
@on_tree
async def test_a_topic_that_is_given_twice_is_not_deleted_and_answered_once(broker: LoneBroker, given: str) -> None:
    topic = await broker.create("events")
    await broker.create("other")
    by_name, by_id = DeletableTopic(name="events"), DeletableTopic(topic_id=topic.topic_id)
    first, second = {"names": (by_name, by_name), "ids": (by_id, by_id), "both": (by_id, by_name)}[given]
    twice, deleted = await ask(broker, first, second, DeletableTopic(name="other"))
    assert (twice.name, twice.error_code) == ("events", ErrorCode.INVALID_REQUEST)
    assert (deleted.name, deleted.error_code) == ("other", ErrorCode.NONE)
    assert list(broker.controller.topics) == ["events"]


@on_tree
async def test_an_unknown_name_that_is_given_twice_is_answered_once(broker: LoneBroker) -> None:
    (refusal,) = await ask(broker, "other", "other", version=5)
    assert (refusal.name, refusal.error_code) == ("other", ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(("version", "code"), [(2, "INVALID_REQUEST"), (3, "TOPIC_DELETION_DISABLED")])
@on_tree(delete_topic_enable="false")
async def test_deletion_can_be_switched_off(broker: LoneBroker, version: int, code: str) -> None:
    await broker.create("events")
    (refusal,) = await ask(broker, "events", version=version)
    assert refusal.error_code == ErrorCode[code]
    assert list(broker.controller.topics) == ["events"]
