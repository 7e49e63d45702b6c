"""ListConfigResources: everything that has a config, by type."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.list_config_resources import list_config_resources
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from support.brokers.configured_broker import ConfiguredBroker, configured_broker
from support.brokers.small_broker import context

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def ask(broker: ConfiguredBroker, *types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    request = ListConfigResourcesRequest(resource_types=list(types))
    response = list_config_resources(broker, request, context(version))  # type: ignore[arg-type]
    return response.error_code, [(each.resource_type, each.resource_name) for each in response.config_resources]


def test_names_by_type(tmp_path: Path) -> None:
    async def main() -> None:
        async with configured_broker(tmp_path) as broker:
            await broker.topic("b")
            await broker.topic("a")
            topics, brokers, loggers = [(TOPIC, "a"), (TOPIC, "b")], [(BROKER, "1")], [(LOGGER, "1")]
            assert ask(broker) == (ErrorCode.NONE, [*topics, *brokers, *loggers])
            assert ask(broker, METRICS, GROUP) == (ErrorCode.NONE, [])
            for group_id in ("h", "g"):
                await broker.configs.groups.alter(group_id, lambda _: {"consumer.session.timeout.ms": "46000"})
            groups = [(GROUP, "g"), (GROUP, "h")]
            assert ask(broker) == (ErrorCode.NONE, [*topics, *brokers, *loggers, *groups])
            assert ask(broker, TOPIC) == (ErrorCode.NONE, topics)
            assert ask(broker, BROKER, LOGGER) == (ErrorCode.NONE, [*brokers, *loggers])
            assert ask(broker, METRICS, GROUP) == (ErrorCode.NONE, groups)
            assert ask(broker, TOPIC, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])
            assert ask(broker, version=0) == (ErrorCode.NONE, [])

    asyncio.run(main())
