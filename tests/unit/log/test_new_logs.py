from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.base.ids import TopicPartition, Uuid
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.testing.simulated_disk import Operation, SimulatedDisk, Survival

CONFIG = LogConfig()
TOPIC_ID = Uuid(bytes(range(16)))
PATHS = [Path("/data/disk0"), Path("/data/disk1")]


def started(disk: SimulatedDisk) -> LogDirectories:
    directories = LogDirectories(disk, disk.clock, PATHS, DirectoryOptions(broker_id=1))
    directories.open(lambda _: CONFIG)
    return directories


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("topic", number) for number in range(count)]


@pytest.mark.parametrize("count", [1, 4, 5, 40])
def test_new_logs_are_spread_and_survive_a_power_cut(count: int) -> None:
    disk = SimulatedDisk()
    directories = started(disk)
    disk.sync_all()
    new = directories.place(partitions(count), CONFIG, TOPIC_ID)
    assert list(directories.logs()) == []
    new.make()
    assert {log.partition for log in directories.adopt(new)} == set(partitions(count))
    here, there = (len(directory.logs) for directory in directories.directories)
    assert (here + there, abs(here - there) <= 1) == (count, True)
    disk.crash(Survival.NOTHING)
    disk.restart()
    again = started(disk)
    assert {log.partition: log.topic_id for log in again.logs()} == dict.fromkeys(partitions(count), TOPIC_ID)


@pytest.mark.parametrize("operation", [Operation.MAKE_DIRECTORY, Operation.CREATE, Operation.SYNC])
@pytest.mark.parametrize("count", [4, 40])
def test_a_directory_in_which_they_cannot_be_made_goes_offline_alone(operation: Operation, count: int) -> None:
    disk = SimulatedDisk()
    directories = started(disk)
    bad, good = directories.directories
    new = directories.place(partitions(count), CONFIG, TOPIC_ID)
    disk.fail(errno.EIO, when=lambda struck, path: struck is operation and bad.path in path.parents, skipped=1)
    new.make()
    logs = directories.adopt(new)
    assert bad.failure is not None
    assert "topic-" in bad.failure
    assert (good.failure, len(good.logs), len(bad.logs)) == (None, count // 2, 0)
    assert sorted(log.partition for log in logs) == sorted(good.logs)
    assert all(disk.exists(log.directory / names.PARTITION_METADATA) for log in logs)


def test_a_directory_that_cannot_be_synced_has_none() -> None:
    disk = SimulatedDisk()
    directories = started(disk)
    new = directories.place(partitions(6), CONFIG, TOPIC_ID)
    disk.fail(errno.EIO, when=lambda struck, path: struck is Operation.SYNC_DIRECTORY and path == PATHS[1])
    new.make()
    assert {log.directory.parent for log in directories.adopt(new)} == {PATHS[0]}
    assert directories.directories[1].failure is not None
