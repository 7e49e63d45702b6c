"""Warns about subscribed topics that do not exist: polls just return nothing, and a name is easily misspelt.

The brokers are asked twice, because a topic that was created a moment ago, or that asking creates, may take that long
to be known everywhere. Belongs to the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.errors import OttlaError

_logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 1.0


class MissingTopics:
    """Checks the topics of one consumer."""

    def __init__(self, cluster: Cluster, patience_s: float = _PATIENCE_S) -> None:
        self._cluster = cluster
        self._patience_s = patience_s
        self._task: asyncio.Task[None] | None = None

    def look_for(self, names: Collection[str]) -> None:
        """Warns about those of the topics that do not exist; stops checking earlier ones."""
        self.cancel()
        self._task = asyncio.get_running_loop().create_task(self._look_for(names), name="ottla-missing-topics")

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look_for(self, names: Collection[str]) -> None:
        try:
            missing = await self._missing(names)
            if missing:
                await asyncio.sleep(self._patience_s)
                missing = await self._missing(missing)
        except OttlaError:
            return  # polls fail for the same reason, and report it
        for name in missing:
            _logger.warning(
                "Topic %r does not exist. The consumer will read it once it is created. Create it with "
                "`ottla topics create %s`, or check the name.",
                name,
                name,
            )

    async def _missing(self, names: Collection[str]) -> list[str]:
        found = {topic.name for topic in await self._cluster.refresh(sorted(names))}
        return sorted(set(names) - found)
