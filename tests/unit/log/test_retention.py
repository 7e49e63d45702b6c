from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.config import LogConfig
from ottla.log.errors import CorruptRecordsError
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import apply_retention
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import SimulatedDisk
from support.examples import examples
from support.logs.batches import NOW_MS, batch, values_of
from support.logs.checker import check, records_in
from support.logs.home import ROOT, Home
from support.logs.written_log import WrittenLog

CONFIG = LogConfig(retention_ms=-1, segment_ms=2**62, index_interval_bytes=150)
SECOND = 1000


def made(home: Home, config: LogConfig = CONFIG, segments: int = 5, *, timestamps: bool = True) -> PartitionLog:
    """Segments of four records each, a second apart, the last of them active; all replicated."""
    log = home.open(config)
    for index in range(segments):
        log.roll()
        for _ in range(4):
            timestamp_ms = NOW_MS + index * SECOND if timestamps else -1
            log.append_as_leader(batch([b"%d" % log.next_offset], timestamp_ms=timestamp_ms), 0)
    log.set_high_watermark(log.next_offset)
    return log


def kept(log: PartitionLog) -> list[int]:
    """The first offsets of the segments; what they hold must be all there."""
    check(log)
    assert [int(value or b"") for value in values_of(records_in(log))] == list(
        range(log.log_start_offset, log.next_offset)
    )
    return [segment.base_offset for segment in log.segments]


# By time


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [(0, [0, 4, 8, 12, 16]), (9, [0, 4, 8, 12, 16]), (10, [4, 8, 12, 16]), (12, [12, 16]), (13, [16])],
)
def test_segments_go_when_their_newest_record_is_too_old(home: Home, age_s: int, expected: list[int]) -> None:
    log = made(home, replace(CONFIG, retention_ms=9_999))
    home.clock.advance_ms(age_s * SECOND)
    assert apply_retention(log) == 5 - len(expected)
    assert kept(log) == expected
    assert log.log_start_offset == expected[0]
    assert apply_retention(log) == 0


def test_an_active_segment_that_cannot_be_closed_does_not_keep_the_others(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made(home, replace(CONFIG, retention_ms=1))
    home.clock.advance_ms(60 * SECOND)

    def refuse(_: PartitionLog) -> None:
        raise CorruptRecordsError("the active segment is damaged")

    with monkeypatch.context() as broken:
        broken.setattr(PartitionLog, "roll", refuse)
        with pytest.raises(CorruptRecordsError):
            apply_retention(log)
    assert kept(log) == [16]
    assert apply_retention(log) == 1


def test_a_record_may_be_exactly_as_old_as_the_topic_says(home: Home) -> None:
    log = made(home, replace(CONFIG, retention_ms=10_000))
    home.clock.advance_ms(10_000)
    assert apply_retention(log) == 0
    home.clock.advance_ms(1)
    assert apply_retention(log) == 1


def test_without_a_limit_nothing_is_too_old(home: Home) -> None:
    log = made(home)
    home.clock.advance_ms(10**12)
    assert apply_retention(log) == 0


def test_a_young_segment_keeps_older_ones_after_it(home: Home) -> None:
    log = home.open(replace(CONFIG, retention_ms=10_000))
    for seconds in (0, 20, 0, 30):
        log.roll()
        log.append_as_leader(batch([b"%d" % log.next_offset], timestamp_ms=NOW_MS + seconds * SECOND), 0)
    log.set_high_watermark(4)
    home.clock.advance_ms(15 * SECOND)
    assert apply_retention(log) == 1
    assert kept(log) == [1, 2, 3], "segments go from the oldest on, without a gap"


def test_without_timestamps_the_file_tells_the_time() -> None:
    clock = ManualClock()
    home = Home(SimulatedDisk(clock=clock), clock, ROOT)
    log = made(home, replace(CONFIG, retention_ms=10_000), timestamps=False)
    clock.advance_ms(10_000)
    assert apply_retention(log) == 0
    clock.advance_ms(1)
    assert apply_retention(log) == 5


def test_when_everything_is_too_old_the_active_segment_is_closed_and_goes_too(home: Home) -> None:
    log = made(home, replace(CONFIG, retention_ms=10_000))
    home.clock.advance_ms(3600 * SECOND)
    assert apply_retention(log) == 5
    assert kept(log) == [20]
    assert (log.log_start_offset, log.next_offset, log.size) == (20, 20, 0)
    assert apply_retention(log) == 0, "an empty active segment stays"
    log.append_as_leader(batch([b"20"], timestamp_ms=NOW_MS + 3600 * SECOND), 0)
    assert kept(log) == [20]


# By size


def test_the_oldest_go_as_long_as_enough_is_left(home: Home) -> None:
    log = made(home)
    sizes = [segment.size for segment in log.segments]
    for limit, expected in (
        (sum(sizes), 5),
        (sum(sizes[1:]) + 1, 5),
        (sum(sizes[1:]), 4),
        (sum(sizes[3:]) + 1, 3),
        (sizes[4], 1),
    ):
        log.update_config(replace(CONFIG, retention_bytes=limit))
        apply_retention(log)
        assert len(kept(log)) == expected
        assert log.size >= limit


def test_a_limit_of_no_bytes_leaves_an_empty_log(home: Home) -> None:
    log = made(home, replace(CONFIG, retention_bytes=0))
    assert apply_retention(log) == 5
    assert (kept(log), log.size) == ([20], 0)


# By start offset


def test_segments_below_the_logs_start_go(home: Home) -> None:
    log = made(home)
    log.advance_log_start(7)
    assert apply_retention(log) == 1
    assert kept(log) == [4, 8, 12, 16]
    assert log.log_start_offset == 7, "within a segment nothing is cut"
    log.advance_log_start(20)
    assert apply_retention(log) == 3
    assert kept(log) == [16], "never the active one"
    assert log.log_start_offset == 20


def test_a_compacted_log_loses_only_what_is_below_its_start(home: Home) -> None:
    config = replace(CONFIG, compacts=True, deletes=False, retention_ms=1, retention_bytes=0)
    log = made(home, config)
    home.clock.advance_ms(10**9)
    log.advance_log_start(9)
    assert apply_retention(log) == 2
    assert kept(log) == [8, 12, 16]
    log.update_config(replace(config, deletes=True))
    apply_retention(log)
    assert kept(log) == [20]


# Bounds


@pytest.mark.parametrize(("high_watermark", "expected"), [(0, 0), (3, 0), (4, 4), (11, 8), (19, 16), (20, 20)])
def test_nothing_goes_that_is_not_replicated(home: Home, high_watermark: int, expected: int) -> None:
    log = made(home, replace(CONFIG, retention_ms=1, retention_bytes=0))
    log.set_high_watermark(high_watermark)
    home.clock.advance_ms(10**9)
    apply_retention(log)
    assert kept(log)[0] == log.log_start_offset == expected
    assert log.next_offset == 20


@pytest.mark.parametrize("committed", [True, False])
def test_retention_does_not_wait_for_open_transactions(tmp_path: Path, committed: bool) -> None:
    """As in Kafka: one that nobody ends would fill the disk. What is left of it ends as decided."""
    written = WrittenLog.make(tmp_path, compacts=False, deletes=True, retention_ms=9 * SECOND, segment_ms=2**62)
    for number in range(3):
        written.append((b"k", b"%d" % number), producer_id=7, transactional=True)
        written.log.roll()
        written.clock.advance_ms(4 * SECOND)
    assert written.log.last_stable_offset == 0
    assert apply_retention(written.log) == 1
    assert written.log.log_start_offset == written.log.last_stable_offset == 1
    written.reopen()
    assert written.log.last_stable_offset == 1
    written.end_transaction(7, committed=committed)
    assert written.log.last_stable_offset == 4
    written.reopen()
    found = written.log.read(1, 10_000, with_aborted=True)
    assert [each.first_offset for each in found.aborted_transactions or ()] == ([] if committed else [0])
    written.clock.advance_ms(10 * SECOND)
    apply_retention(written.log)
    assert written.log.log_start_offset == written.log.last_stable_offset == 4


def test_deleted_records_do_not_come_back_after_a_restart(home: Home) -> None:
    config = replace(CONFIG, retention_ms=9_999, file_delete_delay_ms=60_000)
    log = made(home, config)
    home.clock.advance_ms(11 * SECOND)
    assert apply_retention(log) == 2
    assert [name for name in home.names() if name.endswith(".deleted")]
    log = home.open(config, clean=False)
    assert kept(log) == [8, 12, 16]
    assert not [name for name in home.names() if name.endswith(".deleted")]


def test_snapshots_of_producers_go_with_their_segments(home: Home) -> None:
    log = made(home, replace(CONFIG, retention_ms=9_999))
    home.clock.advance_ms(12 * SECOND)
    apply_retention(log)
    assert [name for name in home.names() if name.endswith(".snapshot")] == [
        f"{12:020d}.snapshot",
        f"{16:020d}.snapshot",
    ]


@settings(deadline=None, max_examples=examples(60))
@given(
    ages_s=st.lists(st.integers(0, 20), min_size=1, max_size=8),
    retention_s=st.integers(-1, 20),
    size_limit=st.integers(-1, 800),
    start=st.integers(0, 20),
    high_watermark=st.integers(0, 20),
)
def test_retention_in_plain_words(
    ages_s: list[int], retention_s: int, size_limit: int, start: int, high_watermark: int
) -> None:
    clock = ManualClock()
    home = Home(SimulatedDisk(clock=clock), clock, ROOT)
    config = replace(CONFIG, retention_ms=retention_s * SECOND if retention_s >= 0 else -1, retention_bytes=size_limit)
    log = home.open(config)
    for age_s in ages_s:
        log.roll()
        log.append_as_leader(batch([b"%d" % log.next_offset], timestamp_ms=NOW_MS - age_s * SECOND), 0)
    log.set_high_watermark(high_watermark)
    log.advance_log_start(min(start, log.high_watermark))
    size, last = log.segments[0].size, len(ages_s)
    first = min(log.log_start_offset, last - 1)
    if size_limit >= 0:
        while first < last and first < log.high_watermark and (last - first) * size - size >= size_limit:
            first += 1
    if retention_s >= 0:
        while first < last and first < log.high_watermark and ages_s[first] > retention_s:
            first += 1
    apply_retention(log)
    assert kept(log) == (list(range(first, last)) or [last])


# What is told


@pytest.mark.parametrize(
    ("config", "start", "told"),
    [
        (
            {"retention_ms": 9_999},
            0,
            "removed 3 segments with offsets below 12, {} bytes: older than retention.ms=9999",
        ),
        (
            {"retention_bytes": 1},
            0,
            "removed 4 segments with offsets below 16, {} bytes: more than retention.bytes=1",
        ),
        ({}, 4, "removed 1 segment with offsets below 4, {} bytes: below the log start offset 4"),
        ({}, 0, None),
    ],
)
def test_a_line_says_which_segments_went_and_why(
    home: Home, caplog: pytest.LogCaptureFixture, config: dict[str, int], start: int, told: str | None
) -> None:
    caplog.set_level(logging.INFO, "ottla")
    log = made(home, replace(CONFIG, **config))  # type: ignore[arg-type]
    home.clock.advance_ms(12 * SECOND)
    if start:
        log.advance_log_start(start)
    sizes = {segment.base_offset: segment.size for segment in log.segments}
    caplog.clear()
    apply_retention(log)
    size = sum(size for offset, size in sizes.items() if offset < log.segments[0].base_offset)
    expected = [] if told is None else [f"{log.partition}: {told.format(size)}"]
    assert [record.getMessage() for record in caplog.records] == expected
