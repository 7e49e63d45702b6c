from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.base.ids import TopicPartition, Uuid
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.new_logs import NewLog
from ottla.log.partition_log import PartitionLog
from ottla.testing.simulated_disk import DiskOperation, SimulatedDisk, Survival
from support.logs.batches import batch

CONFIG = LogConfig()
TOPIC_ID = Uuid(bytes(range(16)))
PATHS = [Path("/data/disk0"), Path("/data/disk1")]


def started(disk: SimulatedDisk) -> LogDirectories:
    directories = LogDirectories(disk, disk.clock, PATHS, DirectoryOptions(broker_id=1))
    directories.open(lambda _: CONFIG)
    return directories


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("topic", number) for number in range(count)]


def new_logs(count: int) -> list[NewLog]:
    return [NewLog(partition, CONFIG, TOPIC_ID) for partition in partitions(count)]


def made(directories: LogDirectories, count: int) -> list[PartitionLog]:
    new = directories.place(new_logs(count))
    new.make()
    return directories.adopt(new)


@pytest.mark.parametrize("count", [1, 4, 5, 40])
def test_new_logs_are_spread_over_the_directories(count: int) -> None:
    directories = started(SimulatedDisk())
    new = directories.place(new_logs(count))
    assert list(directories.logs()) == []
    new.make()
    assert {log.partition for log in directories.adopt(new)} == set(partitions(count))
    assert {log.topic_id for log in directories.logs()} == {TOPIC_ID}
    here, there = (len(directory.logs) for directory in directories.directories)
    assert (here + there, abs(here - there) <= 1) == (count, True)


def test_nothing_is_synced_before_there_are_records() -> None:
    disk = SimulatedDisk()
    directories = started(disk)
    disk.fail(errno.EIO, when=lambda struck, _: struck in (DiskOperation.SYNC, DiskOperation.SYNC_DIRECTORY))
    for log in made(directories, 4):
        log.flush()
    directories.create(TopicPartition("other", 0), CONFIG, topic_id=TOPIC_ID)
    assert directories.directories == directories.online()


@pytest.mark.parametrize("seed", range(20))
def test_flushed_records_survive_a_power_cut_and_the_rest_can_be_made_again(seed: int) -> None:
    disk = SimulatedDisk(seed)
    directories = started(disk)
    disk.sync_all()
    logs = made(directories, 6)
    for log in logs[:4]:
        log.append_as_leader(batch(2), 0)
    for log in logs[:2]:
        log.flush()
    directories.checkpoint()
    for log in logs[2:4]:
        log.append_as_leader(batch(1), 0)
    disk.crash(Survival.NOTHING if seed == 0 else Survival.SEEDED)
    disk.restart()
    again = started(disk)
    for partition in partitions(6):
        log = again.create(partition, CONFIG, topic_id=TOPIC_ID, is_new=False)
        assert log.topic_id == TOPIC_ID
        if partition in {each.partition for each in logs[:2]}:
            assert log.next_offset == 2


def test_a_folder_of_another_topic_is_refused_alone() -> None:
    directories = started(SimulatedDisk())
    other = directories.place([NewLog(TopicPartition("topic", 0), CONFIG, Uuid(bytes(15) + b"x"))])
    other.make()
    new = directories.place(new_logs(3))
    new.make()
    assert {log.partition.partition for log in directories.adopt(new)} == {1, 2}
    assert "belongs to topic id" in str(new.refusals[TopicPartition("topic", 0)])
    assert directories.directories == directories.online()


@pytest.mark.parametrize("operation", [DiskOperation.MAKE_DIRECTORY, DiskOperation.CREATE])
@pytest.mark.parametrize("count", [4, 40])
def test_a_directory_in_which_they_cannot_be_made_goes_offline_alone(operation: DiskOperation, count: int) -> None:
    disk = SimulatedDisk()
    directories = started(disk)
    bad, good = directories.directories
    new = directories.place(new_logs(count))
    disk.fail(errno.EIO, when=lambda struck, path: struck is operation and bad.path in path.parents, skipped=1)
    new.make()
    logs = directories.adopt(new)
    assert bad.failure is not None
    assert "topic-" in bad.failure
    assert (good.failure, len(good.logs), len(bad.logs)) == (None, count // 2, 0)
    assert sorted(log.partition for log in logs) == sorted(good.logs)
    assert all(disk.exists(log.directory / names.PARTITION_METADATA) for log in logs)
