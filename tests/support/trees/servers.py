"""An embedded ZooKeeper server on loopback, and clients of a server, each for one `async with`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ottla.base.clock import SystemClock
from ottla.base.coordination import SessionState
from ottla.zookeeper.client.session import end_session
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.server.core import ServerSettings
from ottla.zookeeper.server.listener import TreeListener
from ottla.zookeeper.server.tree_thread import TreeThread
from support.waiting import WAIT_S, until

SHORT = ServerSettings(min_timeout_ms=300, max_timeout_ms=60_000)
"""Sessions may be short, so that no test waits long for one to expire."""


class EmbeddedServer:
    """Stops and starts on the same port, over the same file."""

    def __init__(self, file: Path, settings: ServerSettings) -> None:
        self._file = file
        self._settings = settings
        self._port = 0
        self.thread: TreeThread
        self.listener: TreeListener

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        self.thread = await TreeThread.open(self._file, SystemClock(), self._settings)
        self.listener = await TreeListener.start(self.thread, "127.0.0.1", self._port)
        self.thread.perform = self.listener.perform
        self._port = self.listener.port

    async def stop(self) -> None:
        await self.listener.close()
        await self.thread.close()


@asynccontextmanager
async def embedded_server(place: Path, settings: ServerSettings = SHORT) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(place / "tree.db", settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(address: str, root: str = "", timeout_ms: int = 10_000) -> AsyncIterator[ZooKeeperTree]:
    """`root`, if given, is a node of the server's tree that stands for the root."""
    tree = await ZooKeeperTree.open(f"{address}{root}", timeout_ms)
    try:
        yield tree
    finally:
        await tree.close()


def kill_client(tree: ZooKeeperTree) -> None:
    """Ends it as a killed process ends: the session goes on until its timeout."""
    connection = tree.session._connection
    assert connection is not None
    tree.session._is_closing = True
    connection.drop("killed by the test")


async def expire_session(tree: ZooKeeperTree) -> None:
    """Ends its session on the server's side, as if the client had been silent for too long. Returns when the client
    has the next one: what it asks before it has noticed the end fails."""
    session, former = tree.session, tree.session_id
    assert await end_session(session.servers, session.token, 10_000, WAIT_S)
    await until(lambda: session.state is SessionState.CONNECTED and tree.session_id != former)
