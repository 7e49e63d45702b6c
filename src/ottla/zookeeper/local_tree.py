"""The tree of a broker on its own: `Coordination` over a SQLite file, in the same process.

Its session lasts as long as the process: it needs no heartbeats and is never disconnected. Ephemeral nodes of a process
that was killed are removed when the tree is opened again. Others can be served from the same tree (`server.listener`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ottla.base.clock import Clock
from ottla.base.coordination import ANY_VERSION, Create, Delete, Operation, SessionState, SetData, Watch, Znode
from ottla.zookeeper.server.core import LOCAL, Close, Effect, Send, ServerCore, Tell
from ottla.zookeeper.server.tree_thread import TreeThread, settle
from ottla.zookeeper.server.watches import WatchKind
from ottla.zookeeper.transaction import Transaction, ancestors_of, check_operation, check_path
from ottla.zookeeper.watch_registry import WatchRegistry

T = TypeVar("T")


class LocalTree:
    """Use `open`, and `close` at the end. Belongs to the loop that opened it."""

    def __init__(self, thread: TreeThread, session_id: int) -> None:
        self.thread = thread
        self.serve: Callable[[Send | Close], None] | None = None
        """Does effects for connections; a listener that serves the same tree sets it."""
        self._session_id = session_id
        self._watches = WatchRegistry()
        thread.perform = self._perform

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> LocalTree:
        """The file is made if it is not there; `TreeFileError` if it cannot be used."""
        thread = await TreeThread.open(path, clock)
        try:
            return cls(thread, await thread.ask(ServerCore.new_session_id))
        except BaseException:
            await thread.close()
            raise

    async def close(self) -> None:
        """Finishes what was asked before, and removes the ephemeral nodes of this session."""
        if not self.thread.is_closing:
            self.thread.submit(lambda core: core.remove_owned(self._session_id), _ignore)
        await self.thread.close()

    @property
    def path(self) -> Path:
        return self.thread.path

    @property
    def commit_count(self) -> int:
        return self.thread.commit_count

    # --- what can be asked ------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session_id

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Nothing ever changes: the session lasts as long as the process."""

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        return (await self.get_many([path], watch))[0]

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Znode | None]:
        for path in paths:
            check_path(path)
        paths = tuple(paths)

        def work(core: ServerCore) -> list[Znode | None]:
            if watch is not None:
                for path in paths:
                    core.watches.add(WatchKind.DATA, path, LOCAL)
            if len(paths) == 1:
                node = core.file.read(paths[0])
                return [None if node is None else node.as_node()]
            found = {path: node.as_node() for path, node in core.file.read_many(paths).items()}
            return [found.get(path) for path in paths]

        def register(_: list[Znode | None]) -> None:
            if watch is not None:
                for path in paths:
                    self._watches.nodes.setdefault(path, {})[watch] = None

        return await self._ask(work, register)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)

        def work(core: ServerCore) -> tuple[list[str], bool]:
            is_watched = watch is not None and core.file.read(path) is not None
            if is_watched:
                core.watches.add(WatchKind.CHILDREN, path, LOCAL)
            return core.file.children(path), is_watched

        def register(answer: tuple[list[str], bool]) -> None:
            if watch is not None and answer[1]:
                self._watches.children.setdefault(path, {})[watch] = None

        return (await self._ask(work, register))[0]

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        sequential: bool = False,
        ephemeral: bool = False,
        parents: bool = False,
    ) -> str:
        check_operation(Create(path, data, sequential, ephemeral))

        def act(transaction: Transaction) -> str:
            if parents:
                transaction.create_parents(path)
            return transaction.create(path, data, sequential=sequential, ephemeral=ephemeral)

        return await self._write([path, *ancestors_of(path)] if parents else [path], act)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        check_operation(SetData(path, data, version))
        return await self._write([path], lambda transaction: transaction.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        check_operation(Delete(path, version))
        await self._write([path], lambda transaction: transaction.delete(path, version))

    async def delete_trees(self, paths: Sequence[str]) -> None:
        paths = tuple(paths)
        for path in paths:
            check_operation(Delete(path))
        await self._ask(lambda core: core.delete_trees(paths))

    async def transact(self, operations: Sequence[Operation]) -> None:
        operations = tuple(operations)
        for operation in operations:
            check_operation(operation)

        def act(transaction: Transaction) -> None:
            for operation in operations:
                transaction.do(operation)

        await self._write([operation.path for operation in operations], act)

    # --- who does it ------------------------------------------------------------------------------------------------

    async def _write(self, paths: Sequence[str], act: Callable[[Transaction], T]) -> T:
        return await self._ask(lambda core: core.write(paths, act, self._session_id))

    def _ask(self, work: Callable[[ServerCore], T], register: Callable[[T], None] | None = None) -> asyncio.Future[T]:
        """`register` is called when the answer arrives, before any event that follows it."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def deliver(outcome: T | BaseException) -> None:
            if register is not None and not isinstance(outcome, BaseException):
                register(outcome)
            settle(answer, outcome)

        self.thread.submit(work, deliver)
        return answer

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Tell):
            self._watches.fire(effect.event)
        elif self.serve is not None:
            self.serve(effect)


def _ignore(outcome: object) -> None:
    """Nobody waits for it."""
