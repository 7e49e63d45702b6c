from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from ottla.base.disk import SyncFailedError
from ottla.base.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.group_commit import GroupCommit
from ottla.log.partition_log import PartitionLog
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import CrashedError, DiskOperation, SimulatedDisk
from support.logs.batches import batch
from support.logs.checker import check
from support.logs.home import ROOT, Home

PATIENCE_S = 60
"""For what cannot fail to come, unless the code is wrong."""


class SlowDisk(SimulatedDisk):
    """Its next sync of a log waits, without holding up anybody else, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.released = threading.Event()
        self.syncs = 0
        self.held = False

    def hold(self) -> None:
        self.reached.clear()
        self.released.clear()
        self.held = True

    def wait_at_gate(self) -> None:
        self.syncs += 1
        if self.held:
            self.held = False
            self.reached.set()
            assert self.released.wait(PATIENCE_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    from ottla.log import segment_files

    disk = SlowDisk()
    original = segment_files.SegmentFiles.sync

    def slow_sync(files: segment_files.SegmentFiles) -> None:
        disk.wait_at_gate()
        original(files)

    monkeypatch.setattr(segment_files.SegmentFiles, "sync", slow_sync)
    return disk


@pytest.fixture
def commit() -> Iterator[GroupCommit]:
    group = GroupCommit()
    yield group
    group.close()


@pytest.fixture
def log(disk: SlowDisk) -> PartitionLog:
    return Home(disk, ManualClock(), ROOT).open(LogConfig(segment_bytes=1000))


def append(log: PartitionLog) -> int:
    return log.append_as_leader(batch([b"value"]), 0).last_offset + 1


def test_flushed_records_survive_a_power_cut(commit: GroupCommit, disk: SlowDisk, log: PartitionLog) -> None:
    for _ in range(30):
        commit.wait_for(log, append(log)).result(PATIENCE_S)
        assert log.recovery_point == log.next_offset
    disk.sync_directory(ROOT)
    disk.sync_directory(Path("/"))
    disk.crash()
    disk.restart()
    again = Home(disk, ManualClock(), ROOT).open(LogConfig(segment_bytes=1000), clean=False, recovery_point=30)
    assert again.next_offset == 30
    check(again)


def test_callers_during_a_sync_share_the_next_one(commit: GroupCommit, disk: SlowDisk, log: PartitionLog) -> None:
    disk.hold()
    first = commit.wait_for(log, append(log))
    assert disk.reached.wait(PATIENCE_S)
    later = [commit.wait_for(log, append(log)) for _ in range(50)]
    assert not any(answer.done() for answer in (first, *later))
    disk.released.set()
    for answer in (first, *later):
        answer.result(PATIENCE_S)
    assert commit.sync_count == 2
    assert log.recovery_point == 51


def test_flushed_offsets_need_no_sync(commit: GroupCommit, log: PartitionLog) -> None:
    end = append(log)
    log.flush()
    assert commit.wait_for(log, end).done()
    assert commit.sync_count == 0


def test_logs_are_synced_each_for_itself(commit: GroupCommit, disk: SlowDisk, log: PartitionLog) -> None:
    other = Home(disk, ManualClock(), Path("/other")).open()
    other.partition = TopicPartition("other", 1)
    answers = [commit.wait_for(each, append(each)) for each in (log, other, log)]
    for answer in answers:
        answer.result(PATIENCE_S)
    assert (log.recovery_point, other.recovery_point) == (2, 1)


def test_a_failure_is_reported_to_all_waiting_callers_only(
    commit: GroupCommit, disk: SlowDisk, log: PartitionLog
) -> None:
    other = Home(disk, ManualClock(), Path("/other")).open()
    append(log)
    disk.hold()
    first = commit.wait_for(other, append(other))
    assert disk.reached.wait(PATIENCE_S)
    disk.fail(errno.EIO, when=lambda operation, path: operation is DiskOperation.SYNC and path.parent == log.directory)
    answers = [commit.wait_for(log, append(log)) for _ in range(3)]
    disk.released.set()
    first.result(PATIENCE_S)
    for answer in answers:
        with pytest.raises(OSError, match=log.directory.name):
            answer.result(PATIENCE_S)
    assert log.recovery_point == 0
    commit.wait_for(other, append(other)).result(PATIENCE_S)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_after_a_sync_that_failed_nothing_counts_as_safe(
    commit: GroupCommit, disk: SlowDisk, log: PartitionLog, code: int
) -> None:
    """The system may have dropped what it could not write: the next sync succeeds without it."""
    disk.fail(code, when=lambda operation, path: operation is DiskOperation.SYNC and path.suffix == ".log")
    with pytest.raises(SyncFailedError):
        commit.wait_for(log, append(log)).result(PATIENCE_S)
    with pytest.raises(SyncFailedError, match=r"\.log") as again:
        commit.wait_for(log, append(log)).result(PATIENCE_S)
    assert again.value.errno == code
    assert log.recovery_point == 0


def test_a_flush_that_found_no_room_is_repeated(commit: GroupCommit, disk: SlowDisk, log: PartitionLog) -> None:
    """What is written beside the records (epochs, indexes) is whole or not there: nothing was lost."""
    end = append(log)
    disk.fail(errno.ENOSPC)
    with pytest.raises(OSError, match="leader-epoch-checkpoint"):
        commit.wait_for(log, end).result(PATIENCE_S)
    commit.wait_for(log, append(log)).result(PATIENCE_S)
    assert log.recovery_point == 2


def test_nobody_waits_for_ever_whatever_goes_wrong(commit: GroupCommit, disk: SlowDisk, log: PartitionLog) -> None:
    end = append(log)
    disk.crash()
    with pytest.raises(CrashedError):
        commit.wait_for(log, end).result(PATIENCE_S)
    disk.restart()
    other = Home(disk, ManualClock(), Path("/other")).open()
    commit.wait_for(other, append(other)).result(PATIENCE_S)


def test_a_cancelled_caller_does_not_hold_up_the_others(commit: GroupCommit, disk: SlowDisk, log: PartitionLog) -> None:
    disk.hold()
    commit.wait_for(log, append(log))
    assert disk.reached.wait(PATIENCE_S)
    answers = [commit.wait_for(log, append(log)) for _ in range(3)]
    assert answers[1].cancel()
    disk.released.set()
    answers[0].result(PATIENCE_S)
    answers[2].result(PATIENCE_S)
    commit.wait_for(log, append(log)).result(PATIENCE_S)


def test_a_truncation_during_a_sync_is_not_forgotten(commit: GroupCommit, disk: SlowDisk, log: PartitionLog) -> None:
    """The records that get the offsets of those that were cut off are not safe because the others were."""
    for _ in range(20):
        append(log)
    disk.hold()
    answer = commit.wait_for(log, log.next_offset)
    assert disk.reached.wait(PATIENCE_S)
    log.truncate_to(5)
    for _ in range(3):
        append(log)
    end = log.next_offset
    disk.released.set()
    answer.result(PATIENCE_S)
    assert log.recovery_point == end, "the sync was repeated"
    check(log)


def test_a_cut_within_the_segment_during_a_sync_is_not_forgotten(
    commit: GroupCommit, disk: SlowDisk, log: PartitionLog
) -> None:
    """Here the sync itself succeeds."""
    for _ in range(5):
        append(log)
    disk.hold()
    answer = commit.wait_for(log, 5)
    assert disk.reached.wait(PATIENCE_S)
    log.truncate_to(2)
    append(log)
    disk.released.set()
    answer.result(PATIENCE_S)
    assert log.recovery_point == log.next_offset == 3


def test_retention_during_a_sync_leaves_nothing_out(commit: GroupCommit, disk: SlowDisk, log: PartitionLog) -> None:
    for _ in range(40):
        append(log)
    log.set_high_watermark(40)
    disk.hold()
    answer = commit.wait_for(log, 40)
    assert disk.reached.wait(PATIENCE_S)
    log.delete_segments(list(log.segments[:2]))
    disk.released.set()
    answer.result(PATIENCE_S)
    assert log.recovery_point == 40


def test_closing_finishes_what_was_asked(log: PartitionLog, disk: SlowDisk) -> None:
    group = GroupCommit()
    disk.hold()
    answers = [group.wait_for(log, append(log))]
    assert disk.reached.wait(PATIENCE_S)
    answers += [group.wait_for(log, append(log)) for _ in range(3)]
    closing = threading.Thread(target=group.close)
    closing.start()
    disk.released.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert all(answer.done() for answer in answers)
    with pytest.raises(RuntimeError, match="closed"):
        group.wait_for(log, append(log))


def test_many_threads_ask_at_once(commit: GroupCommit, log: PartitionLog) -> None:
    """One owner appends; whoever waits is told only what is true."""
    answers: list[tuple[int, Future[None]]] = []
    wrong: list[int] = []

    def wait_for(offset: int, answer: Future[None]) -> None:
        answer.result(PATIENCE_S)
        if log.recovery_point < offset:
            wrong.append(offset)

    threads: list[threading.Thread] = []
    for _ in range(200):
        end = append(log)
        answers.append((end, commit.wait_for(log, end)))
        if len(threads) < 20:
            thread = threading.Thread(target=wait_for, args=answers[-1])
            thread.start()
            threads.append(thread)
    for _, answer in answers:
        answer.result(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not wrong
    assert commit.sync_count <= 200
    assert log.recovery_point == 200
