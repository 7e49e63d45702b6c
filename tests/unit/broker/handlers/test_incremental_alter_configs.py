"""IncrementalAlterConfigs: single keys, lists, and levels of loggers."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.incremental_alter_configs import incremental_alter_configs
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from support.brokers.configured_broker import ConfiguredBroker, configured_broker
from support.brokers.small_broker import context

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Operation = tuple[str, int, str | None]


def resource(resource_type: int, name: str, *operations: Operation) -> IncrementalAlterConfigsResource:
    entries = [
        IncrementalAlterConfigsEntry(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    return IncrementalAlterConfigsResource(resource_type=resource_type, resource_name=name, configs=entries)


async def ask(
    broker: ConfiguredBroker, *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = await incremental_alter_configs(broker, request, context(1))  # type: ignore[arg-type]
    assert [(each.resource_type, each.resource_name) for each in response.responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return [(each.error_code, each.error_message) for each in response.responses]


def test_keys_are_set_and_deleted_and_others_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("topic", retention_ms="5", segment_bytes="100")
            answers = await ask(
                broker,
                resource(TOPIC, "topic", ("retention.ms", SET, "6"), ("preallocate", DELETE, None)),
                resource(BROKER, "", ("message.max.bytes", SET, "7")),
                resource(BROKER, "1", ("max.connections", SET, "8")),
                resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "46000")),
            )
            assert answers == [(ErrorCode.NONE, None)] * 4
            assert broker.configs.topic_config("topic") == {"retention.ms": "6", "segment.bytes": "100"}
            await ask(broker, resource(TOPIC, "topic", ("retention.ms", DELETE, None)))
            assert broker.configs.topic_config("topic") == {"segment.bytes": "100"}
            await ask(broker, resource(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000")))
            await ask(broker, resource(GROUP, "g", ("consumer.session.timeout.ms", DELETE, None), ("x", DELETE, None)))
            assert broker.configs.groups.own("g") == {"consumer.heartbeat.interval.ms": "6000"}
            assert (broker.configs.for_all_brokers, broker.configs.for_broker) == (
                {"message.max.bytes": "7"},
                {"max.connections": "8"},
            )

    asyncio.run(main())


def test_lists_grow_and_shrink_from_their_default(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("topic")

            async def policy(operation: int, value: str) -> str:
                await ask(broker, resource(TOPIC, "topic", ("cleanup.policy", operation, value)))
                return broker.configs.topic_config("topic")["cleanup.policy"]

            assert await policy(APPEND, "compact") == "delete,compact"
            assert await policy(APPEND, "compact, delete") == "delete,compact"
            assert await policy(SUBTRACT, "delete") == "compact"
            replicas = "leader.replication.throttled.replicas"
            await ask(broker, resource(TOPIC, "topic", (replicas, APPEND, "0:1,1:1")))
            assert broker.configs.topic_config("topic")[replicas] == "0:1,1:1"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("altered", "code", "reason"),
    [
        (resource(TOPIC, "topic", ("retention.sm", SET, "1")), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
        (resource(TOPIC, "topic", ("retention.ms", SET, "x")), ErrorCode.INVALID_CONFIG, "'x' is not a whole number"),
        (resource(TOPIC, "topic", ("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG, "Appending needs a list"),
        (
            resource(TOPIC, "none", ("a", 7, ""), ("retention.ms", APPEND, "1")),
            ErrorCode.INVALID_CONFIG,
            "needs a list",
        ),
        (resource(BROKER, "1", ("max.connections", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG, "Subtracting needs a"),
        (resource(TOPIC, "topic", ("retention.sm", APPEND, "1")), ErrorCode.INVALID_CONFIG, "no such topic config"),
        (resource(TOPIC, "topic", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST, "retention.ms is null"),
        (resource(TOPIC, "topic", ("retention.ms", 9, "1")), ErrorCode.INVALID_REQUEST, "Unknown operation 9"),
        (
            resource(TOPIC, "none", ("retention.ms", SET, "1")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "'none' does not exist",
        ),
        (resource(TOPIC, "", ("retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST, "name a "),
        (resource(TOPIC, "a/b", ("retention.ms", SET, "1")), ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
        (resource(BROKER, "1", ("num.partitions", SET, "1")), ErrorCode.INVALID_REQUEST, "while the broker runs"),
        (resource(BROKER, "2", ("max.connections", SET, "1")), ErrorCode.INVALID_REQUEST, "This is broker 1"),
        (resource(GROUP, "", ("consumer.session.timeout.ms", SET, "46000")), ErrorCode.INVALID_REQUEST, "name a "),
        (resource(GROUP, "g", ("share.session.timeout.ms", SET, "46000")), ErrorCode.INVALID_CONFIG, "no such group"),
        (resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")), ErrorCode.INVALID_CONFIG, "less than 45000"),
        (resource(GROUP, "g", ("consumer.session.timeout.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG, "needs a list"),
        (resource(METRICS, "x", ("interval.ms", SET, "1")), ErrorCode.INVALID_REQUEST, "type 16"),
        (resource(LOGGER, "2", ("ottla", SET, "INFO")), ErrorCode.INVALID_REQUEST, "This is broker 1"),
        (
            resource(LOGGER, "1", ("nobody.s", SET, "INFO")),
            ErrorCode.INVALID_CONFIG,
            "Logger 'nobody.s' does not exist",
        ),
        (resource(LOGGER, "1", ("ottla", SET, "LOUD")), ErrorCode.INVALID_CONFIG, "'LOUD' is not a level for ottla"),
        (resource(LOGGER, "1", ("ottla", APPEND, "INFO")), ErrorCode.INVALID_REQUEST, "one level"),
        (resource(LOGGER, "1", ("root", DELETE, None)), ErrorCode.INVALID_REQUEST, "must have a level"),
    ],
)
def test_what_is_refused_is_said_and_changes_nothing(
    tmp_path: Path, altered: IncrementalAlterConfigsResource, code: ErrorCode, reason: str
) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("topic")
            ((found, message),) = await ask(broker, altered)
            assert found == code
            assert reason in (message or "")
            assert broker.configs.topic_config("topic") == {}
            assert broker.configs.for_broker == {}
            assert list(broker.configs.groups) == []

    asyncio.run(main())


def test_levels_of_loggers_are_set_unset_and_only_checked(tmp_path: Path) -> None:
    async def main() -> None:
        logger = logging.getLogger("ottla.of.another.test")
        logger.setLevel(logging.NOTSET)
        async with configured_broker(tmp_path) as broker:
            wanted = resource(LOGGER, "1", (logger.name, SET, "FATAL"))
            assert await ask(broker, wanted, validate_only=True) == [(ErrorCode.NONE, None)]
            assert logger.level == logging.NOTSET
            await ask(broker, wanted)
            assert logger.level == logging.CRITICAL
            await ask(broker, resource(LOGGER, "1", (logger.name, DELETE, None)))
            assert logger.level == logging.NOTSET

    asyncio.run(main())


def test_only_checking(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("topic")
            wanted = (
                resource(TOPIC, "topic", ("retention.ms", SET, "1")),
                resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "46000")),
            )
            assert await ask(broker, *wanted, validate_only=True) == [(ErrorCode.NONE, None)] * 2
            assert broker.configs.topic_config("topic") == {}
            assert broker.configs.groups.own("g") == {}

    asyncio.run(main())


def test_what_is_named_twice_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("topic")
            twice = resource(TOPIC, "topic", ("retention.ms", SET, "1"))
            key_twice = resource(BROKER, "1", ("max.connections", SET, "1"), ("max.connections", DELETE, None))
            answers = await ask(broker, twice, twice, key_twice)
            assert [code for code, _ in answers] == [ErrorCode.INVALID_REQUEST] * 3
            assert broker.configs.topic_config("topic") == {}

    asyncio.run(main())
