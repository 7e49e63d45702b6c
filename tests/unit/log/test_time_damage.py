"""A time index that lies: neither retention nor a search by time may believe it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import apply_retention
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import SimulatedDisk
from support.logs.batches import NOW_MS, batch
from support.logs.home import ROOT, Home

CONFIG = LogConfig(retention_ms=-1, segment_ms=2**62, segment_bytes=1000, index_interval_bytes=150)
RECORDS = 60
TIMES_MS = [NOW_MS + offset * 1000 for offset in range(RECORDS)]


@pytest.fixture
def home() -> Home:
    clock = ManualClock()
    return Home(SimulatedDisk(clock=clock), clock, ROOT)


def reopened(home: Home, config: LogConfig = CONFIG) -> PartitionLog:
    log = home.open(config, clean=True, recovery_point=RECORDS)
    log.set_high_watermark(log.next_offset)
    return log


@pytest.fixture
def written(home: Home) -> Home:
    """Some closed segments and an active one, each with several entries in its time index; closed cleanly."""
    log = home.open(CONFIG)
    for timestamp_ms in TIMES_MS:
        log.append_as_leader(batch([b"x"], timestamp_ms=timestamp_ms), 0)
    assert len(log.segments) > 3
    log.flush()
    log.close()
    return home


def damages(home: Home) -> Iterator[Callable[[], None]]:
    """Each breaks a byte, in one of its bits, or the last entry, of one time index, and mends the one before it."""
    disk = home.disk
    log = reopened(home)
    paths = [log.segments[at].time_index.path for at in (0, 2, -1)]
    log.abandon()
    for path in paths:
        content = disk.read(path)
        assert len(content) >= 24
        for at in range(len(content)):
            flipped = bytearray(content)
            flipped[at] ^= 1 << at * 5 % 8
            yield partial(disk.write, path, flipped)
        for cut in (content[:-12], b""):
            yield partial(disk.write, path, cut)
        disk.write(path, content)


def test_records_are_found_by_their_time(written: Home) -> None:
    repaired = 0
    for damage in damages(written):
        damage()
        log = reopened(written)
        for offset in (0, 1, 7, 20, 33, 44, 58, 59):
            for early_ms in (0, 1):
                found = log.offset_for_timestamp(TIMES_MS[offset] - early_ms)
                assert found is not None
                assert (found.timestamp_ms, found.offset) == (TIMES_MS[offset], offset)
        assert log.offset_for_timestamp(TIMES_MS[-1] + 1) is None
        newest = log.offset_of_max_timestamp()
        assert newest is not None
        assert newest.offset == RECORDS - 1
        repaired += log.damages.repair_count
        assert log.damages.count == 0
        log.abandon()
    assert repaired


def test_records_are_appended_and_found(written: Home) -> None:
    files = written.disk
    more_ms = [TIMES_MS[-1] + number * 1000 for number in range(1, 31)]
    for damage in damages(written):
        damage()
        kept = {path: files.read(written.folder / path) for path in files.list(written.folder)}
        log = reopened(written)
        for timestamp_ms in more_ms:
            log.append_as_leader(batch([b"y"], timestamp_ms=timestamp_ms), 0)
        for place, timestamp_ms in enumerate(more_ms):
            found = log.offset_for_timestamp(timestamp_ms)
            assert found is not None
            assert found.offset == RECORDS + place
        log.abandon()
        restore(written, kept)


def restore(home: Home, kept: dict[str, bytes]) -> None:
    for name in home.disk.list(home.folder):
        home.disk.remove(home.folder / name)
    for name, content in kept.items():
        home.disk.write(home.folder / name, content)


def test_retention_deletes_nothing_that_is_not_old(written: Home) -> None:
    log = reopened(written)
    bases = [segment.base_offset for segment in log.segments]
    log.abandon()
    middle = bases[2]
    written.clock.advance_ms(TIMES_MS[-1] - written.clock.now_ms())
    config = replace(CONFIG, retention_ms=written.clock.now_ms() - TIMES_MS[middle])
    files = written.disk
    for damage in damages(written):
        damage()
        kept = {path: files.read(written.folder / path) for path in files.list(written.folder)}
        log = reopened(written, config)
        apply_retention(log)
        # A timestamp that became newer by less than an hour is believed, and keeps records for so long.
        assert log.log_start_offset <= middle
        log.abandon()
        restore(written, kept)


def test_retention_does_not_believe_that_records_come_from_the_future(written: Home) -> None:
    log = reopened(written)
    path = log.segments[0].time_index.path
    log.abandon()
    content = bytearray(written.disk.read(path))
    content[-12 + 2] ^= 0x40  # of the last entry's timestamp
    written.disk.write(path, content)
    written.clock.advance_ms(TIMES_MS[-1] + 10_000 - written.clock.now_ms())
    log = reopened(written, replace(CONFIG, retention_ms=1))
    apply_retention(log)
    assert log.log_start_offset == RECORDS
    assert log.damages.repair_count == 1
