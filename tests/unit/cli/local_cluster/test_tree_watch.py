"""What a local cluster's ZooKeeper says, before it is there, while it is, and when it is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.cli.local_cluster import tree_watch
from ottla.cli.local_cluster.launcher import TreeSight
from ottla.cli.local_cluster.tree_watch import TreeWatch
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import ControllerRegistration
from support.trees.servers import connected, embedded_server
from support.waiting import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_watch, "_LOOK_EVERY_S", 0.01)


def test_brokers_and_the_controller_are_seen(tmp_path: Path) -> None:
    async def work() -> None:
        async with embedded_server(tmp_path) as server, connected(server.address) as tree:
            watch = TreeWatch(server.address)
            watch.start()
            await until(lambda: watch.sight == TreeSight({}, None))
            await tree.create(paths.broker(2), b"{}", ephemeral=True, parents=True)
            node = await tree.get(paths.broker(2))
            assert node is not None
            await until(lambda: watch.sight == TreeSight({2: node.created_zxid}, None))
            await tree.create(paths.CONTROLLER, ControllerRegistration(2, 0).encode(), ephemeral=True)
            await until(lambda: watch.sight == TreeSight({2: node.created_zxid}, 2))
            await watch.close()
            assert watch.sight is None

    asyncio.run(work())


def test_a_server_that_is_gone_is_looked_for_until_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_watch, "_ANSWER_S", 0.2)

    async def work() -> None:
        async with embedded_server(tmp_path) as server:
            watch = TreeWatch(server.address)
            watch.start()
            await until(lambda: watch.sight is not None)
            await server.stop()
            await until(lambda: watch.sight is None)
            await server.start()
            await until(lambda: watch.sight is not None)
            await watch.close()
            await watch.close()

    asyncio.run(work())
