"""The tree of a broker on its own: `Coordination` over a SQLite file.

One thread does all of SQLite's work, so the event loop never waits for a disk. What was asked while it was busy becomes
one commit: many callers share an fsync. Everything happens in the order in which it was asked, and nothing, not even
what was only read, is answered before it is safe.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from ottla.base.clock import Clock
from ottla.base.coordination import ANY_VERSION, CoordinationError, Create, Delete, Operation, SetData, Znode
from ottla.zookeeper.transaction import Transaction, ancestors_of, check_operation, check_path
from ottla.zookeeper.tree_file import TreeFile, TreeFileError

_logger = logging.getLogger(__name__)

T = TypeVar("T")

Work = Callable[[TreeFile], Any]
Answer = asyncio.Future[Any]

_IDLE_S: Final = 1.0
"""The reserve is filled when nothing was asked for so long."""
_NO_ROOM_S: Final = 10.0
"""The same, after there was no room for it."""


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

    async def get(self, path: str) -> Znode | None:
        check_path(path)

        def work(file: TreeFile) -> Znode | None:
            node = file.read(path)
            return None if node is None else node.as_node()

        return await self._ask(work)

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        for path in paths:
            check_path(path)

        def work(file: TreeFile) -> list[Znode | None]:
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
            raise self._closed()
        answer: asyncio.Future[T] = self._loop.create_future()
        self._asked.put((work, answer))
        return answer

    def _closed(self) -> RuntimeError:
        return RuntimeError(f"{self.path}: the tree is closed")

    def _run(self) -> None:
        """The thread. Whatever ends it, nobody waits for an answer that will not come."""
        try:
            file = TreeFile.open(self.path)
        except BaseException as error:  # whatever it is, the one who opens must not wait for ever
            self._tell([(self._opened, error)])
            return
        self._tell([(self._opened, None)])
        try:
            self._work(file)
        finally:
            self._is_closing = True
            try:
                file.close()
            finally:
                self._tell([(self._ended, None), *((job[1], self._closed()) for job in self._left() if job)])

    def _work(self, file: TreeFile) -> None:
        fill_after_s = _IDLE_S if _is_low(file) else None
        going = True
        while going:
            try:
                asked = [self._asked.get(timeout=fill_after_s), *self._left()]
            except Empty:  # for so long: nobody waits for the reserve to be filled
                fill_after_s = None if _is_filled(file) else _NO_ROOM_S
                continue
            jobs = [job for job in asked if job is not None]
            going = len(jobs) == len(asked)
            self._tell(self._do(file, jobs))
            if fill_after_s is None and _is_low(file):
                fill_after_s = _IDLE_S

    def _left(self) -> list[tuple[Work, Answer] | None]:
        """What was asked by now."""
        asked = []
        with suppress(Empty):
            while True:
                asked.append(self._asked.get_nowait())
        return asked

    def _do(self, file: TreeFile, jobs: list[tuple[Work, Answer]]) -> list[tuple[Answer, Any]]:
        """What each is answered; an exception will be raised there. Where the common commit fails, each is done alone:
        one that cannot be done, or needs room that is not there, is not everybody's failure."""
        try:
            return self._do_together(file, jobs)
        except BaseException as error:
            is_full = isinstance(error, TreeFileError) and error.is_full
            if len(jobs) == 1 and not is_full:
                return [(jobs[0][1], error)]
        outcomes: list[tuple[Answer, Any]] = []
        for job in jobs:
            if is_full:
                file.make_room()
            try:
                outcomes += self._do_together(file, [job])
            except BaseException as error:
                outcomes.append((job[1], error))
        return outcomes

    def _do_together(self, file: TreeFile, jobs: list[tuple[Work, Answer]]) -> list[tuple[Answer, Any]]:
        outcomes = []
        with file.commit():
            for work, answer in jobs:
                try:
                    outcome = work(file)
                except CoordinationError as error:
                    outcome = error
                outcomes.append((answer, outcome))
        self.commit_count += 1
        return outcomes

    def _tell(self, outcomes: list[tuple[Answer, Any]]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_tell_all, outcomes)


def _is_low(file: TreeFile) -> bool:
    """A reserve that cannot be looked at counts as low: nothing that fails here may end the thread."""
    try:
        return file.is_reserve_low
    except Exception as error:
        _logger.warning("%s: the reserve for a full disk cannot be looked at: %s", file.path, error)
        return True


def _is_filled(file: TreeFile) -> bool:
    try:
        return file.fill_reserve()
    except Exception as error:
        _logger.warning("%s: the reserve for a full disk cannot be filled: %s", file.path, error)
        return False


def _tell_all(outcomes: list[tuple[Answer, Any]]) -> None:
    for answer, outcome in outcomes:
        if answer.done():
            continue  # who asked was cancelled
        if not isinstance(outcome, BaseException):
            answer.set_result(outcome)
        elif isinstance(outcome, StopIteration):  # no future takes it, and those behind it would never be answered
            answer.set_exception(RuntimeError(f"the tree was asked for something that raised {outcome!r}"))
        else:
            answer.set_exception(outcome)
