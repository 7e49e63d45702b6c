from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.earlier_batches import earlier_batches
from ottla.log.errors import (
    CorruptRecordsError,
    FileError,
    InvalidProducerEpochError,
    InvalidReadSizeError,
    InvalidRecordsError,
    LogOffsetOutOfRangeError,
    LogRecordTooLargeError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    UnexpectedOffsetError,
)
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_entry import ProducerEntry, RecentBatch
from ottla.log.segment import Segment
from ottla.log.validation import AppendInfo
from ottla.records import BatchView, Compression, TimestampType, iter_batches
from ottla.records.layout import ATTRIBUTES_AT
from ottla.records.new_batch import NewBatch
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import DiskOperation, SimulatedDisk
from support.logs.batches import NOW_MS, batch, marker, records_of, values_of
from support.logs.checker import check, records_in
from support.logs.home import PARTITION, Home

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)
DAY_MS = 86_400_000
"""Some twelve batches of one record a segment, an index entry for every second."""


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def fill(log: PartitionLog, count: int, *, epoch: int = 0) -> None:
    """Appends so many batches of one record, whose value is its offset and whose time rises."""
    for _ in range(count):
        offset = log.next_offset
        log.append_as_leader(batch([b"%d" % offset], timestamp_ms=NOW_MS + offset), epoch)


def read_values(log: PartitionLog, offset: int, max_bytes: int = 1_000_000, bound: int | None = None) -> list[int]:
    """The values of what one read returns."""
    found = log.read(offset, max_bytes, bound=bound).slice
    return [] if found is None else [int(value or b"") for value in values_of(records_of(found.read()))]


# Append as leader


def test_records_get_the_next_offsets_and_the_leaders_epoch(home: Home) -> None:
    log = home.open()
    first = log.append_as_leader(batch(3), 4)
    second = log.append_as_leader(batch(2), 5)
    assert (first.first_offset, first.last_offset, first.log_start_offset) == (0, 2, 0)
    assert (second.first_offset, second.last_offset) == (3, 4)
    assert log.next_offset == 5
    assert [record.offset for record in records_in(log)] == [0, 1, 2, 3, 4]
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(4, 0), (5, 3)]
    check(log)


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, compacts=True),
        replace(SMALL, compression=Compression.GZIP),
        replace(SMALL, timestamp_type=TimestampType.LOG_APPEND_TIME),
        replace(SMALL, segment_ms=40),
        replace(SMALL, flush_messages=3),
    ],
    ids=["plain", "compacted", "compressed", "stamped", "rolled by time", "flushed"],
)
def test_what_a_broker_makes_itself_is_appended_as_from_a_client(home: Home, config: LogConfig) -> None:
    """The same files, byte for byte, whether it is looked at or not: new epochs, full segments, transactions."""
    own = home.open(config)
    other = Home(home.disk, home.clock, home.root / "other")
    looked_at = other.open(config)
    for number in range(60):
        made = batch(number % 3 + 1, timestamp_ms=NOW_MS + number)
        new = NewBatch(bytes(made[ATTRIBUTES_AT:]), number % 3 + 1, NOW_MS + number)
        if number == 50:
            made = batch(
                1, timestamp_ms=NOW_MS + number, producer_id=7, producer_epoch=0, sequence=0, transactional=True
            )
            new = NewBatch(bytes(made[ATTRIBUTES_AT:]), 1, NOW_MS + number, is_transactional=True)
        epoch = number // 25
        end = own.append_own(new, epoch)
        assert end == looked_at.append_as_leader(made, epoch, origin=AppendOrigin.COORDINATOR).last_offset + 1
        assert own.next_offset == own.producers.map_end_offset == end
        assert own.recovery_point == looked_at.recovery_point
    assert len(own.segments) > 3
    assert own.first_unstable_offset == looked_at.first_unstable_offset is not None
    for log in (own, looked_at):
        check(log)
        log.close()
    names = [name for name in home.names() if not name.endswith(".metadata")]
    assert names == [name for name in other.names() if not name.endswith(".metadata")]
    for name in names:
        assert home.disk.read(home.folder / name) == home.disk.read(other.folder / name), name


def test_a_broker_does_not_make_batches_that_are_too_large(home: Home) -> None:
    log = home.open(replace(SMALL, max_message_bytes=100))
    log.append_own(NewBatch(bytes(batch(1)[ATTRIBUTES_AT:]), 1, NOW_MS), 0)
    with pytest.raises(LogRecordTooLargeError):
        log.append_own(NewBatch(bytes(batch([b"x" * 100])[ATTRIBUTES_AT:]), 1, NOW_MS), 0)
    assert log.next_offset == 1


def test_nothing_to_append_changes_nothing(home: Home) -> None:
    log = home.open()
    info = log.append_as_leader(b"", 0)
    assert (info.headers, log.next_offset, log.size) == ((), 0, 0)
    assert log.append_as_follower(b"").headers == ()


def test_the_producer_gets_the_log_append_time(home: Home) -> None:
    log = home.open(LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
    home.clock.advance_ms(5)
    assert log.append_as_leader(batch(1, timestamp_ms=3), 0).log_append_time_ms == NOW_MS + 5
    assert [record.timestamp_ms for record in records_in(log)] == [NOW_MS + 5]


def test_batches_are_recompressed_and_found(home: Home) -> None:
    log = home.open(LogConfig(compression=Compression.LZ4))
    log.append_as_leader(batch([b"abc " * 100], compression=Compression.GZIP), 0)
    assert values_of(records_in(log)) == [b"abc " * 100]
    assert [found.header.compression for found in check(log)] == [Compression.LZ4]


def test_a_refused_batch_leaves_no_trace(home: Home) -> None:
    log = home.open(LogConfig(compacts=True))
    log.append_as_leader(batch(1), 0)
    broken = batch(1)
    broken[-1] ^= 1
    for data in (batch(1, key=None), marker(4, committed=True), broken):
        with pytest.raises((InvalidRecordsError, CorruptRecordsError)):
            log.append_as_leader(data, 9)
    assert log.next_offset == 1
    assert [entry.epoch for entry in log.epochs.entries] == [0]
    check(log)


def test_batches_must_fit_a_segment(home: Home) -> None:
    log = home.open(LogConfig(segment_bytes=500))
    with pytest.raises(RecordListTooLargeError, match="500"):
        log.append_as_leader(batch([bytes(600)]), 0)
    log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, sequence=5), 0)
    with pytest.raises(RecordListTooLargeError):  # before its sequence is looked at, as in Kafka
        log.append_as_leader(batch([bytes(600)], producer_id=9, producer_epoch=0, sequence=7), 0)


def test_a_follower_takes_what_its_leader_has_in_as_many_segments_as_it_needs(home: Home) -> None:
    log = home.open(LogConfig(segment_bytes=500))
    sizes = (600, 100, 200, 400, 50)
    batches = [batch([bytes(size)], base_offset=n, leader_epoch=0) for n, size in enumerate(sizes)]
    info = log.append_as_follower(b"".join(batches))
    assert (info.first_offset, info.last_offset, log.next_offset) == (0, 4, 5)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 3, 4]
    assert b"".join(segment.log.read_at(0, segment.size) for segment in log.segments) == b"".join(batches)


def test_a_follower_leaves_out_batches_of_epochs_that_are_not_its_leaders(home: Home) -> None:
    log = home.open(LogConfig())
    batches = [batch([b"x"], base_offset=n, leader_epoch=epoch) for n, epoch in enumerate((3, 4, 5))]
    assert log.append_as_follower(b"".join(batches), max_epoch=4).last_offset == 1
    assert log.append_as_follower(batches[2], max_epoch=4).headers == ()
    assert (log.next_offset, log.epochs.latest_epoch) == (2, 4)


def test_batches_that_do_not_fit_a_segment_leave_no_trace(home: Home) -> None:
    log = home.open(LogConfig(segment_bytes=500))
    with pytest.raises(RecordListTooLargeError):
        log.append_as_leader(batch([bytes(600)]), 0)
    assert (log.next_offset, log.size, bases(log)) == (0, 0, [0])
    assert log.epochs.entries == ()


# Producers


def test_a_duplicate_is_answered_with_its_first_offsets(home: Home) -> None:
    log = home.open()
    for sequence in range(6):
        log.append_as_leader(batch(2, producer_id=9, producer_epoch=0, sequence=sequence * 2), 0)
    size = log.size
    for sequence in range(1, 6):
        again = log.append_as_leader(batch(2, producer_id=9, producer_epoch=0, sequence=sequence * 2), 0)
        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (sequence * 2, sequence * 2 + 1)
    assert (log.next_offset, log.size) == (12, size)
    with pytest.raises(OutOfOrderSequenceError):  # the sixth last is forgotten
        log.append_as_leader(batch(2, producer_id=9, producer_epoch=0, sequence=0), 0)
    check(log)


@pytest.mark.parametrize("kept", list(TimestampType))
def test_a_duplicate_gets_the_time_of_its_first_append(home: Home, kept: TimestampType) -> None:
    log = home.open(LogConfig(timestamp_type=kept))
    data = batch(1, producer_id=9, producer_epoch=0, sequence=0)
    log.append_as_leader(bytes(data), 0)
    home.clock.advance_ms(77)
    assert log.append_as_leader(bytes(data), 0).log_append_time_ms == NOW_MS


@pytest.mark.parametrize("clean", [True, False])
def test_a_duplicate_is_known_after_a_restart(home: Home, clean: bool) -> None:
    log = home.open(SMALL)
    for sequence in range(30):
        log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, sequence=sequence), 0)
    if clean:
        log.close()
    log = home.open(SMALL, clean=clean)
    again = log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, sequence=29), 0)
    assert (again.is_duplicate, again.first_offset, log.next_offset) == (True, 29, 30)
    log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, sequence=30), 0)
    check(log)


def produce(log: PartitionLog, sequence: int, producer_id: int = 9, epoch: int = 0) -> AppendInfo:
    return log.append_as_leader(batch(2, producer_id=producer_id, producer_epoch=epoch, sequence=sequence), 0)


@pytest.mark.parametrize("others", [0, 1, 40])
@pytest.mark.parametrize("how", ["restart", "truncation"])
def test_a_snapshot_does_not_make_the_last_five_batches_unknown(home: Home, how: str, others: int) -> None:
    """A producer with five batches on their way retries the first after it heard nothing: a snapshot has the last."""
    log = home.open(SMALL)
    for number in range(9):
        for other in range(others):
            produce(log, number * 2, producer_id=100 + other)
        produce(log, number * 2)
    end = log.next_offset
    if how == "restart":
        log.close()
        log = home.open(SMALL)
    else:
        log.roll()  # takes the snapshot that truncation goes back to
        produce(log, 18)
        log.truncate_to(end)
    assert len(log.producers.entries[9].batches) == 1
    for number in range(4, 9):
        again = produce(log, number * 2)
        assert (again.is_duplicate, again.first_offset) == (True, number * (others + 1) * 2 + others * 2)
    with pytest.raises(OutOfOrderSequenceError):  # the sixth last is forgotten, as ever
        produce(log, 6)
    assert log.next_offset == end
    assert not produce(log, 18).is_duplicate
    check(log)


def test_the_log_is_searched_once_for_batches_that_a_snapshot_lacks(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = home.open(SMALL)
    for number in range(9):
        produce(log, number * 2)
    log.close()
    log = home.open(SMALL)
    searches = []

    def search(segments: Sequence[Segment], entry: ProducerEntry, log_start_offset: int) -> list[RecentBatch]:
        searches.append(entry.producer_id)
        return earlier_batches(segments, entry, log_start_offset)

    monkeypatch.setattr("ottla.log.partition_log.earlier_batches", search)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 20)  # a gap: nothing before the last batch can explain it
    assert not searches
    for _ in range(3):
        with pytest.raises(OutOfOrderSequenceError):
            produce(log, 0)
    assert len(searches) == 1
    assert len(log.producers.entries[9].batches) == 5


def test_batches_of_an_earlier_epoch_or_before_the_logs_start_are_not_recalled(home: Home) -> None:
    log = home.open(SMALL)
    for epoch in (0, 1):
        for number in range(3):
            produce(log, number * 2, epoch=epoch)
    log.close()
    log = home.open(SMALL)
    entry = log.producers.entries[9]
    assert [each.first_offset for each in earlier_batches(log.segments, entry, 0)] == [6, 8]
    assert [each.first_offset for each in earlier_batches(log.segments, entry, 8)] == [8]
    assert earlier_batches(log.segments, entry, 0, headers_max=0) == []
    with pytest.raises(InvalidProducerEpochError):
        produce(log, 4, epoch=0)
    assert produce(log, 0, epoch=1).first_offset == 6


def test_the_search_for_a_producers_batches_is_bounded(home: Home) -> None:
    log = home.open(LogConfig(segment_bytes=100_000))
    produce(log, 0)
    for number in range(600):
        produce(log, number * 2, producer_id=10)
    produce(log, 2)
    log.close()
    log = home.open(LogConfig(segment_bytes=100_000))
    entry = log.producers.entries[9]
    assert earlier_batches(log.segments, entry, 0, headers_max=100) == []
    assert [each.first_offset for each in earlier_batches(log.segments, entry, 0)] == [0]


def test_a_gap_and_an_old_epoch_are_refused(home: Home) -> None:
    log = home.open()
    log.append_as_leader(batch(2, producer_id=9, producer_epoch=3, sequence=0), 0)
    with pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(batch(1, producer_id=9, producer_epoch=3, sequence=5), 0)
    with pytest.raises(InvalidProducerEpochError):
        log.append_as_leader(batch(1, producer_id=9, producer_epoch=2, sequence=2), 0)
    assert log.next_offset == 2
    check(log)


def test_a_follower_replays_what_a_producer_did(home: Home) -> None:
    log = home.open()
    data = [
        batch(2, base_offset=0, leader_epoch=1, producer_id=9, producer_epoch=0, sequence=0),
        batch(2, base_offset=2, leader_epoch=1, producer_id=9, producer_epoch=0, sequence=2),
    ]
    for each in data:
        log.append_as_follower(each)
    assert log.append_as_leader(batch(2, producer_id=9, producer_epoch=0, sequence=2), 2).is_duplicate
    check(log)


# Append as follower


def test_a_follower_keeps_batches_as_they_are(home: Home) -> None:
    log = home.open(LogConfig(compression=Compression.ZSTD, timestamp_type=TimestampType.LOG_APPEND_TIME))
    data = bytes(batch(2, base_offset=0, leader_epoch=3) + batch(1, base_offset=2, leader_epoch=4))
    info = log.append_as_follower(data)
    assert (info.first_offset, info.last_offset, log.next_offset) == (0, 2, 3)
    found = log.read(0, 10_000).slice
    assert found is not None
    assert found.read() == data
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(3, 0), (4, 2)]
    check(log)


def test_a_follower_leaves_a_piece_at_the_end_out(home: Home) -> None:
    log = home.open()
    whole, piece = batch(2, base_offset=0, leader_epoch=0), batch(3, base_offset=2, leader_epoch=0)
    log.append_as_follower(whole + piece[:-1])
    assert (log.next_offset, log.size) == (2, len(whole))
    log.append_as_follower(piece)
    assert log.next_offset == 5
    check(log)


def test_a_follower_takes_gaps(home: Home) -> None:
    log = home.open(SMALL)
    for offset in (0, 7, 8, 900):
        log.append_as_follower(batch(1, base_offset=offset, leader_epoch=0))
    assert log.next_offset == 901
    found = log.read(9, 1000).slice
    assert found is not None
    assert BatchView(found.read()).base_offset == 900
    check(log)


@pytest.mark.parametrize("base_offset", [0, 3, 4])
def test_a_follower_refuses_what_it_has(home: Home, base_offset: int) -> None:
    log = home.open()
    fill(log, 5)
    with pytest.raises(UnexpectedOffsetError, match=r"topic-0.*ends at 5"):
        log.append_as_follower(batch(3, base_offset=base_offset, leader_epoch=0))
    assert log.next_offset == 5
    check(log)


def test_a_follower_refuses_batches_out_of_order(home: Home) -> None:
    log = home.open()
    for second in (0, 2, 3):
        with pytest.raises(UnexpectedOffsetError, match="order"):
            log.append_as_follower(batch(2, base_offset=2) + batch(2, base_offset=second))
    assert log.size == 0


def test_a_follower_takes_batches_too_far_apart_for_one_segment(home: Home) -> None:
    log = home.open()
    offsets = (0, 5, 2**32, 2**32 + 1, 2**34)
    data = b"".join(batch(2, base_offset=offset * 2, leader_epoch=0) for offset in offsets)
    info = log.append_as_follower(data)
    assert (info.first_offset, info.last_offset, info.log_start_offset) == (0, 2**35 + 1, 0)
    assert [found.header.base_offset for found in check(log)] == [offset * 2 for offset in offsets]


# Rolling


def test_a_full_segment_rolls(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 100)
    assert len(bases(log)) > 5
    assert all(segment.size <= 1000 for segment in log.segments)
    size = log.segments[0].size
    assert size + len(batch([b"1"])) > 1000
    assert read_values(log, 0)[0] == 0
    check(log)
    names = home.names()
    for base in bases(log):
        assert {f"{base:020d}.log", f"{base:020d}.index", f"{base:020d}.timeindex"} <= set(names)
    snapshots = [name for name in names if name.endswith(".snapshot")]
    assert snapshots == [f"{base:020d}.snapshot" for base in bases(log)[1:]]


def test_a_segment_rolls_by_the_time_between_timestamps(home: Home) -> None:
    log = home.open(LogConfig(segment_ms=1000))
    log.append_as_leader(batch(1, timestamp_ms=NOW_MS), 0)
    log.append_as_leader(batch(1, timestamp_ms=NOW_MS + 1000), 0)
    assert bases(log) == [0]
    log.append_as_leader(batch(1, timestamp_ms=NOW_MS + 1001), 0)
    assert bases(log) == [0, 2]


@pytest.mark.parametrize(
    ("config", "roll_ms"),
    [
        (LogConfig(segment_ms=1000, max_compaction_lag_ms=300, compacts=True), 300),
        (LogConfig(segment_ms=200, max_compaction_lag_ms=300, compacts=True), 200),
        (LogConfig(segment_ms=1000, max_compaction_lag_ms=300), 1000),
        (LogConfig(segment_ms=1000, max_compaction_lag_ms=0, compacts=True), 1000),
    ],
)
def test_the_active_segment_of_a_compacted_log_closes_in_time_to_be_compacted(
    home: Home, config: LogConfig, roll_ms: int
) -> None:
    log = home.open(config)
    for added_ms in (0, roll_ms, roll_ms + 1):
        log.append_as_leader(batch(1, timestamp_ms=NOW_MS + added_ms), 0, origin=AppendOrigin.COORDINATOR)
    assert bases(log) == [0, 2]


def test_jitter_is_no_more_than_the_time_that_a_segment_spans(home: Home) -> None:
    config = LogConfig(segment_ms=10_000, segment_jitter_ms=10_000, max_compaction_lag_ms=100, compacts=True)
    log = home.open(config)
    assert 0 <= log._jitter_ms(log.active) < 100


def test_a_segment_without_timestamps_rolls_by_the_clock(home: Home) -> None:
    log = home.open(LogConfig(segment_ms=1000))
    log.append_as_leader(batch(1, timestamp_ms=-1), 0)
    home.clock.advance_ms(1000)
    log.append_as_leader(batch(1, timestamp_ms=-1), 0)
    assert bases(log) == [0]
    home.clock.advance_ms(1)
    log.append_as_leader(batch(1, timestamp_ms=-1), 0)
    assert bases(log) == [0, 2]


def test_jitter_makes_partitions_roll_at_different_times_but_never_late(home: Home) -> None:
    config = LogConfig(segment_ms=1000, segment_jitter_ms=600)
    log = home.open(config)
    log.append_as_leader(batch(1, timestamp_ms=NOW_MS), 0)
    log.append_as_leader(batch(1, timestamp_ms=NOW_MS + 399), 0)
    assert bases(log) == [0]
    log.append_as_leader(batch(1, timestamp_ms=NOW_MS + 1001), 0)
    assert bases(log) == [0, 2]
    drawn = set()
    for partition in range(20):
        other = log.partition._replace(partition=partition)
        log.partition = other
        drawn.add(log._jitter_ms(log.active))
    assert len(drawn) > 10
    assert all(0 <= jitter_ms < 600 for jitter_ms in drawn)


def test_a_full_index_rolls(home: Home) -> None:
    log = home.open(LogConfig(index_interval_bytes=0, segment_index_bytes=12 * 5))
    fill(log, 20)
    assert len(bases(log)) > 2
    assert all(segment.time_index.entry_count <= 5 for segment in log.segments)
    check(log)


def test_offsets_too_far_from_the_segments_first_roll(home: Home) -> None:
    log = home.open()
    log.append_as_follower(batch(1, base_offset=0, leader_epoch=0))
    log.append_as_follower(batch(1, base_offset=2**31 - 1, leader_epoch=0))
    assert bases(log) == [0]
    log.append_as_follower(batch(3, base_offset=2**31, leader_epoch=0))
    assert bases(log) == [0, 2**31]
    far = 2**31 + 3 + 2**40
    log.append_as_follower(batch(3, base_offset=far, leader_epoch=0))
    assert log.next_offset == far + 3
    found = log.read(2**31 + 3, 1).slice
    assert found is not None
    assert BatchView(found.read()).base_offset == far
    check(log)


def test_an_empty_follower_may_begin_far_away(home: Home) -> None:
    log = home.open()
    log.append_as_follower(batch(2, base_offset=2**33, leader_epoch=0))
    assert log.next_offset == 2**33 + 2
    check(log)


def test_rolling_an_empty_segment_does_nothing(home: Home) -> None:
    log = home.open()
    log.roll()
    assert bases(log) == [0]
    fill(log, 1)
    rolled: list[PartitionLog] = []
    log.on_roll = rolled.append
    log.roll()
    log.roll()
    assert bases(log) == [0, 1]
    assert rolled == [log]
    fill(log, 1)
    check(log)


# Reading


@pytest.fixture(scope="module")
def filled() -> PartitionLog:
    """A hundred records in several segments; not to be changed."""
    clock = ManualClock()
    log = Home(SimulatedDisk(clock=clock), clock, Path("/data")).open(SMALL)
    fill(log, 100)
    log.set_high_watermark(90)
    return log


def test_a_read_begins_with_the_offset_and_stays_within_a_segment(filled: PartitionLog) -> None:
    for offset in range(100):
        values = read_values(filled, offset)
        assert values[0] == offset
        assert values == list(range(offset, offset + len(values)))


def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch(home: Home) -> None:
    log = home.open()
    log.append_as_leader(batch(10), 0)
    found = log.read(7, 1).slice
    assert found is not None
    assert [record.offset for record in records_of(found.read())] == list(range(10))


def test_a_read_stops_before_the_bound(filled: PartitionLog) -> None:
    for bound in (0, 1, 13, 14, 15, 50, 90, 99, 100, 500):
        for offset in (0, 5, 49, 89):
            values = read_values(filled, offset, bound=bound)
            assert all(value < bound for value in values)
            assert bool(values) == (offset < bound)
            assert not values or values[0] == offset


def test_a_bound_within_a_batch_leaves_it_out(home: Home) -> None:
    log = home.open()
    log.append_as_leader(batch(5), 0)
    log.append_as_leader(batch(5), 0)
    for bound, expected in ((0, 0), (4, 0), (5, 5), (9, 5), (10, 10)):
        found = log.read(0, 100_000, bound=bound).slice
        assert (0 if found is None else len(records_of(found.read()))) == expected, bound


def test_a_read_with_a_bound_sees_what_was_appended_since(home: Home) -> None:
    log = home.open(SMALL)
    for end in range(1, 40):
        fill(log, 1)
        assert read_values(log, end - 1, bound=end) == [end - 1]
        assert read_values(log, end - 1, bound=end - 1) == []


def test_a_read_returns_at_least_one_batch_if_asked_to(filled: PartitionLog) -> None:
    size = len(batch([b"50"]))
    assert read_values(filled, 50, max_bytes=1) == [50]
    assert read_values(filled, 50, max_bytes=0) == [50]
    exact = filled.read(50, size * 2, min_one=False).slice
    assert exact is not None
    assert values_of(records_of(exact.read())) == [b"50", b"51"]


@pytest.mark.parametrize("bound", [None, 60])
def test_a_first_batch_that_does_not_fit_is_not_read_in_part(filled: PartitionLog, bound: int | None) -> None:
    size = len(batch([b"50"]))
    for max_bytes in (0, 1, size - 1):
        assert filled.read(50, max_bytes, bound=bound, min_one=False).slice is None
    for max_bytes in (size, size + 1, 2 * size - 1):
        found = filled.read(50, max_bytes, bound=bound, min_one=False).slice
        assert found is not None
        assert found.size == max_bytes, "the last batch may be cut off"


def test_no_byte_is_read_of_a_log_when_there_is_no_room_for_any(
    filled: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Segment, "read", None)
    assert filled.read(50, 0, min_one=False, with_aborted=True) == (None, [])


def test_a_negative_size_is_refused_where_there_is_something_to_read(filled: PartitionLog) -> None:
    for min_one in (True, False):
        with pytest.raises(InvalidReadSizeError, match="-1 bytes at offset 50"):
            filled.read(50, -1, min_one=min_one)
        assert filled.read(100, -1, min_one=min_one).slice is None


def test_bytes_are_counted_within_a_segment(filled: PartitionLog) -> None:
    last = bases(filled)[-1]
    size = len(batch([b"50"]))
    assert filled.bytes_before(100, last) == filled.active.size == (100 - last) * size
    assert filled.bytes_before(100, 99) == size
    assert filled.bytes_before(last + 2, last) == 2 * size
    assert filled.bytes_before(last + 1, last + 1) == 0
    # Up to the end of a segment and not beyond it; then nobody counts.
    assert filled.bytes_before(last, last - 1) == size
    assert filled.bytes_before(last + 1, last - 1) is None
    assert filled.bytes_before(100, 0) is None


def test_a_segment_without_records_after_the_offset_does_not_count_as_lag(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 20)
    first, *_ = log.segments
    end = log.segments[1].base_offset
    assert log.bytes_before(20, end - 1) is None
    first.truncate_to(end - 1)  # as compaction may leave it: without its last record
    assert log.bytes_before(20, end - 1) == log.active.size
    assert log.bytes_before(end, end - 1) == 0


def test_a_read_outside_the_log_is_out_of_range(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 50)
    log.set_high_watermark(50)
    log.advance_log_start(20)
    assert log.read(50, 100).slice is None
    for offset in (51, 19, 0, -1):
        with pytest.raises(LogOffsetOutOfRangeError, match=rf"topic-0.*{offset}.*20 to 50"):
            log.read(offset, 100)
    assert read_values(log, 20)[0] == 20


# Transactions


def test_the_last_stable_offset_waits_for_open_transactions(home: Home) -> None:
    log = home.open()
    fill(log, 3)
    log.append_as_leader(batch(2, producer_id=1, producer_epoch=0, sequence=0, transactional=True), 0)
    log.append_as_leader(batch(1, producer_id=2, producer_epoch=0, sequence=0, transactional=True), 0)
    log.set_high_watermark(6)
    assert (log.last_stable_offset, log.first_unstable_offset) == (3, 3)
    log.append_as_leader(marker(1, committed=True), 0, origin=AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 3, "the marker is above the high watermark"
    log.set_high_watermark(7)
    assert log.last_stable_offset == 5
    log.append_as_leader(marker(2, committed=False), 0, origin=AppendOrigin.COORDINATOR)
    log.set_high_watermark(8)
    assert (log.last_stable_offset, log.first_unstable_offset) == (8, None)
    check(log)


def test_the_last_stable_offset_is_never_above_the_high_watermark(home: Home) -> None:
    log = home.open()
    fill(log, 3)
    log.append_as_leader(batch(2, producer_id=1, producer_epoch=0, sequence=0, transactional=True), 0)
    log.set_high_watermark(2)
    assert (log.first_unstable_offset, log.last_stable_offset) == (3, 2)


def test_the_last_stable_offset_is_never_below_the_logs_start(home: Home) -> None:
    log = home.open()
    log.append_as_leader(batch(2, producer_id=1, producer_epoch=0, sequence=0, transactional=True), 0)
    fill(log, 3)
    log.set_high_watermark(5)
    log.advance_log_start(4)
    assert log.last_stable_offset == 4


def aborted(log: PartitionLog, offset: int, max_bytes: int = 1_000_000) -> list[tuple[int, int]] | None:
    found = log.read(offset, max_bytes, bound=log.last_stable_offset, with_aborted=True).aborted_transactions
    return None if found is None else [(each.producer_id, each.first_offset) for each in found]


def test_a_read_gets_the_aborted_transactions_it_meets(home: Home) -> None:
    log = home.open(SMALL)
    for producer_id in range(1, 31):
        # Every third aborts; each lies between other records.
        fill(log, 2)
        data = batch(2, producer_id=producer_id, producer_epoch=0, sequence=0, transactional=True)
        log.append_as_leader(data, 0)
        fill(log, 1)
        end = marker(producer_id, committed=producer_id % 3 != 0)
        log.append_as_leader(end, 0, origin=AppendOrigin.COORDINATOR)
    log.set_high_watermark(log.next_offset)
    assert len(bases(log)) > 3
    expected = {producer_id: (producer_id - 1) * 6 + 2 for producer_id in range(3, 31, 3)}
    for offset in range(0, log.next_offset, 5):
        found = log.read(offset, 400, with_aborted=True)
        assert found.slice is not None
        assert found.aborted_transactions is not None
        told = {each.producer_id: each.first_offset for each in found.aborted_transactions}
        assert told.items() <= expected.items()
        assert len(told) == len(found.aborted_transactions)
        for view in iter_batches(found.slice.read(), partial_tail=True):
            if view.producer_id in expected and not view.is_control and view.last_offset >= offset:
                assert view.producer_id in told, f"read at {offset}: {view} was aborted"
    assert aborted(log, 0, 1) == []
    assert log.read(0, 100).aborted_transactions is None
    assert log.read(log.next_offset, 100, with_aborted=True).aborted_transactions == []
    check(log)


def test_a_transaction_aborted_in_a_later_segment_is_reported(home: Home) -> None:
    log = home.open(SMALL)
    log.append_as_leader(batch(2, producer_id=1, producer_epoch=0, sequence=0, transactional=True), 0)
    fill(log, 40)
    log.append_as_leader(marker(1, committed=False), 0, origin=AppendOrigin.COORDINATOR)
    fill(log, 40)
    log.set_high_watermark(log.next_offset)
    assert aborted(log, 0) == [(1, 0)]
    assert aborted(log, 20) == [(1, 0)], "it is open there"
    assert aborted(log, 43) == []
    log.flush()
    log.close()
    log = home.open(SMALL)
    log.set_high_watermark(log.next_offset)
    assert aborted(log, 0) == [(1, 0)]
    check(log)


# By time


def test_offsets_are_found_by_time(filled: PartitionLog) -> None:
    for offset in range(100):
        found = filled.offset_for_timestamp(NOW_MS + offset)
        assert found is not None
        assert (found.offset, found.timestamp_ms, found.leader_epoch) == (offset, NOW_MS + offset, 0)
    earliest = filled.offset_for_timestamp(0)
    assert earliest is not None
    assert earliest.offset == 0
    assert filled.offset_for_timestamp(NOW_MS + 100) is None
    newest = filled.offset_of_max_timestamp()
    assert newest is not None
    assert (newest.offset, newest.timestamp_ms) == (99, NOW_MS + 99)


def test_offsets_are_found_by_time_where_times_are_not_in_order(home: Home) -> None:
    log = home.open(SMALL)
    times = [(index * 37) % 100 for index in range(100)]
    for time_ms in times:
        log.append_as_leader(batch(1, timestamp_ms=NOW_MS + time_ms), time_ms // 60)
    for time_ms in range(100):
        found = log.offset_for_timestamp(NOW_MS + time_ms)
        assert found is not None
        expected = next(offset for offset, each in enumerate(times) if each >= time_ms)
        assert (found.offset, found.timestamp_ms) == (expected, NOW_MS + times[expected])
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.offset == times.index(99)


def test_time_is_asked_for_record_by_record(home: Home) -> None:
    log = home.open()
    log.append_as_leader(batch(4, timestamps_ms=[NOW_MS, NOW_MS + 30, NOW_MS + 10, NOW_MS + 20]), 5)
    found = log.offset_for_timestamp(NOW_MS + 15)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (1, NOW_MS + 30, 5)
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.offset == 1


def test_no_time_is_found_before_the_logs_start(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 50)
    log.set_high_watermark(50)
    log.advance_log_start(20)
    found = log.offset_for_timestamp(NOW_MS + 3)
    assert found is not None
    assert found.offset == 20


def test_the_highest_time_is_found_before_the_logs_start_too(home: Home) -> None:
    log = home.open()
    for time_ms in (1, 9, 5, 6):
        log.append_as_leader(batch(1, timestamp_ms=NOW_MS + time_ms), 0)
    log.set_high_watermark(4)
    for start in (2, 4):
        log.advance_log_start(start)
        newest = log.offset_of_max_timestamp()
        assert newest is not None
        assert (newest.offset, newest.timestamp_ms) == (1, NOW_MS + 9)


def test_an_empty_log_has_no_times(home: Home) -> None:
    log = home.open()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    log.append_as_leader(batch(1, timestamp_ms=-1), 0)
    assert log.offset_of_max_timestamp() is None


# Truncation


@pytest.mark.parametrize("offset", [0, 1, 12, 13, 14, 50, 98, 99])
def test_truncation_removes_all_from_the_offset_on(home: Home, offset: int) -> None:
    log = home.open(SMALL)
    fill(log, 60, epoch=1)
    fill(log, 40, epoch=2)
    log.set_high_watermark(100)
    log.flush()
    log.truncate_to(offset)
    assert log.next_offset == offset
    assert (log.high_watermark, log.recovery_point) == (offset, offset)
    assert [int(value or b"") for value in values_of(records_in(log))] == list(range(offset))
    assert all(entry.start_offset < offset for entry in log.epochs.entries)
    check(log)
    fill(log, 30, epoch=3)
    assert [int(value or b"") for value in values_of(records_in(log))] == list(range(offset + 30))
    check(log)
    log = home.open(SMALL, clean=False)
    assert [int(value or b"") for value in values_of(records_in(log))] == list(range(offset + 30))
    check(log)


def test_truncation_in_the_middle_of_a_batch_drops_it_whole(home: Home) -> None:
    log = home.open()
    log.append_as_leader(batch(5), 0)
    log.append_as_leader(batch(5), 0)
    log.truncate_to(7)
    assert [record.offset for record in records_in(log)] == [0, 1, 2, 3, 4]
    assert log.next_offset == 7
    log.append_as_follower(batch(1, base_offset=7, leader_epoch=0))


def test_recovery_accepts_what_follows_a_truncated_batch(home: Home) -> None:
    log = home.open()
    log.append_as_leader(batch(5), 0)
    log.append_as_leader(batch(5), 0)
    log.truncate_to(7)
    log.roll()
    log.append_as_follower(batch(2, base_offset=7, leader_epoch=0))
    log = home.open(clean=False)
    assert [record.offset for record in records_in(log)] == [0, 1, 2, 3, 4, 7, 8]
    check(log)


def test_truncation_below_the_logs_start_takes_it_along(home: Home) -> None:
    log = home.open()
    fill(log, 20)
    log.set_high_watermark(15)
    log.advance_log_start(10)
    log.truncate_to(6)
    assert (log.log_start_offset, log.next_offset, log.high_watermark) == (6, 6, 6)
    fill(log, 1)
    check(log)


def test_truncation_beyond_the_end_does_nothing(home: Home) -> None:
    log = home.open()
    fill(log, 5)
    log.truncate_to(5)
    log.truncate_to(99)
    assert log.next_offset == 5
    with pytest.raises(ValueError, match="-1"):
        log.truncate_to(-1)
    check(log)


def test_truncation_brings_producers_back_to_what_they_were(home: Home) -> None:
    log = home.open(SMALL)
    for sequence in range(40):
        log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, sequence=sequence), 0)
    log.append_as_leader(batch(1, producer_id=9, producer_epoch=1, sequence=0, transactional=True), 0)
    log.append_as_leader(marker(9, committed=False, producer_epoch=1), 0, origin=AppendOrigin.COORDINATOR)
    log.truncate_to(41)
    log.set_high_watermark(41)
    assert log.last_stable_offset == 40, "the transaction is open again"
    log.truncate_to(33)
    check(log)
    assert log.producers.entries[9].last_sequence == 32
    log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, sequence=33), 0)
    log.truncate_to(0)
    assert not log.producers.entries
    check(log)


def test_truncation_below_the_first_segment_starts_over(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 50)
    log.set_high_watermark(50)
    log.delete_segments(list(log.segments[:2]))
    first = bases(log)[0]
    log.truncate_to(first - 3)
    assert (log.log_start_offset, log.next_offset, log.high_watermark) == (first - 3, first - 3, first - 3)
    assert (bases(log), log.size) == ([first - 3], 0)
    fill(log, 3)
    check(log)


@pytest.mark.parametrize("offset", [0, 20, 50, 1000])
def test_a_log_can_be_emptied_to_start_at_any_offset(home: Home, offset: int) -> None:
    log = home.open(SMALL)
    for sequence in range(50):
        log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, sequence=sequence), 0)
    log.set_high_watermark(50)
    log.truncate_fully_and_start_at(offset)
    assert (log.log_start_offset, log.next_offset, log.high_watermark) == (offset, offset, offset)
    assert not log.producers.entries
    assert not log.epochs.entries
    log.append_as_follower(batch(1, base_offset=offset, leader_epoch=3))
    check(log)
    log.close()
    log = home.open(SMALL)
    assert (log.log_start_offset, log.next_offset) == (offset, offset + 1)
    check(log)


# Deletion at the start


def test_records_before_the_logs_start_are_gone_for_readers(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 50, epoch=4)
    log.set_high_watermark(40)
    log.advance_log_start(25)
    assert log.log_start_offset == 25
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(4, 25)]
    log.advance_log_start(10)
    assert log.log_start_offset == 25, "it never goes back"
    with pytest.raises(LogOffsetOutOfRangeError, match=r"topic-0.*41.*40"):
        log.advance_log_start(41)
    log.advance_log_start(40)
    check(log)


def test_only_the_oldest_segments_can_be_deleted(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 50)
    log.set_high_watermark(50)
    for doomed in ([log.segments[1]], list(log.segments), [log.active]):
        with pytest.raises(ValueError, match="oldest"):
            log.delete_segments(doomed)
    count = len(log.segments)
    log.delete_segments([])
    assert len(log.segments) == count
    check(log)


def test_files_are_renamed_first_and_removed_later(home: Home) -> None:
    log = home.open(replace(SMALL, file_delete_delay_ms=500))
    fill(log, 50)
    log.set_high_watermark(50)
    doomed = list(log.segments[:2])
    under_way = log.read(0, 1000).slice
    assert under_way is not None
    log.delete_segments(doomed)
    assert log.log_start_offset == bases(log)[0] > doomed[1].base_offset
    gone = {f"{segment.base_offset:020d}" for segment in doomed}
    files = [name for name in home.names() if name[:20] in gone]
    assert files
    assert all(name.endswith((".deleted", ".snapshot")) for name in files)
    assert records_of(under_way.read())[0].offset == 0, "a response under way can still be sent"
    home.clock.advance_ms(499)
    home.clock.set_now_ms(home.clock.now_ms() + DAY_MS)
    assert log.remove_due() == 0
    home.clock.advance_ms(1)
    home.clock.set_now_ms(home.clock.now_ms() - 2 * DAY_MS)
    assert log.remove_due() == 2
    assert not [name for name in home.names() if name.endswith(".deleted")]
    check(log)


# Flushing


def test_flush_moves_the_recovery_point(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 50)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 50


def test_flush_by_count(home: Home) -> None:
    log = home.open(LogConfig(flush_messages=10))
    log.append_as_leader(batch(9), 0)
    assert log.recovery_point == 0
    log.append_as_leader(batch(1), 0)
    assert log.recovery_point == 10
    log.append_as_leader(batch(5), 0)
    assert log.recovery_point == 10


def test_flush_by_time(home: Home) -> None:
    log = home.open(LogConfig(flush_ms=100))
    home.clock.advance_ms(1000)
    assert not log.is_flush_due(), "there is nothing to flush"
    fill(log, 1)
    assert log.is_flush_due()
    log.flush()
    fill(log, 1)
    home.clock.advance_ms(99)
    assert not log.is_flush_due()
    home.clock.set_now_ms(home.clock.now_ms() + DAY_MS)
    assert not log.is_flush_due(), "the wall clock was set, no time has passed"
    home.clock.advance_ms(1)
    home.clock.set_now_ms(home.clock.now_ms() - 2 * DAY_MS)
    assert log.is_flush_due()


def test_what_was_flushed_survives_a_power_cut() -> None:
    for seed in range(30):
        disk = SimulatedDisk(seed)
        here = Home(disk, disk.clock, Path("/data"))  # type: ignore[arg-type]  # a ManualClock, if none was given
        disk.make_directory(here.root)
        log = here.open(SMALL)
        disk.sync_directory(here.root)
        disk.sync_directory(Path("/"))
        fill(log, 30)
        log.flush()
        fill(log, 30)
        disk.crash()
        disk.restart()
        log = here.open(SMALL, clean=False, recovery_point=30)
        found = [int(value or b"") for value in values_of(records_in(log))]
        assert found == list(range(len(found)))
        assert len(found) >= 30
        check(log)


def test_config_changes_take_effect_with_the_next_append(home: Home) -> None:
    log = home.open()
    fill(log, 3)
    log.update_config(LogConfig(compression=Compression.GZIP, segment_bytes=10_000))
    fill(log, 1)
    assert [found.header.compression for found in check(log)] == [Compression.NONE] * 3 + [Compression.GZIP]
    log.update_config(SMALL)
    fill(log, 30)
    assert len(bases(log)) > 1
    check(log, exact_indexes=False)


# A disk that fails


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_append_that_fails_is_not_there(code: int) -> None:
    disk = SimulatedDisk(3)
    here = Home(disk, ManualClock(), Path("/data"))
    log = here.open(SMALL)
    fill(log, 40)
    for skipped in range(30):
        fault = disk.fail(
            code, when=lambda operation, path: path.suffix == ".log" and operation is DiskOperation.APPEND
        )
        before = log.next_offset
        with pytest.raises(OSError, match=r"\.log") as caught:
            log.append_as_leader(batch([b"lost"]), 0)
        assert caught.value.errno == code
        assert fault.strikes == 1, skipped
        assert log.next_offset == before
        check(log)
        fill(log, 1)
    assert [int(value or b"") for value in values_of(records_in(log))] == list(range(70))
    check(here.open(SMALL, clean=False))


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_roll_that_finds_no_room_leaves_no_segment_behind(suffix: str, power_cut: bool) -> None:
    """The log goes on in the old segment; files of a new one would be taken for the log's end at the next start."""
    disk = SimulatedDisk(3)
    here = Home(disk, ManualClock(), Path("/data"))
    log = here.open(SMALL)
    fill(log, 30)
    disk.sync_all()
    before = bases(log)
    disk.fail(errno.ENOSPC, when=lambda operation, path: operation is DiskOperation.CREATE and path.suffix == suffix)
    with pytest.raises(OSError, match=suffix):
        log.roll()
    assert bases(log) == before
    log.append_as_leader(batch([b"30"]), 0)
    log.flush()
    if power_cut:
        disk.crash()
        disk.restart()
    again = here.open(SMALL, clean=not power_cut, recovery_point=31)
    assert [int(value or b"") for value in values_of(records_in(again))] == list(range(31))
    check(again)
    assert bases(again) == before


def test_records_whose_epoch_cannot_be_written_do_not_count_as_flushed() -> None:
    disk = SimulatedDisk(3)
    here = Home(disk, ManualClock(), Path("/data"))
    log = here.open(SMALL)
    fill(log, 5)
    log.flush()
    fill(log, 5, epoch=1)
    disk.fail(errno.EIO, when=lambda _, path: path.name.startswith("leader-epoch-checkpoint"))
    with pytest.raises(OSError, match="leader-epoch-checkpoint"):
        log.flush()
    assert (log.next_offset, log.recovery_point) == (10, 5)
    log.flush()
    assert log.recovery_point == 10
    check(log)


def test_epochs_that_a_crash_took_are_read_from_the_records() -> None:
    disk = SimulatedDisk(3)
    here = Home(disk, ManualClock(), Path("/data"))
    log = here.open(SMALL)
    for epoch in (0, 3, 4):
        fill(log, 2, epoch=epoch)
    entries = log.epochs.entries
    again = here.open(SMALL, clean=False)
    assert again.epochs.entries == entries
    check(again)


def test_partition_is_named(home: Home) -> None:
    assert home.open().partition == PARTITION
    assert home.open().topic_id is None


# Damaged files


def reopened(home: Home, count: int = 60, config: LogConfig = SMALL) -> PartitionLog:
    """A log that was closed cleanly and opened again, so that its files are not trusted yet."""
    log = home.open(config)
    fill(log, count)
    log.flush()
    log.close()
    return home.open(config, recovery_point=count)


def patch(log: PartitionLog, segment: Segment, at: int, mask: int) -> None:
    """Changes bits of a closed file in its place."""
    content = bytearray(log.disk.read(segment.path))
    content[at] ^= mask
    segment.release_log()
    log.disk.write(segment.path, content)


def consume(log: PartitionLog, max_bytes: int = 300) -> tuple[list[int], CorruptRecordsError | None]:
    """What a consumer gets that goes by base offset and length, as one that checks no CRCs does."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.next_offset:
        try:
            piece = log.read(offset, max_bytes).slice
        except CorruptRecordsError as error:
            return found, error
        assert piece is not None
        for view in iter_batches(piece.read(), partial_tail=True):
            found += [view.base_offset]
            offset = view.header.next_offset
    return found, None


@pytest.mark.parametrize("at", [*range(12), 16])
@pytest.mark.parametrize("max_bytes", [1, 300, 100_000])
def test_a_batch_that_does_not_lead_to_the_next_is_reported(
    home: Home, at: int, max_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped bit in its base offset, length or magic: without a check a consumer would jump."""
    log = reopened(home)
    segment = log.segments[1]
    position, header = list(segment.iter_headers())[5]
    patch(log, segment, position + at, 0x01 if at == 11 else 0x20)
    found, error = consume(log, max_bytes)
    assert found == list(range(header.base_offset))[: len(found)]
    assert len(found) >= header.base_offset - 1
    assert error is not None
    assert log.damages.count >= 1
    assert caplog.text.count(f"{segment.path} is damaged at byte") == log.damages.count
    said = caplog.text
    consume(log, max_bytes)
    assert caplog.text == said  # once
    # What is behind it can be had, and appended to.
    behind = log.segments[2].base_offset
    assert read_values(log, behind, 1) == [behind]
    fill(log, 30)


def test_a_gap_between_segments_is_reported_unless_compaction_explains_it(home: Home) -> None:
    log = reopened(home)
    segment = log.segments[1]
    *_, (position, header) = segment.iter_headers()
    segment.release_log()
    log.disk.write(segment.path, log.disk.read(segment.path)[:position])
    for config, expected in ((SMALL, header.base_offset), (replace(SMALL, compacts=True), 59)):
        again = home.open(config, recovery_point=60)
        found, error = consume(again)
        assert len(found) == expected
        assert (error is None) == config.compacts


@pytest.mark.parametrize("at", [6, 8, 9, 10, 11, 16])
def test_rolling_over_a_damaged_segment_touches_no_live_file(home: Home, at: int) -> None:
    log = reopened(home, 10)
    active = log.active
    for place in (0, [position for position, _ in active.iter_headers()][-1]):
        patch(log, active, place + at, 0x10)
    content = log.disk.read(active.path)
    new = log.roll()
    assert new is not active
    assert new.base_offset == 10
    assert bases(log) == [0, 10]
    assert log.disk.read(active.path) == content
    fill(log, 3)
    assert read_values(log, 10) == [10, 11, 12]


def test_a_roll_never_begins_in_a_file_with_records(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 5)
    log.disk.write(log.directory / f"{5:020d}.log", b"records of someone")
    with pytest.raises(FileError, match="begin in a file that has records"):
        log.roll()
    assert log.disk.read(log.directory / f"{5:020d}.log") == b"records of someone"
    assert bases(log) == [0]


def test_known_batches_are_not_checked_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    log = reopened(home)
    consume(log)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it is known")

    monkeypatch.setattr("ottla.log.segment_scan.check_chain", refuse)
    fill(log, 40)
    assert consume(log)[0] == list(range(100))
