"""Which log is compacted, and what of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.compaction import find_cleanable
from ottla.log.compaction.selection import filthiest
from support.logs.written_log import WrittenLog


def fill(written: WrittenLog, segments: int) -> None:
    for number in range(segments):
        written.append((b"key", b"%d" % number))
        written.append((b"other", b"%d" % number))
        written.clock.advance_ms(1000)
        written.log.roll()


def test_all_closed_segments_are_cleanable(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written, 3)
    found = find_cleanable(written.log, None, written.clock.now_ms())
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 6)
    assert (found.clean_bytes, found.dirty_bytes) == (0, written.log.size)
    assert found.is_due


@pytest.mark.parametrize(("ratio", "due"), [(0.0, True), (0.3, True), (1 / 3, False), (0.5, False)])
def test_a_log_is_due_when_its_dirty_share_is_more_than_the_ratio(tmp_path: Path, ratio: float, due: bool) -> None:
    written = WrittenLog.make(tmp_path, min_cleanable_dirty_ratio=ratio)
    fill(written, 3)
    found = find_cleanable(written.log, 4, written.clock.now_ms())
    assert found.dirty_ratio == pytest.approx(1 / 3)
    assert found.is_due is due


def test_a_clean_log_is_not_due_even_without_a_ratio(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path, min_cleanable_dirty_ratio=0.0)
    fill(written, 2)
    assert not find_cleanable(written.log, 4, written.clock.now_ms()).is_due
    empty = WrittenLog.make(tmp_path / "empty", min_cleanable_dirty_ratio=0.0)
    assert not find_cleanable(empty.log, None, empty.clock.now_ms()).is_due


def test_an_open_transaction_stops_it_at_the_segment_where_it_begins(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written, 2)
    written.append((b"a", b"1"))
    written.append((b"b", b"1"), producer_id=1, transactional=True)
    fill(written, 2)
    assert find_cleanable(written.log, None, written.clock.now_ms()).first_uncleanable_offset == 4
    written.end_transaction(1, committed=True)
    assert find_cleanable(written.log, None, written.clock.now_ms()).first_uncleanable_offset == 10


def test_nothing_above_the_high_watermark_is_touched(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written, 3)
    written.log.high_watermark = 3
    assert find_cleanable(written.log, None, written.clock.now_ms()).first_uncleanable_offset == 2


def test_segments_younger_than_the_lag_are_left_alone(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path, min_compaction_lag_ms=1500)
    fill(written, 3)  # 3, 2 and 1 second old
    assert find_cleanable(written.log, None, written.clock.now_ms()).first_uncleanable_offset == 4
    written.clock.advance_ms(500)
    assert find_cleanable(written.log, None, written.clock.now_ms()).first_uncleanable_offset == 6


def test_overdue_logs_are_compacted_whatever_the_ratio(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=2000)
    fill(written, 2)
    assert not find_cleanable(written.log, 2, written.clock.now_ms()).is_due
    written.clock.advance_ms(1001)
    found = find_cleanable(written.log, 2, written.clock.now_ms())
    assert found.overdue_ms == 1
    assert found.is_due
    assert not find_cleanable(written.log, 4, written.clock.now_ms()).is_due


def test_a_checkpoint_beyond_the_log_means_all_of_it_is_dirty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written, 2)
    assert find_cleanable(written.log, 5, written.clock.now_ms()).first_dirty_offset == 0
    assert "ends at 4" in caplog.text


def test_a_checkpoint_before_the_log_start_counts_from_there(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written, 3)
    written.log.advance_log_start(3)
    found = find_cleanable(written.log, 1, written.clock.now_ms())
    assert found.first_dirty_offset == 3
    assert found.dirty_bytes == sum(segment.size for segment in written.log.segments[1:])


def test_the_dirtiest_of_those_that_are_due_is_taken(tmp_path: Path) -> None:
    logs = [WrittenLog.make(tmp_path / name) for name in "abc"]
    for written in logs:
        fill(written, 4)
    now_ms = logs[0].clock.now_ms()
    found = [find_cleanable(written.log, offset, now_ms) for written, offset in zip(logs, (2, 0, 6), strict=True)]
    assert filthiest(found) is found[1]
    assert filthiest(found[2:]) is None
