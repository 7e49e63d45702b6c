"""All partitions of this broker, and what they share: delayed operations, the disk, failures.

Owned by the loop, which appends and reads. Fsyncs run in the group commit's thread.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.base.clock import Clock, SystemClock
from ottla.base.disk import is_full
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid, random_uuid
from ottla.log.config import LogConfig
from ottla.log.directories import LogDirectories, LogDirectory
from ottla.log.errors import LogError
from ottla.log.group_commit import GroupCommit
from ottla.log.new_logs import NewLog
from ottla.log.partition_log import PartitionLog
from ottla.replication.environment import OnSynced, ReplicaEnvironment
from ottla.replication.new_partitions import ExpectedPartitions
from ottla.replication.partition import Partition

_logger = logging.getLogger(__name__)


class Replicas:
    """See the module."""

    def __init__(
        self, broker_id: int, directories: LogDirectories, loop: AbstractEventLoop, clock: Clock | None = None
    ) -> None:
        self.broker_id = broker_id
        self.directories = directories
        self.partitions: dict[TopicPartition, Partition] = {}
        self.environment = ReplicaEnvironment(
            loop,
            clock or SystemClock(),
            on_disk_failure=self._disk_failed,
            wait_for_disk=self._wait_for_disk,
        )
        self.environment.on_truncated = directories.truncated
        self.fetches = self.environment.fetches
        self.follower_fetches = self.environment.follower_fetches
        self.produces = self.environment.produces
        self.deletes = self.environment.deletes
        self.on_delete: Callable[[PartitionLog], None] = lambda _: None
        """Called before a log is deleted: work on it must end."""
        self.on_failed: Callable[[list[TopicPartition]], None] = lambda _: None
        """Called with the partitions whose log directory has just failed."""
        self.on_full: Callable[[LogDirectory], None] = lambda _: None
        """Called whenever something could not be written because the directory's disk is full."""
        self.on_hosted: Callable[[Partition], None] = lambda _: None
        """Called with an expected partition once it is hosted; sets its role."""
        self.expected = ExpectedPartitions(directories, self._host_expected, loop)
        self._loop = loop
        self._commit = GroupCommit()
        self._full: set[Path] = set()
        directories.on_failure = self._directory_failed
        for log in directories.logs():
            self._adopt(log)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, if this broker hosts it. The log of an expected partition is created first."""
        partition: Partition | None = self.partitions.get((topic, index))  # type: ignore[call-overload]  # equal to its tuple
        if partition is None and self.expected and self.expected.get_now(TopicPartition(topic, index)):
            return self.partitions.get(TopicPartition(topic, index))
        return partition

    # --- come and go ------------------------------------------------------------------------------------------------

    def host(self, name: TopicPartition, topic_id: Uuid, config: LogConfig, *, is_new: bool) -> Partition:
        """The partition with its log; it is offline if the log cannot be opened. A log of an older topic with that name
        is deleted first: the topic was deleted while this broker was down."""
        partition = self.partitions.get(name)
        if partition is not None and partition.topic_id == topic_id and partition.log is not None:
            return partition
        log: PartitionLog | None = None
        try:
            existing = self.directories.get(name)
            if existing is not None and existing.topic_id not in (None, topic_id):
                _logger.warning("%s: the log on disk belongs to a deleted topic of the same name; deleting it", name)
                self.delete(name)
            log = self.directories.create(name, config, topic_id=topic_id, is_new=is_new)
            self._adopt(log)
        except LogError as error:
            if isinstance(error.__cause__, OSError) and is_full(error.__cause__):
                self.disk_is_full(self.directories.directories[0].path, error.__cause__)
            else:
                _logger.error("%s is offline: %s", name, error)
        if partition is None or partition.topic_id != topic_id:
            partition = Partition(name, topic_id, self.broker_id, log, self.environment)
            self.partitions[name] = partition
        else:
            partition.log = log
        return partition

    def take(self, name: TopicPartition, topic_id: Uuid, log: PartitionLog | None) -> Partition:
        """Hosts the partition with that log, or offline without one; its role comes next. An earlier one stays, with
        its role. `ZERO_UUID` if the topic's id is not known."""
        partition = self.partitions.get(name)
        if log is not None:
            self._adopt(log)
        if partition is None:
            if topic_id == ZERO_UUID and log is not None and log.topic_id is not None:
                topic_id = log.topic_id
            partition = self.partitions[name] = Partition(name, topic_id, self.broker_id, log, self.environment)
        elif log is None:
            partition.go_offline()
        else:
            partition.log = log
            if partition.topic_id == ZERO_UUID:
                partition.topic_id = topic_id
        return partition

    def expect(self, names: Sequence[TopicPartition], topic_id: Uuid, config: LogConfig) -> None:
        """Announces new partitions. They are hosted soon, or when a request needs them."""
        self.expected.expect([NewLog(name, config, topic_id) for name in names])

    def _host_expected(self, new: NewLog) -> None:
        self.on_hosted(self.host(new.partition, new.topic_id, new.config, is_new=True))

    def let_go(self, names: Sequence[TopicPartition]) -> None:
        """Stops serving these partitions and checks the operations that wait for them. `delete_many` must follow."""
        self.expected.forget(names)
        for name in names:
            self._let_go(name)

    async def delete_many(self, names: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Deletes the partitions with their records; their names can be used again when this is done. Returns those
        that are not deleted, because their directory has failed meanwhile: it may come back with them."""
        await self.expected.out_of_thread(names)
        self.let_go(names)
        kept = []
        for deletion in self.directories.delete_many(names, random_uuid()):
            directory = deletion.directory
            try:
                await asyncio.to_thread(deletion.rename)
            except OSError as error:
                _logger.error("%s: %s", directory.path, self.directories.failed(directory, error))
                if directory.failure is not None:
                    kept += deletion.keep()
        return kept

    def delete(self, name: TopicPartition) -> None:
        """The same, synchronously."""
        self._let_go(name)
        try:
            self.directories.delete(name, random_uuid())
        except LogError as error:
            _logger.error("%s could not be deleted: %s", name, error)

    def _let_go(self, name: TopicPartition) -> None:
        partition = self.partitions.pop(name, None)
        if partition is not None:
            partition.let_go()
        log = self.directories.get(name)
        if log is not None:
            self.on_delete(log)

    def _adopt(self, log: PartitionLog) -> None:
        log.on_roll = self.flush_soon
        log.on_flush_due = self.flush_soon

    def log_start_moved(self, name: TopicPartition) -> None:
        """Retention deleted records: followers and waiting readers learn of it."""
        partition = self.partitions.get(name)
        if partition is not None:
            partition.log_start_moved()

    # --- the in-sync replicas ---------------------------------------------------------------------------------------

    def shrink_isrs(self) -> None:
        """Proposes to remove in-sync replicas that are behind, in all partitions that this broker leads. To be called
        about twice per `replica.lag.time.max.ms`."""
        environment = self.environment
        now_s, lag_max_s = environment.clock_s(), environment.lag_max_s
        for partition in self.partitions.values():
            if len(partition.isr) > 1:
                partition.shrink_isr(now_s, lag_max_s)

    # --- the disk ---------------------------------------------------------------------------------------------------

    def flush_soon(self, log: PartitionLog) -> None:
        """Flushes in the group commit's thread; only the recovery point waits for it."""
        if log.config.flush_messages > 1:  # with 1, every append waits for its own flush
            self._wait_for_disk(log, log.next_offset, self._flushed)

    def _flushed(self, log: PartitionLog, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            self._disk_failed(log, error)

    def _wait_for_disk(self, log: PartitionLog, offset: int, callback: OnSynced) -> None:
        def on_loop(error: BaseException | None) -> None:
            if error is not None and not isinstance(error, OSError):
                _logger.error("%s could not be flushed", log.partition, exc_info=error)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(callback, log, error)

        self._commit.wait_for(log, offset).add_done_callback(lambda done: on_loop(done.exception()))

    def _disk_failed(self, log: PartitionLog, error: OSError) -> str:
        """A full disk refuses appends and keeps serving reads; any other failure takes the log's directory offline."""
        path = str(log.directory.parent)
        if is_full(error):
            self.disk_is_full(log.directory.parent, error)
            return f"the disk of {path} is full"
        return f"{path}: {self.directories.log_failed(log, error)}"

    def disk_is_full(self, path: Path, error: OSError) -> None:
        """Logs it at a limited rate: every append runs into it."""
        if path not in self._full:
            self._full.add(path)
            self._loop.call_later(30, self._full.discard, path)
            _logger.error("%s: the disk is full (%s); appends are refused until there is space", path, error)
        for directory in self.directories.directories:
            if directory.path == path:
                self.on_full(directory)

    def _directory_failed(self, directory: LogDirectory) -> None:
        _log_failure(directory)
        failed = [name for name in directory.logs if name in self.partitions]
        for name in failed:
            self.partitions[name].go_offline()
        self.on_failed(failed)

    def close(self) -> None:
        """Answers all waiting operations; the logs stay open. If a directory fails from now on, while another thread
        closes the logs, that is only logged."""
        self.directories.on_failure = _log_failure
        self.expected.close()
        self.environment.close()
        self._commit.close()


def _log_failure(directory: LogDirectory) -> None:
    _logger.error(
        "log directory %s is offline with its %d replicas: %s; repair it and restart the broker",
        directory.path,
        len(directory.logs),
        directory.failure,
    )
