"""The power is cut at every step of a pass: what is there afterwards is the old or the new, and never less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.log.compaction import Cleaner, CleanerOptions
from ottla.log.config import LogConfig
from ottla.log.loader import LoadOptions, load
from ottla.log.partition_log import PartitionLog
from ottla.records import Compression
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import CrashedError, SimulatedDisk, Survival
from support.logs.written_log import (
    PARTITION,
    SeenBatch,
    WrittenLog,
    engine_of,
    find_aborted,
    latest_values,
)

HOME = Path("/logs")
SETTINGS: dict[str, Any] = {"min_cleanable_dirty_ratio": 0.0, "segment_bytes": 1500, "index_interval_bytes": 200}


def write(disk: SimulatedDisk, clock: ManualClock, engine: str) -> WrittenLog:
    """Two segments that will be one, transactions of both outcomes, tombstones, a producer whose last batch goes empty,
    and an end that loses everything."""
    written = WrittenLog.make(HOME, disk=disk, clock=clock, engine=engine, **SETTINGS)
    for turn in range(6):
        written.append(*((b"k%d" % (turn + i), b"v" * 30) for i in range(4)), compression=Compression(turn % 5))
        written.append((b"a", b"%d" % turn), (b"b", None), producer_id=1)
        written.append((b"k1", b"never"), (b"x", b"%d" % turn), producer_id=11, transactional=True)
        written.append((b"k2", b"t%d" % turn), producer_id=12, transactional=True)
        written.end_transaction(11, committed=turn == 2)
        written.end_transaction(12, committed=turn != 3)
        clock.advance_ms(400)
    written.log.roll()
    written.append((b"y", b"1"), (b"z", b"1"))
    written.log.roll()
    written.append((b"y", b"2"), (b"z", b"2"))
    written.log.roll()
    written.log.flush()
    return written


def reopen(disk: SimulatedDisk, clock: ManualClock, recovery_point: int) -> PartitionLog:
    config = LogConfig(compacts=True, deletes=False, delete_retention_ms=1000, **SETTINGS)
    log = load(disk, clock, HOME / str(PARTITION), PARTITION, config, LoadOptions(recovery_point=recovery_point))
    log.set_high_watermark(log.next_offset)
    return log


def contents(disk: SimulatedDisk, log: PartitionLog) -> list[SeenBatch]:
    return WrittenLog(
        disk, ManualClock(), log, Cleaner(disk, ManualClock(), CleanerOptions()), CleanerOptions()
    ).batches()


def all_by_reading(log: PartitionLog) -> list[int]:
    """Base offsets of the batches that a consumer of everything is given."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.next_offset:
        read = log.read(offset, 200)
        if read.slice is None:
            break
        data = read.slice.read()
        size = int.from_bytes(data[8:12], "big") + 12
        found.append(int.from_bytes(data[:8], "big"))
        offset = found[-1] + int.from_bytes(data[23:27], "big") + 1
        assert size <= len(data)
    return found


@pytest.mark.parametrize(
    ("survival", "passes", "engine"),
    [
        *((survival, 1, "fast") for survival in Survival),
        (Survival.EVERYTHING, 3, "fast"),
        (Survival.NOTHING, 3, "fast"),
        (Survival.SEEDED, 3, "plain"),  # the steps on the disk are the same
    ],
)
def test_no_step_of_a_pass_can_lose_a_record(survival: Survival, passes: int, engine: str) -> None:
    """With three passes, markers and tombstones go as well."""
    step = 0
    while True:
        clock = ManualClock()
        disk = SimulatedDisk(step, clock=clock)
        written = write(disk, clock, engine)
        for _ in range(passes - 1):
            assert written.compact() is not None
            written.append((b"k1", b"more"), (b"fresh", None))
            clock.advance_ms(2000)
        written.log.roll()
        disk.sync_all()
        log = written.log
        before = written.batches()
        next_offset = log.next_offset
        disk.crash_before(disk.steps + step, survival)
        crashed = True
        try:
            written.compact(roll=False)
            crashed = False
            disk.crash(survival)
        except CrashedError:
            pass
        disk.restart()
        after_log = reopen(disk, clock, next_offset)
        after = contents(disk, after_log)

        where = f"step {step}"
        assert after_log.next_offset == next_offset, where
        assert latest_values(after, find_aborted(after)) == latest_values(before, find_aborted(before)), where
        offsets = [batch.header.base_offset for batch in after]
        assert offsets == sorted(set(offsets)), where
        assert set(offsets) <= {batch.header.base_offset for batch in before}, where
        assert all_by_reading(after_log) == offsets, where
        for segment in after_log.segments:
            segment.check_indexes()
        check_transaction_indexes(after_log, after, where)
        left = {path.name for path in disk.contents() if path.parent == log.directory}
        assert not [name for name in left if name.endswith((".cleaned", ".swap"))], where

        # And the next pass gets to the same end.
        cleaner = Cleaner(disk, clock, CleanerOptions(), engine=engine_of(engine))
        compaction = cleaner.choose([after_log])
        if compaction is not None:
            cleaner.run(compaction)
        last = contents(disk, after_log)
        assert latest_values(last, set()) == latest_values(before, find_aborted(before)), where
        if not crashed:
            return
        step += 1


def check_transaction_indexes(log: PartitionLog, batches: list[SeenBatch], where: str) -> None:
    """A reader of committed records is told of an abort if and only if its marker follows: without the one it would see
    aborted records, without the other it would skip what the producer wrote later."""
    markers = {(batch.header.producer_id, batch.header.base_offset) for batch in batches if batch.committed is False}
    told = {
        (aborted.producer_id, aborted.last_offset)
        for segment in log.segments
        for aborted in segment.transaction_index.all()
    }
    assert told <= markers, where
    for base_offset in find_aborted(batches):
        batch = next(batch for batch in batches if batch.header.base_offset == base_offset)
        if batch.records:
            listed = [
                aborted
                for segment in log.segments
                for aborted in segment.transaction_index.all()
                if aborted.producer_id == batch.header.producer_id
                and aborted.first_offset <= base_offset < aborted.last_offset
            ]
            assert listed, f"{where}: aborted batch {base_offset}"
