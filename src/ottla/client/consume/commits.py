"""Commits in the background. Only the newest offsets matter, so at most one request is in flight and one is waiting.

The waiting data is bounded, however long the coordinator is unavailable: one offset per partition, and up to
`CALLBACKS_MAX` callbacks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from ottla.base.ids import TopicPartition
from ottla.client.errors import CommitFailedError
from ottla.client.membership.ledger import AskedCommit, CommitLedger
from ottla.client.offsets import OffsetAndMetadata

_logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, Exception | None], object]

CALLBACKS_MAX: Final = 20_000


class _WaitingCommit(NamedTuple):
    callback: CommitCallback
    offsets: Offsets


class CommitTold:
    """Calls a callback with the result of its commit."""

    __slots__ = ("_failure", "_waiting", "has_begun")

    def __init__(self, waiting: _WaitingCommit, failure: Exception | None) -> None:
        self._waiting = waiting
        self._failure = failure
        self.has_begun = False
        """Whether the user's function was called. If Ctrl-C prevented the call, it is made later."""

    def __call__(self) -> object:
        waiting = self._waiting
        self.has_begun = True
        return waiting.callback(waiting.offsets, self._failure)


class BackgroundCommits:
    """`ask` can be called in any thread; everything else belongs to the loop."""

    def __init__(
        self,
        ledger: CommitLedger,
        commit: Callable[[Mapping[TopicPartition, AskedCommit]], Awaitable[None]],
        tell: Callable[[CommitTold], None],
    ) -> None:
        self._ledger = ledger
        self._commit = commit
        self._tell = tell
        """Calls its argument in the thread in which the user's callbacks run."""
        self._lock = threading.RLock()
        """Protects what is waiting: the loop takes it while another thread may add to it."""
        self._asked: dict[TopicPartition, AskedCommit] = {}
        self._callbacks: deque[_WaitingCommit] = deque()
        self._failed: dict[TopicPartition, AskedCommit] = {}
        self._task: asyncio.Task[None] | None = None
        self.is_idle = True

    def ask(self, offsets: Offsets, callback: CommitCallback | None) -> bool:
        """Returns whether `begin` has to be called."""
        crowded_out: _WaitingCommit | None = None
        with self._lock:
            self._ledger.ask(offsets, self._asked)
            if callback is not None:
                if len(self._callbacks) >= CALLBACKS_MAX:
                    crowded_out = self._callbacks.popleft()
                self._callbacks.append(_WaitingCommit(callback, offsets))
        if crowded_out is not None:
            words = f"more than {CALLBACKS_MAX} commits are waiting for the coordinator: this one was dropped"
            self._tell(CommitTold(crowded_out, CommitFailedError(words)))
        return self.is_idle

    def begin(self) -> None:
        """Starts committing what was requested, unless that is already running."""
        if self.is_idle and (self._asked or self._callbacks):
            self.is_idle = False
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ottla-commit")

    async def _run(self) -> None:
        try:
            while self._asked or self._callbacks:
                await self._commit_all()
        finally:
            self.is_idle = True
        self.begin()  # another thread may have asked at the last moment

    async def _commit_all(self) -> None:
        with self._lock:
            asked, self._asked = self._asked, {}
            waiting, self._callbacks = self._callbacks, deque()
        failure: Exception | None = None
        try:
            await self._commit(asked)
        except Exception as error:
            failure = error
            self._failed.update(asked)
            if not waiting:
                _logger.warning("offsets were not committed: %s", error)
        for one in waiting:
            self._tell(CommitTold(one, failure))

    async def finish(self) -> None:
        """Waits until everything requested is committed. Retries failed commits once, for partitions that are still
        assigned and were not committed again since. Raises the error if that fails as well."""
        self.begin()
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        failed, self._failed = self._failed, {}
        again = {one: asked for one, asked in failed.items() if self._ledger.is_worth_a_retry(asked, one)}
        if again:
            await self._commit(again)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
