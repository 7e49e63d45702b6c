from __future__ import annotations

import struct

import pytest

from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.scrub import Scrubber, repair, scrub_segment
from support.logs.batches import NOW_MS, batch
from support.logs.home import Home

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150)


def filled(home: Home) -> PartitionLog:
    log = home.open(CONFIG)
    for offset in range(60):
        log.append_as_leader(batch([b"%d" % offset], timestamp_ms=NOW_MS + offset), 0)
    log.flush()
    return log


def test_a_valid_segment_is_reported_as_such(home: Home) -> None:
    log = filled(home)
    spent: list[int] = []
    for segment, end_offset in log.segment_ends():
        found = scrub_segment(log, segment, end_offset, spent.append)
        assert (found.byte_count, found.damage, found.lying_index) == (segment.size, None, False)
    assert sum(spent) == log.size
    assert log.damages.count == 0


@pytest.mark.parametrize("at", [*range(12), *range(16, 70)])
def test_damage_is_reported_wherever_it_is(home: Home, at: int, caplog: pytest.LogCaptureFixture) -> None:
    """All but the leader epoch, which nothing covers: under a running broker, in what its readers have seen."""
    log = filled(home)
    segment, end_offset = log.segment_ends()[2]
    position = list(segment.iter_headers())[4][0]
    content = bytearray(log.disk.read(segment.path))
    content[position + at] ^= 1 << at % 8
    log.disk.write(segment.path, content)
    found = scrub_segment(log, segment, end_offset)
    assert found.damage is not None
    assert log.damages.count == 1
    assert f"{segment.path} is damaged at byte" in caplog.text


def test_an_index_that_lies_is_rebuilt(home: Home) -> None:
    log = filled(home)
    segment, end_offset = log.segment_ends()[1]
    path = segment.offset_index.path
    content = log.disk.read(path)
    offset, position = struct.unpack_from(">ii", content, 8)
    segment.release_indexes()
    log.disk.write(path, content[:8] + struct.pack(">ii", offset, position ^ 64) + content[16:])
    found = scrub_segment(log, segment, end_offset)
    assert found.lying_index
    repair(segment, found)
    assert log.disk.read(path) == content
    assert log.damages.repair_count == 1


def test_a_segment_cut_at_the_end_of_a_batch_is_reported(home: Home) -> None:
    log = filled(home)
    *_, (position, _) = log.segments[0].iter_headers()
    log.disk.write(log.segments[0].path, log.disk.read(log.segments[0].path)[:position])
    log = home.open(CONFIG)
    assert scrub_segment(log, *log.segment_ends()[0]).damage is not None


def test_each_closed_segment_has_its_turn(home: Home) -> None:
    log = filled(home)
    scrubber, clock = Scrubber(), home.clock
    assert scrubber.due([log], clock.now_ms(), 1_000_000) == []
    clock.advance_ms(600_000)
    tasks = scrubber.due([log], clock.now_ms(), 1_000_000)
    assert [task.segment for task in tasks] == list(log.segments[:-1])
    for task in tasks[1:]:
        scrubber.done(task, clock.now_ms())
    assert [task.segment for task in scrubber.due([log], clock.now_ms(), 1_000_000)] == [log.segments[0]]
    clock.advance_ms(1_000_000)
    assert len(scrubber.due([log], clock.now_ms(), 1_000_000)) == len(tasks)
    scrubber.forget_gone([])
    assert scrubber._done_ms == {}
    log.delete_segments([])
    assert tasks[0].is_present
    log.set_high_watermark(60)
    log.delete_segments([tasks[0].segment])
    assert not tasks[0].is_present
