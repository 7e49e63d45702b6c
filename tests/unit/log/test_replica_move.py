"""Moves of a replica between two log directories, step by step as a broker does them."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories, LogDirectory
from ottla.log.errors import InvalidTransactionStateError, LogDirectoryError
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.log.replica_move import MoveError, ReplicaMove
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import SimulatedDisk, Survival, crash_at_every_step
from support.logs.batches import batch, marker, values_of
from support.logs.checker import check, records_in

NAME = TopicPartition("topic", 0)
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150)
ONE, TWO = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
TOPIC_ID = Uuid(bytes(range(16)))
ROOT = Path("/data")


def opened(disk: Disk, root: Path = ROOT) -> LogDirectories:
    paths = [root / "first", root / "second"]
    directories = LogDirectories(disk, ManualClock(), paths, DirectoryOptions(broker_id=1))
    directories.open(lambda _: CONFIG)
    return directories


@pytest.fixture(params=["local", "simulated"])
def directories(request: pytest.FixtureRequest, tmp_path: Path) -> LogDirectories:
    if request.param == "local":
        return opened(LocalDisk(), tmp_path)
    return opened(SimulatedDisk())


def filled(directories: LogDirectories, batches: int = 40) -> PartitionLog:
    """A log of many segments in the first directory."""
    log = directories.create(NAME, CONFIG, topic_id=TOPIC_ID)
    assert directories.directory_of(NAME) is directories.directories[0]
    append(log, batches)
    return log


def append(log: PartitionLog, batches: int = 1, epoch: int = 0) -> None:
    for _ in range(batches):
        log.append_as_leader(batch([b"%d" % log.next_offset, b"%d" % (log.next_offset + 1)]), epoch)
    log.set_high_watermark(log.next_offset)


def begun(directories: LogDirectories) -> ReplicaMove:
    return directories.begin_move(NAME, directories.directories[1], ONE)


def copied(move: ReplicaMove) -> None:
    while (piece := move.next_piece()) is not None:
        move.copy(piece)


def moved(directories: LogDirectories) -> PartitionLog:
    move = begun(directories)
    copied(move)
    return directories.finish_move(move, TWO)


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in records_in(log)]


def names_in(directory: LogDirectory, disk: Disk) -> list[str]:
    return [name for name in disk.list(directory.path) if disk.is_directory(directory.path / name)]


def test_a_replica_moves_with_everything(directories: LogDirectories) -> None:
    log = filled(directories)
    log.append_as_leader(batch(2, producer_id=5, producer_epoch=0, sequence=0), 3)
    log.append_as_leader(batch(3, producer_id=6, producer_epoch=0, sequence=0, transactional=True), 3)
    log.append_as_leader(marker(6, committed=False), 3, origin=AppendOrigin.COORDINATOR)
    log.append_as_leader(batch(3, producer_id=7, producer_epoch=0, sequence=0, transactional=True), 3)
    log.set_high_watermark(log.next_offset - 1)
    before = [(record.offset, record.value) for record in records_in(log)]
    new = moved(directories)

    first, second = directories.directories
    assert directories.get(NAME) is new is not log
    assert directories.directory_of(NAME) is second
    assert new.directory == second.path / "topic-0"
    assert names_in(second, directories.disk) == ["topic-0"]
    assert names_in(first, directories.disk) == [f"topic-0.{TWO.hex()}-delete"]
    check(new)
    assert [(record.offset, record.value) for record in records_in(new)] == before
    assert (new.next_offset, new.high_watermark) == (log.next_offset, log.next_offset - 1)
    assert new.recovery_point == new.next_offset
    assert new.last_stable_offset == log.last_stable_offset < new.high_watermark
    assert new.epochs.entries == log.epochs.entries
    assert new.topic_id == TOPIC_ID
    assert {entry.row() for entry in new.producers.entries.values()} == {
        entry.row() for entry in log.producers.entries.values()
    }
    read = new.read(80, 10**6, with_aborted=True)
    assert read.aborted_transactions == log.read(80, 10**6, with_aborted=True).aborted_transactions != []


def test_it_is_there_after_a_restart(directories: LogDirectories) -> None:
    filled(directories)
    moved(directories)
    directories.close()
    again = opened(directories.disk, directories.directories[0].path.parent)
    log = again.get(NAME)
    assert log is not None
    assert again.directory_of(NAME) is again.directories[1]
    assert offsets(log) == list(range(80))
    assert (log.high_watermark, log.topic_id) == (80, TOPIC_ID)
    append(log)
    assert offsets(log) == list(range(82))


def test_the_new_place_is_written_to(directories: LogDirectories) -> None:
    filled(directories)
    new = moved(directories)
    append(new, 40, epoch=4)
    check(new)
    assert offsets(new) == list(range(160))
    assert {segment.path.parent for segment in new.segments} == {directories.directories[1].path / "topic-0"}


def test_records_appended_during_the_move_are_moved(directories: LogDirectories) -> None:
    log = filled(directories)
    move = begun(directories)
    for _ in range(20):
        piece = move.next_piece()
        if piece is not None:
            move.copy(piece)
        append(log)
    assert move.lag > 0
    new = directories.finish_move(move, TWO)
    assert move.lag == 0
    check(new)
    assert offsets(new) == list(range(120))


def test_reads_from_the_old_replica_can_finish(directories: LogDirectories) -> None:
    log = filled(directories)
    found = log.read(10, 500).slice
    assert found is not None
    before = found.read()
    moved(directories)
    assert found.read() == before
    log.flush()  # as a thread may do that was asked to before


def test_the_old_place_goes_after_a_while(directories: LogDirectories) -> None:
    filled(directories)
    moved(directories)
    clock = directories.clock
    assert isinstance(clock, ManualClock)
    clock.advance_ms(CONFIG.file_delete_delay_ms)
    directories.remove_due()
    assert names_in(directories.directories[0], directories.disk) == []
    assert offsets_of(directories) == list(range(80))


def offsets_of(directories: LogDirectories) -> list[int]:
    log = directories.get(NAME)
    assert log is not None
    return offsets(log)


def test_a_log_that_starts_within_a_batch(directories: LogDirectories) -> None:
    filled(directories).advance_log_start(13)
    new = moved(directories)
    assert (new.log_start_offset, offsets(new)[-1]) == (13, 79)
    assert values_of(records_in(new))[-1] == b"79"
    directories.close()
    again = opened(directories.disk, directories.directories[0].path.parent).get(NAME)
    assert again is not None
    assert again.log_start_offset == 13


def test_an_empty_log(directories: LogDirectories) -> None:
    log = filled(directories, 0)
    log.truncate_fully_and_start_at(17)
    new = moved(directories)
    assert (new.log_start_offset, new.next_offset) == (17, 17)
    append(new)
    assert offsets(new) == [17, 18]


def test_an_epoch_that_has_written_nothing_yet(directories: LogDirectories) -> None:
    log = filled(directories)
    log.epochs.assign(9, log.next_offset)
    assert moved(directories).epochs.latest_epoch == 9


def test_records_deleted_during_the_move_are_skipped(directories: LogDirectories) -> None:
    log = filled(directories)
    move = begun(directories)
    log.advance_log_start(51)
    copied(move)
    log.advance_log_start(60)
    new = directories.finish_move(move, TWO)
    check(new)
    assert new.log_start_offset == 60
    assert offsets(new)[-1] == 79
    assert new.segments[0].base_offset == 50


def test_gaps_of_compaction_at_the_end_are_skipped(directories: LogDirectories) -> None:
    log = filled(directories)
    log.roll()
    log.next_offset = log.producers.map_end_offset = 90
    log.roll(90)
    new = moved(directories)
    assert (new.next_offset, offsets(new)) == (90, list(range(80)))
    append(new)
    assert offsets(new)[-2:] == [90, 91]


def test_a_source_that_is_cut_meanwhile(directories: LogDirectories) -> None:
    log = filled(directories)
    move = begun(directories)
    copied(move)
    directories.truncate_to({NAME: 30})
    for _ in range(20):  # other records, at the same offsets
        log.append_as_leader(batch([b"new", b"new"]), 1)
    new = directories.finish_move(move, TWO)
    check(new)
    assert values_of(records_in(new)) == [b"%d" % offset for offset in range(30)] + [b"new"] * 40
    assert new.epochs.entries == log.epochs.entries


def test_a_source_that_is_emptied_meanwhile(directories: LogDirectories) -> None:
    log = filled(directories)
    move = begun(directories)
    copied(move)
    directories.truncate_fully_and_start_at(NAME, 40)
    append(log, 5)
    new = directories.finish_move(move, TWO)
    assert offsets(new) == list(range(40, 50))


def test_a_change_of_config_meanwhile(directories: LogDirectories) -> None:
    log = filled(directories)
    move = begun(directories)
    log.update_config(replace(CONFIG, retention_ms=5))
    assert directories.finish_move(move, TWO).config.retention_ms == 5


def test_what_was_attached_to_the_log_is_attached_to_the_new_one(directories: LogDirectories) -> None:
    rolled: list[PartitionLog] = []
    log = filled(directories)
    log.on_roll = rolled.append
    new = moved(directories)
    assert rolled == []
    new.roll()
    assert rolled == [new]


def test_a_batch_whose_transaction_is_being_verified_is_appended_to_the_new_one(directories: LogDirectories) -> None:
    log = filled(directories)
    log.append_as_leader(batch(1, producer_id=5, producer_epoch=0, sequence=0, transactional=True), 0)
    move = begun(directories)
    copied(move)
    verification = log.producers.begin_verification(6, 0, 0, now_ms=0)
    log.append_as_leader(marker(5, committed=True), 0, origin=AppendOrigin.COORDINATOR)
    other = log.producers.begin_verification(5, 0, 1, now_ms=0)
    new = directories.finish_move(move, TWO)
    new.producers.check_verified(6, 0, 0, verification)
    new.producers.check_verified(5, 0, 1, other)
    new.append_as_leader(marker(6, committed=False), 0, origin=AppendOrigin.COORDINATOR)
    with pytest.raises(InvalidTransactionStateError, match="a marker was written meanwhile"):
        new.producers.check_verified(6, 0, 0, verification)


def test_giving_up_leaves_no_trace(directories: LogDirectories) -> None:
    log = filled(directories)
    move = begun(directories)
    copied(move)
    directories.give_up_move(move)
    assert directories.moves == {}
    assert names_in(directories.directories[1], directories.disk) == []
    assert directories.get(NAME) is log
    with pytest.raises(ValueError, match="given up"):
        directories.finish_move(move, TWO)


def test_a_deleted_partition_does_not_come_back(directories: LogDirectories) -> None:
    filled(directories)
    move = begun(directories)
    directories.delete(NAME, TWO)
    assert directories.moves == {}
    with pytest.raises(ValueError, match="given up"):
        directories.finish_move(move, TWO)
    directories.give_up_move(move)
    assert names_in(directories.directories[1], directories.disk) == []


def test_a_copy_left_by_a_crash_is_removed(directories: LogDirectories) -> None:
    filled(directories)
    copied(begun(directories))
    directories._release_locks()
    again = opened(directories.disk, directories.directories[0].path.parent)
    assert offsets_of(again) == list(range(80))
    assert again.directory_of(NAME) is again.directories[0]
    again.remove_due()
    assert names_in(again.directories[1], again.disk) == []


def test_nothing_moves_while_a_directory_is_offline(directories: LogDirectories) -> None:
    filled(directories)
    directories.take_offline(directories.directories[1], "gone")
    with pytest.raises(LogDirectoryError, match="offline"):
        directories.begin_move(NAME, directories.directories[0], ONE)


@pytest.mark.parametrize("failed", [0, 1])
def test_a_move_between_places_of_which_one_failed_is_over(directories: LogDirectories, failed: int) -> None:
    filled(directories)
    move = begun(directories)
    assert directories.is_moving(move)
    directories.take_offline(directories.directories[failed], "gone")
    assert not directories.is_moving(move)
    with pytest.raises(ValueError, match="given up"):
        directories.finish_move(move, TWO)


# Failures and crashes


def test_a_source_that_cannot_be_read() -> None:
    disk = SimulatedDisk()
    directories = opened(disk)
    log = directories.create(NAME, LogConfig(), topic_id=TOPIC_ID)
    log.append_as_leader(batch([bytes(10_000)]), 0)  # more than a look-up reads
    log.set_high_watermark(log.next_offset)
    move = begun(directories)
    piece = move.next_piece()
    assert piece is not None
    disk.fail(errno.EIO, when=lambda _, path: "first" in path.parts)
    with pytest.raises(MoveError, match="cannot be read"):
        move.copy(piece)
    directories.give_up_move(move)
    assert [each.failure for each in directories.directories] == [None, None]


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_disk_that_fails_at_any_step_of_the_end(place: str) -> None:
    failures = 0
    while True:
        disk = SimulatedDisk(failures)
        directories = opened(disk)
        filled(directories)
        move = begun(directories)
        copied(move)
        fault = disk.fail(errno.EIO, when=lambda _, path: place in path.parts, skipped=failures, times=None)
        try:
            directories.finish_move(move, TWO)
        except (OSError, LogDirectoryError, MoveError):
            directories.give_up_move(move)
        if not fault.strikes:
            break
        failures += 1
        disk.heal()
        log = directories.get(NAME)
        assert log is not None, "the replica is offline, though one of its places is well"
        append(log)
        log.flush()
        disk._locked.clear()
        assert offsets_of(opened(disk)) == list(range(82))
    assert failures > 1


@pytest.mark.parametrize("survival", [Survival.SEEDED, Survival.NOTHING])
def test_the_power_is_cut_at_every_step(survival: Survival) -> None:
    crashes = moves = 0

    def made(seed: int) -> SimulatedDisk:
        disk = SimulatedDisk(seed)
        for name in ("first", "second"):
            disk.make_directory(ROOT / name)
        disk.sync_all()
        return disk

    def run(disk: SimulatedDisk, safe: list[int]) -> None:
        directories = opened(disk)
        log = filled(directories, 10)
        log.flush()
        log.advance_log_start(7)
        directories.checkpoint()
        safe.append(log.next_offset)
        move = begun(directories)
        copied(move)
        append(log, 5)
        log.flush()
        safe.append(log.next_offset)
        new = directories.finish_move(move, TWO)
        append(new, 3)
        new.flush()
        safe.append(new.next_offset)

    for disk, safe in crash_at_every_step(run, list, make=made, survival=survival):
        directories = opened(disk)
        log = directories.get(NAME)
        crashes += 1
        if log is None:
            assert not safe, f"crash {crashes}: the replica is gone"
            continue
        moves += directories.directory_of(NAME) is directories.directories[1]
        check(log, deleted_below=7)
        assert offsets(log) == list(range(log.log_start_offset, log.next_offset))
        assert log.next_offset >= (safe[-1] if safe else 0), f"crash {crashes}: records are gone"
        assert log.log_start_offset == 7 or not safe, f"crash {crashes}: records that were deleted came back"
        holders = [each for each in directories.directories if NAME in each.logs]
        assert len(holders) == 1
        append(log)
    assert crashes > 50
    assert 0 < moves < crashes


def test_of_two_whole_replicas_the_longer_one_stays() -> None:
    for longer in (0, 1):
        disk = SimulatedDisk()
        directories = opened(disk)
        filled(directories, 5)
        moved(directories)
        directories.close()
        old = ROOT / "first" / f"topic-0.{TWO.hex()}-delete"
        disk.replace(old, ROOT / "first" / "topic-0")
        lone = LogDirectories(disk, ManualClock(), [ROOT / ("first", "second")[longer]], DirectoryOptions(broker_id=1))
        lone.open(lambda _: CONFIG)
        log = lone.get(NAME)
        assert log is not None
        append(log, epoch=1)
        lone.close()
        again = opened(disk)
        assert again.directory_of(NAME) is again.directories[longer]
        assert offsets_of(again) == list(range(12))
