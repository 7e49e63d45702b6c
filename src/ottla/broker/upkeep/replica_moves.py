"""Moves replicas between this broker's log directories while they serve.

Copying and syncing run in threads, piece by piece; only the last small piece and the switch happen on the loop, where
nothing can be appended in between. Owned by the loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Final

from ottla.base.disk import is_full
from ottla.base.ids import TopicPartition, random_uuid
from ottla.log.directories import LogDirectories, LogDirectory
from ottla.log.errors import LogDirectoryError, LogError
from ottla.log.replica_move import MoveError, ReplicaMove
from ottla.records.errors import RecordError
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas

_logger = logging.getLogger(__name__)

_SMALL_BYTES: Final = 64 * 1024
"""The most that may be left to copy on the loop."""
_ROUNDS: Final = 10
"""Rounds of copying and syncing. Each leaves less than the one before, unless a producer is faster than the disk."""
_GONE: Final = (errno.ENOENT, errno.EBADF)
"""Retention may remove segments that are being copied."""


class ReplicaMoves:
    """See the module. `close` abandons unfinished moves."""

    def __init__(self, directories: LogDirectories, replicas: Replicas) -> None:
        self._directories = directories
        self._replicas = replicas
        self._turns = asyncio.Semaphore(len(directories.directories))
        self._tasks: dict[ReplicaMove, asyncio.Task[None]] = {}
        self._is_closing = False

    def start(self, partition: Partition, target: LogDirectory) -> None:
        """Starts a move in the background; abandons a move to another directory. Does nothing if the replica is already
        there or on its way. Raises `LogError` if the move cannot begin."""
        name, directories = partition.name, self._directories
        present = directories.moves.get(name)
        if present is not None:
            if present.target_path == target.path:
                return
            del directories.moves[name]  # its task notices, and removes the copy
        if directories.directory_of(name) is target:
            return
        try:
            move = directories.begin_move(name, target, random_uuid())
        except OSError as error:
            raise self._failed(target, error) from error
        self._tasks[move] = asyncio.create_task(self._run(move), name=f"move of {name}")
        self._tasks[move].add_done_callback(lambda _: self._tasks.pop(move))

    async def close(self) -> None:
        self._is_closing = True
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _run(self, move: ReplicaMove) -> None:
        name, target_path = move.partition, move.target_path
        try:
            async with self._turns:
                if not await self._copy(move):
                    _logger.info("%s: abandoned its move to %s", name, target_path)
                    self._directories.give_up_move(move)
                    return
            self._finish(move)
            _logger.info("%s is now in %s", name, target_path)
        except Exception as error:
            if isinstance(error, OSError):
                target = next(each for each in self._directories.directories if each.path == target_path)
                self._failed(target, error)
            if (
                isinstance(error, MoveError)
                and isinstance(cause := error.__cause__, OSError)
                and cause.errno not in _GONE
            ):
                self._directories.log_failed(move.source, cause)
            unexpected = None if isinstance(error, (OSError, LogError, RecordError)) else error
            _logger.error("%s could not be moved to %s: %s", name, target_path, error, exc_info=unexpected)
            self._directories.give_up_move(move)

    async def _copy(self, move: ReplicaMove) -> bool:
        """Copies and syncs nearly everything; False if the move was abandoned."""
        for _ in range(_ROUNDS):
            while self._is_wanted(move) and (piece := move.next_piece()) is not None and len(piece) > _SMALL_BYTES:
                await asyncio.to_thread(move.copy, piece)
            if not self._is_wanted(move):
                return False
            behind = move.lag
            await asyncio.to_thread(move.copy_log.flush)
            if move.lag <= behind:  # nothing was appended during the sync
                break
        return self._is_wanted(move)

    def _is_wanted(self, move: ReplicaMove) -> bool:
        return not self._is_closing and self._directories.is_moving(move)

    def _finish(self, move: ReplicaMove) -> None:
        self._replicas.on_delete(move.source)  # compaction of the old log ends
        log = self._directories.finish_move(move, random_uuid())
        partition = self._replicas.partitions.get(move.partition)
        if partition is not None:
            partition.move_to(log)

    def _failed(self, target: LogDirectory, error: OSError) -> LogDirectoryError:
        """A full disk accepts no more replicas, and keeps serving those it has."""
        if not is_full(error):
            self._directories.take_offline(target, str(error))
        return LogDirectoryError(target.path, f"no replica can be moved here: {error}")


def moving_to(directories: LogDirectories, directory: LogDirectory) -> dict[TopicPartition, ReplicaMove]:
    """The moves to a directory that are in progress."""
    return {name: move for name, move in directories.moves.items() if move.target_path == directory.path}
