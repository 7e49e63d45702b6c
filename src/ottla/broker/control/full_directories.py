"""Log directories whose disk is full, in a cluster: other brokers take over until there is room again.

A lone broker on a full disk refuses appends and serves reads. In a cluster that would stop every producer whose leader
is there, although others could lead, and every producer with acks=all while an in-sync follower cannot append. So the
broker tells the controller of a failed log directory, as Kafka does, and refuses the roles of replicas there as long as
others are in sync: they leave the ISR, and others lead. Unlike in Kafka the directory stays in use. Once there is room
the controller is told again, the replicas get their roles, and they catch up.

Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.log.directories import LogDirectories, LogDirectory

_logger = logging.getLogger(__name__)

_ROOM_BYTES: Final = 8 * 2**20
_LEAST_S: Final = 5.0
"""How long a directory counts as full at least: not every reason for a refusal shows in what is free."""
_LOOK_AGAIN_S: Final = 1.0


class FullDirectories:
    """See the module. `tell_controller` makes it ask for the roles of all replicas here."""

    def __init__(
        self,
        directories: LogDirectories,
        tell_controller: Callable[[], Awaitable[None]],
        has_room: Callable[[Path], bool] | None = None,
    ) -> None:
        self._directories = directories
        self._tell_controller = tell_controller
        self._has_room = has_room or _has_room
        self._watching: dict[Path, asyncio.Task[None]] = {}

    def found(self, directory: LogDirectory) -> None:
        """An append, or a new log, was refused for lack of space. Idempotent."""
        if directory.path not in self._watching:
            self._watching[directory.path] = asyncio.get_running_loop().create_task(
                self._watch(directory), name=f"waiting for room in {directory.path}"
            )

    def holds(self, name: TopicPartition) -> bool:
        """Whether the partition's log is in a full directory."""
        if not self._watching:
            return False
        directory = self._directories.directory_of(name)
        return directory is not None and directory.path in self._watching

    async def close(self) -> None:
        tasks = list(self._watching.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch(self, directory: LogDirectory) -> None:
        path = directory.path
        try:
            _logger.warning("%s is full: other brokers take over its partitions where they can", path)
            await self._tell_controller()
            await asyncio.sleep(_LEAST_S)
            while directory.failure is None and not await asyncio.to_thread(self._has_room, path):
                await asyncio.sleep(_LOOK_AGAIN_S)
        finally:
            del self._watching[path]
        if directory.failure is None:
            _logger.info("%s has room again: its replicas catch up", path)
            await self._tell_controller()


def _has_room(path: Path) -> bool:
    try:
        found = os.statvfs(path)
    except OSError:
        return True  # whoever appends finds out
    return found.f_bavail * found.f_frsize >= _ROOM_BYTES
