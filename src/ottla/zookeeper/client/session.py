"""A session with ZooKeeper that outlives connections: connects, comes back after losses, begins anew after expiry.

| state | a request | watches |
| --- | --- | --- |
| CONNECTED | is sent | hold |
| DISCONNECTED | waits for the next connection | are set again when it is there; what was missed is told |
| EXPIRED | what waits fails with `SessionExpiredError`; then a new session begins | are gone |

What was sent when a connection broke fails with `ConnectionLossError`: it may have been done or not. Belongs to one
loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from ottla.base.coordination import CoordinationError, SessionExpiredError, SessionState, WatchEvent
from ottla.zookeeper.client.connect_string import ConnectString
from ottla.zookeeper.client.connection import Answered, SessionToken, ZooKeeperConnection
from ottla.zookeeper.protocol.jute import JuteError, JuteReader, Record
from ottla.zookeeper.protocol.messages import SET_WATCHES_XID, OpCode, ReplyHeader, SetWatchesRequest
from ottla.zookeeper.watch_registry import WatchRegistry

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_S: Final = 0.1
_RETRY_S_MAX: Final = 1.0
_WATCHES_BYTES: Final = 128 * 1024
"""Of paths in one SetWatches: a request has a limit."""


class ZooKeeperSession:
    """Use `open`, and `close` at the end."""

    def __init__(self, servers: ConnectString, timeout_ms: int) -> None:
        self.servers = servers
        self.timeout_ms = timeout_ms
        self.watches = WatchRegistry()
        self.state = SessionState.DISCONNECTED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._token = SessionToken()
        self._seen_zxid = 0
        self._connection: ZooKeeperConnection | None = None
        self._is_connected = asyncio.Event()
        self._generation = 0
        """Counts sessions: a request that waited for an expired one must not go to the next."""
        self._is_closing = False
        self._connecting: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, servers: ConnectString, timeout_ms: int, connect_timeout_s: float) -> ZooKeeperSession:
        """Waits for the first connection; `ConnectionError` if there is none in time."""
        session = cls(servers, timeout_ms)
        session._connecting = asyncio.create_task(session._connect())
        try:
            await asyncio.wait_for(session._is_connected.wait(), connect_timeout_s)
        except TimeoutError:
            await session.close()
            raise ConnectionError(
                f"No ZooKeeper server answered at {servers} within {connect_timeout_s:g} s. Check zookeeper.connect,"
                " and that the servers run."
            ) from None
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """Ends the session at once if a server can be reached, else it ends by its timeout."""
        self._is_closing = True
        try:
            if self._connecting is not None:
                self._connecting.cancel()
                await asyncio.gather(self._connecting, return_exceptions=True)
            if self._connection is not None:
                await self._connection.close()
        finally:
            self._is_connected.set()  # whoever waits for a connection learns that none will come

    @property
    def session_id(self) -> int:
        return self._token.session_id

    @property
    def token(self) -> SessionToken:
        """With it, another process can come back to this session (`end_session`)."""
        return self._token

    @property
    def granted_timeout_ms(self) -> int:
        """What the server made of the timeout: it has limits. The one that was asked for, without a connection."""
        return self.timeout_ms if self._connection is None else self._connection.timeout_ms

    @property
    def is_connected(self) -> bool:
        """May be read in any thread."""
        return self._is_connected.is_set()

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def ask(
        self, operation: OpCode, body: Record | bytes | None, path: str, read: Callable[[ReplyHeader, JuteReader], T]
    ) -> T:
        """Waits for a connection, sends, and answers what `read` makes of the answer; it is called as the answer
        arrives, before any event that follows it."""
        return await (await self.send(operation, body, path, read))

    async def send(
        self, operation: OpCode, body: Record | bytes | None, path: str, read: Callable[[ReplyHeader, JuteReader], T]
    ) -> asyncio.Future[T]:
        """The same without waiting for the answer."""
        connection = await self._connected(path)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        connection.request(operation, body, path, _answering(answer, read), _failing(answer))
        return answer

    async def ask_many(
        self,
        operation: OpCode,
        asked: Sequence[tuple[Record, str]],
        read: Callable[[ReplyHeader, JuteReader, str], T],
    ) -> list[T | Exception]:
        """Asks for many paths, each with its request, and waits once for all. What fails has its error as result."""
        if not asked:
            return []
        connection = await self._connected(asked[0][1])
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        results: dict[int, T | Exception] = {}

        def settle(index: int, result: T | Exception) -> None:
            results[index] = result
            if len(results) == len(asked) and not done.done():
                done.set_result(None)

        def request(index: int, body: Record, path: str) -> None:
            def answered(header: ReplyHeader, reader: JuteReader) -> None:
                try:
                    result: T | Exception = read(header, reader, path)
                except Exception as error:  # whatever it is, whoever waits must learn of it
                    result = error
                settle(index, result)

            connection.request(operation, body, path, answered, lambda error: settle(index, error))

        for index, (body, path) in enumerate(asked):
            request(index, body, path)
        await done
        return [results[index] for index in range(len(asked))]

    async def _connected(self, path: str) -> ZooKeeperConnection:
        generation = self._generation
        while self._connection is None and not self._is_closing:
            await self._is_connected.wait()
            if generation != self._generation:
                raise SessionExpiredError(path, "the session with ZooKeeper has expired")
        if self._connection is None or self._is_closing:
            raise SessionExpiredError(path, "the client of ZooKeeper is closed")
        return self._connection

    # --- connections ------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Until there is a connection. Servers are tried in random order, as clients of ZooKeeper do."""
        retry_s = _RETRY_S
        servers = random.sample(self.servers.servers, len(self.servers.servers))
        while True:
            for server in servers:
                try:
                    async with asyncio.timeout(max(1.0, self.timeout_ms / 1000 / len(servers))):
                        connection = await ZooKeeperConnection.connect(
                            server, self._token, self.timeout_ms, self._seen_zxid, self._tell, self._lost
                        )
                except Exception as error:  # whatever it is, the next server or the next round may do better
                    _logger.debug("ZooKeeper at %s:%d cannot be used: %s", *server, error)
                    continue
                if connection.timeout_ms <= 0:
                    connection.drop("the session has expired")
                    self._expire()
                    continue
                self._use(connection)
                return
            await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))
            retry_s = min(retry_s * 2, _RETRY_S_MAX)

    def _use(self, connection: ZooKeeperConnection) -> None:
        self._token = connection.token
        connection.start()
        self._connection = connection
        self._restore_watches(connection)
        self._is_connected.set()
        self._become(SessionState.CONNECTED)

    def _lost(self, connection: ZooKeeperConnection) -> None:
        self._seen_zxid = max(self._seen_zxid, connection.last_zxid)
        if connection is not self._connection:
            return  # it was never used
        self._connection = None
        self._is_connected.clear()
        if not self._is_closing:
            self._become(SessionState.DISCONNECTED)
            self._connecting = asyncio.create_task(self._connect())

    def _expire(self) -> None:
        _logger.warning("The session %#x with ZooKeeper has expired", self._token.session_id)
        self._token = SessionToken()
        self._generation += 1
        self.watches.clear()
        self._become(SessionState.EXPIRED)

    def _restore_watches(self, connection: ZooKeeperConnection) -> None:
        """Sent before anything else, so that what was missed is told before any answer."""
        for request in _watch_requests(self.watches, self._seen_zxid, self.servers):
            connection.request(OpCode.SET_WATCHES, request, "/", _ignore, _ignore, SET_WATCHES_XID)

    def _tell(self, event: WatchEvent) -> None:
        self.watches.fire(WatchEvent(event.kind, self.servers.relative(event.path)))

    def _become(self, state: SessionState) -> None:
        self.state = state
        for listener in self._listeners:
            try:
                listener(state)
            except Exception:
                _logger.exception("A listener of the session with ZooKeeper failed")


async def end_session(servers: ConnectString, token: SessionToken, timeout_ms: int, limit_s: float) -> bool:
    """Ends a session that a process left behind. True if it is over, as far as the servers tell: they say so of a wrong
    password too. False if none of them answered in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while True:
                for server in random.sample(servers.servers, len(servers.servers)):
                    try:
                        async with asyncio.timeout(max(1.0, limit_s / len(servers.servers) / 2)):
                            connection = await ZooKeeperConnection.connect(
                                server, token, timeout_ms, 0, _ignore, _ignore
                            )
                    except (OSError, EOFError, JuteError) as error:
                        _logger.debug("ZooKeeper at %s:%d cannot be used: %s", *server, error)
                        continue
                    if connection.timeout_ms <= 0:
                        connection.drop("the session is over")
                        return True
                    connection.start()
                    if await connection.close():
                        return True
                await asyncio.sleep(_RETRY_S)
    return False


def _watch_requests(watches: WatchRegistry, seen_zxid: int, servers: ConnectString) -> list[SetWatchesRequest]:
    kinds = (watches.nodes, watches.absent, watches.children)
    requests: list[SetWatchesRequest] = []
    paths: tuple[list[str], list[str], list[str]] = ([], [], [])
    size = 0
    for kind, watched in enumerate(kinds):
        for path in watched:
            absolute = servers.absolute(path)
            if size + len(absolute) > _WATCHES_BYTES:
                requests.append(SetWatchesRequest(seen_zxid, *map(tuple, paths)))
                paths, size = ([], [], []), 0
            paths[kind].append(absolute)
            size += len(absolute) + 4
    if size:
        requests.append(SetWatchesRequest(seen_zxid, *map(tuple, paths)))
    return requests


def _answering(answer: asyncio.Future[T], read: Callable[[ReplyHeader, JuteReader], T]) -> Answered:
    def answered(header: ReplyHeader, reader: JuteReader) -> None:
        try:
            value = read(header, reader)
        except Exception as error:  # whatever it is, whoever waits must learn that no answer will come
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(value)

    return answered


def _failing(answer: asyncio.Future[T]) -> Callable[[CoordinationError], None]:
    def failed(error: CoordinationError) -> None:
        if not answer.done():
            answer.set_exception(error)

    return failed


def _ignore(*_: object) -> None:
    """Nobody waits for it."""
