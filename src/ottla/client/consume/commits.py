"""Commits in the background: only the newest offsets matter, so at most one request is on its way, and one to come."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from ottla.base.ids import TopicPartition
from ottla.client.errors import OttlaError
from ottla.client.offsets import OffsetAndMetadata

_logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, Exception | None], object]


class _Asked(NamedTuple):
    offsets: Offsets
    callback: CommitCallback | None


class BackgroundCommits:
    """`ask` may be called in any thread; all else belongs to the loop."""

    def __init__(
        self, commit: Callable[[Offsets], Awaitable[None]], tell: Callable[[Callable[[], object]], None]
    ) -> None:
        self._commit = commit
        self._tell = tell
        """Calls what it is given, where the user's callbacks are called."""
        self._asked: deque[_Asked] = deque()
        self._task: asyncio.Task[None] | None = None
        self._unconfirmed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.is_idle = True

    def ask(self, offsets: Offsets, callback: CommitCallback | None) -> bool:
        """Whether `begin` has to be called."""
        self._asked.append(_Asked(offsets, callback))
        return self.is_idle

    def begin(self) -> None:
        """Commits what is asked for, unless that goes on already."""
        if self.is_idle and self._asked:
            self.is_idle = False
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ottla-commit")

    async def _run(self) -> None:
        try:
            while self._asked:
                await self._commit_all()
        finally:
            self.is_idle = True
        self.begin()  # asked for by another thread in the last moment

    async def _commit_all(self) -> None:
        asked: list[_Asked] = []
        while self._asked:
            asked.append(self._asked.popleft())
            self._unconfirmed.update(asked[-1].offsets)
        offsets = dict(self._unconfirmed)
        failure: Exception | None = None
        try:
            await self._commit(offsets)
            self._unconfirmed.clear()
        except OttlaError as error:
            failure = error
            if not any(one.callback for one in asked):
                _logger.warning("offsets are not committed: %s", error)
        for one in asked:
            if one.callback is not None:
                self._tell(_bound(one.callback, one.offsets, failure))

    async def finish(self, partitions: Collection[TopicPartition]) -> None:
        """What was asked for is committed; tried once more if it failed, for the partitions that are still ours. Raises
        what keeps it from being so."""
        self.begin()
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        offsets = {one: offset for one, offset in self._unconfirmed.items() if one in partitions}
        self._unconfirmed.clear()
        if offsets:
            await self._commit(offsets)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _bound(callback: CommitCallback, offsets: Offsets, failure: Exception | None) -> Callable[[], object]:
    return lambda: callback(offsets, failure)
