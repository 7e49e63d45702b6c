"""Configs described and altered at a broker of ours and at Kafka 3.9.1, with the same settings: the same answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.alter_configs import AlterConfigsEntry, AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResponse,
)
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsEntry,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from ottla.wire.schema import Request
from support.brokers import broker_in_loop
from support.controllers import admin_of
from support.kafka_process import stop, zookeeper, zookeeper_mode_broker

pytestmark = pytest.mark.compat

PATIENCE_S = 60.0
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
SETTINGS = {
    "broker.id": "1",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "message.max.bytes": "2000000",
    "log.retention.hours": "24",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleanup.policy": "compact,delete",
    "ssl.key.password": "hush",
    "unclean.leader.election.interval.ms": "7000",
    "broker.rack": "a rack",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
ELSEWHERE = {
    "advertised.listeners",
    "listeners",
    "log.dir",
    "log.dirs",
    "transaction.two.phase.commit.enable",  # of Kafka 4 (KIP-939)
    "zookeeper.connect",
}
"""Keys that cannot be the same at both."""
FINER_UNIT_ALTERED = {"log.retention.hours"}
"""Kafka shows the default of such a key then, and no longer what its file says."""
ALTERATIONS: list[tuple[int, str, list[tuple[str, int, str | None]]]] = [
    (TOPIC, "topic", [("retention.ms", SET, "1000"), ("segment.bytes", DELETE, None)]),
    (TOPIC, "topic", [("cleanup.policy", SUBTRACT, "delete"), ("cleanup.policy", APPEND, "compact")]),
    (TOPIC, "topic", [("cleanup.policy", APPEND, "compact")]),
    (TOPIC, "topic", [("retention.ms", APPEND, "1")]),
    (TOPIC, "topic", [("retention.ms", SET, "soon")]),
    (TOPIC, "topic", [("retention.sm", SET, "1")]),
    (TOPIC, "topic", [("retention.ms", SET, None)]),
    (TOPIC, "topic", [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")]),
    (TOPIC, "none", [("retention.ms", SET, "1")]),
    (TOPIC, "", [("retention.ms", SET, "1")]),
    (BROKER, "1", [("max.connections", SET, "500"), ("message.max.bytes", SET, "3000000")]),
    (BROKER, "", [("message.max.bytes", SET, "4000000"), ("log.retention.ms", SET, "5000")]),
    (BROKER, "1", [("num.partitions", SET, "3")]),
    (BROKER, "1", [("num.partitions", DELETE, None)]),
    (BROKER, "1", [("num.io.threads", SET, "9")]),
    (BROKER, "1", [("num.io.threads", SET, "4")]),
    (BROKER, "1", [("max.connections", SET, "-1")]),
    (BROKER, "1", [("max.connections", APPEND, "1")]),
    (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")]),
    (BROKER, "1", [("ssl.keystore.location", SET, "/none")]),
    (BROKER, "1", [("leader.replication.throttled.rate", SET, "1000")]),
    (BROKER, "2", [("max.connections", SET, "5")]),
    (BROKER, "one", [("max.connections", SET, "5")]),
    (16, "metrics", [("interval.ms", SET, "100")]),
    (99, "x", [("a", SET, "b")]),
]


class Asking:
    """A connection that any request can be sent on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: Request, version: int) -> Any:
        self._writer.writelines(request_frame(request, version, 1, "test"))
        async with asyncio.timeout(PATIENCE_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
        return read_response(api_of(request.api_key), version, frame)[1]

    async def create_topic(self, name: str, **configs: str) -> None:
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)
        response = await self.ask(CreateTopicsRequest(topics=[topic]), 5)
        assert [each.error_code for each in response.topics] == [0]

    async def describe(self, resource_type: int, name: str, version: int = 4) -> DescribeConfigsResourceResponse:
        resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=version > 0)
        result: DescribeConfigsResourceResponse
        (result,) = (await self.ask(request, version)).results
        return result

    async def shown(self, resource_type: int, name: str, version: int = 4) -> dict[str, Any]:
        """All that is said of each key, where it can be the same at both. What only version 0 says, whether it is the
        default, Kafka 3.9 says wrong: to it nothing is."""
        result = await self.describe(resource_type, name, version)
        assert result.error_code == 0, result.error_message
        return {
            each.name: (
                each.value,
                each.read_only,
                each.config_source,
                each.is_sensitive,
                each.config_type,
                [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
            )
            for each in result.configs
            if each.name not in ELSEWHERE and not each.name.startswith("ottla.")
        }

    async def alter(self, resource_type: int, name: str, changes: list[tuple[str, int, str | None]]) -> int:
        entries = [
            IncrementalAlterConfigsEntry(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        resource = IncrementalAlterConfigsResource(resource_type=resource_type, resource_name=name, configs=entries)
        (answer,) = (await self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
        return int(answer.error_code)

    async def replace(self, resource_type: int, name: str, settings: dict[str, str]) -> int:
        entries = [AlterConfigsEntry(name=key, value=value) for key, value in settings.items()]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=entries)
        (answer,) = (await self.ask(AlterConfigsRequest(resources=[resource]), 2)).responses
        return int(answer.error_code)

    def close(self) -> None:
        self._writer.close()


@contextmanager
def kafka(place: Path) -> Iterator[int]:
    with zookeeper(place / "zookeeper") as address:
        broker = zookeeper_mode_broker(place / "kafka", address, 1, SETTINGS)
        try:
            admin_of(broker)
            yield broker.port
        finally:
            stop(broker.process)


@asynccontextmanager
async def both(place: Path) -> AsyncIterator[list[Asking]]:
    with kafka(place) as port:
        settings = dict(line.split("=", 1) for line in (place / "kafka" / "server.properties").read_text().splitlines())
        settings = {key: text for key, text in settings.items() if key not in ELSEWHERE}
        async with broker_in_loop(place, **settings) as ours:
            asking = [
                Asking(*await asyncio.open_connection("127.0.0.1", each))
                for each in (ours.ready.listeners[0].port, port)
            ]
            try:
                yield asking
            finally:
                for each in asking:
                    each.close()


def test_configs_are_described_and_altered_as_by_kafka(tmp_path: Path) -> None:
    async def main() -> None:
        async with both(tmp_path) as (ours, theirs):
            for each in (ours, theirs):
                await each.create_topic("topic", segment_bytes="1000", retention_bytes="77")
            await compare(ours, theirs)
            for version in range(4):
                assert await ours.shown(TOPIC, "topic", version) == await theirs.shown(TOPIC, "topic", version)
            codes = [
                (alteration, await ours.alter(*alteration), await theirs.alter(*alteration))
                for alteration in ALTERATIONS
            ]
            assert [each for each in codes if each[1] != each[2]] == []
            await compare(ours, theirs)
            assert await ours.replace(TOPIC, "topic", {"retention.ms": "5"}) == 0
            assert await theirs.replace(TOPIC, "topic", {"retention.ms": "5"}) == 0
            await compare(ours, theirs)
            for resource_type, name in (
                (TOPIC, "none"),
                (TOPIC, "a/b"),
                (BROKER, "2"),
                (BROKER, "x"),
                (8, ""),
                (16, ""),
            ):
                answers = [await each.describe(resource_type, name) for each in (ours, theirs)]
                assert answers[0].error_code == answers[1].error_code, (resource_type, name)

    asyncio.run(main())


async def compare(ours: Asking, theirs: Asking) -> None:
    """Kafka applies what was altered a little later, so it is asked until it has."""
    for resource_type, name in ((TOPIC, "topic"), (BROKER, "1"), (BROKER, "")):
        shown = await ours.shown(resource_type, name)
        deadline_s = time.monotonic() + PATIENCE_S
        while differing(shown, await theirs.shown(resource_type, name)) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.2)
        assert differing(shown, await theirs.shown(resource_type, name)) == []


def differing(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [
        (key, ours.get(key), theirs.get(key))
        for key in sorted((ours.keys() | theirs.keys()) - FINER_UNIT_ALTERED)
        if ours.get(key) != theirs.get(key)
    ]
