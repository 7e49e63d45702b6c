from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.append_origin import AppendOrigin
from ottla.log.checkpoints import EpochEntry
from ottla.log.config import LogConfig
from ottla.log.errors import LogError
from ottla.log.names import (
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    segment_name,
)
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.records import BatchHeader, BatchView
from ottla.records.layout import CRC_AT
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import DiskOperation, SimulatedDisk
from support.examples import examples
from support.logs.batches import NOW_MS, batch, marker, values_of
from support.logs.checker import check, records_in, scan
from support.logs.home import ROOT, Home

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150)


def fill(log: PartitionLog, count: int, *, epoch: int = 0) -> None:
    for _ in range(count):
        offset = log.next_offset
        log.append_as_leader(batch([b"%d" % offset], timestamp_ms=NOW_MS + offset), epoch)


def values(log: PartitionLog) -> list[int]:
    return [int(value or b"") for value in values_of(records_in(log))]


def simulated() -> Home:
    clock = ManualClock()
    return Home(SimulatedDisk(clock=clock), clock, ROOT)


def written(home: Home, count: int = 60) -> list[int]:
    """A log of many records, dropped as by a kill; where its segments begin."""
    log = home.open(CONFIG)
    fill(log, count)
    log.epochs.flush()  # as whatever moved the recovery point did
    for segment in log.segments:
        segment.flush()
    return [segment.base_offset for segment in log.segments]


def patch(home: Home, path: Path, change: bytes, at: int) -> None:
    content = bytearray(home.disk.read(path))
    content[at : at + len(change) if at >= 0 else None] = change
    home.disk.write(path, content)


# Clean and unclean


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_is_reopened_as_it_was(home: Home, clean: bool) -> None:
    log = home.open(CONFIG)
    fill(log, 30, epoch=1)
    for producer_id in (1, 2):
        for sequence in range(10):
            data = batch(
                1, producer_id=producer_id, producer_epoch=0, sequence=sequence, transactional=producer_id == 2
            )
            log.append_as_leader(data, 2)
    log.append_as_leader(marker(2, committed=False), 2, origin=AppendOrigin.COORDINATOR)
    log.append_as_leader(batch(1, producer_id=2, producer_epoch=0, sequence=10, transactional=True), 3)
    log.close()
    before = check(log)
    again = home.open(CONFIG, clean=clean)
    assert [each.data for each in check(again)] == [each.data for each in before]
    assert again.epochs.entries == (EpochEntry(1, 0), EpochEntry(2, 30), EpochEntry(3, 51))
    assert again.next_offset == log.next_offset
    assert again.recovery_point == (log.next_offset if clean else 0)
    assert again.producers.first_undecided_offset == 51
    assert again.producers.entries.keys() == {1, 2}
    fill(again, 5, epoch=3)
    check(again)


def test_a_new_folder_begins_at_zero_or_at_the_given_offset(home: Home) -> None:
    log = home.open(CONFIG)
    assert (log.log_start_offset, log.next_offset) == (0, 0)
    assert home.names() == [segment_name(0, suffix) for suffix in (OFFSET_INDEX, LOG, TIME_INDEX)]


def test_an_empty_folder_begins_at_the_start_that_was_written_down(home: Home) -> None:
    log = home.open(CONFIG, clean=False, log_start_offset=500)
    assert (log.log_start_offset, log.next_offset) == (500, 500)
    fill(log, 1)
    check(log)


def test_the_start_within_a_segment_is_kept(home: Home) -> None:
    written(home)
    log = home.open(CONFIG, clean=False, log_start_offset=17)
    assert log.log_start_offset == 17
    assert values(log) == list(range(17, 60))


def test_a_log_that_ends_before_its_start_starts_over(home: Home) -> None:
    written(home)
    log = home.open(CONFIG, clean=False, log_start_offset=100)
    assert (log.log_start_offset, log.next_offset, log.size) == (100, 100, 0)
    assert log.epochs.entries == ()
    fill(log, 3)
    check(log)
    assert [segment.base_offset for segment in home.open(CONFIG, log_start_offset=100).segments] == [100]


def test_only_segments_after_the_recovery_point_are_read_again() -> None:
    home = simulated()
    bases = written(home)
    assert isinstance(home.disk, SimulatedDisk)
    rebuilt: set[str] = set()

    def note(operation: DiskOperation, path: Path) -> None:
        if operation is DiskOperation.APPEND and path.suffix == OFFSET_INDEX:
            rebuilt.add(path.name)

    points = (0, bases[2] - 1, bases[2], bases[2] + 1, bases[3] - 1, 60)
    for point, recovered in zip(points, (bases, bases[1:], bases[2:], bases[2:], bases[2:], bases[-1:]), strict=True):
        log = home.open(CONFIG)
        log.close()
        rebuilt.clear()
        home.disk.before = note
        log = home.open(CONFIG, clean=False, recovery_point=point)
        home.disk.before = None
        assert rebuilt == {segment_name(base, OFFSET_INDEX) for base in recovered}, point
        assert values(log) == list(range(60))
        assert log.recovery_point == min(point, bases[-1])
        check(log)


@pytest.mark.parametrize("change", [b"", b"\0" * 12, b"\0\0\1\x8b", b"x" * 12])
def test_the_last_time_of_a_segment_that_was_closed_after_the_last_sync_is_found_again(
    home: Home, change: bytes
) -> None:
    """No sync of records covers it, so it may be lost, or spoilt."""
    bases = written(home)
    path = home.folder / segment_name(bases[1], TIME_INDEX)
    original = home.disk.read(path)
    home.disk.write(path, original[:-12] + change + original[len(original) - 12 + len(change) :] * bool(change))
    log = home.open(CONFIG, clean=False, recovery_point=bases[2])
    check(log)
    found = log.offset_for_timestamp(NOW_MS + bases[2] - 1)
    assert found is not None
    assert found.offset == bases[2] - 1
    log.close()
    assert home.disk.read(path) == original


# Torn ends


@pytest.mark.parametrize("lost", [1, 5, 60, 90])
def test_a_torn_end_is_cut_at_the_last_whole_batch(home: Home, caplog: pytest.LogCaptureFixture, lost: int) -> None:
    bases = written(home)
    path = home.folder / segment_name(bases[-1], LOG)
    content = home.disk.read(path)
    home.disk.write(path, content[:-lost])
    with caplog.at_level(logging.WARNING):
        log = home.open(CONFIG, clean=False, recovery_point=bases[-1])
    size = len(batch([b"59"]))
    end = 60 - -(-lost // size)
    assert values(log) == list(range(end))
    assert (str(path) in caplog.text) == bool(lost % size)
    check(log)
    fill(log, 5)
    assert values(home.open(CONFIG, clean=False)) == list(range(end + 5))


@pytest.mark.parametrize("zeros", [1, 12, 61, 500, 4096])
def test_zeros_at_the_end_are_cut(home: Home, zeros: int) -> None:
    bases = written(home)
    path = home.folder / segment_name(bases[-1], LOG)
    home.disk.write(path, home.disk.read(path) + bytes(zeros))
    log = home.open(CONFIG, clean=False, recovery_point=60)
    assert values(log) == list(range(60))
    check(log)


def test_a_broken_batch_in_the_middle_ends_the_log(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    bases = written(home)
    path = home.folder / segment_name(bases[2], LOG)
    patch(home, path, b"\xff", len(batch([b"20"])) * 3 - 1)
    with caplog.at_level(logging.WARNING):
        log = home.open(CONFIG, clean=False, recovery_point=bases[1])
    assert values(log) == list(range(bases[2] + 2))
    assert str(path) in caplog.text
    assert [segment.base_offset for segment in log.segments] == bases[:3]
    check(log)
    fill(log, 30)
    check(home.open(CONFIG, clean=False))


def test_a_segment_that_lost_whole_batches_ends_the_log(home: Home) -> None:
    """Files lose their ends independently of each other: what comes after a gap is not served."""
    bases = written(home)
    path = home.folder / segment_name(bases[1], LOG)
    home.disk.write(path, home.disk.read(path)[: len(batch([b"20"])) * 4])
    log = home.open(CONFIG, clean=False, recovery_point=bases[1])
    assert values(log) == list(range(bases[1] + 4))
    check(log)


def test_compaction_leaves_gaps_between_segments(home: Home) -> None:
    bases = written(home)
    path = home.folder / segment_name(bases[1], LOG)
    home.disk.write(path, home.disk.read(path)[: len(batch([b"20"])) * 4])
    log = home.open(replace(CONFIG, compacts=True), clean=False, recovery_point=0)
    assert values(log) == [*range(bases[1] + 4), *range(bases[2], 60)]
    check(log)


def test_gaps_below_the_cleaned_offset_are_accepted_after_compaction_is_disabled(home: Home) -> None:
    bases = written(home)
    path = home.folder / segment_name(bases[1], LOG)
    home.disk.write(path, home.disk.read(path)[: len(batch([b"20"])) * 4])
    log = home.open(CONFIG, clean=False, recovery_point=0, cleaned_offset=bases[2])
    assert values(log) == [*range(bases[1] + 4), *range(bases[2], 60)]
    check(log)


def test_a_segment_that_took_its_place_after_a_crash_gets_its_own_indexes(home: Home) -> None:
    bases = written(home)
    log_path = home.folder / segment_name(bases[1], LOG)
    home.disk.write(Path(f"{log_path}.swap"), home.disk.read(log_path))
    stale = home.folder / segment_name(bases[1], TRANSACTION_INDEX)  # of the segment before compaction
    home.disk.write(stale, struct.pack(">hqqqq", 0, 7, bases[1], bases[1] + 2, bases[1] + 2))
    log = home.open(CONFIG, clean=False, recovery_point=bases[-1])
    assert values(log) == list(range(60))
    assert log.segments[1].transaction_index.all() == []
    check(log)


def test_segments_dropped_by_recovery_do_not_come_back() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed)
        home = Home(disk, ManualClock(), ROOT)
        bases = written(home)
        disk.sync_all()
        patch(home, home.folder / segment_name(bases[1], LOG), b"\xff", -1)
        disk.sync_all()
        log = home.open(CONFIG, clean=False)
        fill(log, bases[2] - log.next_offset)
        log.flush()
        disk.crash()
        disk.restart()
        log = home.open(CONFIG, clean=False, recovery_point=bases[1])
        assert log.next_offset == bases[2], seed
        check(log)


# Indexes


@pytest.mark.parametrize("suffix", [OFFSET_INDEX, TIME_INDEX])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_missing_index_is_rebuilt(
    home: Home, caplog: pytest.LogCaptureFixture, suffix: str, clean: bool, which: int
) -> None:
    log = home.open(CONFIG)
    fill(log, 60)
    log.close()
    base = log.segments[which].base_offset
    path = home.folder / segment_name(base, suffix)
    before = home.disk.read(path)
    home.disk.remove(path)
    with caplog.at_level(logging.WARNING):
        log = home.open(CONFIG, clean=clean, recovery_point=60)
    assert values(log) == list(range(60))
    check(log)
    log.close()
    assert home.disk.read(path) == before
    if clean or which != -1:
        assert f"{base:020d}.log: rebuilding its indexes: {suffix} missing" in caplog.text


@pytest.mark.parametrize("suffix", [OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX])
@pytest.mark.parametrize("size", [1, 7, -1])
def test_a_torn_index_is_rebuilt(home: Home, caplog: pytest.LogCaptureFixture, suffix: str, size: int) -> None:
    log = home.open(CONFIG)
    for producer_id in range(20):
        log.append_as_leader(batch(1, producer_id=producer_id, producer_epoch=0, sequence=0, transactional=True), 0)
        log.append_as_leader(marker(producer_id, committed=False), 0, origin=AppendOrigin.COORDINATOR)
    log.close()
    base = log.segments[1].base_offset
    path = home.folder / segment_name(base, suffix)
    before = home.disk.read(path)
    home.disk.write(path, before[:size])
    with caplog.at_level(logging.WARNING):
        log = home.open(CONFIG, clean=False, recovery_point=40)
    assert str(path) in caplog.text
    check(log)
    log.close()
    assert home.disk.read(path) == before


def test_an_index_of_another_log_is_rebuilt(home: Home) -> None:
    bases = written(home)
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        other = home.disk.read(home.folder / segment_name(bases[1], suffix))
        home.disk.write(home.folder / segment_name(bases[2], suffix), bytes(byte ^ 0x55 for byte in other))
    log = home.open(CONFIG, clean=False, recovery_point=60)
    check(log)


def test_a_rebuilt_index_survives_a_power_cut() -> None:
    for seed in range(10):
        disk = SimulatedDisk(seed)
        home = Home(disk, ManualClock(), ROOT)
        bases = written(home)
        disk.sync_all()
        for suffix in (OFFSET_INDEX, TIME_INDEX):
            disk.remove(home.folder / segment_name(bases[1], suffix))
        home.open(CONFIG, clean=False, recovery_point=60)
        disk.crash()
        disk.restart()
        check(home.open(CONFIG, clean=False, recovery_point=60))


# Producers and epochs


@pytest.mark.parametrize("content", [b"", b"\0", bytes(60), b"\0\1garbage of some kind"])
def test_a_snapshot_that_cannot_be_read_is_replaced_by_the_log(
    home: Home, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    log = home.open(CONFIG)
    for sequence in range(60):
        log.append_as_leader(batch(1, producer_id=sequence % 3, producer_epoch=0, sequence=sequence // 3), 0)
    log.close()
    for name in home.names():
        if name.endswith(PRODUCER_SNAPSHOT):
            home.disk.write(home.folder / name, content)
    with caplog.at_level(logging.WARNING):
        log = home.open(CONFIG)
    assert PRODUCER_SNAPSHOT in caplog.text
    check(log)
    assert log.append_as_leader(batch(1, producer_id=1, producer_epoch=0, sequence=19), 0).is_duplicate


def test_snapshots_of_no_segment_go(home: Home) -> None:
    bases = written(home)
    for offset in (3, bases[1] + 1, 500):
        home.disk.write(home.folder / segment_name(offset, PRODUCER_SNAPSHOT), b"whatever")
    log = home.open(CONFIG, clean=False, recovery_point=bases[-1])
    found = [name for name in home.names() if name.endswith(PRODUCER_SNAPSHOT)]
    assert set(found) <= {segment_name(offset, PRODUCER_SNAPSHOT) for offset in (*bases, 60)}
    check(log)


def test_recovery_does_not_read_what_comes_before_again_and_again() -> None:
    home = simulated()
    log = home.open(CONFIG)
    for sequence in range(400):
        log.append_as_leader(batch(1, producer_id=1, producer_epoch=0, sequence=sequence), 0)
    count = len(log.segments)
    assert count > 30
    assert isinstance(home.disk, SimulatedDisk)
    reads = 0

    def note(operation: DiskOperation, path: Path) -> None:
        nonlocal reads
        reads += operation is DiskOperation.READ and path.suffix == LOG

    home.disk.before = note
    log = home.open(CONFIG, clean=False)
    assert reads < count * 10
    home.disk.before = None
    check(log)


def test_recovery_walks_over_the_last_segment_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producers are known from checking the batches, and need no second walk over their headers."""
    log = home.open(LogConfig(index_interval_bytes=150))
    for sequence in range(500):
        log.append_as_leader(batch(1, producer_id=1, producer_epoch=0, sequence=sequence), 0)
    walked = 0
    iter_headers = Segment.iter_headers

    def counted(*arguments: Any, **options: Any) -> Iterator[tuple[int, BatchHeader]]:
        nonlocal walked
        for each in iter_headers(*arguments, **options):
            walked += 1
            yield each

    monkeypatch.setattr(Segment, "iter_headers", counted)
    log = home.open(LogConfig(index_interval_bytes=150), clean=False)
    assert walked < 50  # the log's end is looked up
    assert log.producers.map_end_offset == 500
    assert log.producers.entries[1].last_sequence == 499


def test_batches_whose_answers_a_crash_took_are_known_when_they_come_again(home: Home) -> None:
    """Several of a producer: a snapshot would tell of the last alone."""
    log = home.open(LogConfig())
    for sequence in range(8):
        log.append_as_leader(batch(1, producer_id=1, producer_epoch=0, sequence=sequence), 0)
    log = home.open(LogConfig(), clean=False)
    for sequence in range(3, 8):
        again = log.append_as_leader(batch(1, producer_id=1, producer_epoch=0, sequence=sequence), 0)
        assert (again.is_duplicate, again.first_offset) == (True, sequence)
    check(log)


def test_epochs_of_deleted_records_that_a_crash_brings_back_are_back_as_well(home: Home) -> None:
    log = home.open(CONFIG)
    fill(log, 20, epoch=1)
    fill(log, 20, epoch=4)
    log.set_high_watermark(40)
    log.advance_log_start(30)
    log.flush()
    assert log.epochs.entries == (EpochEntry(4, 30),)
    again = home.open(CONFIG, clean=False, recovery_point=40)  # the start was not written down
    assert again.log_start_offset == 0
    assert again.epochs.entries == (EpochEntry(1, 0), EpochEntry(4, 20))


def test_epochs_are_learnt_from_recovered_batches(home: Home) -> None:
    log = home.open(CONFIG)
    fill(log, 20, epoch=1)
    fill(log, 20, epoch=4)
    home.disk.remove(home.folder / LEADER_EPOCHS)
    log = home.open(CONFIG, clean=False)
    assert log.epochs.entries == (EpochEntry(1, 0), EpochEntry(4, 20))


def test_epochs_after_the_end_are_forgotten(home: Home) -> None:
    log = home.open(CONFIG)
    fill(log, 20, epoch=1)
    log.epochs.assign(7, 20)
    log = home.open(CONFIG, clean=False)
    assert log.epochs.entries == (EpochEntry(1, 0),)


# What compaction and deletion leave


def test_deleted_and_unfinished_files_are_removed(home: Home) -> None:
    bases = written(home)
    copy = {suffix: home.disk.read(home.folder / segment_name(bases[0], suffix)) for suffix in (LOG, OFFSET_INDEX)}
    for suffix, content in copy.items():
        for state in (".deleted", ".cleaned"):
            home.disk.write(home.folder / (segment_name(bases[0], suffix) + state), content[:40])
    home.disk.write(home.folder / segment_name(999, OFFSET_INDEX), b"an index without a log")
    log = home.open(CONFIG, clean=False)
    assert values(log) == list(range(60))
    assert not [
        name for name in home.names() if name.endswith((".deleted", ".cleaned")) or name.startswith(f"{999:020d}")
    ]
    check(log)


def swap_in_place(home: Home, bases: list[int]) -> None:
    """As compaction leaves it before the last renames: one segment that stands for two."""
    content = b"".join(home.disk.read(home.folder / segment_name(base, LOG)) for base in bases[:2])
    home.disk.write(home.folder / (segment_name(bases[0], LOG) + ".swap"), content)
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        home.disk.write(home.folder / (segment_name(bases[0], suffix) + ".swap"), b"")


def test_a_finished_compaction_takes_its_place(home: Home) -> None:
    bases = written(home)
    swap_in_place(home, bases)
    log = home.open(CONFIG, clean=False)
    assert [segment.base_offset for segment in log.segments] == [bases[0], *bases[2:]]
    assert values(log) == list(range(60))
    check(log)


def test_a_compaction_that_was_not_finished_leaves_the_log_as_it_was(home: Home) -> None:
    bases = written(home)
    swap_in_place(home, bases)
    home.disk.write(home.folder / (segment_name(bases[0], TRANSACTION_INDEX) + ".cleaned"), b"")
    log = home.open(CONFIG, clean=False)
    assert [segment.base_offset for segment in log.segments] == bases
    assert values(log) == list(range(60))
    check(log)


# Rot


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_a_flipped_bit_is_cut_off_or_named_but_never_served_as_a_record(data: st.DataObject) -> None:
    home = simulated()
    assert isinstance(home.disk, SimulatedDisk)
    log = home.open(CONFIG)
    for offset in range(40):
        if offset % 10 == 9:
            log.append_as_leader(batch(1, producer_id=5, producer_epoch=0, sequence=offset // 10), 0)
        else:
            fill(log, 1)
    log.close()
    before = {batch.data[CRC_AT:] for batch in scan(log)}
    names = [name for name in home.names() if home.disk.size(home.folder / name)]
    name = data.draw(st.sampled_from(names))
    path = home.folder / name
    position = data.draw(st.integers(0, home.disk.size(path) - 1))
    home.disk.flip_bit(path, position, data.draw(st.integers(0, 7)))
    point = data.draw(st.sampled_from([0, 20, 40]))
    failure = ""
    try:
        log = home.open(CONFIG, clean=data.draw(st.booleans()), recovery_point=point)
        for offset in range(min(log.next_offset, 40)):
            found = log.read(offset, 1).slice
            if path.suffix != LOG:
                assert found is not None
                assert BatchView(found.read()).base_offset == offset
            log.offset_for_timestamp(NOW_MS + offset)
        log.close()
    except LogError as error:
        failure = str(error)
    if path.suffix != LOG and name != LEADER_EPOCHS:
        log = home.open(CONFIG, clean=False)
        assert log.next_offset == 40
        check(log)
    elif path.suffix == LOG:
        # Read again in full, the log ends before what is broken, and everything before it is whole.
        try:
            log = home.open(CONFIG, clean=False)
        except LogError as error:
            failure = str(error)
        else:
            assert all(batch.data[CRC_AT:] in before for batch in scan(log))
            offsets = [batch.header.base_offset for batch in scan(log)]
            assert offsets == sorted(set(offsets))
    assert not failure or str(home.folder) in failure, "the file is named"


def test_an_offset_that_was_not_written_is_cut_off(home: Home) -> None:
    """No CRC covers it."""
    bases = written(home)
    size = len(batch([b"20"]))
    for index, base in ((3, bases[0]), (0, bases[1])):
        patch(home, home.folder / segment_name(base, LOG), bytes(8), index * size)
        log = home.open(CONFIG, clean=False)
        assert values(log) == list(range(base + index))
        check(log)
        written(home, 60 - log.next_offset)


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_last_batch_of_a_segment_never_reaches_into_the_next_one(
    home: Home, caplog: pytest.LogCaptureFixture, is_flushed: bool, compacts: bool
) -> None:
    """No batch follows in its file, but the next segment's name says where its offsets end. Flushed segments are read
    again because the index entry of the batch does not match it."""
    config = replace(CONFIG, index_interval_bytes=50, compacts=compacts)
    log = home.open(config)
    fill(log, 60)
    log.flush()
    bases = [segment.base_offset for segment in log.segments]
    *_, (position, header) = log.segments[1].iter_headers()
    assert header.last_offset == bases[2] - 1
    path = log.segments[1].path
    size = log.segments[1].size - position
    patch(home, path, struct.pack(">q", header.base_offset + 4), position)
    log = home.open(config, clean=False, recovery_point=60 if is_flushed else 0)
    assert log.segments[1].read_next_offset() == bases[2] - 1
    assert any(str(path) in line and f"{size} bytes" in line for line in caplog.messages)
    behind = range(bases[2], 60) if is_flushed else ()
    assert values(log) == [*range(bases[2] - 1), *behind]
    check(log)


@pytest.mark.parametrize("entry", [0, 1, -1])
def test_an_index_that_points_beyond_the_file_is_rebuilt(home: Home, entry: int) -> None:
    log = home.open(CONFIG)
    fill(log, 60)
    log.close()
    path = home.folder / segment_name(log.segments[1].base_offset, OFFSET_INDEX)
    content = bytearray(home.disk.read(path))
    content[8 * entry + 4 if entry >= 0 else -4] |= 0x80
    home.disk.write(path, content)
    log = home.open(CONFIG)
    assert all(log.read(offset, 1).slice for offset in range(60))
    assert values(log) == list(range(60))
    assert entry < 0 or log.damages.repair_count == 1
    assert values(home.open(CONFIG, clean=False)) == list(range(60))


def test_every_file_but_the_log_can_be_lost(home: Home) -> None:
    log = home.open(CONFIG)
    for offset in range(60):
        log.append_as_leader(batch(1, producer_id=offset % 4, producer_epoch=0, sequence=offset // 4), offset // 25)
    log.close()
    before = check(log)
    for name in home.names():
        if not name.endswith(LOG):
            home.disk.remove(home.folder / name)
    log = home.open(CONFIG, clean=False)
    assert [each.data for each in check(log)] == [each.data for each in before]
    assert {name for name in home.names() if name.endswith(SEGMENT_SUFFIXES)} >= {
        segment_name(segment.base_offset, suffix)
        for segment in log.segments
        for suffix in (LOG, OFFSET_INDEX, TIME_INDEX)
    }


# After a clean stop


def closed(home: Home, count: int = 60) -> PartitionLog:
    """A log that was stopped cleanly; its recovery point is its end."""
    log = home.open(CONFIG)
    fill(log, count)
    log.flush()
    log.close()
    return log


@pytest.mark.parametrize("cut", [1, 40, 90, 400])
def test_a_last_segment_shorter_than_at_the_clean_stop_is_recovered(
    home: Home, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = closed(home)
    path = before.active.path
    content = home.disk.read(path)
    home.disk.write(path, content[:-cut])
    log = home.open(CONFIG, recovery_point=60)
    assert f"{path}: it is not as the clean stop left it, and was recovered" in caplog.text
    assert f"the log ends at offset {log.next_offset}" in caplog.text
    assert log.next_offset < 60
    fill(log, 20)
    check(log)  # nothing was appended behind a torn batch
    assert values(log) == list(range(log.next_offset))
    log.flush()
    log.close()
    assert values(home.open(CONFIG, clean=False)) == list(range(log.next_offset))


def test_a_last_segment_cut_between_two_batches_is_noticed(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    before = closed(home)
    *_, last = before.active.iter_headers()
    home.disk.write(before.active.path, home.disk.read(before.active.path)[: last[0]])
    log = home.open(CONFIG, recovery_point=60)
    assert "it ends at offset 59, and the log was closed at 60" in caplog.text
    assert (log.next_offset, log.recovery_point) == (59, before.active.base_offset)


def test_bytes_after_the_last_batch_are_cut_off(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    before = closed(home)
    home.disk.write(before.active.path, home.disk.read(before.active.path) + b"garbage")
    log = home.open(CONFIG, recovery_point=60)
    assert "7 bytes were cut off, and the log ends at offset 60" in caplog.text
    fill(log, 5)
    assert values(log) == list(range(65))
    check(log)


def test_a_last_batch_with_a_wrong_offset_is_cut_off(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """No CRC covers it. Where the log ended says the name of the snapshot as well."""
    before = closed(home)
    *_, (position, _) = before.active.iter_headers()
    patch(home, before.active.path, b"\x10", position + 6)
    log = home.open(CONFIG, recovery_point=60)
    assert "it ends at offset 4156, and the log was closed at 60" in caplog.text
    assert log.next_offset == 59


def test_a_recovery_point_below_the_end_cuts_nothing_off(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    closed(home)
    assert values(home.open(CONFIG, recovery_point=40)) == list(range(60))
    assert caplog.text == ""


def test_epochs_that_contradict_the_batches_are_read_from_them(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    log = home.open(CONFIG)
    for epoch in (1, 4, 5):
        fill(log, 25, epoch=epoch)
    log.flush()
    log.close()
    content = home.disk.read(home.folder / LEADER_EPOCHS)
    home.disk.write(home.folder / LEADER_EPOCHS, content.replace(b"5 50", b"7 50"))
    log = home.open(CONFIG, recovery_point=75)
    assert "it says epoch 7 for the last batch, which has 5" in caplog.text
    assert log.epochs.entries == (EpochEntry(1, 0), EpochEntry(4, 25), EpochEntry(5, 50))
    assert home.disk.read(home.folder / LEADER_EPOCHS) == content


def test_a_start_after_the_end_of_a_log_that_was_closed_is_not_believed(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    closed(home)
    log = home.open(CONFIG, recovery_point=60, log_start_offset=900)
    assert "the log start offset 900 that was written down lies behind the log's end, 60" in caplog.text
    assert values(log) == list(range(60))
