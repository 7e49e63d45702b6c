"""A broker reduced to what replication needs: logs on a simulated disk, the partitions' environment, a clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from ottla.base.ids import TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.log.loader import LoadOptions
from ottla.log.new_logs import NewLog, make_log
from ottla.log.partition_log import PartitionLog
from ottla.records import BatchOptions, Record, encode_batch
from ottla.replication.environment import OnSynced, ReplicaEnvironment
from ottla.replication.partition import Partition
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import SimulatedDisk

LOGS = Path("/logs")


def batch(*values: bytes, epoch: int = 0, base_offset: int = 0) -> bytearray:
    """A batch with a record for each value."""
    records = [Record(base_offset + n, 1_700_000_000_000, None, value) for n, value in enumerate(values)]
    return encode_batch(records, BatchOptions(base_offset=base_offset, leader_epoch=epoch))


def content(log: PartitionLog | None, end: int | None = None) -> list[tuple[int, int, int]]:
    """(base offset, epoch, CRC) of each batch that begins below `end`."""
    assert log is not None
    headers = [header for segment in log.segments for _, header in segment.iter_headers()]
    return [
        (header.base_offset, header.leader_epoch, header.crc)
        for header in headers
        if (end is None or header.base_offset < end) and header.last_offset >= log.log_start_offset
    ]


class SimulatedReplica:
    """See the module. Flushes are done when `sync` is called."""

    def __init__(
        self,
        broker_id: int,
        loop: asyncio.AbstractEventLoop,
        clock: ManualClock,
        random: Random | None = None,
        disk: SimulatedDisk | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self._loop = loop
        self.disk = disk or SimulatedDisk(seed=(random or Random(broker_id)).randrange(2**32))
        self.disk.make_directory(LOGS)
        self.disk.sync_directory(LOGS.parent)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.failures: list[OSError] = []
        self.saved: dict[TopicPartition, LoadOptions] = {}
        """The directory's checkpoints: recovery points and log starts."""
        self._syncs: list[tuple[PartitionLog, OnSynced]] = []
        self.environment = ReplicaEnvironment(
            loop, clock, on_disk_failure=self._disk_failed, wait_for_disk=self._wait_for_disk
        )
        self.environment.on_truncated = self._truncated

    def host(self, name: TopicPartition, topic_id: Uuid, config: LogConfig) -> Partition:
        options = self.saved.get(name, LoadOptions())
        log = make_log(self.disk, self.clock, LOGS, NewLog(name, config, topic_id), options)
        log.on_flush_due = lambda _: None
        partition = self.partitions[name] = Partition(name, topic_id, self.broker_id, log, self.environment)
        return partition

    def restarted(self) -> SimulatedReplica:
        """A new process on the same disk."""
        replica = SimulatedReplica(self.broker_id, self._loop, self.clock, disk=self.disk)
        replica.saved = dict(self.saved)
        return replica

    def checkpoint(self) -> None:
        for name, partition in self.partitions.items():
            if partition.log is not None:
                log = partition.log
                self.saved[name] = LoadOptions(recovery_point=log.recovery_point, log_start_offset=log.log_start_offset)

    def _truncated(self, log: PartitionLog, _: int, old_recovery_point: int) -> None:
        if log.recovery_point < old_recovery_point:
            self.checkpoint()

    def _disk_failed(self, log: PartitionLog, error: OSError) -> str:
        self.failures.append(error)
        for partition in self.partitions.values():
            if partition.log is log:
                partition.go_offline()
        return str(error)

    def _wait_for_disk(self, log: PartitionLog, _: int, callback: OnSynced) -> None:
        self._syncs.append((log, callback))

    @property
    def sync_count(self) -> int:
        """How many wait for the disk."""
        return len(self._syncs)

    def sync(self) -> None:
        """Does all flushes that are waited for."""
        syncs, self._syncs = self._syncs, []
        for log, callback in syncs:
            try:
                log.flush()
            except OSError as error:
                callback(log, error)
            else:
                callback(log, None)
