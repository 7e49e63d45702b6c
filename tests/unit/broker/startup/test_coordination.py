"""Opening the tree that a config names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.base.config import ConfigError
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.startup.coordination import open_coordination, unusable
from ottla.broker.startup.data_directory import DataDirectoryError
from ottla.broker.startup.identity import broker_id_of, cluster_id_of
from ottla.log.local_disk import LocalDisk
from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.node_json import ZnodeError
from support.clients.nowhere import closed_port
from support.trees.servers import connected, embedded_server


def config(place: Path, **settings: str) -> BrokerConfig:
    named = {key.replace("_", "."): text for key, text in settings.items()}
    return BrokerConfig({"ottla.data.dir": str(place / "data"), **named})


def test_without_zookeeper_the_tree_is_a_file(tmp_path: Path) -> None:
    async def run() -> None:
        tree = await open_coordination(config(tmp_path), LocalDisk(), SystemClock())
        assert isinstance(tree, LocalTree)
        assert tree.path == tmp_path / "data" / "zookeeper.db"
        assert isinstance(unusable(tree, ZnodeError("/a", "broken")), DataDirectoryError)
        await tree.close()

    asyncio.run(run())


def test_a_chroot_is_made_and_a_dead_server_skipped(tmp_path: Path) -> None:
    async def run() -> None:
        async with embedded_server(tmp_path) as server, connected(server.address) as other:
            connect = f"127.0.0.1:{closed_port()},{server.address}/kafka/east"
            tree = await open_coordination(config(tmp_path, zookeeper_connect=connect), LocalDisk(), SystemClock())
            assert isinstance(tree, ZooKeeperTree)
            assert "zookeeper.connect: a node in ZooKeeper" in str(unusable(tree, ZnodeError("/a", "broken")))
            await tree.create("/made")
            assert await other.children("/kafka/east") == ["made"]
            await tree.close()
        assert not (tmp_path / "data" / "zookeeper.db").exists()

    asyncio.run(run())


def test_the_timeout_that_the_server_grants_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def run() -> None:
        async with embedded_server(tmp_path) as server:
            settings = {
                "zookeeper_connect": server.address,
                "zookeeper_session_timeout_ms": "100",
                "zookeeper_connection_timeout_ms": "60000",  # else as short as the session
            }
            tree = await open_coordination(config(tmp_path, **settings), LocalDisk(), SystemClock())
            await tree.close()

    asyncio.run(run())
    assert "ZooKeeper grants a session timeout of 300 ms instead of 100 ms" in caplog.text


def test_no_zookeeper_is_reported_with_the_key(tmp_path: Path) -> None:
    async def run() -> None:
        settings = {
            "zookeeper_connect": f"127.0.0.1:{closed_port()}/kafka",
            "zookeeper_connection_timeout_ms": "100",
        }
        with pytest.raises(ConfigError, match=r"zookeeper\.connect: No ZooKeeper server answered at .*/kafka within"):
            await open_coordination(config(tmp_path, **settings), LocalDisk(), SystemClock())

    asyncio.run(run())


def test_brokers_that_start_at_once_agree_on_the_cluster_and_differ_in_their_ids(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            embedded_server(tmp_path) as server,
            connected(server.address) as first,
            connected(server.address) as second,
        ):
            await paths.ensure_persistent_paths(first)
            ids = await asyncio.gather(*(cluster_id_of(tree) for tree in (first, second) for _ in range(3)))
            assert len(set(ids)) == 1
            settings = config(tmp_path, zookeeper_connect=server.address)
            numbers = await asyncio.gather(
                *(broker_id_of(settings, tree, LocalDisk()) for tree in (first, second) for _ in range(3))
            )
            assert sorted(each.number for each in numbers) == list(range(1001, 1007))
            assert not any(each.is_new for each in numbers)

    asyncio.run(run())
