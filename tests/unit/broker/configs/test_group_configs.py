"""Configs of groups: checks against the broker's limits, durability, and what holds in the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from ottla.base.config import ConfigError
from ottla.broker.configs.broker_config import BROKER_CONFIG
from ottla.broker.configs.group_configs import GROUP_CONFIG, HEARTBEAT_INTERVAL, SESSION_TIMEOUT, broker_synonym
from ottla.coordinator.groups.group import ConsumerTimes
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import encode_config
from support.brokers.configured_broker import ConfiguredBroker, configured_broker

CLOSE = {"group.consumer.min.session.timeout.ms": "5000"}
"""So that a session can be as short as the time between two heartbeats."""


def run(
    root: Path, test: Callable[[ConfiguredBroker], Awaitable[None]], settings: Mapping[str, str] | None = None
) -> None:
    async def main() -> None:
        async with configured_broker(root, settings) as broker:
            await test(broker)

    asyncio.run(main())


async def set_for(
    broker: ConfiguredBroker, group_id: str, settings: Mapping[str, str], *, validate_only: bool = False
) -> None:
    await broker.configs.groups.alter(group_id, lambda before: {**before, **settings}, validate_only=validate_only)


def test_defaults_are_those_of_the_broker() -> None:
    assert [key.default for key in GROUP_CONFIG] == [
        BROKER_CONFIG[broker_synonym(key.name)].default for key in GROUP_CONFIG
    ]


def test_what_a_group_sets_is_there_after_a_restart(tmp_path: Path) -> None:
    names = ["g", "a/b c", ".", "..", "   ", "%2E", "é"]

    async def alter(broker: ConfiguredBroker) -> None:
        for group_id in names:
            await set_for(broker, group_id, {SESSION_TIMEOUT: "46000"})
        await set_for(broker, "g", {HEARTBEAT_INTERVAL: "6000"})
        node = await broker.coordination.get("/config/groups/g")
        assert node is not None
        assert node.data == (
            b'{"version":1,"config":{"consumer.session.timeout.ms":"46000","consumer.heartbeat.interval.ms":"6000"}}'
        )

    async def look(broker: ConfiguredBroker) -> None:
        assert sorted(broker.configs.groups) == sorted(names)
        assert broker.configs.groups.own("g") == {SESSION_TIMEOUT: "46000", HEARTBEAT_INTERVAL: "6000"}
        assert broker.configs.groups.own("other") == {}
        assert broker.configs.groups.consumer_times == dict.fromkeys(names, ConsumerTimes(46_000, 5_000)) | {
            "g": ConsumerTimes(46_000, 6_000)
        }

    run(tmp_path, alter)
    run(tmp_path, look)


def test_a_group_that_sets_nothing_is_gone(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        groups, times = broker.configs.groups, broker.configs.groups.consumer_times
        for _ in range(2):
            await set_for(broker, "g", {SESSION_TIMEOUT: "46000"})
            assert "g" in times
            await groups.alter("g", lambda _: {})
            assert (list(groups), groups.own("g"), times) == ([], {}, {})
            assert await broker.coordination.get(paths.group_config("g")) is None
        await groups.alter("never", lambda _: {})

    run(tmp_path, test)


def test_what_a_group_does_not_set_is_the_broker_s(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await set_for(broker, "g", {HEARTBEAT_INTERVAL: "6000"})
        assert broker.configs.groups.consumer_times == {"g": ConsumerTimes(55_000, 6_000)}

    run(tmp_path, test, {"group.consumer.session.timeout.ms": "55000"})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({SESSION_TIMEOUT: "soon"}, "'soon' is not a whole number"),
        ({SESSION_TIMEOUT: "0"}, "0 is less than 1"),
        ({SESSION_TIMEOUT: "4999"}, "4999 is less than 5000, the broker's group.consumer.min.session.timeout.ms"),
        ({SESSION_TIMEOUT: "60001"}, "60001 is more than 60000, the broker's group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT_INTERVAL: "4999"}, "4999 is less than 5000, the broker's group.consumer.min.heartbeat.interval.ms"),
        (
            {HEARTBEAT_INTERVAL: "15001"},
            "15001 is more than 15000, the broker's group.consumer.max.heartbeat.interval.ms",
        ),
        ({SESSION_TIMEOUT: "6000"}, f"6000 is not more than {HEARTBEAT_INTERVAL}, 6000"),
        ({"consumer.session.timeout": "50000"}, "no such group config; did you mean consumer.session.timeout.ms?"),
        ({"share.session.timeout.ms": "50000"}, "no such group config"),
        ({"streams.session.timeout.ms": "50000"}, "no such group config"),
    ],
)
def test_a_change_is_checked_as_a_whole_before_anything_is_written(
    tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        own = {HEARTBEAT_INTERVAL: "6000"}
        await set_for(broker, "g", own)
        with pytest.raises(ConfigError) as raised:
            await set_for(broker, "g", settings)
        assert reason in str(raised.value)
        assert broker.configs.groups.own("g") == own
        assert await broker.in_the_tree(paths.ConfigKind.GROUPS, "g") == own

    run(tmp_path, test, CLOSE)


def test_limits_themselves_are_allowed(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        for timeout_ms, interval_ms in (("5001", "5000"), ("60000", "15000")):
            await set_for(broker, "g", {SESSION_TIMEOUT: timeout_ms, HEARTBEAT_INTERVAL: interval_ms})
        assert broker.configs.groups.consumer_times == {"g": ConsumerTimes(60_000, 15_000)}

    run(tmp_path, test, CLOSE)


def test_only_checking(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await set_for(broker, "g", {SESSION_TIMEOUT: "46000"}, validate_only=True)
        assert list(broker.configs.groups) == []
        assert await broker.in_the_tree(paths.ConfigKind.GROUPS, "g") is None

    run(tmp_path, test)


def test_other_limits_after_a_restart_hold_and_the_setting_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def alter(broker: ConfiguredBroker) -> None:
        await set_for(broker, "g", {SESSION_TIMEOUT: "46000", HEARTBEAT_INTERVAL: "12000"})

    async def look(broker: ConfiguredBroker) -> None:
        assert broker.configs.groups.consumer_times == {"g": ConsumerTimes(50_000, 10_000)}
        assert broker.configs.groups.own("g") == {SESSION_TIMEOUT: "46000", HEARTBEAT_INTERVAL: "12000"}

    run(tmp_path, alter)
    limits = {"group.consumer.min.session.timeout.ms": "50000", "group.consumer.max.heartbeat.interval.ms": "10000"}
    with caplog.at_level(logging.WARNING, "ottla"):
        run(tmp_path, look, {**limits, "group.consumer.session.timeout.ms": "50000"})
    assert "group g: consumer.session.timeout.ms is 46000, and the broker's group.consumer.min" in caplog.text
    assert "group g: consumer.heartbeat.interval.ms is 12000, and the broker's group.consumer.max" in caplog.text


def test_wrong_values_in_the_tree_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def spoil(broker: ConfiguredBroker) -> None:
        for group_id, settings in (
            ("half", {SESSION_TIMEOUT: "soon", HEARTBEAT_INTERVAL: "6000"}),
            ("wrong", {"share.session.timeout.ms": "50000"}),
            ("empty", {}),
        ):
            await broker.coordination.create(paths.group_config(group_id), encode_config(settings), parents=True)

    async def look(broker: ConfiguredBroker) -> None:
        assert list(broker.configs.groups) == ["half"]
        assert broker.configs.groups.own("half") == {HEARTBEAT_INTERVAL: "6000"}

    run(tmp_path, spoil)
    with caplog.at_level(logging.ERROR, "ottla"):
        run(tmp_path, look)
    assert "ignoring an invalid setting in /config/groups/half: consumer.session.timeout.ms: 'soon'" in caplog.text
