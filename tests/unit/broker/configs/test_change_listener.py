"""Configs that change in the tree reach all brokers that share it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.configs import change_listener
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.change_listener import EXPIRY_MS, ConfigChangeListener
from ottla.broker.configs.nodes import Settings
from ottla.broker.configs.store import ConfigStore
from ottla.testing.manual_clock import ManualClock
from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.paths import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES, ConfigKind
from ottla.zookeeper.znodes import encode_config, encode_config_change
from support.trees.servers import connected, embedded_server, expire_session
from support.waiting import until

Change = Callable[[Settings], Settings]


class Follower:
    """A broker's configs, and what it was told."""

    def __init__(self, tree: ZooKeeperTree, broker_id: int) -> None:
        self.tree = tree
        self.clock = ManualClock()
        self.configs = ConfigStore(tree, BrokerConfig({}), broker_id)
        self.topics: list[str] = []
        self.keys: list[frozenset[str]] = []
        self.configs.on_topic_change = self.topics.append
        self.configs.on_broker_change = self.keys.append
        self.listener = ConfigChangeListener(tree, self.configs, self.clock)

    async def topic(self, name: str, **settings: str) -> None:
        """As another broker creates it, without notification."""
        configs = {key.replace("_", "."): text for key, text in settings.items()}
        await self.tree.create(paths.config(ConfigKind.TOPICS, name), encode_config(configs))
        await self.tree.create(paths.topic(name))

    async def alter_topic(self, name: str, change: Change) -> Exception | None:
        return (await self.configs.alter_topics({name: change}))[name]

    async def notifications(self) -> list[bytes]:
        names = await self.tree.children(CONFIG_CHANGES)
        nodes = await self.tree.get_many([f"{CONFIG_CHANGES}/{name}" for name in names])
        return [node.data for node in nodes if node is not None]


def adding(**settings: str) -> Change:
    return lambda before: {**before, **{key.replace("_", "."): text for key, text in settings.items()}}


@asynccontextmanager
async def following(address: str, broker_id: int) -> AsyncIterator[Follower]:
    async with connected(address) as tree:
        await paths.ensure_persistent_paths(tree)
        follower = Follower(tree, broker_id)
        await follower.configs.load()
        await follower.listener.start()
        try:
            yield follower
        finally:
            await follower.listener.close()


def with_two(place: Path, use: Callable[[Follower, Follower], Awaitable[None]]) -> None:
    async def run() -> None:
        async with (
            embedded_server(place) as server,
            following(server.address, 1) as first,
            following(server.address, 2) as second,
        ):
            await use(first, second)

    asyncio.run(asyncio.wait_for(run(), timeout=60))


def test_configs_of_topics_and_brokers_and_groups_reach_the_others(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders", retention_ms="5")
        assert await first.alter_topic("orders", adding(segment_bytes="100")) is None
        await until(lambda: second.topics)
        assert second.configs.topic_config("orders") == {"retention.ms": "5", "segment.bytes": "100"}
        assert first.topics == second.topics == ["orders"]
        await first.configs.alter_broker(None, adding(message_max_bytes="77"))
        await until(lambda: second.configs.current("message.max.bytes") == 77)
        assert first.keys == second.keys == [frozenset({"message.max.bytes"})]
        await first.configs.groups.alter("a group", adding(consumer_session_timeout_ms="46000"))
        await until(lambda: second.configs.groups.own("a group"))
        await first.configs.groups.alter("a group", lambda _: {})
        await until(lambda: not second.configs.groups.own("a group"))
        assert await first.notifications() == [
            b'{"version":2,"entity_path":"topics/orders"}',
            b'{"version":2,"entity_path":"brokers/<default>"}',
            b'{"version":2,"entity_path":"groups/a%20group"}',
            b'{"version":2,"entity_path":"groups/a%20group"}',
        ]

    with_two(tmp_path, use)


def test_configs_of_one_broker_are_its_own(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.configs.alter_broker(1, adding(max_connections="7"))
        await first.topic("last")
        await first.alter_topic("last", adding(retention_ms="1"))
        await until(lambda: second.topics)
        assert (second.configs.current("max.connections"), second.keys) == (2**31 - 1, [])

    with_two(tmp_path, use)


def test_brokers_that_alter_at_once_lose_nothing(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        keys = {first: ("retention.ms", "segment.bytes"), second: ("retention.bytes", "max.message.bytes")}
        await first.topic("orders")
        changes = [each.alter_topic("orders", adding(**{key: "100"})) for each in keys for key in keys[each]]
        brokers = [each.configs.alter_broker(None, adding(**{key: "5"})) for each, key in _broker_keys(first, second)]
        assert await asyncio.gather(*changes, *brokers) == [None] * 6
        expected = {key: "100" for each in keys for key in keys[each]}
        for each in (first, second):
            await until(lambda each=each: each.configs.topic_config("orders") == expected)  # type: ignore[misc]
            await until(lambda each=each: len(each.configs.for_all_brokers) == 2)  # type: ignore[misc]

    def _broker_keys(first: Follower, second: Follower) -> list[tuple[Follower, str]]:
        return [(first, "max.connections"), (second, "log.flush.interval.messages")]

    with_two(tmp_path, use)


def test_many_topics_are_altered_in_one_transaction(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        names = [f"topic-{number}" for number in range(20)]
        for name in names:
            await first.topic(name)
        outcomes = await first.configs.alter_topics(
            {**dict.fromkeys(names, adding(retention_ms="9")), "topic-3": adding(retention_ms="x")}
        )
        assert [name for name, error in outcomes.items() if error is not None] == ["topic-3"]
        nodes = await first.tree.get_many([paths.config(ConfigKind.TOPICS, name) for name in names])
        assert len({node.modified_zxid for node in nodes if node is not None and node.version}) == 1
        await until(lambda: len(second.topics) == 19)

    with_two(tmp_path, use)


def test_more_than_a_transaction_holds_goes_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.configs.store._TRANSACTION_BYTES", 2_000)

    async def use(first: Follower, second: Follower) -> None:
        names = [f"topic-{number}" for number in range(20)]
        for name in names:
            await first.topic(name)
        outcomes = await first.configs.alter_topics(dict.fromkeys([*names, "gone"], adding(retention_ms="9")))
        assert [name for name, error in outcomes.items() if error is not None] == ["gone"]
        assert str(outcomes["gone"]) == "Topic 'gone' does not exist."
        assert await first.tree.get(paths.config(ConfigKind.TOPICS, "gone")) is None
        await until(lambda: len(second.topics) == 20)

    with_two(tmp_path, use)


def test_topics_that_another_broker_created_are_learnt(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders", retention_ms="5")
        assert second.configs.topic_config("orders") == {}
        assert await second.configs.learn_topics(["orders"]) == []
        assert second.configs.log_config("orders").retention_ms == 5

    with_two(tmp_path, use)


def test_a_topic_that_is_not_in_the_tree_yet_is_not_taken_for_one_without_configs(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        assert await second.configs.learn_topics(["orders"]) == ["orders"]
        await first.topic("orders", retention_ms="5")
        assert await second.configs.learn_topics(["orders"]) == []
        assert second.configs.log_config("orders").retention_ms == 5

    with_two(tmp_path, use)


def test_a_late_notification_about_a_deleted_topic_does_not_hide_the_configs_of_its_successor(tmp_path: Path) -> None:
    """A broker that starts reads the notifications of a quarter of an hour."""

    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders", retention_ms="5")
        await first.alter_topic("orders", adding(retention_ms="6"))
        await until(lambda: second.configs.topic_config("orders") == {"retention.ms": "6"})
        await first.tree.delete_trees([paths.topic("orders"), paths.config(ConfigKind.TOPICS, "orders")])
        second.configs.forget_topic("orders")
        await second.configs.reread("topics/orders")
        await first.topic("orders", retention_ms="7")
        assert await second.configs.learn_topics(["orders"]) == []
        assert second.configs.log_config("orders").retention_ms == 7

    with_two(tmp_path, use)


def test_configs_of_a_topic_that_was_deleted_while_the_session_was_lost_are_forgotten(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders", retention_ms="5")
        await second.configs.learn_topics(["orders"])
        await first.tree.delete_trees([paths.topic("orders"), paths.config(ConfigKind.TOPICS, "orders")])
        second.topics.clear()
        await second.configs.load()
        assert second.topics == ["orders"]
        assert second.configs.topic_config("orders") == {}
        await first.topic("orders", retention_ms="7")
        await second.configs.learn_topics(["orders"])
        assert second.configs.log_config("orders").retention_ms == 7

    with_two(tmp_path, use)


def test_a_broker_that_starts_knows_all_topics(tmp_path: Path) -> None:
    async def run() -> None:
        async with embedded_server(tmp_path) as server, following(server.address, 1) as first:
            await first.topic("orders", retention_ms="5")
            await first.alter_topic("orders", adding(segment_bytes="100"))
            async with following(server.address, 2) as second:
                assert second.configs.topic_config("orders") == {"retention.ms": "5", "segment.bytes": "100"}

    asyncio.run(run())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b'{"version":3,"entity_path":"topics/a"}',
        encode_config_change("users/alice"),
        encode_config_change("ips/127.0.0.1"),
        encode_config_change("clients/<default>"),
        encode_config_change("users/alice/clients/app"),
        encode_config_change("brokers/99"),
        encode_config_change("topics"),
    ],
)
def test_changes_that_do_not_concern_a_broker_are_ignored(tmp_path: Path, data: bytes) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.tree.create(CONFIG_CHANGE_PREFIX, data, sequential=True)
        await first.tree.create(f"{CONFIG_CHANGES}/odd")
        await first.topic("orders")
        await first.alter_topic("orders", adding(retention_ms="1"))
        await until(lambda: second.topics)

    with_two(tmp_path, use)


def test_the_older_form_of_a_notification_is_read(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders", retention_ms="5")
        data = b'{"version":1,"entity_type":"topics","entity_name":"orders"}'
        await first.tree.create(CONFIG_CHANGE_PREFIX, data, sequential=True)
        await until(lambda: second.topics)
        assert second.configs.topic_config("orders") == {"retention.ms": "5"}

    with_two(tmp_path, use)


def test_a_node_that_cannot_be_read_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders")
        await first.tree.set(paths.config(ConfigKind.TOPICS, "orders"), b"nonsense")
        await first.tree.create(CONFIG_CHANGE_PREFIX, encode_config_change("topics/orders"), sequential=True)
        await until(lambda: "the configs of topic orders cannot be read" in caplog.text)
        await first.topic("events")
        await first.alter_topic("events", adding(retention_ms="1"))
        await until(lambda: "events" in second.topics)

    with_two(tmp_path, use)


def test_old_notifications_are_removed(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders")
        await first.alter_topic("orders", adding(retention_ms="1"))
        await until(lambda: second.topics)
        (old,) = await first.tree.children(CONFIG_CHANGES)
        node = await first.tree.get(f"{CONFIG_CHANGES}/{old}")
        assert node is not None
        second.clock.set_now_ms(node.created_ms + EXPIRY_MS + 1)
        first.clock.set_now_ms(node.created_ms)
        # The newer one is made by a clock that is far behind the listener's, so it is as old.
        await first.alter_topic("orders", adding(retention_ms="2"))
        await until(lambda: second.configs.topic_config("orders") == {"retention.ms": "2"})
        while old in await first.tree.children(CONFIG_CHANGES):
            await asyncio.sleep(0)

    with_two(tmp_path, use)


def test_after_an_expired_session_everything_is_read_again(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        for name in ("orders", "events"):
            await first.topic(name)
        await first.alter_topic("orders", adding(retention_ms="1"))
        await until(lambda: second.topics)
        # Written without notification: only one who reads everything sees it.
        await first.tree.set(paths.config(ConfigKind.TOPICS, "events"), encode_config({"retention.ms": "7"}))
        default = paths.config(ConfigKind.BROKERS, paths.DEFAULT_ENTITY)
        await first.tree.create(default, encode_config({"message.max.bytes": "77"}))
        await expire_session(second.tree)
        await until(lambda: second.configs.topic_config("events") == {"retention.ms": "7"})
        await until(lambda: second.configs.current("message.max.bytes") == 77)
        await first.alter_topic("orders", adding(retention_ms="2"))
        await until(lambda: second.configs.topic_config("orders") == {"retention.ms": "2"})

    with_two(tmp_path, use)


def test_a_lost_connection_loses_no_change(tmp_path: Path) -> None:
    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders")
        for number in range(5):
            connection = second.tree.session._connection
            assert connection is not None
            connection.drop("cut by the test")
            expected: Mapping[str, str] = {"retention.ms": str(number)}
            await first.alter_topic("orders", lambda _, new=expected: new)  # type: ignore[misc]
            await until(lambda new=expected: second.configs.topic_config("orders") == new)  # type: ignore[misc]
            await second.tree.get("/")

    with_two(tmp_path, use)


def test_a_change_that_could_not_be_handled_is_handled_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_listener, "_RETRY_S", 0.0)

    async def use(first: Follower, second: Follower) -> None:
        await first.topic("orders")
        reread, failures = second.configs.reread, iter([RuntimeError("failed by the test")])

        async def fails_once(entity: str) -> None:
            for failure in failures:
                raise failure
            await reread(entity)

        monkeypatch.setattr(second.configs, "reread", fails_once)
        await first.alter_topic("orders", adding(retention_ms="1"))
        await until(lambda: second.configs.topic_config("orders") == {"retention.ms": "1"})

    with_two(tmp_path, use)
