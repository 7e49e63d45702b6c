"""AlterConfigs: replaces what a resource sets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.alter_configs import alter_configs
from ottla.wire.messages.alter_configs import (
    AlterConfigsEntry,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from support.brokers.configured_broker import ConfiguredBroker, configured_broker
from support.brokers.small_broker import context

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32


def resource(resource_type: int, name: str, **settings: str | None) -> AlterConfigsResource:
    entries = [AlterConfigsEntry(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=entries)


async def ask(
    broker: ConfiguredBroker, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[AlterConfigsResourceResponse]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = await alter_configs(broker, request, context(2))  # type: ignore[arg-type]
    return response.responses


def test_what_is_not_named_is_no_longer_set(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("topic", retention_ms="5", segment_bytes="100")
            (answer,) = await ask(broker, resource(TOPIC, "topic", retention_ms="6"))
            assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
            assert (answer.resource_type, answer.resource_name) == (TOPIC, "topic")
            assert broker.configs.topic_config("topic") == {"retention.ms": "6"}
            await ask(broker, resource(BROKER, "1", max_connections="9"))
            await ask(broker, resource(BROKER, "", message_max_bytes="5"), resource(BROKER, "1"))
            assert broker.configs.for_broker == {}
            assert broker.configs.for_all_brokers == {"message.max.bytes": "5"}
            await ask(broker, resource(GROUP, "g", consumer_session_timeout_ms="46000"))
            await ask(broker, resource(GROUP, "g", consumer_heartbeat_interval_ms="6000"))
            assert broker.configs.groups.own("g") == {"consumer.heartbeat.interval.ms": "6000"}

    asyncio.run(main())


def test_each_resource_has_its_own_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("good")
            await broker.topic("bad")
            answers = await ask(
                broker,
                resource(TOPIC, "bad", retention_ms="soon"),
                resource(TOPIC, "good", retention_ms="6"),
                resource(TOPIC, "none", retention_ms="6"),
                resource(TOPIC, ""),
                resource(BROKER, "1", num_partitions="3"),
                resource(BROKER, "7", max_connections="3"),
                resource(LOGGER, "1", ottla="INFO"),
                resource(99, "x"),
            )
            assert [answer.error_code for answer in answers] == [
                ErrorCode.INVALID_CONFIG,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_REQUEST,
                ErrorCode.INVALID_REQUEST,
                ErrorCode.INVALID_REQUEST,
                ErrorCode.INVALID_REQUEST,
                ErrorCode.INVALID_REQUEST,
            ]
            assert answers[0].error_message == "retention.ms: 'soon' is not a whole number"
            assert broker.configs.topic_config("good") == {"retention.ms": "6"}

    asyncio.run(main())


def test_what_is_named_twice_or_null_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("topic")
            twice = resource(TOPIC, "topic", retention_ms="6")
            key_twice = resource(BROKER, "1", max_connections="9")
            key_twice.configs.append(key_twice.configs[0])
            answers = await ask(broker, twice, twice, key_twice)
            answers += await ask(broker, resource(TOPIC, "topic", retention_ms=None))
            assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_REQUEST}
            assert broker.configs.topic_config("topic") == {}
            assert broker.configs.for_broker == {}

    asyncio.run(main())


def test_only_checking(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("topic")
            good = resource(TOPIC, "topic", retention_ms="6")
            bad = resource(BROKER, "1", max_connections="x")
            answers = await ask(broker, good, bad, validate_only=True)
            assert [answer.error_code for answer in answers] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
            assert broker.configs.topic_config("topic") == {}

    asyncio.run(main())
