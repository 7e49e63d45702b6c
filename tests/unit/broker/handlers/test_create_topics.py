from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID
from ottla.broker.handlers.create_topics import create_topics
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.wire.codec import encode
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatedTopic,
    CreateTopicsRequest,
)
from support.brokers.lone_broker import BROKER_ID, LoneBroker, on_tree
from support.brokers.small_broker import context


async def ask(
    broker: LoneBroker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatedTopic]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    response = await create_topics(broker, request, context(version))  # type: ignore[arg-type]
    encode(response, version)
    return response.topics


def wanted(
    name: str,
    num_partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, list[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
    )


@pytest.mark.parametrize("version", list(CreateTopicsRequest.versions))
@on_tree
async def test_a_topic_is_made(broker: LoneBroker, version: int) -> None:
    (made,) = await ask(broker, wanted("events", 2, configs={"retention.ms": "5"}), version=version)
    state = broker.controller.topics["events"]
    assert (made.error_code, made.error_message, made.topic_id) == (ErrorCode.NONE, None, state.topic_id)
    assert (made.num_partitions, made.replication_factor) == (2, 1)
    assert bool(made.configs) == (version >= 5)
    assert state.configs == {"retention.ms": "5"}


@on_tree(num_partitions="3", log_retention_hours="2", log_segment_bytes="1000000")
async def test_the_brokers_defaults(broker: LoneBroker) -> None:
    broker.configs.for_broker = {"log.retention.ms": "77"}
    broker.configs.for_all_brokers = {"log.retention.ms": "88", "log.index.interval.bytes": "99"}
    (made,) = await ask(broker, wanted("events", -1, -1, {"max.message.bytes": "55"}))
    assert (made.num_partitions, made.replication_factor) == (3, 1)
    told = {config.name: (config.value, config.config_source) for config in made.configs or []}
    assert told.keys() == {key.name for key in TOPIC_CONFIG}
    assert told["max.message.bytes"] == ("55", 1)
    assert told["retention.ms"] == ("77", 2)
    assert told["index.interval.bytes"] == ("99", 3)
    assert told["segment.bytes"] == ("1000000", 4)
    assert told["cleanup.policy"] == ("delete", 5)


@on_tree
async def test_assignments_by_hand(broker: LoneBroker) -> None:
    (made,) = await ask(broker, wanted("events", -1, -1, assignments={1: [BROKER_ID], 0: [BROKER_ID]}))
    assert (made.error_code, made.num_partitions) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("there", configs={"retention.ms": None}), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("there", configs={"nonsense": "1"}), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("new", 0), ErrorCode.INVALID_PARTITIONS),
        (wanted("new", -2), ErrorCode.INVALID_PARTITIONS),
        (wanted("new", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("new", 1, -1, assignments={0: [BROKER_ID]}), ErrorCode.INVALID_REQUEST),
        (wanted("new", -1, -1, assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("new", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (wanted("new", configs={"nonsense": "1"}), ErrorCode.INVALID_CONFIG),
        (wanted("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    ],
)
@on_tree
async def test_what_is_refused_is_explained(broker: LoneBroker, topic: CreatableTopic, code: ErrorCode) -> None:
    await broker.create("there")
    refusal, made = await ask(broker, topic, wanted("good"))
    assert (refusal.name, refusal.error_code) == (topic.name, code)
    assert refusal.error_message
    assert (refusal.num_partitions, refusal.replication_factor, refusal.configs) == (-1, -1, [])
    assert made.error_code == ErrorCode.NONE
    assert set(broker.controller.topics) == {"there", "good"}


@on_tree
async def test_a_topic_that_is_asked_for_twice_is_not_made_and_answered_once(broker: LoneBroker) -> None:
    answers = await ask(broker, wanted("twice", 1), wanted("once"), wanted("twice", 2))
    assert [(answer.name, answer.error_code) for answer in answers] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
    ]
    assert list(broker.controller.topics) == ["once"]


@on_tree
async def test_validation_makes_nothing(broker: LoneBroker) -> None:
    good, bad = await ask(broker, wanted("good", 4), wanted("bad", 0), validate_only=True)
    assert (good.error_code, good.num_partitions, good.topic_id) == (ErrorCode.NONE, 4, ZERO_UUID)
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert broker.controller.topics == {}


@on_tree
async def test_a_tree_that_fails_is_reported_for_each_topic(broker: LoneBroker) -> None:
    broker.tree.failure = CoordinationError("/brokers", "the disk is full")
    answers = await ask(broker, wanted("a"), wanted("b"))
    assert [answer.error_code for answer in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert all("the disk is full" in (answer.error_message or "") for answer in answers)


@on_tree
async def test_many_requests_at_once(broker: LoneBroker) -> None:
    answers = await asyncio.gather(*(ask(broker, wanted(f"t{number % 5}")) for number in range(20)))
    codes = [answer.error_code for (answer,) in answers]
    assert codes.count(ErrorCode.NONE) == 5
    assert codes.count(ErrorCode.TOPIC_ALREADY_EXISTS) == 15
