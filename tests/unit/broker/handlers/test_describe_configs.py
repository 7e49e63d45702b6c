"""DescribeConfigs: values, where they come from, and what is not shown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.describe_configs import describe_configs
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.wire.codec import decode, encode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResponse,
    DescribeConfigsResponse,
    DescribedConfig,
)
from support.brokers.configured_broker import BROKER_ID, ConfiguredBroker, configured_broker
from support.brokers.small_broker import context

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def run(
    root: Path, test: Callable[[ConfiguredBroker], Awaitable[None]], settings: Mapping[str, str] | None = None
) -> None:
    async def main() -> None:
        async with configured_broker(root, settings) as broker:
            await test(broker)

    asyncio.run(main())


def at_once(answer: Coroutine[None, None, DescribeConfigsResponse]) -> DescribeConfigsResponse:
    """Configs of topics that the broker knows need no reading."""
    with pytest.raises(StopIteration) as stopped:
        answer.send(None)
    response: DescribeConfigsResponse = stopped.value.value
    return response


def ask(
    broker: ConfiguredBroker,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    synonyms: bool = True,
    documentation: bool = False,
    version: int = 4,
) -> DescribeConfigsResourceResponse:
    """As a client of that version sees it."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    response = at_once(describe_configs(broker, request, context(version)))  # type: ignore[arg-type]
    (result,) = decode(DescribeConfigsResponse, version, encode(response, version)).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def only(result: DescribeConfigsResourceResponse) -> DescribedConfig:
    assert result.error_code == ErrorCode.NONE
    (config,) = result.configs
    return config


def synonyms(config: DescribedConfig) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


async def set_for(broker: ConfiguredBroker, broker_id: int | None, **settings: str) -> None:
    named = {key.replace("_", "."): text for key, text in settings.items()}
    await broker.configs.alter_broker(broker_id, lambda before: {**before, **named})


def test_a_topic_has_every_key_and_its_own_come_first(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic", segment_bytes="100", cleanup_policy="compact,delete")
        result = ask(broker, TOPIC, "topic")
        assert [config.name for config in result.configs] == [key.name for key in TOPIC_CONFIG]
        config = only(ask(broker, TOPIC, "topic", ["segment.bytes"]))
        assert (config.value, config.config_source, config.config_type) == ("100", 1, 3)
        assert not config.read_only
        assert synonyms(config) == [("segment.bytes", "100", 1), ("log.segment.bytes", "1073741824", 5)]
        assert only(ask(broker, TOPIC, "topic", ["cleanup.policy"])).value == "compact,delete"
        assert only(ask(broker, TOPIC, "topic", ["preallocate"])).config_source == 5

    run(tmp_path, test)


def test_synonyms_are_told_from_the_strongest_to_the_default(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic", max_message_bytes="1")
        await set_for(broker, BROKER_ID, message_max_bytes="2")
        await set_for(broker, None, message_max_bytes="3")
        places = [
            ("message.max.bytes", "2", 2),
            ("message.max.bytes", "3", 3),
            ("message.max.bytes", "4", 4),
            ("message.max.bytes", "1048588", 5),
        ]
        topic = only(ask(broker, TOPIC, "topic", ["max.message.bytes"]))
        assert (topic.value, topic.config_source) == ("1", 1)
        assert synonyms(topic) == [("max.message.bytes", "1", 1), *places]
        own = only(ask(broker, BROKER, "1", ["message.max.bytes"]))
        assert (own.value, own.config_source, synonyms(own)) == ("2", 2, places)
        every = only(ask(broker, BROKER, ""))
        assert (every.name, every.value, every.config_source, synonyms(every)) == (
            "message.max.bytes",
            "3",
            3,
            places[1:2],
        )

    run(tmp_path, test, {"message.max.bytes": "4"})


def test_a_group_s_own_come_before_the_broker_s(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        key = "consumer.session.timeout.ms"
        of_broker = [(f"group.{key}", "50000", 4), (f"group.{key}", "45000", 5)]
        interval, timeout = ask(broker, GROUP, "g").configs
        assert (timeout.name, timeout.value, timeout.config_source, synonyms(timeout)) == (key, "50000", 4, of_broker)
        assert (timeout.config_type, timeout.read_only, timeout.is_sensitive) == (3, False, False)
        assert (interval.name, interval.value, interval.config_source) == ("consumer.heartbeat.interval.ms", "5000", 5)
        await broker.configs.groups.alter("g", lambda _: {key: " 46000"})
        timeout = only(ask(broker, GROUP, "g", [key], documentation=True))
        assert (timeout.value, timeout.config_source) == ("46000", 8)
        assert synonyms(timeout) == [(key, "46000", 8), *of_broker]
        assert "Session timeout" in (timeout.documentation or "")

    run(tmp_path, test, {"group.consumer.session.timeout.ms": "50000"})


def test_times_in_other_units_count(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic")
        retention = only(ask(broker, TOPIC, "topic", ["retention.ms"]))
        assert (retention.value, retention.config_source, synonyms(retention)) == ("7200000", 5, [])
        hours = only(ask(broker, BROKER, "1", ["log.retention.hours"]))
        assert (hours.value, hours.config_source) == ("2", 4)
        assert synonyms(hours) == [("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)]
        await set_for(broker, None, log_retention_ms="5")
        retention = only(ask(broker, TOPIC, "topic", ["retention.ms"]))
        assert (retention.value, retention.config_source) == ("5", 3)
        assert synonyms(retention)[:2] == [("log.retention.ms", "5", 3), ("log.retention.hours", "2", 4)]

    run(tmp_path, test, {"log.retention.hours": "2"})


def test_a_broker_s_keys_say_whether_they_can_change(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        found = {config.name: config for config in ask(broker, BROKER, "1").configs}
        assert found["num.partitions"].read_only
        assert not found["message.max.bytes"].read_only
        assert not found["listeners"].read_only
        assert found["log.dirs"].value is None
        assert found["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
        assert "log.initial.task.delay.ms" not in found
        assert found["unclean.leader.election.interval.ms"].value == "7"

    run(tmp_path, test, {"unclean.leader.election.interval.ms": "7"})


def test_passwords_are_never_shown(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        config = only(ask(broker, BROKER, "1", ["ssl.key.password"]))
        assert (config.value, config.is_sensitive, config.config_type) == (None, True, 9)
        assert synonyms(config) == [("ssl.key.password", None, 4)]
        everything = ask(broker, BROKER, "1", documentation=True)
        assert "hush" not in repr([(each.value, synonyms(each)) for each in everything.configs])

    run(tmp_path, test, {"ssl.key.password": "hush"})


def test_synonyms_and_documentation_only_on_request(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        bare = only(ask(broker, BROKER, "1", ["num.partitions"], synonyms=False))
        assert (bare.synonyms, bare.documentation) == ([], None)
        told = only(ask(broker, BROKER, "1", ["num.partitions"], documentation=True))
        assert told.documentation == "Number of partitions of topics that are created without one."

    run(tmp_path, test)


@pytest.mark.parametrize("version", range(5))
def test_every_version(tmp_path: Path, version: int) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic", segment_bytes="100")
        found = {each.name: each for each in ask(broker, TOPIC, "topic", synonyms=version > 0, version=version).configs}
        assert found["segment.bytes"].value == "100"
        if version == 0:
            assert (found["segment.bytes"].is_default, found["segment.ms"].is_default) == (False, True)
        else:
            assert found["segment.bytes"].config_source == 1

    run(tmp_path, test)


def test_an_empty_list_of_keys_asks_for_all_and_unknown_ones_are_left_out(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic")
        assert len(ask(broker, TOPIC, "topic", []).configs) == len(list(TOPIC_CONFIG))
        assert ask(broker, TOPIC, "topic", ["no.such.key"]).configs == []

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "some", ErrorCode.NONE),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_config(tmp_path: Path, resource_type: int, name: str, code: ErrorCode) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        result = ask(broker, resource_type, name)
        assert (result.error_code, result.configs) == (code, [])
        assert bool(result.error_message) == (code != ErrorCode.NONE)

    run(tmp_path, test)


def test_levels_of_loggers(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        logger = logging.getLogger("ottla.of.this.test")
        logger.setLevel(logging.ERROR)
        found = {each.name: each for each in ask(broker, LOGGER, "1").configs}
        assert (found["ottla.of.this.test"].value, found["ottla.of.this.test"].config_source) == ("ERROR", 6)
        assert "root" in found
        assert not [name for name in found if not name.startswith("ottla") and name != "root"]

    run(tmp_path, test)


def test_what_is_wrong_in_the_tree_is_shown_as_what_holds(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic")
        broker.configs.note_topic("topic", {"segment.bytes": "few"})
        config = only(ask(broker, TOPIC, "topic", ["segment.bytes"]))
        assert (config.value, config.config_source) == ("1073741824", 5)

    run(tmp_path, test)


@pytest.mark.parametrize("version", [0, 4])
def test_many_topics_are_described_as_each_alone(tmp_path: Path, version: int) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("plain")
        await broker.topic("other")
        await broker.topic("set", retention_ms="5")
        asked: list[tuple[str, list[str] | None]] = [
            ("plain", None),
            ("other", None),
            ("set", None),
            ("absent", None),
            ("plain", ["retention.ms"]),
            ("set", ["retention.ms"]),
            ("other", ["retention.ms"]),
        ]
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=keys)
            for name, keys in asked
        ]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
        response = at_once(describe_configs(broker, request, context(version)))  # type: ignore[arg-type]
        results = decode(DescribeConfigsResponse, version, encode(response, version)).results
        assert results == [ask(broker, TOPIC, name, keys, version=version) for name, keys in asked]

    run(tmp_path, test)
