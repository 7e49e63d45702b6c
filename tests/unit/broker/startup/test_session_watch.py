"""A broker whose session expires registers again, and those who rely on its epoch are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.base.coordination import SessionExpiredError
from ottla.broker.configs.listeners import Listener
from ottla.broker.startup.registration import Registrar
from ottla.broker.startup.session_watch import SessionWatch
from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from support.trees.contract import existing
from support.trees.servers import connected, embedded_server, expire_session
from support.waiting import until

NODE = paths.broker(3)


class Told:
    """Counts what a `SessionWatch` tells; the first `failures` are refused."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.expiries = 0
        self.epochs: list[int] = []
        self._failure = failure

    def expired(self) -> None:
        self.expiries += 1

    async def registered(self, epoch: int) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self.epochs.append(epoch)


def with_watch(place: Path, told: Told, use: Callable[[ZooKeeperTree, SessionWatch, int], Awaitable[None]]) -> None:
    async def run() -> None:
        async with embedded_server(place) as server, connected(server.address) as tree:
            await paths.ensure_persistent_paths(tree)
            registrar = Registrar(tree, 3)
            epoch = await registrar.register([Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)], None)
            watch = SessionWatch(tree, registrar, told.expired, told.registered)
            watch.start()
            try:
                await use(tree, watch, epoch)
            finally:
                await watch.close()

    asyncio.run(asyncio.wait_for(run(), timeout=60))


def test_each_expired_session_is_followed_by_a_new_epoch(tmp_path: Path) -> None:
    told = Told()

    async def use(tree: ZooKeeperTree, _: SessionWatch, epoch: int) -> None:
        for count in (1, 2):
            await expire_session(tree)
            await until(lambda count=count: len(told.epochs) == count)  # type: ignore[misc]
            assert told.expiries == count
            node = await existing(tree, NODE)
            assert (node.created_zxid, node.owner) == (told.epochs[-1], tree.session_id)
        assert epoch < told.epochs[0] < told.epochs[1]

    with_watch(tmp_path, told, use)


def test_a_lost_connection_changes_nothing(tmp_path: Path) -> None:
    told = Told()

    async def use(tree: ZooKeeperTree, watch: SessionWatch, epoch: int) -> None:
        connection = tree.session._connection
        assert connection is not None
        connection.drop("cut by the test")
        assert not watch.is_connected
        assert (await existing(tree, NODE)).created_zxid == epoch
        assert watch.is_connected
        assert (told.expiries, told.epochs) == (0, [])

    with_watch(tmp_path, told, use)


@pytest.mark.parametrize("failure", [RuntimeError("by the test"), SessionExpiredError(NODE, "by the test")])
def test_what_fails_is_tried_again(tmp_path: Path, failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.startup.session_watch._RETRY_S", 0.01)
    told = Told(failure)

    async def use(tree: ZooKeeperTree, _: SessionWatch, epoch: int) -> None:
        await expire_session(tree)
        await until(lambda: told.epochs)
        assert told.epochs[0] > epoch

    with_watch(tmp_path, told, use)
