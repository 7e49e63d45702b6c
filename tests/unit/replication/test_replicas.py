"""Partitions that go while threads still work on their logs."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition, random_uuid
from ottla.log import local_disk
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.local_disk import LocalDisk
from ottla.replication.replicas import Replicas
from support.logs.batches import batch
from support.replication.roles import lead

NAME = TopicPartition("orders", 0)


def test_a_partition_that_is_deleted_while_it_is_flushed_takes_no_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are closed, and the system gives a descriptor that the flush was about to sync to a connection."""
    config = LogConfig(flush_messages=1)
    is_syncing, may_sync = threading.Event(), threading.Event()
    sync = local_disk._sync
    of_log: list[int] = []

    def sync_late(descriptor: int) -> None:
        if [descriptor] == of_log and not is_syncing.is_set():
            is_syncing.set()
            assert may_sync.wait(30)
        sync(descriptor)

    async def work() -> None:
        directories = LogDirectories(LocalDisk(), SystemClock(), [tmp_path / "logs"], DirectoryOptions(broker_id=1))
        directories.open(lambda _: config)
        replicas = Replicas(1, directories, asyncio.get_running_loop())
        partition = replicas.host(NAME, random_uuid(), config, is_new=True)
        assert partition.log is not None
        lead(partition, leader_epoch=0, isr=(1,), replicas=(1,))
        descriptor = partition.log.active.log.fileno()
        of_log.append(descriptor)
        monkeypatch.setattr(local_disk, "_sync", sync_late)
        partition.append(batch([b"a"]), all_replicas=True)
        assert await asyncio.to_thread(is_syncing.wait, 30)
        with socket.socket() as other:
            await replicas.delete_many([NAME])
            os.dup2(other.fileno(), descriptor)
            may_sync.set()
            replicas.close()
            os.close(descriptor)
        await asyncio.sleep(0)
        assert [directory.failure for directory in directories.directories] == [None]
        directories.close()

    asyncio.run(work())
