"""Configs that change while a broker runs: precedence, checks, durability, and who is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from ottla.base.config import ConfigError
from ottla.broker.configs.store import ConfigStore
from ottla.zookeeper.paths import DEFAULT_ENTITY, ConfigKind, config
from ottla.zookeeper.znodes import encode_config
from support.brokers.configured_broker import BROKER_ID, ConfiguredBroker, configured_broker


def run(
    root: Path, test: Callable[[ConfiguredBroker], Awaitable[None]], settings: Mapping[str, str] | None = None
) -> None:
    async def main() -> None:
        async with configured_broker(root, settings) as broker:
            await test(broker)

    asyncio.run(main())


def setting(**settings: str | None) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    """Sets keys, with _ for dots; None unsets."""

    def change(before: Mapping[str, str]) -> Mapping[str, str]:
        changes = {key.replace("_", "."): text for key, text in settings.items()}
        return {key: text for key, text in {**before, **changes}.items() if text is not None}

    return change


async def alter_topic(
    broker: ConfiguredBroker, name: str, *, validate_only: bool = False, **settings: str | None
) -> None:
    outcomes = await broker.configs.alter_topics({name: setting(**settings)}, validate_only=validate_only)
    if (error := outcomes[name]) is not None:
        raise error


async def alter_broker(broker: ConfiguredBroker, broker_id: int | None = BROKER_ID, **settings: str | None) -> None:
    await broker.configs.alter_broker(broker_id, setting(**settings))


def test_the_nearest_place_that_sets_a_key_wins(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("plain")
        await broker.topic("own", segment_bytes="100")
        sizes = [(broker.configs.log_config("plain").segment_bytes, broker.configs.log_config("own").segment_bytes)]
        for broker_id, size in ((None, "300"), (BROKER_ID, "400")):
            await alter_broker(broker, broker_id, log_segment_bytes=size)
            sizes.append(
                (broker.configs.log_config("plain").segment_bytes, broker.configs.log_config("own").segment_bytes)
            )
        assert sizes == [(200, 100), (300, 100), (400, 100)]
        assert broker.configs.current("log.segment.bytes") == 400
        await alter_broker(broker, BROKER_ID, log_segment_bytes=None)
        assert broker.configs.current("log.segment.bytes") == 300
        assert broker.configs.current("num.partitions") == 1

    run(tmp_path, test, {"log.segment.bytes": "200"})


def test_what_was_altered_is_there_after_a_restart_and_lies_as_kafka_keeps_it(tmp_path: Path) -> None:
    async def alter(broker: ConfiguredBroker) -> None:
        await broker.topic("topic", retention_ms="5")
        await alter_topic(broker, "topic", segment_bytes="100", retention_ms=None)
        await alter_broker(broker, None, message_max_bytes="500")
        await alter_broker(broker, BROKER_ID, max_connections="7")
        for path, text in (
            (config(ConfigKind.TOPICS, "topic"), b'{"version":1,"config":{"segment.bytes":"100"}}'),
            (config(ConfigKind.BROKERS, DEFAULT_ENTITY), b'{"version":1,"config":{"message.max.bytes":"500"}}'),
            (config(ConfigKind.BROKERS, "1"), b'{"version":1,"config":{"max.connections":"7"}}'),
        ):
            node = await broker.coordination.get(path)
            assert node is not None
            assert node.data == text

    async def look(broker: ConfiguredBroker) -> None:
        assert broker.configs.topic_config("topic") == {"segment.bytes": "100"}
        assert broker.configs.log_config("topic").max_message_bytes == 500
        assert broker.configs.current("max.connections") == 7
        assert broker.metadata.topics["topic"].configs == {"segment.bytes": "100"}

    run(tmp_path, alter)
    run(tmp_path, look)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"segment_byte": "100"}, "segment.byte: there is no such topic config; did you mean segment.bytes?"),
        ({"segment_bytes": "none"}, "segment.bytes: 'none' is not a whole number"),
        ({"min_compaction_lag_ms": "6"}, "min.compaction.lag.ms: 6 is more than max.compaction.lag.ms, which is 5"),
    ],
)
def test_a_topic_s_change_is_checked_as_a_whole_before_anything_is_written(
    tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic", max_compaction_lag_ms="5")
        with pytest.raises(ConfigError) as raised:
            await alter_topic(broker, "topic", validate_only=False, retention_ms="9", **settings)
        assert str(raised.value) == reason
        assert await broker.in_the_tree(ConfigKind.TOPICS, "topic") == {"max.compaction.lag.ms": "5"}
        assert broker.configs.topic_config("topic") == {"max.compaction.lag.ms": "5"}

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("broker_id", "settings", "reason"),
    [
        (1, {"num.partition": "1"}, "num.partition: there is no such broker config; did you mean num.partitions?"),
        (1, {"num.partitions": "3"}, "num.partitions: it cannot be changed while the broker runs"),
        (1, {"message.max.bytes": "-1"}, "message.max.bytes: -1 is less than 0"),
        (1, {"max.connections.per.ip": "0"}, "max.connections.per.ip: 0 lets nobody in"),
        (1, {"num.io.threads": "17"}, "num.io.threads: 17 is more than twice or less than half of 8"),
        (1, {"num.io.threads": "3"}, "num.io.threads: 3 is more than twice or less than half of 8"),
        (1, {"listeners": "PLAINTEXT://:1"}, "listeners: listeners cannot be changed while the broker runs yet"),
        (None, {"listeners": "PLAINTEXT://:1"}, "listeners: it cannot be set for all brokers at once"),
        (1, {"ssl.key.password": "p"}, "ssl.key.password: it can be changed only for a single listener"),
        (1, {"listener.name.x.ssl.key.password": "p"}, "listener.name.x.ssl.key.password: settings of single"),
        (1, {"follower.replication.throttled.rate": "-1"}, "follower.replication.throttled.rate: -1 is less than 0"),
    ],
)
def test_a_broker_s_change_is_checked_as_a_whole_before_anything_is_written(
    tmp_path: Path, broker_id: int | None, settings: dict[str, str], reason: str
) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        with pytest.raises(ConfigError) as raised:
            await broker.configs.alter_broker(broker_id, lambda _: {"max.connections": "9", **settings})
        assert str(raised.value).startswith(reason)
        assert await broker.in_the_tree(ConfigKind.BROKERS, "1") is None
        assert await broker.in_the_tree(ConfigKind.BROKERS, DEFAULT_ENTITY) is None
        assert broker.configs.current("max.connections") == 2**31 - 1

    run(tmp_path, test)


def test_only_checking_changes_nothing(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic")
        await alter_topic(broker, "topic", validate_only=True, retention_ms="1")
        await broker.configs.alter_broker(1, lambda _: {"max.connections": "9"}, validate_only=True)
        assert await broker.in_the_tree(ConfigKind.TOPICS, "topic") == {}
        assert await broker.in_the_tree(ConfigKind.BROKERS, "1") is None
        assert broker.configs.topic_config("topic") == {}
        with pytest.raises(ConfigError):
            await alter_topic(broker, "topic", validate_only=True, retention_ms="x")

    run(tmp_path, test)


def test_listeners_are_called_only_for_changed_keys(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        topics: list[str] = []
        keys: list[frozenset[str]] = []
        broker.configs.on_topic_change = topics.append
        broker.configs.on_broker_change = keys.append
        await broker.topic("topic")
        assert topics == []
        await alter_topic(broker, "topic", retention_ms="1")
        await alter_topic(broker, "topic", retention_ms="1")
        assert topics == ["topic"]
        await alter_broker(broker, None, max_connections="9", message_max_bytes="5")
        await alter_broker(broker, BROKER_ID, max_connections="9")
        assert keys == [frozenset({"max.connections", "message.max.bytes"})]
        assert broker.configs.topics_with_configs() == ["topic"]

    run(tmp_path, test)


def test_keys_that_only_exist_in_the_tree_are_reported_as_well(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        keys: list[frozenset[str]] = []
        broker.configs.on_broker_change = keys.append
        await alter_broker(broker, BROKER_ID, leader_replication_throttled_rate="1000")
        assert keys == [frozenset({"leader.replication.throttled.rate"})]
        assert broker.configs.current("leader.replication.throttled.rate") == 1000
        await broker.configs.alter_broker(BROKER_ID, lambda _: {})
        assert len(keys) == 2

    run(tmp_path, test)


def test_a_change_of_the_broker_reaches_topics_that_were_read_before(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic")
        assert broker.configs.log_config("topic").retention_ms == 604_800_000
        await alter_broker(broker, None, log_retention_ms="1000")
        assert broker.configs.log_config("topic").retention_ms == 1000

    run(tmp_path, test)


@pytest.mark.parametrize("garbage", [b"garbage", b'{"version":1,"config":[]}', b"\xff\xfe", b'{"config":{"a":{}}}'])
def test_a_topic_node_that_cannot_be_read_keeps_no_broker_from_starting(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("broken", retention_ms="1")
        await broker.topic("whole", retention_ms="2")
        tree = broker.coordination
        await tree.set(config(ConfigKind.TOPICS, "broken"), garbage)
        await broker.configs.reread("topics/broken")
        assert broker.configs.log_config("broken").retention_ms == 1  # the last one that could be read
        started = ConfigStore(tree, broker.config, BROKER_ID)
        await started.load()
        assert "configs of topic broken cannot be read" in caplog.text
        assert started.log_config("whole").retention_ms == 2
        unknown = started.log_config("broken")
        assert (unknown.retention_ms, unknown.retention_bytes, unknown.compacts) == (-1, -1, False)
        outcomes = await started.alter_topics({"broken": setting(segment_bytes="100")})  # mends it
        assert outcomes == {"broken": None}
        assert await broker.in_the_tree(ConfigKind.TOPICS, "broken") == {"segment.bytes": "100"}
        assert started.topic_config("broken") == {"segment.bytes": "100"}

    run(tmp_path, test, {"log.cleanup.policy": "compact"})


def test_topics_that_set_the_same_share_one_config_and_forgotten_ones_set_nothing(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("a", retention_ms="1")
        await broker.topic("b", retention_ms="1")
        assert broker.configs.log_config("a") is broker.configs.log_config("b")
        broker.configs.forget_topic("a")
        assert broker.configs.topic_config("a") == {}
        assert broker.configs.log_config("a").retention_ms == 604_800_000

    run(tmp_path, test)


def test_changes_at_the_same_time_do_not_lose_each_other(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        await broker.topic("topic")
        await asyncio.gather(
            alter_topic(broker, "topic", retention_ms="1"),
            alter_topic(broker, "topic", segment_bytes="100"),
            alter_broker(broker, None, max_connections="9"),
            alter_broker(broker, None, message_max_bytes="5"),
        )
        assert broker.configs.topic_config("topic") == {"retention.ms": "1", "segment.bytes": "100"}
        assert broker.configs.for_all_brokers == {"max.connections": "9", "message.max.bytes": "5"}

    run(tmp_path, test)


def test_keys_that_no_file_can_set(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        key = "leader.replication.throttled.rate"
        assert broker.configs.current(key) == 2**63 - 1
        await alter_broker(broker, BROKER_ID, leader_replication_throttled_rate="1000")
        assert broker.configs.current(key) == 1000

    run(tmp_path, test)


def test_a_broker_starts_with_what_is_wrong_in_the_tree_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def spoil(broker: ConfiguredBroker) -> None:
        await broker.topic("topic")
        for kind, name, settings in (
            (ConfigKind.TOPICS, "topic", {"retention.ms": "soon", "segment.bytes": "100", "no.such": "1"}),
            (ConfigKind.BROKERS, "1", {"max.connections": "few", "message.max.bytes": "5", "no.such": "1"}),
        ):
            path = config(kind, name)
            if await broker.coordination.get(path) is None:
                await broker.coordination.create(path)
            await broker.coordination.set(path, encode_config(settings))

    async def look(broker: ConfiguredBroker) -> None:
        log_config = broker.configs.log_config("topic")
        assert (log_config.segment_bytes, log_config.retention_ms) == (100, 604_800_000)
        assert broker.configs.current("message.max.bytes") == 5
        assert broker.configs.current("max.connections") == 2**31 - 1

    run(tmp_path, spoil)
    with caplog.at_level(logging.ERROR, "ottla"):
        run(tmp_path, look)
    assert "ignoring an invalid setting of topic topic: retention.ms: 'soon' is not a whole number" in caplog.text
    assert "ignoring an invalid setting in /config/brokers/1: max.connections: 'few'" in caplog.text


def test_settings_in_the_tree_that_do_not_fit_together_are_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def spoil(broker: ConfiguredBroker) -> None:
        settings = {"max.connections.per.ip": "0", "message.max.bytes": "5"}
        await broker.coordination.create(config(ConfigKind.BROKERS, "1"), encode_config(settings))

    async def look(broker: ConfiguredBroker) -> None:
        assert broker.configs.effective is broker.config
        assert broker.configs.for_broker == {}

    run(tmp_path, spoil)
    with caplog.at_level(logging.ERROR, "ottla"):
        run(tmp_path, look)
    assert "max.connections.per.ip: 0 lets nobody in" in caplog.text


def test_configs_that_topics_no_longer_have_do_not_pile_up(tmp_path: Path) -> None:
    async def test(broker: ConfiguredBroker) -> None:
        for size in range(100, 1100):
            broker.configs.note_topic("topic", {"segment.bytes": str(size)})
            broker.configs.log_config("topic")
        assert len(broker.configs._log_configs) < 200

    run(tmp_path, test)
