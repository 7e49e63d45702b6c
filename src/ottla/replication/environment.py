"""What all partitions of a broker share: operations that wait, the disk, the time, other brokers, counters.

Owned by the loop.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, Protocol

from ottla.base.clock import Clock
from ottla.base.ids import TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.replication.delayed import Purgatory
from ottla.replication.role import PartitionRole

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

_LAG_MAX_S: Final = 30.0

OnSynced = Callable[[PartitionLog, BaseException | None], None]
WaitForDisk = Callable[[PartitionLog, int, OnSynced], None]
"""Calls back, on the loop, when everything below the offset is on disk, or with the error."""
OnDiskFailure = Callable[[PartitionLog, OSError], str]
"""Takes the log's directory offline if necessary; returns the error message for the client."""


class FollowerReader(Hashable, Protocol):
    """What one follower fetches from this broker. It is told of changes in the partitions that it reads
    (`Partition.read_by`), so that a fetch need not look at all of them."""

    def changed(self, partition: Partition) -> None:
        """Its log, an offset or its role changed."""
        ...


class ReplicationQuota(Protocol):
    """A limit of the bytes per second that replication may use, for some partitions (KIP-73)."""

    def must_wait(self, name: TopicPartition, *, is_in_sync: bool) -> bool:
        """Whether the replica gets nothing for now."""
        ...

    def record(self, name: TopicPartition, size: int) -> None:
        """Counts bytes of a partition, if the limit applies to it."""
        ...


class ReplicaEnvironment:
    """See the module. The attributes with defaults are set by whoever connects this broker with others."""

    def __init__(
        self, loop: AbstractEventLoop, clock: Clock, *, on_disk_failure: OnDiskFailure, wait_for_disk: WaitForDisk
    ) -> None:
        self.fetches: Purgatory[Partition] = Purgatory("fetch", loop)
        """Fetches of consumers, which wait for the high watermark."""
        self.follower_fetches: Purgatory[FollowerReader] = Purgatory("follower fetch", loop)
        """Fetches of followers, which wait for the log end."""
        self.leader_quota: ReplicationQuota | None = None
        """Limits what followers that are not in sync fetch from this broker."""
        self.produces: Purgatory[Partition] = Purgatory("produce", loop)
        self.deletes: Purgatory[Partition] = Purgatory("delete records", loop)
        """Deletions of records, which wait until all live replicas have done them."""
        self.clock_s = clock.monotonic_s
        self.on_disk_failure = on_disk_failure
        self.wait_for_disk = wait_for_disk
        self.on_truncated: Callable[[PartitionLog, int, int], None] = lambda *_: None
        """Called before anything is appended to a log that was cut to an offset, with its recovery point before."""
        self.lag_max_s = _LAG_MAX_S
        """`replica.lag.time.max.ms`."""
        self.is_alive: Callable[[int], bool] = lambda _: True
        """Whether the broker with that id is in the cluster now."""
        self.propose: Callable[[Partition, PartitionRole], None] = lambda *_: None
        """Sends an ISR proposal to the controller (`IsrChanges.propose`)."""
        self.isr_expand_count = 0
        self.isr_shrink_count = 0
        self.failed_isr_update_count = 0

    def close(self) -> None:
        """Answers all waiting operations."""
        for purgatory in (self.fetches, self.follower_fetches, self.produces, self.deletes):
            purgatory.close()
