"""Sessions over real sockets: connections that break, servers that restart, clients that fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.base.coordination import (
    ConnectionLossError,
    EventKind,
    SessionExpiredError,
    SessionState,
    WatchEvent,
)
from ottla.zookeeper.client.tree import ZooKeeperTree
from support.trees.contract import Events, existing
from support.trees.servers import EmbeddedServer, connected, embedded_server


class States:
    def __init__(self, tree: ZooKeeperTree) -> None:
        self.seen: list[SessionState] = []
        self._news = asyncio.Event()
        tree.on_session(self._note)

    def _note(self, state: SessionState) -> None:
        self.seen.append(state)
        self._news.set()

    async def until(self, state: SessionState) -> None:
        async with asyncio.timeout(30):
            while state not in self.seen:
                self._news.clear()
                await self._news.wait()


def with_server(place: Path, use: Callable[[EmbeddedServer], Awaitable[None]]) -> None:
    async def run() -> None:
        async with embedded_server(place) as server:
            await use(server)

    asyncio.run(asyncio.wait_for(run(), timeout=60))


def break_connection(tree: ZooKeeperTree) -> None:
    connection = tree.session._connection
    assert connection is not None
    connection._writer.transport.abort()


def test_a_session_survives_its_connection(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree, connected(server.address) as other:
            states, events = States(tree), Events()
            await tree.create("/mine", ephemeral=True)
            await tree.create("/watched")
            await tree.get_many(["/watched", "/absent"], events)
            session_id = tree.session_id
            break_connection(tree)
            await states.until(SessionState.CONNECTED)
            assert states.seen == [SessionState.DISCONNECTED, SessionState.CONNECTED]
            assert (await existing(other, "/mine")).owner == session_id == tree.session_id
            await other.set("/watched", b"1")
            await other.create("/absent")
            await events.count(2)

    with_server(tmp_path, use)


def test_changes_during_an_outage_are_reported(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree, connected(server.address) as other:
            data, children, untouched = Events(), Events(), Events()
            for path in ("/changed", "/deleted", "/parent", "/same"):
                await tree.create(path)
            await tree.get_many(["/changed", "/deleted", "/made"], data)
            await tree.children("/parent", children)
            await tree.get("/same", untouched)
            await tree.children("/same", untouched)
            session, connection = tree.session, tree.session._connection
            assert connection is not None
            connect, session._connect = session._connect, lambda: asyncio.sleep(0)  # type: ignore[method-assign]
            connection.drop("cut by the test")
            await other.set("/changed", b"1")
            await other.delete("/deleted")
            await other.create("/made")
            await other.create("/parent/child")
            await connect()
            await data.count(3)
            await children.count(1)
            assert set(data.told) == {
                WatchEvent(EventKind.CHANGED, "/changed"),
                WatchEvent(EventKind.DELETED, "/deleted"),
                WatchEvent(EventKind.CREATED, "/made"),
            }
            assert untouched.told == []
            await other.set("/same", b"1")
            await untouched.count(1)

    with_server(tmp_path, use)


def test_a_restarted_server_knows_its_sessions(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree:
            states = States(tree)
            await tree.create("/mine", ephemeral=True)
            session_id = tree.session_id
            await server.stop()
            await states.until(SessionState.DISCONNECTED)
            asked = asyncio.create_task(tree.get("/mine"))
            await server.start()
            node = await asked
            assert node is not None
            assert node.owner == session_id == tree.session_id
            assert SessionState.EXPIRED not in states.seen

    with_server(tmp_path, use)


def test_a_client_that_falls_silent_expires(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as other, connected(server.address, timeout_ms=300) as tree:
            states, events = States(tree), Events()
            await tree.create("/mine", ephemeral=True)
            await other.get("/mine", events)
            session, connection = tree.session, tree.session._connection
            assert connection is not None
            lost_id = tree.session_id
            connect, session._connect = session._connect, lambda: asyncio.sleep(0)  # type: ignore[method-assign]
            connection.drop("cut by the test")
            await events.count(1)
            waiting = asyncio.create_task(tree.get("/mine"))
            await asyncio.sleep(0)
            await connect()
            assert states.seen == [SessionState.DISCONNECTED, SessionState.EXPIRED, SessionState.CONNECTED]
            with pytest.raises(SessionExpiredError):
                await waiting
            assert tree.session_id != lost_id
            assert await tree.get("/mine") is None
            await tree.create("/mine", ephemeral=True)

    with_server(tmp_path, use)


def test_a_client_that_only_waits_stays(tmp_path: Path) -> None:
    """Its heartbeats keep the session, for several timeouts of another one that ends."""

    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address, timeout_ms=1500) as tree:
            states = States(tree)
            await tree.create("/mine", ephemeral=True)
            for number in range(2):
                events = Events()
                silent = await ZooKeeperTree.open(server.address, 1500)
                await silent.create(f"/silent-{number}", ephemeral=True)
                await tree.get(f"/silent-{number}", events)
                connection = silent.session._connection
                assert connection is not None
                silent.session._is_closing = True
                connection.drop("cut by the test")
                await events.count(1)
            assert states.seen == []
            await existing(tree, "/mine")

    with_server(tmp_path, use)


def test_the_result_of_requests_on_a_broken_connection_is_unknown(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree:
            states = States(tree)
            writing = [asyncio.create_task(tree.create(f"/{number}")) for number in range(50)]
            reading = [asyncio.create_task(tree.get("/")) for _ in range(50)]
            await asyncio.sleep(0)
            break_connection(tree)
            outcomes = await asyncio.gather(*writing, return_exceptions=True)
            assert all(isinstance(each, str | ConnectionLossError) for each in outcomes)
            assert any(isinstance(each, ConnectionLossError) for each in outcomes)
            assert None not in await asyncio.gather(*reading), "reads are tried again"
            await states.until(SessionState.CONNECTED)
            made = await tree.children("/")
            for number, outcome in enumerate(outcomes):
                if isinstance(outcome, str):
                    assert str(number) in made

    with_server(tmp_path, use)


def test_a_server_that_lost_writes_is_refused(tmp_path: Path) -> None:
    """A client that has seen a newer state does not go on with an older copy of the tree."""

    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree:
            tree.session._seen_zxid = 2**40
            break_connection(tree)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tree.get("/"), timeout=0.5)
            tree.session._seen_zxid = 0
            await asyncio.wait_for(tree.get("/"), timeout=30)

    with_server(tmp_path, use)


def test_closing_ends_what_waits_for_a_connection(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        tree = await ZooKeeperTree.open(server.address)
        states = States(tree)
        await server.stop()
        await states.until(SessionState.DISCONNECTED)
        waiting = asyncio.create_task(tree.get("/"))
        await asyncio.sleep(0)
        await tree.close()
        with pytest.raises(SessionExpiredError, match="is closed"):
            await waiting
        with pytest.raises(SessionExpiredError, match="is closed"):
            await tree.create("/a")
        await server.start()

    with_server(tmp_path, use)


def test_an_unreachable_server_is_reported_in_one_sentence() -> None:
    async def run() -> None:
        with pytest.raises(ConnectionError, match=r"No ZooKeeper server answered at .*:1/chroot within"):
            await ZooKeeperTree.open("127.0.0.1:1/chroot", connect_timeout_s=0.2)

    asyncio.run(run())


def test_a_request_beyond_the_limit_is_refused_here(tmp_path: Path) -> None:
    async def use(server: EmbeddedServer) -> None:
        async with connected(server.address) as tree:
            with pytest.raises(Exception, match="accepts at most 1048575; split it"):
                await tree.create("/large", bytes(2**20))
            assert await tree.children("/") == []

    with_server(tmp_path, use)
