"""A tree in memory with several sessions, for tests that need many clients, expired sessions and lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from ottla.base.coordination import (
    ANY_VERSION,
    ConnectionLossError,
    Create,
    Delete,
    Operation,
    SessionExpiredError,
    SessionState,
    SetData,
    Watch,
    WatchEvent,
    Znode,
)
from ottla.zookeeper.transaction import ROOT, StoredNode, Transaction, ancestors_of, parent_of
from ottla.zookeeper.watch_registry import WatchRegistry


class MemoryTree:
    """The nodes, and the sessions that are open. Every write has the next transaction id."""

    def __init__(self) -> None:
        self.nodes: dict[str, StoredNode | None] = {ROOT: StoredNode(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, None)}
        self.sessions: dict[int, MemorySession] = {}
        self.zxid = 0
        self.passed_ms = 0
        """Of the clock of the server, beside a millisecond for each write."""
        self._ids = count(1000)
        self.transactions: list[tuple[Operation, ...]] = []
        """Every transaction that was done, in order."""
        self.on_write: Callable[[str, StoredNode | None, StoredNode | None], None] = lambda *_: None
        """Called with the path, and the node before and after, for every node that changes."""

    def connect(self) -> MemorySession:
        session = MemorySession(self, next(self._ids))
        self.sessions[session.session_id] = session
        return session

    def apply(self, operations: Sequence[Operation], session_id: int, *, parents: bool = False) -> list[str]:
        self.zxid += 1
        found = _Found(self.nodes)
        transaction = Transaction(found, self.zxid, now_ms=self.zxid + self.passed_ms, session_id=session_id)
        made = []
        for operation in operations:
            if parents and isinstance(operation, Create):
                transaction.create_parents(operation.path)
            if isinstance(operation, Create):
                made.append(
                    transaction.create(
                        operation.path, operation.data, sequential=operation.sequential, ephemeral=operation.ephemeral
                    )
                )
            else:
                transaction.do(operation)
        for path, node in transaction.changed.items():
            self.on_write(path, self.nodes.get(path), node)
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node
        self.transactions.append(tuple(operations))
        for event in transaction.events:
            self.fire(event)
        return made

    def fire(self, event: WatchEvent) -> None:
        for session in self.sessions.values():
            session.watches.fire(event)

    def children(self, path: str) -> list[str]:
        return sorted(each.rpartition("/")[2] for each in self.nodes if each != ROOT and parent_of(each) == path)

    def data(self, path: str) -> bytes | None:
        node = self.nodes.get(path)
        return None if node is None else node.data

    def expire(self, session: MemorySession) -> None:
        """Ends a session: its ephemeral nodes go, and it can do nothing any more."""
        session.is_over = True
        session.watches.clear()
        del self.sessions[session.session_id]
        for path in [
            each for each, node in self.nodes.items() if node is not None and node.owner == session.session_id
        ]:
            self.apply([Delete(path)], 0)


class _Found(dict[str, StoredNode | None]):
    def __missing__(self, path: str) -> StoredNode | None:
        return None


class MemorySession:
    """A `Coordination`. `lose` decides for each write whether its answer is lost: "before" or "after" it is done."""

    def __init__(self, tree: MemoryTree, session_id: int) -> None:
        self.tree = tree
        self.watches = WatchRegistry()
        self.is_over = False
        self.lose: Callable[[Sequence[Operation]], str | None] = lambda _: None
        self._session_id = session_id
        self._listeners: list[Callable[[SessionState], None]] = []

    @property
    def session_id(self) -> int:
        return self._session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        return (await self.get_many([path], watch))[0]

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Znode | None]:
        await self._turn()
        found = []
        for path in paths:
            node = self.tree.nodes.get(path)
            found.append(None if node is None else node.as_node())
            if watch is not None:
                self.watches.nodes.setdefault(path, {})[watch] = None
        return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._turn()
        if watch is not None and path in self.tree.nodes:
            self.watches.children.setdefault(path, {})[watch] = None
        return self.tree.children(path)

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        sequential: bool = False,
        ephemeral: bool = False,
        parents: bool = False,
    ) -> str:
        return (await self._write([Create(path, data, sequential, ephemeral)], parents=parents))[0]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        await self._write([SetData(path, data, version)])
        node = self.tree.nodes[path]
        assert node is not None
        return node.version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write([Delete(path, version)])

    async def delete_trees(self, paths: Sequence[str]) -> None:
        await self._turn()
        for root in paths:
            below = sorted((each for each in self.tree.nodes if f"{each}/".startswith(f"{root}/")), reverse=True)
            for path in sorted(below, key=lambda each: len(ancestors_of(each)), reverse=True):
                self.tree.apply([Delete(path)], self._session_id)

    async def transact(self, operations: Sequence[Operation]) -> None:
        await self._write(operations)

    async def close(self) -> None:
        if not self.is_over:
            self.tree.expire(self)

    async def _write(self, operations: Sequence[Operation], *, parents: bool = False) -> list[str]:
        await self._turn()
        lost = self.lose(operations)
        if lost == "before":
            raise ConnectionLossError(operations[0].path, "the connection broke")
        made = self.tree.apply(operations, self._session_id, parents=parents)
        if lost == "after":
            raise ConnectionLossError(operations[0].path, "the connection broke")
        return made

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        if self.is_over:
            raise SessionExpiredError("/", "the session is over")


class RenewedSession:
    """One client over its sessions: when one has expired, `session` is set to the next."""

    def __init__(self, session: MemorySession) -> None:
        self.session = session

    @property
    def session_id(self) -> int:
        return self.session.session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self.session.on_session(listener)

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        return await self.session.get(path, watch)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Znode | None]:
        return await self.session.get_many(paths, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self.session.children(path, watch)

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        sequential: bool = False,
        ephemeral: bool = False,
        parents: bool = False,
    ) -> str:
        return await self.session.create(path, data, sequential=sequential, ephemeral=ephemeral, parents=parents)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return await self.session.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.session.delete(path, version)

    async def delete_trees(self, paths: Sequence[str]) -> None:
        await self.session.delete_trees(paths)

    async def transact(self, operations: Sequence[Operation]) -> None:
        await self.session.transact(operations)

    async def close(self) -> None:
        await self.session.close()
