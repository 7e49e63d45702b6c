"""The tree of a broker on its own: `Coordination` over a SQLite file.

One thread does all of SQLite's work, so the event loop never waits for a disk. What was asked while it was busy becomes
one commit: many callers share an fsync. Everything happens in the order in which it was asked, and nothing, not even
what was only read, is answered before it is safe.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from ottla.base.clock import Clock
from ottla.base.coordination import ANY_VERSION, CoordinationError, Create, Delete, Node, Operation, SetData
from ottla.zookeeper.transaction import Transaction, ancestors_of, check_operation, check_path
from ottla.zookeeper.tree_file import TreeFile, TreeFileError

T = TypeVar("T")

Work = Callable[[TreeFile], Any]
Answer = asyncio.Future[Any]


class LocalTree:
    """Use `open`, and `close` at the end. Belongs to the loop that opened it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.commit_count = 0
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[tuple[Work, Answer] | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="ottla-tree", daemon=True)

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> LocalTree:
        """The file is made if it is not there; `TreeFileError` if it cannot be used."""
        tree = cls(path, clock)
        tree._thread.start()
        await tree._opened
        return tree

    async def close(self) -> None:
        """Finishes what was asked before."""
        if not self._is_closing:
            self._is_closing = True
            self._asked.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    # --- what can be asked ------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        check_path(path)

        def work(file: TreeFile) -> Node | None:
            node = file.read(path)
            return None if node is None else node.as_node()

        return await self._ask(work)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)

        def work(file: TreeFile) -> list[Node | None]:
            found = {path: node.as_node() for path, node in file.read_many(paths).items()}
            return [found.get(path) for path in paths]

        return await self._ask(work)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        return await self._ask(lambda file: file.children(path))

    async def create(self, path: str, data: bytes = b"", *, sequential: bool = False, parents: bool = False) -> str:
        check_operation(Create(path, data, sequential))

        def act(transaction: Transaction) -> str:
            if parents:
                transaction.create_parents(path)
            return transaction.create(path, data, sequential=sequential)

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
        await self._ask(lambda file: file.delete_trees(paths, self._clock.now_ms()))

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
        return await self._ask(lambda file: file.write(paths, act, self._clock.now_ms()))

    def _ask(self, work: Callable[[TreeFile], T]) -> asyncio.Future[T]:
        if self._is_closing:
            raise RuntimeError(f"{self.path}: the tree is closed")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._asked.put((work, answer))
        return answer

    def _run(self) -> None:
        """The thread."""
        try:
            file = TreeFile.open(self.path)
        except BaseException as error:  # whatever it is, the one who opens must not wait for ever
            self._tell([(self._opened, error)])
            return
        self._tell([(self._opened, None)])
        going = True
        while going:
            asked = [self._asked.get()]
            while not self._asked.empty():
                asked.append(self._asked.get())
            jobs = [job for job in asked if job is not None]
            going = len(jobs) == len(asked)
            self._tell(self._do(file, jobs))
        file.close()
        self._tell([(self._ended, None)])

    def _do(self, file: TreeFile, jobs: list[tuple[Work, Answer]]) -> list[tuple[Answer, Any]]:
        """What each is answered; an exception will be raised there. Who asked for what cannot be done is refused alone,
        but a failure of the file is everybody's."""
        outcomes = []
        try:
            with file.commit():
                for work, answer in jobs:
                    try:
                        outcome = work(file)
                    except CoordinationError as error:
                        outcome = error
                    outcomes.append((answer, outcome))
        except TreeFileError as error:
            return [(answer, TreeFileError(error.path, error.reason)) for _, answer in jobs]
        except BaseException as error:
            return [(answer, error) for _, answer in jobs]
        self.commit_count += 1
        return outcomes

    def _tell(self, outcomes: list[tuple[Answer, Any]]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_tell_all, outcomes)


def _tell_all(outcomes: list[tuple[Answer, Any]]) -> None:
    for answer, outcome in outcomes:
        if answer.done():
            continue  # who asked was cancelled
        if isinstance(outcome, BaseException):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)
