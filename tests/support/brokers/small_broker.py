"""A broker without a network: real logs and partitions, for handlers that are called directly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.base.ids import TopicPartition, Uuid
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.requests.api import RequestContext
from ottla.controller.state import PartitionState, TopicState
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.testing.manual_clock import ManualClock
from support.replication.roles import lead

BROKER_ID = 1
TOPIC_ID = Uuid(bytes(range(16)))


@dataclass
class SmallBroker:
    """Has what most handlers use. `topic` makes one that this broker leads."""

    clock: ManualClock
    directories: LogDirectories
    replicas: Replicas
    metadata: MetadataCache = field(default_factory=lambda: MetadataCache("cluster", BROKER_ID))
    broker_id: int = BROKER_ID
    replica_moves: Any = None

    def topic(
        self, name: str = "topic", partitions: int = 1, config: LogConfig | None = None, *, leader_epoch: int = 0
    ) -> list[Partition]:
        hosted = []
        for index in range(partitions):
            place = TopicPartition(name, index)
            partition = self.replicas.host(place, TOPIC_ID, config or LogConfig(), is_new=True)
            lead(partition, leader_epoch=leader_epoch, isr=(BROKER_ID,), replicas=(BROKER_ID,))
            hosted.append(partition)
        state = PartitionState((BROKER_ID,), BROKER_ID, leader_epoch, (BROKER_ID,), 1, 0)
        self.metadata.put_topic(TopicState(name, TOPIC_ID, (state,) * partitions))
        return hosted


def context(version: int) -> RequestContext:
    return RequestContext(version, "client", "127.0.0.1", "PLAINTEXT", 0)


@contextmanager
def small_broker(root: Path, directory_count: int = 2) -> Iterator[SmallBroker]:
    """With empty directories below `root`."""
    clock = ManualClock()
    paths = [root / f"logs{number}" for number in range(directory_count)]
    directories = LogDirectories(LocalDisk(), clock, paths, DirectoryOptions(BROKER_ID))
    directories.open(lambda _: LogConfig())
    loop = asyncio.new_event_loop()
    replicas = Replicas(BROKER_ID, directories, loop)
    try:
        yield SmallBroker(clock, directories, replicas)
    finally:
        replicas.close()
        directories.close()
        loop.close()
