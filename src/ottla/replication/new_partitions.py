"""Partitions that are announced but have no log yet. A topic's creation is answered once the coordination tree has it;
the folders are created afterwards, in a thread, a few at a time. If a request needs such a partition, its log is
created immediately, unless this iteration of the loop has created too many: then clients get a retriable error, as from
Kafka.

    expect ─▶ waiting ─▶ in the thread ─▶ `host`
                 └──────── get_now ────────▲

Owned by the loop; the thread only creates logs, and never waits for the loop.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.log.directories import LogDirectories
from ottla.log.errors import LogError
from ottla.log.new_logs import NewLog, NewLogs

_logger = logging.getLogger(__name__)

_AT_A_TIME: Final = 32
"""Logs that the thread creates before they are hosted: a request for one of them waits for all."""
_AT_ONCE_MAX: Final = 100
"""Logs that one iteration of the loop may create: each blocks the loop for half a millisecond."""
_DELAY_S: Final = 0.005
"""Delay before the first log is created, so that the CreateTopics response is sent first."""


class ExpectedPartitions:
    """See the module. `host` is called on the loop for each partition, even if its log could not be created."""

    def __init__(self, directories: LogDirectories, host: Callable[[NewLog], None], loop: AbstractEventLoop) -> None:
        self._directories = directories
        self._host = host
        self._loop = loop
        self._waiting: dict[TopicPartition, NewLog] = {}
        self._at_work: dict[TopicPartition, NewLog] = {}
        """Logs that the thread is creating."""
        self._logs: NewLogs | None = None
        self._made: Future[None] | None = None
        self._made_in_turn = 0
        self._task: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._waiting) + len(self._at_work)

    def __contains__(self, name: object) -> bool:
        return name in self._waiting or name in self._at_work

    def expect(self, new: Iterable[NewLog]) -> None:
        """Announces partitions; their logs are created soon."""
        self._waiting.update((each.partition, each) for each in new)
        if self._task is None and self._waiting:
            self._begin_task()

    def _begin_task(self) -> None:
        self._task = self._loop.create_task(self._make_all(), name="new partitions")
        self._task.add_done_callback(self._ended)

    def get_now(self, name: TopicPartition) -> bool:
        """Whether the partition is hosted now. False if it was not announced, or must wait its turn."""
        if name in self._waiting:
            if self._made_in_turn >= _AT_ONCE_MAX:
                return False
            if not self._made_in_turn:
                self._loop.call_soon(self._begin_turn)
            self._made_in_turn += 1
            self._host(self._waiting.pop(name))
            return True
        if name not in self._at_work:
            return False
        self._finish()
        return True

    def _begin_turn(self) -> None:
        self._made_in_turn = 0

    def forget(self, names: Iterable[TopicPartition]) -> None:
        """Withdraws partitions. Those that the thread is creating are still hosted."""
        for name in names:
            self._waiting.pop(name, None)

    async def out_of_thread(self, names: Collection[TopicPartition]) -> None:
        """Waits until the thread is done with these partitions."""
        if self._made is not None and not self._at_work.keys().isdisjoint(names):
            await asyncio.wait([asyncio.wrap_future(self._made)])
            self._finish()

    async def settled(self) -> None:
        """Waits until everything announced so far is hosted."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Stops. Logs that were not begun are created at the next start."""
        self._waiting.clear()
        self._finish()
        if self._task is not None:
            self._task.cancel()
        if self._thread is not None:
            self._thread.shutdown()

    async def _make_all(self) -> None:
        await asyncio.sleep(_DELAY_S)
        while self._waiting:
            self._begin()
            if self._made is not None:
                await asyncio.wait([asyncio.wrap_future(self._made)])
            self._finish()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "making logs of new partitions failed", "exception": error})
        elif self._waiting:  # announced between the task's last look and this call
            self._begin_task()

    def _begin(self) -> None:
        for name in list(islice(self._waiting, _AT_A_TIME)):
            self._at_work[name] = self._waiting.pop(name)
        missing = [new for name, new in self._at_work.items() if self._directories.directory_of(name) is None]
        if not missing:
            return
        try:
            self._logs = self._directories.place(missing)
        except LogError:
            return  # no directory is left: `host` reports it
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "ottla-new-logs")
        self._made = self._thread.submit(self._logs.make)

    def _finish(self) -> None:
        """Waits for the thread and hosts what it created. Idempotent."""
        made, logs, at_work = self._made, self._logs, self._at_work
        self._made, self._logs, self._at_work = None, None, {}
        if made is not None and logs is not None:
            try:
                made.result()
            except Exception:
                _logger.exception("not all logs of new partitions could be created; creating them one by one")
            self._directories.adopt(logs)
        for new in at_work.values():
            try:
                self._host(new)
            except Exception:  # one partition must not keep the others waiting
                _logger.exception("%s could not be created", new.partition)
