"""The log of a coordinator: the partitions of an internal topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.coordinator.errors import CoordinatorError, told_as
from ottla.log.errors import LogError
from ottla.records.new_batch import NewBatch
from ottla.replication.awaited_commit import AwaitedCommit
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import AwaitedAppend, Partition
from ottla.replication.replicas import Replicas

_NONE: Final = ErrorCode.NONE


class ReplicatedCoordinatorLog:
    """Implements the coordinator's log interface with this broker's replicas."""

    def __init__(self, topic: str, replicas: Replicas, metadata: MetadataCache, *, commit_timeout_ms: int) -> None:
        self.topic = topic
        self._replicas = replicas
        self._topics = metadata.topics
        self._commit_timeout_s = commit_timeout_ms / 1000
        self.known_partition_count: int | None = None
        """In a cluster, the count that ZooKeeper has; 0 until it is read. The metadata may lack partitions that have
        never had a leader, and would then assign groups to other partitions than other brokers do."""
        self._last_led: dict[int, Partition] = {}
        """The partitions when last looked up; may be outdated."""

    @property
    def partition_count(self) -> int:
        if self.known_partition_count is not None:
            return self.known_partition_count
        topic = self._topics.get(self.topic)
        return 0 if topic is None else len(topic.partitions)

    def append(self, index: int, batch: NewBatch) -> int:
        partition = self._led(index)
        try:
            return partition.append_own(batch)
        except (LogError, ReplicationError) as error:
            raise CoordinatorError(told_as(error.code), str(error)) from error

    def is_committed(self, index: int, offset: int) -> bool:
        partition = self._last_led.get(index)
        if partition is None or (log := partition.log) is None:
            partition = self._replicas.get(self.topic, index)
            return partition is not None and partition.high_watermark >= offset
        return log.high_watermark >= offset

    def when_committed(self, index: int, offset: int, tell: Callable[[ErrorCode], None]) -> None:
        partition = self._replicas.get(self.topic, index)
        if partition is None:
            tell(ErrorCode.NOT_COORDINATOR)
            return
        append = AwaitedAppend(offset, partition.leader_epoch, all_replicas=True)
        waiting = AwaitedCommit(append, lambda error: tell(told_as(error) if error else _NONE))
        if waiting.is_ready(partition):
            waiting.complete()
        else:
            self._replicas.produces.wait(waiting, (partition,), self._commit_timeout_s)

    def read(self, index: int, offset: int, max_bytes: int) -> bytes:
        try:
            found = self._led(index).read(offset, max_bytes, to_log_end=True).slice
        except (LogError, ReplicationError) as error:
            raise CoordinatorError(told_as(error.code), str(error)) from error
        return b"" if found is None else found.read()

    def start_offset(self, index: int) -> int:
        log = self._led(index).log
        if log is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR, f"the log of {self.topic}-{index} is offline")
        return log.log_start_offset

    def _led(self, index: int) -> Partition:
        partition = self._last_led.get(index)
        if partition is None or partition.log is None or not partition.is_leader:  # otherwise it is still valid
            partition = self._replicas.get(self.topic, index)
            if partition is None or not partition.is_leader:
                raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
            self._last_led[index] = partition
        return partition
