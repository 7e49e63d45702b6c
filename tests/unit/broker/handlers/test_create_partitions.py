from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.create_partitions import create_partitions
from ottla.wire.codec import encode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from support.brokers.lone_broker import BROKER_ID, LoneBroker, on_tree
from support.brokers.small_broker import context


async def ask(
    broker: LoneBroker, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> dict[str, tuple[int, str | None]]:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    response = await create_partitions(broker, request, context(version))  # type: ignore[arg-type]
    encode(response, version)
    return {result.name: (result.error_code, result.error_message) for result in response.results}


def grown(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    by_hand = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=by_hand or None)


@pytest.mark.parametrize("version", list(CreatePartitionsRequest.versions))
@on_tree
async def test_topics_grow(broker: LoneBroker, version: int) -> None:
    await broker.create("a")
    await broker.create("b")
    answers = await ask(broker, grown("a", 3), grown("b", 2, [BROKER_ID]), version=version)
    assert answers == {"a": (ErrorCode.NONE, None), "b": (ErrorCode.NONE, None)}
    assert [len(topic.partitions) for topic in broker.controller.topics.values()] == [3, 2]


@on_tree
async def test_what_is_refused_does_not_stop_the_rest(broker: LoneBroker) -> None:
    await broker.create("a", 2)
    await broker.create("b")
    answers = await ask(broker, grown("a", 2), grown("other", 2), grown("b", 2))
    assert {name: code for name, (code, _) in answers.items()} == {
        "a": ErrorCode.INVALID_PARTITIONS,
        "other": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b": ErrorCode.NONE,
    }
    assert answers["a"][1] == "Topic 'a' has 2 partitions; the number can only grow, not become 2."


@on_tree
async def test_no_assignments_are_not_the_same_as_none_given(broker: LoneBroker) -> None:
    await broker.create("a")
    empty = CreatePartitionsTopic(name="a", count=2, assignments=[])
    assert (await ask(broker, empty))["a"][0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@on_tree
async def test_a_topic_that_is_named_twice_does_not_grow(broker: LoneBroker) -> None:
    await broker.create("a")
    await broker.create("b")
    answers = await ask(broker, grown("a", 2), grown("b", 2), grown("a", 3))
    assert {name: code for name, (code, _) in answers.items()} == {
        "a": ErrorCode.INVALID_REQUEST,
        "b": ErrorCode.NONE,
    }
    assert len(broker.controller.topics["a"].partitions) == 1


@on_tree
async def test_validation_changes_nothing(broker: LoneBroker) -> None:
    await broker.create("a")
    assert await ask(broker, grown("a", 5), validate_only=True) == {"a": (ErrorCode.NONE, None)}
    assert len(broker.controller.topics["a"].partitions) == 1
