"""`Coordination` over a session with ZooKeeper.

Reads are tried again when a connection breaks. Writes are not: whether they were done is not known, and only their
caller can find out (`ConnectionLossError`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import Final, NoReturn, TypeVar

from ottla.base.coordination import (
    ANY_VERSION,
    BadVersionError,
    Check,
    ConnectionLossError,
    CoordinationError,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SessionState,
    SetData,
    Watch,
    Znode,
)
from ottla.zookeeper.client.connect_string import ConnectString
from ottla.zookeeper.client.session import ZooKeeperSession
from ottla.zookeeper.protocol.jute import JuteReader, JuteWriter, Record
from ottla.zookeeper.protocol.messages import (
    EPHEMERAL_FLAG,
    MAX_FRAME_BYTES,
    MULTI_END,
    OPEN_ACL,
    SEQUENTIAL_FLAG,
    ChildrenResponse,
    CreateRequest,
    DataResponse,
    ErrorResult,
    MultiHeader,
    OpCode,
    PathResponse,
    ReplyHeader,
    SetDataRequest,
    Stat,
    StatResponse,
    VersionedPathRequest,
    WatchedPathRequest,
    ZooKeeperCode,
)
from ottla.zookeeper.transaction import ancestors_of, check_operation, check_path

T = TypeVar("T")

_CONNECT_TIMEOUT_S: Final = 18.0
"""Kafka's default (`zookeeper.connection.timeout.ms`)."""
_AT_ONCE: Final = 1_000
"""Requests on their way at once, where many are needed."""

_ERRORS: Final[dict[int, tuple[type[CoordinationError], str]]] = {
    ZooKeeperCode.NO_NODE: (NoNodeError, "the node, or its parent, does not exist"),
    ZooKeeperCode.NODE_EXISTS: (NodeExistsError, "the node exists"),
    ZooKeeperCode.BAD_VERSION: (BadVersionError, "the node is in another version"),
    ZooKeeperCode.NOT_EMPTY: (NotEmptyError, "the node has children"),
    ZooKeeperCode.NO_CHILDREN_FOR_EPHEMERALS: (EphemeralParentError, "its parent is ephemeral"),
    ZooKeeperCode.SESSION_EXPIRED: (SessionExpiredError, "the session with ZooKeeper has expired"),
    ZooKeeperCode.CONNECTION_LOSS: (ConnectionLossError, "the server lost its connection"),
}


class ZooKeeperTree:
    """Use `open`, and `close` at the end. Belongs to the loop that opened it."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self._servers = session.servers

    @classmethod
    async def open(
        cls, connect: str, session_timeout_ms: int = 18_000, connect_timeout_s: float = _CONNECT_TIMEOUT_S
    ) -> ZooKeeperTree:
        """`connect` as in Kafka's `zookeeper.connect`; a chroot that is missing is made."""
        servers = ConnectString.parse(connect)
        tree = cls(await ZooKeeperSession.open(servers, session_timeout_ms, connect_timeout_s))
        try:
            if servers.chroot:
                await tree._make_chroot()
        except BaseException:
            await tree.close()
            raise
        return tree

    async def close(self) -> None:
        await self.session.close()

    @property
    def session_id(self) -> int:
        return self.session.session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self.session.on_state(listener)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        check_path(path)
        while True:
            try:
                return await (await self._asked_for(path, watch))
            except ConnectionLossError:
                continue
            except NoNodeError:
                if watch is None or not await self._is_there(path, watch):
                    return None
                watch = None  # it was made meanwhile, and is watched by now

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Znode | None]:
        for path in paths:
            check_path(path)
        if watch is not None:
            return list(await self._many([partial(self.get, path, watch) for path in paths]))
        # Two parts at once: one is read while the other is on its way.
        found: list[Znode | None] = []
        chunks = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
        for two in zip_longest(chunks[::2], chunks[1::2], fillvalue=()):
            for part in await asyncio.gather(*map(self._get_some, two)):
                found += part
        return found

    async def _get_some(self, paths: Sequence[str]) -> list[Znode | None]:
        """One round trip for all, without a task for each."""
        asked = [(WatchedPathRequest(self._servers.absolute(path), False), path) for path in paths]
        while True:
            found = await self.session.ask_many(OpCode.GET_DATA, asked, _read_node)
            if any(isinstance(each, ConnectionLossError) for each in found):
                continue
            for each in found:
                if isinstance(each, Exception) and not isinstance(each, NoNodeError):
                    raise each
            return [each if isinstance(each, Znode) else None for each in found]

    async def _asked_for(self, path: str, watch: Watch | None) -> asyncio.Future[Znode]:
        def read(header: ReplyHeader, reader: JuteReader) -> Znode:
            node = _read_node(header, reader, path)
            if watch is not None:
                self.session.watches.nodes.setdefault(path, {})[watch] = None
            return node

        request = WatchedPathRequest(self._servers.absolute(path), watch is not None)
        return await self.session.send(OpCode.GET_DATA, request, path, read)

    async def _is_there(self, path: str, watch: Watch) -> bool:
        """Sets the watch either way."""

        def read(header: ReplyHeader, _: JuteReader) -> bool:
            is_there = header.error != ZooKeeperCode.NO_NODE
            if is_there:
                _check(header, path)
            watches = self.session.watches
            (watches.nodes if is_there else watches.absent).setdefault(path, {})[watch] = None
            return is_there

        request = WatchedPathRequest(self._servers.absolute(path), True)
        return await self._retried(lambda: self.session.ask(OpCode.EXISTS, request, path, read))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)

        def read(header: ReplyHeader, reader: JuteReader) -> list[str]:
            _check(header, path)
            if watch is not None:
                self.session.watches.children.setdefault(path, {})[watch] = None
            return sorted(ChildrenResponse.read(reader).children)

        request = WatchedPathRequest(self._servers.absolute(path), watch is not None)
        with suppress(NoNodeError):
            return await self._retried(lambda: self.session.ask(OpCode.GET_CHILDREN, request, path, read))
        return []

    async def _retried(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            with suppress(ConnectionLossError):
                return await ask()

    # --- writing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        sequential: bool = False,
        ephemeral: bool = False,
        parents: bool = False,
    ) -> str:
        operation = Create(path, data, sequential, ephemeral)
        check_operation(operation)
        try:
            return await self._create(operation)
        except NoNodeError:
            if not parents:
                raise
        for ancestor in ancestors_of(path):
            with suppress(NodeExistsError):
                await self._create(Create(ancestor))
        return await self._create(operation)

    async def _create(self, operation: Create) -> str:
        def read(header: ReplyHeader, reader: JuteReader) -> str:
            _check(header, operation.path)
            return self._servers.relative(PathResponse.read(reader).path)

        return await self._ask(OpCode.CREATE, self._request(operation), operation.path, read)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        operation = SetData(path, data, version)
        check_operation(operation)

        def read(header: ReplyHeader, reader: JuteReader) -> int:
            _check(header, path)
            return StatResponse.read(reader).stat.version

        return await self._ask(OpCode.SET_DATA, self._request(operation), path, read)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        operation = Delete(path, version)
        check_operation(operation)
        await self._ask(OpCode.DELETE, self._request(operation), path, lambda header, _: _check(header, path))

    async def transact(self, operations: Sequence[Operation]) -> None:
        operations = tuple(operations)
        writer = JuteWriter()
        for operation in operations:
            check_operation(operation)
            MultiHeader(_code(operation), False, -1).write(writer)
            self._request(operation).write(writer)
        MULTI_END.write(writer)
        path = operations[0].path if operations else "/"

        def read(header: ReplyHeader, reader: JuteReader) -> None:
            _check(header, path)
            _check_results(operations, reader)

        await self._ask(OpCode.MULTI, writer.body(), path, read)

    async def delete_trees(self, paths: Sequence[str]) -> None:
        for path in paths:
            check_operation(Delete(path))
        level = list(paths)
        levels: list[list[str]] = []
        while level:
            levels.append(level)
            names = await self._many([partial(self.children, path) for path in level])
            level = [f"{path}/{name}" for path, below in zip(level, names, strict=True) for name in below]
        for level in reversed(levels):
            await self._many([partial(self._delete_if_there, path) for path in level])

    async def _delete_if_there(self, path: str) -> None:
        with suppress(NoNodeError):
            await self.delete(path)

    async def _many(self, calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Many at once, but not all of ten thousands."""
        answers: list[T] = []
        for start in range(0, len(calls), _AT_ONCE):
            answers += await asyncio.gather(*(call() for call in calls[start : start + _AT_ONCE]))
        return answers

    def _request(self, operation: Operation) -> Record:
        path = self._servers.absolute(operation.path)
        match operation:
            case Create():
                flags = EPHEMERAL_FLAG * operation.ephemeral + SEQUENTIAL_FLAG * operation.sequential
                return CreateRequest(path, operation.data, OPEN_ACL, flags)
            case SetData():
                return SetDataRequest(path, operation.data, operation.version)
            case Delete() | Check():
                return VersionedPathRequest(path, operation.version)

    async def _ask(
        self, operation: OpCode, body: Record | bytes, path: str, read: Callable[[ReplyHeader, JuteReader], T]
    ) -> T:
        if isinstance(body, Record):
            writer = JuteWriter()
            body.write(writer)
            body = writer.body()
        if len(body) > MAX_FRAME_BYTES - 8:
            reason = f"the request has {len(body)} bytes, and ZooKeeper accepts at most {MAX_FRAME_BYTES}"
            raise CoordinationError(path, f"{reason}; split it")
        return await self.session.ask(operation, body, path, read)

    async def _make_chroot(self) -> None:
        plain = ZooKeeperTree(self.session)
        plain._servers = ConnectString(self._servers.servers)
        with suppress(NodeExistsError):
            await plain.create(self._servers.chroot, parents=True)


def _read_node(header: ReplyHeader, reader: JuteReader, path: str) -> Znode:
    _check(header, path)
    response = DataResponse.read(reader)
    return _node(response.data, response.stat)


def _code(operation: Operation) -> OpCode:
    match operation:
        case Create():
            return OpCode.CREATE
        case SetData():
            return OpCode.SET_DATA
        case Delete():
            return OpCode.DELETE
        case Check():
            return OpCode.CHECK


def _check(header: ReplyHeader, path: str) -> None:
    if header.error != ZooKeeperCode.OK:
        _raise(header.error, path)


def _raise(code: int, path: str) -> NoReturn:
    kind, reason = _ERRORS.get(code, (CoordinationError, f"ZooKeeper answers with error {code}"))
    raise kind(path, reason)


def _check_results(operations: Sequence[Operation], reader: JuteReader) -> None:
    """Raises the first error of a multi; those before it stand as OK, those after it as inconsistent."""
    for operation in operations:
        header = MultiHeader.read(reader)
        if header.operation == OpCode.ERROR:
            code = ErrorResult.read(reader).error
            if code != ZooKeeperCode.OK:
                _raise(code, operation.path)
        elif header.operation == OpCode.CREATE:
            PathResponse.read(reader)
        elif header.operation == OpCode.SET_DATA:
            Stat.read(reader)


def _node(data: bytes | None, stat: Stat) -> Znode:
    return Znode(
        data or b"",
        stat.version,
        stat.created_zxid,
        stat.modified_zxid,
        stat.created_ms,
        stat.modified_ms,
        stat.owner,
    )
