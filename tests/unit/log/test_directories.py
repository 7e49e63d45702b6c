from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition, Uuid
from ottla.log import names
from ottla.log.checkpoints import CleanShutdownFile, MetaProperties, OffsetCheckpoint
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories, LogDirectory
from ottla.log.errors import CorruptCheckpointError, DirectoryLockedError, FileError, LogDirectoryError
from ottla.log.loader import load
from ottla.log.local_disk import LocalDisk
from ottla.log.new_logs import NewLog
from ottla.log.partition_log import PartitionLog
from ottla.log.partition_metadata import InconsistentTopicIdError
from ottla.log.retention import apply_retention
from ottla.testing.disk_faults import NEEDS_SPACE
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import DiskOperation, SimulatedDisk
from support.logs.batches import batch, values_of
from support.logs.checker import check, records_in

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150)
SOME_ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(16, 32)))


def partition(number: int, topic: str = "topic") -> TopicPartition:
    return TopicPartition(topic, number)


@dataclass
class Broker:
    """What survives a restart of the directories."""

    disk: Disk
    root: Path
    count: int = 2
    clock: ManualClock = field(default_factory=ManualClock)
    options: DirectoryOptions = field(default_factory=lambda: DirectoryOptions(broker_id=1, cluster_id="cluster"))

    @property
    def paths(self) -> list[Path]:
        return [self.root / f"disk{index}" for index in range(self.count)]

    def start(self, options: DirectoryOptions | None = None) -> LogDirectories:
        directories = LogDirectories(self.disk, self.clock, self.paths, options or self.options)
        directories.open(lambda _: CONFIG)
        return directories

    def kill(self, directories: LogDirectories) -> None:
        """The process is gone; only its locks are missed."""
        directories._release_locks()


@pytest.fixture(params=["local", "simulated"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    if request.param == "local":
        return Broker(LocalDisk(), tmp_path)
    return Broker(SimulatedDisk(), Path("/data"))


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(batch([b"%d" % log.next_offset]), 0)


def values(log: PartitionLog | None) -> list[int]:
    assert log is not None
    return [int(value or b"") for value in values_of(records_in(log))]


# Replicas and their places


@pytest.mark.parametrize("is_threaded", [False, True])
def test_a_log_directory_that_is_gone_is_not_made_again_for_a_new_replica(tmp_path: Path, *, is_threaded: bool) -> None:
    broker = Broker(LocalDisk(), tmp_path)
    directories = broker.start()
    broker.paths[0].rename(tmp_path / "gone")
    if is_threaded:
        new = directories.place([NewLog(partition(number), CONFIG, SOME_ID) for number in range(2)])
        new.make()
        made = directories.adopt(new)
    else:
        with pytest.raises(LogDirectoryError, match="the log directory is gone"):
            directories.create(partition(0), CONFIG)
        made = [directories.create(partition(0), CONFIG)]
    assert not broker.paths[0].exists()
    assert [directory.path for directory in directories.online()] == broker.paths[1:]
    assert [log.directory.parent for log in made] == broker.paths[1:]


def test_a_new_replica_goes_to_the_directory_with_the_fewest(broker: Broker) -> None:
    broker.count = 3
    directories = broker.start()
    for number in range(7):
        directories.create(partition(number), CONFIG)
    assert sorted(len(directory.logs) for directory in directories.directories) == [2, 2, 3]
    directories.delete(partition(0), SOME_ID)
    directories.delete(partition(3), SOME_ID)
    log = directories.create(partition(9), CONFIG)
    assert log.directory.parent == broker.paths[0]
    directories.close()


def test_a_replica_is_made_once(broker: Broker) -> None:
    directories = broker.start()
    log = directories.create(partition(0), CONFIG, topic_id=SOME_ID)
    assert directories.create(partition(0), CONFIG) is log
    assert directories.get(partition(0)) is log
    assert list(directories.logs()) == [log]
    assert directories.get(partition(1)) is None
    directories.close()
    reopened = broker.start().get(partition(0))
    assert reopened is not None
    assert reopened.topic_id == SOME_ID


def test_a_replica_of_an_older_topic_of_that_name_is_not_taken_for_the_new_one(broker: Broker) -> None:
    directories = broker.start()
    log = directories.create(partition(0), CONFIG)
    assert log.topic_id is None
    assert directories.create(partition(0), CONFIG, topic_id=SOME_ID).topic_id == SOME_ID
    with pytest.raises(InconsistentTopicIdError, match=r"topic-0.partition\.metadata"):
        directories.create(partition(0), CONFIG, topic_id=Uuid(bytes(15) + b"x"))


def test_a_deleted_replica_is_renamed_first_and_removed_later(broker: Broker) -> None:
    directories = broker.start()
    fill(directories.create(partition(0), CONFIG), 20)
    directories.delete(partition(0), SOME_ID)
    assert directories.get(partition(0)) is None
    folders = [name for path in broker.paths for name in broker.disk.list(path) if "topic" in name]
    assert folders == [f"topic-0.{SOME_ID.hex()}-delete"]
    assert names.DELETED_FOLDER.fullmatch(folders[0])
    again = directories.create(partition(0), CONFIG)
    assert again.next_offset == 0
    broker.clock.advance_ms(CONFIG.file_delete_delay_ms - 1)
    broker.clock.set_now_ms(2**42)
    directories.remove_due()
    assert broker.disk.exists(broker.paths[0] / folders[0])
    broker.clock.advance_ms(1)
    directories.remove_due()
    assert not broker.disk.exists(broker.paths[0] / folders[0])
    directories.delete(partition(77), SOME_ID)


def test_what_a_deleted_replica_left_is_removed_after_a_restart(broker: Broker) -> None:
    directories = broker.start()
    directories.create(partition(0), CONFIG)
    directories.delete(partition(0), SOME_ID)
    directories.close()
    directories = broker.start()
    assert directories.get(partition(0)) is None
    directories.remove_due()
    assert not any("topic" in name for path in broker.paths for name in broker.disk.list(path))


def test_deleting_many_replicas_writes_and_syncs_nothing_but_their_names() -> None:
    """The owner's part touches no disk at all, and no file needs room that a full disk does not have."""
    disk = SimulatedDisk()
    broker = Broker(disk, Path("/data"), 1)
    directories = broker.start()
    for number in range(5):
        log = directories.create(partition(number), CONFIG)
        fill(log, 30)
        log.append_as_leader(batch(1, producer_id=4, producer_epoch=0, sequence=0), 0)
    seen: list[DiskOperation] = []
    disk.before = lambda operation, _: seen.append(operation)
    (deletion,) = directories.delete_many([partition(number) for number in range(4)], SOME_ID)
    assert seen == []
    assert list(deletion.directory.logs) == [partition(4)]
    deletion.rename()
    assert seen == [DiskOperation.REPLACE] * 4 + [DiskOperation.SYNC_DIRECTORY]
    disk.before = None
    broker.kill(directories)
    assert [log.partition for log in broker.start().logs()] == [partition(4)]


@pytest.mark.parametrize("many", [False, True])
def test_a_new_replica_does_not_inherit_the_recovery_point_of_a_deleted_one(many: bool) -> None:
    disk = SimulatedDisk()
    broker = Broker(disk, Path("/data"), 1)
    directories = broker.start()
    old = directories.create(partition(0), CONFIG)
    fill(old, 40)
    old.flush()
    old.set_high_watermark(40)
    directories.checkpoint()
    directories.delete(partition(0), SOME_ID)
    if many:
        new = directories.place([NewLog(partition(0), CONFIG, SOME_ID)])
        new.make()
        directories.adopt(new)
    log = directories.create(partition(0), CONFIG, topic_id=SOME_ID)
    fill(log, 3)
    broker.kill(directories)
    checkpoint = OffsetCheckpoint(disk, broker.paths[0] / names.RECOVERY_POINTS)
    assert checkpoint.read().get(partition(0), 0) == 0
    (reopened,) = broker.start().logs()
    assert (reopened.next_offset, reopened.high_watermark) == (3, 0)


def test_a_partition_is_not_made_again_beside_old_recovery_points_that_a_newer_snapshot_failed_to_replace() -> None:
    """Else a crash would make its records count as flushed as far as those of the partition before it."""
    disk, broker = simulated(1)
    directories = broker.start()
    old = directories.create(partition(0), CONFIG, topic_id=SOME_ID)
    fill(old, 40)
    old.flush()
    directories.checkpoint()
    directories.delete(partition(0), SOME_ID)
    new = directories.place([NewLog(partition(0), CONFIG, OTHER_ID)])
    ((_, newer),) = directories.checkpoint_later()
    disk.fail(errno.ENOSPC, when=lambda _, path: "checkpoint" in path.name, times=1)
    with pytest.raises(OSError, match="checkpoint"):
        newer()
    new.make()
    directories.adopt(new)
    checkpoint = OffsetCheckpoint(disk, broker.paths[0] / names.RECOVERY_POINTS)
    assert directories.get(partition(0)) is None or partition(0) not in checkpoint.read()
    log = directories.create(partition(0), CONFIG, topic_id=OTHER_ID)
    assert log.topic_id == OTHER_ID
    assert partition(0) not in checkpoint.read()


@pytest.mark.parametrize("fails_before", [False, True])
def test_a_topic_that_was_deleted_on_a_failed_directory_does_not_come_back_in_place_of_the_new_one(
    *, fails_before: bool
) -> None:
    disk, broker = simulated(2)
    directories = broker.start()
    old = directories.create(partition(0), CONFIG, topic_id=SOME_ID)
    fill(old, 40)
    old.flush()
    failed = directories.directory_of(partition(0))
    assert failed is not None
    if fails_before:
        directories.take_offline(failed, "it failed")
        directories.delete(partition(0), SOME_ID)
    else:
        disk.fail(errno.EIO, when=lambda operation, _: operation is DiskOperation.REPLACE, times=1)
        with pytest.raises(LogDirectoryError):
            directories.delete(partition(0), SOME_ID)
    assert failed.failure is not None
    log = directories.create(partition(0), CONFIG, topic_id=OTHER_ID, is_new=True)
    assert log.directory.parent != failed.path
    fill(log, 3)
    log.flush()
    broker.kill(directories)
    directories = LogDirectories(broker.disk, broker.clock, broker.paths, broker.options)
    directories.open(lambda _: CONFIG, lambda _: OTHER_ID)  # the failed directory is back
    (reopened,) = directories.logs()
    assert reopened.topic_id == OTHER_ID
    assert values(reopened) == [0, 1, 2]


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT, errno.EBADF, errno.EINVAL, errno.ESPIPE, errno.EISDIR])
def test_threads_that_still_work_on_a_deleted_log_take_no_directory_offline(code: int, *, is_deleted: bool) -> None:
    """Its descriptors may be those of connections or folders by then. An I/O error is one of the disk all the same."""
    _, broker = simulated(1)
    directories = broker.start()
    log = directories.create(partition(0), CONFIG)
    if is_deleted:
        directories.delete(partition(0), SOME_ID)
    directories.log_failed(log, OSError(code, "it failed"))
    assert (directories.directories[0].failure is None) == (is_deleted and code != errno.EIO)


def test_logs_made_in_a_directory_that_failed_meanwhile_are_made_elsewhere(broker: Broker) -> None:
    directories = broker.start()
    new = directories.place([NewLog(partition(0), CONFIG, SOME_ID)])
    new.make()
    ((path, _),) = new.made
    failed, other = sorted(directories.directories, key=lambda each: each.path != path)
    directories.take_offline(failed, "it failed while the thread was at work")
    assert directories.adopt(new) == []
    assert directories.directory_of(partition(0)) is None
    log = directories.create(partition(0), CONFIG, topic_id=SOME_ID)
    assert log.directory.parent == other.path
    directories.close()


def test_failed_removals_are_retried() -> None:
    disk, broker = simulated(1)
    directories = broker.start()
    config = LogConfig(segment_bytes=1000, retention_bytes=500)
    kept = directories.create(partition(0), config)
    fill(kept, 40)
    kept.set_high_watermark(40)
    assert apply_retention(kept) == 2
    fill(directories.create(partition(1), config), 5)
    directories.delete(partition(1), SOME_ID)
    broker.clock.advance_ms(config.file_delete_delay_ms)
    fault = disk.fail(errno.ENOSPC, when=DiskOperation.REMOVE, skipped=3, times=None)
    ((_, remove),) = directories.remove_later()
    with pytest.raises(OSError, match="No space left"):
        remove()
    assert fault.strikes
    disk.heal()
    directories.remove_due()
    left = [str(path) for path in disk.contents()]
    assert not any(path.endswith(".deleted") or "-delete" in path for path in left)


def test_a_log_that_is_let_go_keeps_no_file_open(tmp_path: Path) -> None:
    """Neither those of its segments nor those of deleted segments that wait for their removal."""
    broker = Broker(LocalDisk(), tmp_path, 1)
    directories = broker.start()
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    config = LogConfig(segment_bytes=1000, retention_bytes=500)
    log = directories.create(partition(0), config)
    fill(log, 60)
    log.set_high_watermark(60)
    assert apply_retention(log) > 3
    assert len(os.listdir("/dev/fd")) > before + 4  # noqa: PTH208
    directories.delete(partition(0), SOME_ID)
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208
    directories.close()


def test_the_longest_topic_name_can_be_deleted(broker: Broker) -> None:
    directories = broker.start()
    longest = partition(12, "t" * 249)
    fill(directories.create(longest, CONFIG), 1)
    directories.delete(longest, SOME_ID)
    assert directories.online() == directories.directories
    (name,) = [name for path in broker.paths for name in broker.disk.list(path) if name.startswith("ttt")]
    assert len(name) == 255
    assert name.endswith(f"-12.{SOME_ID.hex()}-delete")


def test_other_folders_are_left_alone(broker: Broker) -> None:
    for name in ("lost+found", "topic-0.0123456789abcdef0123456789abcdef-future", "no partition"):
        broker.disk.make_directory(broker.paths[0] / name)
    broker.disk.write(broker.paths[0] / "file-0", b"no folder")
    directories = broker.start()
    assert list(directories.logs()) == []
    assert all(directory.failure is None for directory in directories.directories)
    directories.close()
    assert {"lost+found", "file-0"} < set(broker.disk.list(broker.paths[0]))


# Stop and start


def test_after_a_clean_stop_nothing_is_read_again(broker: Broker) -> None:
    directories = broker.start()
    for number in range(3):
        log = directories.create(partition(number), CONFIG)
        fill(log, 40)
        log.set_high_watermark(30)
        log.advance_log_start(number)
    directories.close()
    for path in broker.paths:
        assert CleanShutdownFile(broker.disk, path).exists()
    directories = broker.start()
    for path in broker.paths:
        assert not CleanShutdownFile(broker.disk, path).exists()
    for number in range(3):
        log = directories.create(partition(number), CONFIG)
        assert (log.next_offset, log.high_watermark, log.log_start_offset) == (40, 30, number)
        assert log.recovery_point == 40
        check(log)


def test_a_clean_start_reads_little() -> None:
    disk = SimulatedDisk()
    broker = Broker(disk, Path("/data"), 1)
    directories = broker.start()
    fill(directories.create(partition(0), CONFIG), 300)
    directories.close()
    read: list[Path] = []
    disk.before = lambda operation, path: read.append(path) if operation is DiskOperation.READ else None
    broker.start()
    logs = {path.name for path in read if path.suffix == ".log"}
    assert len(logs) == 1, "only the end of the last segment is looked at"


def test_a_partition_that_nobody_uses_costs_little() -> None:
    """There may be ten thousand of them: one look into its folder and what stands in it, and nothing when it ends."""
    disk = SimulatedDisk()
    broker = Broker(disk, Path("/data"), 1)
    directories = broker.start()
    directories.create(partition(0), CONFIG, topic_id=SOME_ID)
    directories.close()
    seen: list[tuple[DiskOperation, str]] = []
    folder = broker.paths[0] / "topic-0"

    def note(operation: DiskOperation, path: Path) -> None:
        if folder in (path, path.parent):
            seen.append((operation, path.name))

    disk.before = note
    directories = broker.start()
    assert seen == [
        (DiskOperation.LIST, "topic-0"),
        (DiskOperation.READ, names.PARTITION_METADATA),
        (DiskOperation.STAT, names.segment_name(0, names.LOG)),
    ]
    for log in directories.logs():
        assert not log.is_flush_due()
        apply_retention(log)
    directories.close()
    assert len(seen) == 3


def test_files_are_not_open_before_they_are_used(tmp_path: Path) -> None:
    """A process may have few descriptors: what nobody uses needs none."""
    broker = Broker(LocalDisk(), tmp_path, 1)
    directories = broker.start()
    for number in range(3):
        fill(directories.create(partition(number), CONFIG), 40)
    directories.close()
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    directories = broker.start()
    directories.create(partition(3), CONFIG)
    assert len(os.listdir("/dev/fd")) == before + 1, "the lock"  # noqa: PTH208
    assert values_of(records_in(next(iter(directories.logs())))) == [b"%d" % number for number in range(40)]
    directories.close()
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208


def test_after_a_kill_all_that_was_written_is_there(broker: Broker) -> None:
    directories = broker.start()
    for number in range(3):
        log = directories.create(partition(number), CONFIG)
        fill(log, 40)
        log.set_high_watermark(40)
    directories.checkpoint()
    log = directories.create(partition(0), CONFIG)
    log.flush()
    fill(log, 10)
    broker.kill(directories)
    directories = broker.start()
    assert values(directories.get(partition(0))) == list(range(50))
    assert values(directories.get(partition(1))) == list(range(40))
    for each in directories.logs():
        assert each.high_watermark == 40
        check(each)


def test_an_unclean_start_writes_down_what_it_found(broker: Broker) -> None:
    """Else the old recovery points would stand for records that are yet to come."""
    broker.count = 1
    directories = broker.start()
    log = directories.create(partition(0), CONFIG)
    fill(log, 40)
    log.flush()
    directories.checkpoint()
    broker.kill(directories)
    segment = log.active.path
    content = bytearray(broker.disk.read(segment))
    content[-1] ^= 1
    broker.disk.write(segment, content)
    directories = broker.start()
    log = directories.create(partition(0), CONFIG)
    assert log.next_offset == 39
    checkpoint = OffsetCheckpoint(broker.disk, broker.paths[0] / names.RECOVERY_POINTS)
    assert checkpoint.read()[partition(0)] <= 39


def test_many_threads_load(broker: Broker) -> None:
    directories = broker.start()
    for number in range(12):
        fill(directories.create(partition(number), CONFIG), number + 5)
    broker.kill(directories)
    directories = broker.start(DirectoryOptions(broker_id=1, recovery_threads_per_directory=4))
    assert {log.partition.partition: log.next_offset for log in directories.logs()} == {n: n + 5 for n in range(12)}


def test_the_small_files_are_kafkas(broker: Broker) -> None:
    broker.count = 1
    directories = broker.start()
    log = directories.create(partition(3, "with-dash"), CONFIG)
    fill(log, 10)
    log.flush()
    log.set_high_watermark(7)
    log.advance_log_start(2)
    directories.checkpoint()

    def read(name: str) -> bytes:
        return broker.disk.read(broker.paths[0] / name)

    assert read("recovery-point-offset-checkpoint") == b"0\n1\nwith-dash 3 10\n"
    assert read("replication-offset-checkpoint") == b"0\n1\nwith-dash 3 7\n"
    assert read("log-start-offset-checkpoint") == b"0\n1\nwith-dash 3 2\n"
    assert b"broker.id=1\ncluster.id=cluster\n" in read("meta.properties")
    directories.close()
    assert b"brokerEpoch" in read(".kafka_cleanshutdown")
    assert broker.start().create(partition(3, "with-dash"), CONFIG).log_start_offset == 2


# From time to time


def test_removal_reaches_every_log(broker: Broker) -> None:
    directories = broker.start()
    config = LogConfig(segment_bytes=1000, retention_bytes=500, file_delete_delay_ms=50)
    logs = [directories.create(partition(number), config) for number in range(3)]
    for log in logs:
        fill(log, 40)
        log.set_high_watermark(40)
    assert all(apply_retention(log) >= 2 for log in logs)
    broker.clock.advance_ms(50)
    directories.remove_due()
    assert not any(name.endswith(".deleted") for log in logs for name in broker.disk.list(log.directory))
    for log in logs:
        check(log)


def test_silent_producers_are_forgotten(broker: Broker) -> None:
    broker.options = DirectoryOptions(broker_id=1, producer_id_expiration_ms=1000)
    directories = broker.start()
    log = directories.create(partition(0), CONFIG)
    log.append_as_leader(batch(1, producer_id=4, producer_epoch=0, sequence=0), 0)
    log.producers.remove_expired(broker.clock.now_ms())
    assert 4 in log.producers.entries
    broker.clock.advance_ms(1000)
    log.producers.remove_expired(broker.clock.now_ms())
    assert 4 not in log.producers.entries


# What a follower does


def test_truncation_is_followed_by_new_recovery_points(broker: Broker) -> None:
    directories = broker.start()
    for number in range(4):
        fill(directories.create(partition(number), CONFIG), 40)
    for log in directories.logs():
        log.flush()
    directories.checkpoint()
    directories.truncate_to({partition(0): 5, partition(1): 20, partition(9): 3})
    directories.truncate_fully_and_start_at(partition(2), 100)
    directories.truncate_fully_and_start_at(partition(9), 100)
    points: dict[TopicPartition, int] = {}
    for path in broker.paths:
        points |= OffsetCheckpoint(broker.disk, path / names.RECOVERY_POINTS).read()
    assert points == {partition(0): 5, partition(1): 20, partition(2): 40, partition(3): 40}
    broker.kill(directories)
    directories = broker.start()
    assert {log.partition.partition: log.next_offset for log in directories.logs()} == {0: 5, 1: 20, 2: 100, 3: 40}


def test_a_log_that_its_owner_cut_below_its_recovery_point_gets_a_new_one(broker: Broker) -> None:
    directories = broker.start()
    logs = [directories.create(partition(number), CONFIG) for number in range(2)]
    for log in logs:
        fill(log, 40)
    logs[0].flush()
    directories.checkpoint()

    def points() -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for path in broker.paths:
            found |= OffsetCheckpoint(broker.disk, path / names.RECOVERY_POINTS).read()
        return found

    before = points()
    assert before[partition(0)] == 40
    logs[1].truncate_to(before[partition(1)] + 1)
    steps = broker.disk.steps if isinstance(broker.disk, SimulatedDisk) else 0
    directories.truncated(logs[1], before[partition(1)] + 1, before[partition(1)])
    assert points() == before  # unflushed records were cut: nothing is to be written
    assert steps == (broker.disk.steps if isinstance(broker.disk, SimulatedDisk) else 0)
    logs[0].truncate_to(5)
    directories.truncated(logs[0], 5, 40)
    assert points()[partition(0)] == 5
    directories.close()


# Locks and identity


def test_two_brokers_never_share_a_directory(broker: Broker) -> None:
    directories = broker.start()
    with pytest.raises(DirectoryLockedError, match=r"disk0.*another process"):
        broker.start()
    directories.close()
    broker.start().close()


def test_another_process_is_kept_out(tmp_path: Path) -> None:
    broker = Broker(LocalDisk(), tmp_path, 1)
    program = """
import sys
from pathlib import Path
from ottla.log.local_disk import LocalDisk
held = LocalDisk().lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.readline()
"""
    broker.disk.make_directory(broker.paths[0])
    lock = broker.paths[0] / names.LOCK
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLockedError, match="disk0"):
            broker.start()
        other.kill()
    broker.start().close()


def test_a_failed_start_lets_go_of_what_it_had_locked(broker: Broker) -> None:
    broker.count = 1
    first = broker.start()
    broker.count = 2
    broker.root, other = broker.root / "x", broker.root
    broker.disk.make_directory(broker.root)
    directories = LogDirectories(broker.disk, broker.clock, [broker.root / "own", other / "disk0"], broker.options)
    with pytest.raises(DirectoryLockedError, match="disk0"):
        directories.open(lambda _: CONFIG)
    broker.disk.lock(broker.root / "own" / names.LOCK).release()
    first.close()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (DirectoryOptions(broker_id=2, cluster_id="cluster"), r"broker 1, this is broker 2; leave broker.id out"),
        (DirectoryOptions(broker_id=1, cluster_id="other"), r"cluster cluster, this is cluster other"),
    ],
)
def test_a_directory_of_another_broker_or_cluster_is_refused(
    broker: Broker, options: DirectoryOptions, reason: str
) -> None:
    directories = broker.start()
    fill(directories.create(partition(0), CONFIG), 5)
    directories.close()
    with pytest.raises(FileError, match=rf"disk0.*meta\.properties: .*{reason}"):
        broker.start(options)
    assert values(broker.start().get(partition(0))) == list(range(5))


def test_a_directory_without_identity_is_given_one(broker: Broker) -> None:
    broker.start().close()
    meta = MetaProperties.read(broker.disk, broker.paths[1] / names.META_PROPERTIES)
    assert meta is not None
    assert (meta.broker_id, meta.cluster_id, meta.version) == (1, "cluster", 0)
    broker.start(DirectoryOptions(broker_id=1)).close()


def test_a_directory_of_a_newer_version_is_refused(broker: Broker) -> None:
    broker.start().close()
    path = broker.paths[1] / names.META_PROPERTIES
    broker.disk.write(path, b"version=2\nnode.id=1\ncluster.id=cluster\n")
    with pytest.raises(CorruptCheckpointError, match=r"disk1.*meta\.properties: version=2 is not known"):
        broker.start()


def test_at_least_one_directory_is_needed() -> None:
    with pytest.raises(ValueError, match=r"log\.dirs"):
        LogDirectories(SimulatedDisk(), ManualClock(), [], DirectoryOptions(broker_id=1))


# Small files that are broken


@pytest.mark.parametrize("name", [names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_START_OFFSETS])
@pytest.mark.parametrize("content", [b"garbage", b"0\n2\ntopic 0 5\n", b"1\n1\ntopic 0 5\n", b"\xff\xfe", b"0\n1\nx\n"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_checkpoint_that_cannot_be_read_is_named_and_costs_no_record(
    broker: Broker, caplog: pytest.LogCaptureFixture, name: str, content: bytes, clean: bool
) -> None:
    directories = broker.start()
    log = directories.create(partition(0), CONFIG)
    fill(log, 40)
    log.set_high_watermark(40)
    if clean:
        directories.close()
    else:
        directories.checkpoint()
        broker.kill(directories)
    broker.disk.write(broker.paths[0] / name, content)
    with caplog.at_level(logging.WARNING):
        directories = broker.start()
    assert f"{broker.paths[0] / name}: " in caplog.text
    assert values(directories.get(partition(0))) == list(range(40))
    for each in directories.logs():
        check(each)


@pytest.mark.parametrize("name", [names.LEADER_EPOCHS, names.PARTITION_METADATA])
def test_a_small_file_of_a_log_that_cannot_be_read_is_created_again(
    broker: Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    directories = broker.start()
    log = directories.create(partition(0), CONFIG, topic_id=SOME_ID)
    fill(log, 10)
    directories.close()
    original = broker.disk.read(log.directory / name)
    broker.disk.write(log.directory / name, b"garbage\nmore of it\n")
    directories = broker.start()
    assert f"{log.directory / name}: line 1 is 'garbage'" in caplog.text
    assert values(directories.create(partition(0), CONFIG, topic_id=SOME_ID)) == list(range(10))
    assert broker.disk.read(log.directory / name) == original


def test_a_log_that_cannot_be_opened_is_offline_alone(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = broker.start()
    for number in range(2):
        fill(directories.create(partition(number), CONFIG, topic_id=SOME_ID), 10)
    directories.close()

    def refuse_one(*arguments: Any) -> PartitionLog:
        if arguments[3] == partition(0):
            raise FileError(arguments[2], "it is beyond repair")
        return load(*arguments)

    monkeypatch.setattr("ottla.log.directories.load", refuse_one)
    directories = broker.start()
    assert "topic-0 is offline because its log cannot be opened" in caplog.text
    assert values(directories.get(partition(1))) == list(range(10))
    assert directories.get(partition(0)) is None
    # Nor is it begun anew, in whatever directory.
    with pytest.raises(FileError, match=r"topic-0: the log cannot be opened: .*beyond repair; restore the folder"):
        directories.create(partition(0), CONFIG, topic_id=SOME_ID, is_new=False)


# Directories that fail


def simulated(count: int = 2) -> tuple[SimulatedDisk, Broker]:
    disk = SimulatedDisk()
    return disk, Broker(disk, Path("/data"), count)


def within(path: Path, *operations: DiskOperation) -> Callable[[DiskOperation, Path], bool]:
    return lambda operation, struck: path in (struck, *struck.parents) and (not operations or operation in operations)


def told(directories: LogDirectories) -> list[LogDirectory]:
    failures: list[LogDirectory] = []
    directories.on_failure = failures.append
    return failures


def test_a_log_that_a_full_disk_cannot_take_takes_nothing_offline() -> None:
    disk, broker = simulated()
    directories = broker.start()
    failures = told(directories)
    log = directories.create(partition(0), CONFIG)
    fill(log, 5)
    disk.fail(errno.ENOSPC, times=None)
    with pytest.raises(LogDirectoryError, match=r"the disk is full"):
        directories.create(partition(1), CONFIG)
    assert failures == []
    disk.heal()
    fill(directories.create(partition(1), CONFIG), 1)
    fill(log, 1)
    check(log)


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_directory_that_fails_takes_only_its_replicas_offline(code: int) -> None:
    disk, broker = simulated()
    directories = broker.start()
    failures = told(directories)
    logs = [directories.create(partition(number), CONFIG) for number in range(4)]
    for log in logs:
        fill(log, 5)
    failing = directories.directories[0]
    disk.fail(code, when=within(broker.paths[0]), times=None)
    lost = directories.directory_of(partition(0))
    assert lost is failing
    with (
        pytest.raises(LogDirectoryError, match=r"/data/disk0: the directory is offline.*\.log"),
        directories.guard(lost),
    ):
        fill(logs[0], 1)
    assert failures == [failing]
    assert failing.failure is not None
    assert directories.online() == [directories.directories[1]]
    assert directories.get(partition(0)) is None
    assert directories.directory_of(partition(0)) is failing, "known, but not served"
    with pytest.raises(LogDirectoryError, match=r"topic-0 is in this directory"):
        directories.create(partition(0), CONFIG)
    with pytest.raises(LogDirectoryError, match=r"topic-9 may lie here"):
        directories.create(partition(9), CONFIG, is_new=False)
    assert directories.create(partition(8), CONFIG).directory.parent == broker.paths[1]
    assert [log.partition.partition for log in directories.logs()] == [1, 3, 8]
    fill(logs[1], 5)
    steps = disk.steps
    directories.checkpoint()
    directories.remove_due()
    directories.truncate_to({partition(0): 1})
    directories.truncate_fully_and_start_at(partition(0), 1)
    directories.delete(partition(0), SOME_ID)
    assert disk.steps > steps
    directories.close()
    disk.heal()
    assert not CleanShutdownFile(disk, broker.paths[0]).exists()
    assert CleanShutdownFile(disk, broker.paths[1]).exists()
    directories = broker.start()
    for number, count in ((0, 5), (1, 10), (2, 5), (3, 5)):
        log = directories.create(partition(number), CONFIG)
        assert values(log) == list(range(count))
        check(log)


WORK: Sequence[tuple[str, Callable[[LogDirectories], object]]] = [
    ("checkpoint", LogDirectories.checkpoint),
    ("truncate", lambda directories: directories.truncate_to({partition(0): 3, partition(1): 3})),
    ("restart at", lambda directories: directories.truncate_fully_and_start_at(partition(0), 3)),
    ("close", LogDirectories.close),
]


@pytest.mark.parametrize(("name", "work"), WORK, ids=[name for name, _ in WORK])
def test_work_on_all_directories_goes_on_when_one_fails(name: str, work: Callable[[LogDirectories], object]) -> None:
    disk, broker = simulated()
    directories = broker.start()
    config = LogConfig(segment_bytes=1000, flush_ms=0, retention_bytes=500)
    for number in range(2):
        log = directories.create(partition(number), config)
        fill(log, 30)
        log.set_high_watermark(30)
    disk.fail(errno.EIO, when=within(broker.paths[0]), times=None)
    work(directories)
    assert [directory.failure is None for directory in directories.directories] == [False, True], name
    other = directories.get(partition(1))
    assert other is not None
    if name != "close":
        fill(other, 1)
        check(other)


def test_a_directory_may_be_offline_from_the_start() -> None:
    disk, broker = simulated()
    directories = broker.start()
    for number in range(2):
        fill(directories.create(partition(number), CONFIG), 5)
    broker.kill(directories)
    disk.fail(errno.EIO, when=within(broker.paths[0], DiskOperation.READ, DiskOperation.MAP), times=None)
    directories = broker.start()
    assert [directory.failure is None for directory in directories.directories] == [False, True]
    assert values(directories.get(partition(1))) == list(range(5))


def test_a_broker_without_any_directory_does_not_start() -> None:
    disk, broker = simulated()
    broker.kill(broker.start())
    disk.fail(errno.EIO, when=within(Path("/data"), DiskOperation.READ), times=None)
    with pytest.raises(LogDirectoryError, match=r"/data/disk1: all log directories are offline.*Input/output error"):
        broker.start()
    disk.heal()
    directories = broker.start()
    disk.fail(errno.EIO, when=within(Path("/data")), times=None)
    directories.checkpoint()
    assert directories.online() == []
    with pytest.raises(LogDirectoryError, match="all log directories are offline"):
        directories.create(partition(5), CONFIG)


# A full disk


def filled_up(disk: SimulatedDisk, *, until_gone: Path | None = None) -> None:
    """Whatever needs room fails from now on; while a file is there, if one is named."""

    def needs_room(operation: DiskOperation, _: Path) -> bool:
        return operation in NEEDS_SPACE and (until_gone is None or until_gone in disk.contents())

    disk.fail(errno.ENOSPC, when=needs_room, times=None)


def test_operations_that_free_space_work_on_a_full_disk() -> None:
    disk, broker = simulated(1)
    directories = broker.start()
    failures = told(directories)
    config = LogConfig(segment_bytes=1000, index_interval_bytes=150, retention_bytes=500, file_delete_delay_ms=10)
    for number in range(2):
        log = directories.create(partition(number), config)
        fill(log, 40)
        log.append_as_leader(batch(1, producer_id=4, producer_epoch=0, sequence=0), 0)
        log.set_high_watermark(41)
    filled_up(disk)
    assert sum(apply_retention(log) for log in directories.logs()) == 4
    directories.delete(partition(0), SOME_ID)
    directories.checkpoint()
    broker.clock.advance_ms(10)
    directories.remove_due()
    assert not any(".deleted" in str(path) or "topic-0" in str(path) for path in disk.contents())
    assert failures == []
    log = directories.create(partition(1), config)
    with pytest.raises(OSError, match="No space left"):
        fill(log, 1)
    disk.heal()
    fill(log, 1)
    directories.checkpoint()
    check(log)


def test_retention_of_an_active_segment_that_cannot_be_closed_takes_the_others() -> None:
    disk, broker = simulated(1)
    directories = broker.start()
    log = directories.create(partition(0), LogConfig(segment_bytes=1000, retention_ms=1000))
    fill(log, 40)
    log.set_high_watermark(40)
    broker.clock.advance_ms(10**13)
    *closed, active = log.segments
    filled_up(disk)
    assert apply_retention(log) == len(closed) > 1
    assert log.segments == (active,)
    assert directories.online()
    disk.heal()
    assert apply_retention(log) == 1
    assert log.log_start_offset == 40
    check(log)


def reserving(disk: SimulatedDisk) -> Broker:
    return Broker(disk, Path("/data"), 1, options=DirectoryOptions(broker_id=1, reserve_bytes=1000))


RESERVE = Path("/data/disk0/ottla-reserve")


def test_a_stop_on_a_full_disk_is_clean() -> None:
    disk = SimulatedDisk()
    broker = reserving(disk)
    directories = broker.start()
    assert disk.size(RESERVE) == 1000
    for number in range(3):
        log = directories.create(partition(number), CONFIG)
        fill(log, 40)
        log.append_as_leader(batch(1, producer_id=4, producer_epoch=0, sequence=0), 0)
        log.set_high_watermark(41)
    filled_up(disk, until_gone=RESERVE)
    directories.close()
    assert not disk.exists(RESERVE)
    assert CleanShutdownFile(disk, broker.paths[0]).exists()
    disk.heal()
    directories = broker.start()
    assert disk.size(RESERVE) == 1000
    for log in directories.logs():
        assert (log.next_offset, log.high_watermark, log.recovery_point) == (41, 41, 41)
        assert 4 in log.producers.entries
        check(log)


def test_a_stop_that_finds_no_room_at_all_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk, broker = simulated(1)
    directories = broker.start()
    failures = told(directories)
    fill(directories.create(partition(0), CONFIG), 40)
    filled_up(disk)
    directories.close()
    assert failures == []
    assert "the disk is full" in caplog.text
    assert not CleanShutdownFile(disk, broker.paths[0]).exists()
    disk.heal()
    assert values(broker.start().get(partition(0))) == list(range(40))


def test_a_start_after_a_crash_uses_the_reserve_of_a_full_disk() -> None:
    disk = SimulatedDisk()
    broker = reserving(disk)
    directories = broker.start()
    for number in range(3):
        log = directories.create(partition(number), CONFIG)
        fill(log, 40)
        disk.remove(log.active.path.with_suffix(".index"))
    broker.kill(directories)
    filled_up(disk, until_gone=RESERVE)
    directories = broker.start()
    assert sorted(log.next_offset for log in directories.logs()) == [40] * 3
    for log in directories.logs():
        check(log)


def test_recovery_points_that_cannot_be_renewed_are_removed() -> None:
    """Else those of records that a crash took would stand for the records that come next."""
    disk, broker = simulated(1)
    directories = broker.start()
    log = directories.create(partition(0), CONFIG)
    fill(log, 40)
    log.flush()
    directories.checkpoint()
    broker.kill(directories)
    disk.fail(
        errno.ENOSPC, when=lambda operation, path: operation in NEEDS_SPACE and "checkpoint" in path.name, times=None
    )
    directories = broker.start()
    assert values(directories.get(partition(0))) == list(range(40))
    assert not disk.exists(broker.paths[0] / names.RECOVERY_POINTS)


def test_a_full_disk_makes_no_half_replica() -> None:
    disk, broker = simulated(1)
    steps = 0
    while True:
        directories = broker.start()
        struck = disk.fail(errno.ENOSPC, skipped=steps, times=None)
        try:
            directories.create(partition(0), CONFIG, topic_id=SOME_ID)
        except LogDirectoryError:
            assert directories.get(partition(0)) is None
        disk.heal()
        directories.close()
        directories = broker.start()
        log = directories.create(partition(0), CONFIG, topic_id=SOME_ID)
        assert (log.next_offset, log.topic_id) == (0, SOME_ID)
        fill(log, 3)
        check(log)
        directories.delete(partition(0), SOME_ID)
        broker.clock.advance_ms(CONFIG.file_delete_delay_ms)
        directories.remove_due()
        directories.close()
        if not struck.strikes:
            break
        steps += 1
    assert steps > 3
