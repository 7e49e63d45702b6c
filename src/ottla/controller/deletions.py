"""What is left to do of deletions that were answered: the replicas and the nodes of the topics.

A deletion is safe when its markers are in the tree, and its topics are unknown from then on. The rest is done a moment
later, for all topics that were deleted by then: the responses are sent first, and many deletions share the syncs of the
disk. Only a topic of the same name must wait for it. What a crash interrupts is finished by `Controller.load`.

Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from ottla.base.coordination import CoordinationError
from ottla.controller.state import ReplicaHost, TopicState
from ottla.controller.topic_nodes import TopicNodes
from ottla.zookeeper.tree_file import TreeFileError

_logger = logging.getLogger(__name__)

_DELAY_S: Final = 0.05
"""Until the first file is closed and the first node is deleted."""


class PendingDeletions:
    """See the module."""

    def __init__(self, nodes: TopicNodes, host: ReplicaHost) -> None:
        self._nodes = nodes
        self._host = host
        self._waiting: dict[str, TopicState] = {}
        self._at_work: Sequence[TopicState] = ()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, topics: Iterable[TopicState]) -> None:
        """These have their markers, and nobody knows them any more."""
        self._waiting.update((topic.name, topic) for topic in topics)
        if self._task is None and self._waiting:
            self._hurry.clear()
            self._task = asyncio.ensure_future(self._finish_all())

    async def finish(self, names: Iterable[str] | None = None) -> None:
        """Returns when these names, or all, can be used again. Call it within a change, so that no more are added."""
        pending = {*self._waiting, *(topic.name for topic in self._at_work)}
        if self._task is not None and (names is None or not pending.isdisjoint(names)):
            self._hurry.set()
            await asyncio.wait([self._task])

    async def _finish_all(self) -> None:
        try:
            while self._waiting:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DELAY_S):
                        await self._hurry.wait()
                self._at_work = list(self._waiting.values())
                self._waiting.clear()
                await self._finish(self._at_work)
                self._at_work = ()
        finally:
            self._task = None

    async def _finish(self, topics: Sequence[TopicState]) -> None:
        """A failure is logged: the markers stay, and so the names cannot be used before the next start."""
        names = [topic.name for topic in topics]
        for topic in topics:
            _logger.info("deleted topic %s, which had %s", topic.name, partitions_in_words(topic))
        try:
            await self._host.delete_replicas(topics)
            await self._nodes.delete(names, with_markers=True)
        except (CoordinationError, TreeFileError) as error:
            _logger.error("the deletion of %d topics could not be finished: %s", len(names), error)
        except Exception:
            _logger.exception("the deletion of %d topics could not be finished", len(names))


def partitions_in_words(topic: TopicState) -> str:
    count = len(topic.partitions)
    return "1 partition" if count == 1 else f"{count} partitions"
