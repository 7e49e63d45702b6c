from __future__ import annotations

import errno
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.disk import Disk
from ottla.log.errors import CorruptIndexError, CorruptRecordsError, FileError
from ottla.log.local_disk import LocalDisk
from ottla.log.segment import Segment, SegmentOptions, SegmentOverflowError
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import BatchHeader
from ottla.records.layout import Compression, TimestampType
from ottla.records.plain import BatchOptions, encode_batch
from ottla.records.record import Record
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import CrashedError, DiskOperation, SimulatedDisk, Survival
from support.examples import examples

BASE = 1000
INTERVAL = 200
FOLDER = Path("/log/t-0")


@dataclass(frozen=True)
class Batch:
    base_offset: int
    last_offset: int
    timestamps_ms: tuple[int, ...]
    data: bytes

    @property
    def max_timestamp_ms(self) -> int:
        return max(self.timestamps_ms)


def batch(
    base_offset: int,
    timestamps_ms: tuple[int, ...] = (50,),
    *,
    size: int = 10,
    compression: Compression = Compression.NONE,
    stamped_ms: int | None = None,
) -> Batch:
    """Records that follow each other, with these timestamps, or with one that the broker set."""
    records = [Record(0, ms, None, bytes(size)) for ms in timestamps_ms]
    stamped = TimestampType.CREATE_TIME if stamped_ms is None else TimestampType.LOG_APPEND_TIME
    options = BatchOptions(
        base_offset=base_offset, compression=compression, timestamp_type=stamped, max_timestamp_ms=stamped_ms
    )
    seen_ms = timestamps_ms if stamped_ms is None else (stamped_ms,) * len(timestamps_ms)
    return Batch(base_offset, base_offset + len(records) - 1, seen_ms, bytes(encode_batch(records, options)))


def old_message(offset: int, *, magic: int, timestamp_ms: int = -1) -> Batch:
    body = struct.pack(">bB", magic, 0) + (struct.pack(">q", timestamp_ms) if magic else b"")
    body += struct.pack(">ii", -1, 60) + bytes(60)
    data = struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
    return Batch(offset, offset, (timestamp_ms,), data)


def batches(count: int, *, base_offset: int = BASE, size: int = 10) -> list[Batch]:
    return [batch(base_offset + 2 * n, (100 + n, 90), size=size) for n in range(count)]


def options(clock: ManualClock | None = None, *, max_index_bytes: int = 10_000) -> SegmentOptions:
    return SegmentOptions(index_interval_bytes=INTERVAL, max_index_bytes=max_index_bytes, clock=clock or ManualClock())


def opened(path: Path, disk: Disk | None = None, *, suffix: str = "", max_index_bytes: int = 10_000) -> Segment:
    return Segment.open(disk or LocalDisk(), path, BASE, options(max_index_bytes=max_index_bytes), suffix=suffix)


def append(segment: Segment, *parts: Batch) -> None:
    newest = max(parts, key=lambda part: part.max_timestamp_ms)
    segment.append(
        b"".join(part.data for part in parts),
        last_offset=parts[-1].last_offset,
        max_timestamp_ms=newest.max_timestamp_ms,
        offset_of_max_timestamp=newest.last_offset,
    )


def filled(path: Path, parts: list[Batch]) -> Segment:
    segment = opened(path)
    for part in parts:
        append(segment, part)
    return segment


def entries(path: Path, suffix: str) -> list[tuple[int, ...]]:
    form = ">ii" if suffix == "index" else ">qi"
    return list(struct.iter_unpack(form, (path / f"{BASE:020d}.{suffix}").read_bytes()))


def expected_entries(parts: list[Batch]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Both indexes, as a walk through the log makes them."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    position = indexed = 0
    newest = (-1, 0)
    for part in parts:
        if part.max_timestamp_ms > newest[0]:
            newest = (part.max_timestamp_ms, part.last_offset - BASE)
        if position - indexed > INTERVAL:
            offsets.append((part.last_offset - BASE, position))
            if newest[0] > (times[-1][0] if times else -1):
                times.append(newest)
            indexed = position
        position += len(part.data)
    if newest[0] > (times[-1][0] if times else -1):
        times.append(newest)
    return offsets, times


# Files


def test_a_new_segment_has_its_files(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000000000000001000.index",
        "00000000000000001000.log",
        "00000000000000001000.timeindex",
    ]
    assert (segment.size, segment.read_next_offset(), segment.max_timestamp_ms) == (0, BASE, -1)
    assert segment.read(BASE, 1000) is None
    assert segment.first_batch_timestamp_ms is None
    segment.close()


def test_opening_what_exists_asks_only_for_its_size() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = opened(FOLDER, disk)
    for part in batches(30):
        append(segment, part)
    segment.close()
    seen = []
    disk.before = lambda operation, path: seen.append((operation, path.suffix))
    segment = opened(FOLDER, disk)
    assert segment.size > 0
    assert seen == [(DiskOperation.STAT, ".log")]
    assert segment.read(BASE, 1) is not None
    assert seen[1:] == [(DiskOperation.MAP, ".index"), (DiskOperation.OPEN, ".log"), (DiskOperation.READ, ".log")]
    segment.close()
    assert len(seen) == 4


def test_a_new_segment_does_not_take_over_the_index_of_a_lost_one(tmp_path: Path) -> None:
    for suffix in ("index", "timeindex"):
        (tmp_path / f"{BASE:020d}.{suffix}").write_bytes(bytes(range(24)))
    segment = filled(tmp_path, batches(1))
    assert segment.time_index.entry_count == 0
    segment.close()
    assert (entries(tmp_path, "index"), entries(tmp_path, "timeindex")) == ([], [(100, 1)])
    assert opened(tmp_path).read_next_offset() == BASE + 2


def test_unchanged_files_are_not_synced() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = opened(FOLDER, disk)
    append(segment, *batches(40))
    segment.flush()
    seen = []
    disk.before = lambda operation, path: seen.append((operation, path.suffix))
    segment = opened(FOLDER, disk)
    segment.flush()
    segment.close()
    assert seen == [(DiskOperation.STAT, ".log")]


def test_a_log_too_large_for_positions() -> None:
    class Huge(SimulatedDisk):
        def size(self, path: Path) -> int:
            return 2**31 if path.suffix == ".log" else 0

    with pytest.raises(
        FileError, match=r"00000000000000001000\.log: 2147483648 bytes are more than a segment can have"
    ):
        opened(FOLDER, Huge())


def test_renamed_relocated_deleted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    segment = filled(tmp_path / "a", batches(20))
    segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 3, BASE + 4))
    segment.flush()
    with pytest.raises(ValueError, match=r"does not have suffix '\.swap'"):
        segment.rename_suffix(".swap", "")
    segment.rename_suffix("", ".deleted")
    assert {path.suffix for path in (tmp_path / "a").iterdir()} == {".deleted"}
    assert len(list((tmp_path / "a").iterdir())) == 4
    assert segment.read(BASE + 30, 10) is not None
    (tmp_path / "a").rename(tmp_path / "b")
    segment.relocate(tmp_path / "b")
    segment.release_indexes()
    assert segment.read(BASE + 30, 10) is not None
    segment.close()
    again = opened(tmp_path / "b", suffix=".deleted")
    assert again.read_next_offset() == BASE + 40
    assert again.suffix == ".deleted"
    again.delete()
    assert not list((tmp_path / "b").iterdir())


# Appending


@settings(deadline=None, max_examples=examples(60))
@given(
    shapes=st.lists(
        st.tuples(
            st.lists(st.integers(-1, 300), min_size=1, max_size=3).map(tuple), st.sampled_from([0, 40, 300, 900])
        ),
        min_size=1,
        max_size=25,
    ),
    group=st.integers(1, 8),
    reopen_every=st.integers(1, 30),
)
def test_indexes_are_a_function_of_the_log(
    shapes: list[tuple[tuple[int, ...], int]],
    group: int,
    reopen_every: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whether batches come one by one or together, with a stop in between or not, or are recovered."""
    path = tmp_path_factory.mktemp("log")
    parts: list[Batch] = []
    for timestamps_ms, size in shapes:
        parts.append(batch(parts[-1].last_offset + 1 if parts else BASE, timestamps_ms, size=size))
    segment = opened(path)
    for count, start in enumerate(range(0, len(parts), group), 1):
        append(segment, *parts[start : start + group])
        if count % reopen_every == 0:
            segment.close()
            segment = opened(path)
    segment.close()
    offsets, times = expected_entries(parts)
    assert entries(path, "index") == offsets
    # Closing adds an entry that would not be due yet; it is true all the same.
    assert set(entries(path, "timeindex")) >= set(times)
    for timestamp_ms, relative in entries(path, "timeindex"):
        before = [part for part in parts if part.last_offset <= BASE + relative]
        assert max(part.max_timestamp_ms for part in before) == before[-1].max_timestamp_ms == timestamp_ms

    segment = opened(path)
    assert segment.recover() == 0
    segment.close()
    assert entries(path, "index") == offsets
    assert entries(path, "timeindex") == times


def test_where_the_first_entries_are(tmp_path: Path) -> None:
    parts = [batch(BASE + n, (100 - n,), size=32) for n in range(6)]
    assert {len(part.data) for part in parts} == {100}
    filled(tmp_path, parts).close()
    # The batch at 200 does not begin more than 200 bytes behind the beginning, the one at 300 does.
    assert entries(tmp_path, "index") == [(3, 300)]
    assert entries(tmp_path, "timeindex") == [(100, 0)]


def test_offsets_and_sizes_that_do_not_fit(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    for offset in (BASE - 1, BASE + 2**31):
        with pytest.raises(SegmentOverflowError, match=rf"offset {offset} is not within 2\^31 of the base offset"):
            append(segment, batch(offset))
    assert segment.size == 0
    append(segment, batch(BASE + 2**31 - 1))
    assert segment.read_next_offset() == BASE + 2**31
    segment.close()


def test_nothing_to_append(tmp_path: Path) -> None:
    segment = opened(tmp_path)
    segment.append(b"", last_offset=-1, max_timestamp_ms=-1, offset_of_max_timestamp=-1)
    assert segment.size == 0
    segment.close()


def test_a_full_index_takes_no_more_and_asks_for_a_roll(tmp_path: Path) -> None:
    segment = opened(tmp_path, max_index_bytes=36)  # four offsets, two times and the last one
    append(segment, *batches(40))
    assert segment.time_index.entry_count == 2
    assert segment.offset_index.entry_count == 2
    assert rolls(segment, segment_bytes=10**9)
    segment.become_inactive()
    assert entries(tmp_path, "timeindex")[-1] == (139, 79)
    assert segment.read_next_offset() == BASE + 80
    segment.close()


def test_a_failed_append_leaves_nothing() -> None:
    for seed in range(10):
        disk = SimulatedDisk(seed)
        disk.make_directory(FOLDER)
        segment = opened(FOLDER, disk)
        parts = batches(12)
        append(segment, *parts[:5])
        before = disk.contents()[segment.path]
        disk.fail(errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            append(segment, *parts[5:])
        assert disk.contents()[segment.path] == before
        assert segment.size == len(before)
        append(segment, *parts[5:])
        segment.close()
        assert disk.contents()[segment.path] == b"".join(part.data for part in parts)


def test_a_failed_append_that_could_not_be_cut_off_is_cut_off_by_the_next() -> None:
    disk = SimulatedDisk(seed=5)
    disk.make_directory(FOLDER)
    segment = opened(FOLDER, disk)
    parts = batches(3)
    append(segment, parts[0])
    disk.fail(when=DiskOperation.APPEND)
    disk.fail(when=DiskOperation.TRUNCATE)
    with pytest.raises(OSError, match="error"):
        append(segment, batch(BASE + 2, size=5000))
    assert len(disk.contents()[segment.path]) > segment.size
    append(segment, *parts[1:])
    assert disk.contents()[segment.path] == b"".join(part.data for part in parts)


def rolls(
    segment: Segment,
    *,
    batch_size: int = 10,
    last_offset: int = BASE + 50,
    max_timestamp_ms: int = 100,
    now_ms: int = 0,
    segment_bytes: int = 1000,
    segment_ms: int = 1000,
    jitter_ms: int = 0,
) -> bool:
    return segment.should_roll(
        batch_size=batch_size,
        last_offset=last_offset,
        max_timestamp_ms=max_timestamp_ms,
        now_ms=now_ms,
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        jitter_ms=jitter_ms,
    )


def test_rolling_by_size_and_offset(tmp_path: Path) -> None:
    segment = filled(tmp_path, [batch(BASE, size=32)])
    assert segment.size == 100
    assert not rolls(segment, batch_size=900)
    assert rolls(segment, batch_size=901)
    assert not rolls(segment, last_offset=BASE + 2**31 - 1)
    assert rolls(segment, last_offset=BASE + 2**31)
    assert rolls(segment, last_offset=BASE - 1)
    segment.close()


def test_rolling_by_the_time_since_the_first_batch(tmp_path: Path) -> None:
    clock = ManualClock(10_000)
    segment = Segment.open(LocalDisk(), tmp_path, BASE, options(clock))
    assert not rolls(segment, max_timestamp_ms=10**9, now_ms=10**9)  # an empty one never by time
    append(segment, batch(BASE, (40, 100)))
    append(segment, batch(BASE + 2, (500,)))
    assert segment.first_batch_timestamp_ms == 100
    assert not rolls(segment, max_timestamp_ms=1100, now_ms=10**9)
    assert rolls(segment, max_timestamp_ms=1101, now_ms=0)
    assert rolls(segment, max_timestamp_ms=1052, jitter_ms=50)
    assert not rolls(segment, max_timestamp_ms=1050, jitter_ms=50)
    segment.close()
    segment = Segment.open(LocalDisk(), tmp_path, BASE, options(clock))
    assert rolls(segment, max_timestamp_ms=1101)
    segment.truncate_to(BASE)
    append(segment, batch(BASE, (900,)))
    assert not rolls(segment, max_timestamp_ms=1101)
    segment.close()


def test_rolling_by_the_clock_where_batches_have_no_time(tmp_path: Path) -> None:
    clock = ManualClock(10_000)
    segment = Segment.open(LocalDisk(), tmp_path, BASE, options(clock))
    append(segment, batch(BASE, (-1,)))
    assert segment.first_batch_timestamp_ms is None
    assert segment.created_ms == 10_000
    assert not rolls(segment, max_timestamp_ms=10**9, now_ms=11_000)
    assert rolls(segment, now_ms=11_001)
    assert segment.largest_timestamp_ms == segment.modified_ms > 0
    clock.advance_ms(5000)
    segment.truncate_to(BASE)
    assert segment.created_ms == 15_000
    segment.close()


@settings(max_examples=examples(40))
@given(
    steps=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), min_size=1, max_size=60),
    index_entries=st.integers(3, 12),
    segment_bytes=st.integers(300, 20_000),
)
def test_no_segment_rolls_within_the_stated_limits(
    steps: list[tuple[int, int]], index_entries: int, segment_bytes: int
) -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = opened(FOLDER, disk, max_index_bytes=index_entries * 12)
    told = (-1, -1, -1)
    newest_ms = 0
    for number, (size, later_ms) in enumerate(steps):
        newest_ms += later_ms
        next_batch = batch(BASE + number, (newest_ms,), size=size)
        is_due = rolls(
            segment,
            batch_size=len(next_batch.data),
            last_offset=next_batch.last_offset,
            max_timestamp_ms=newest_ms,
            segment_bytes=segment_bytes,
        )
        is_within = (
            segment.size + len(next_batch.data) <= told[0]
            and next_batch.last_offset <= told[1]
            and newest_ms <= told[2]
        )
        assert not (is_due and is_within)
        if is_due:
            return
        append(segment, next_batch)
        if not is_within:
            told = segment.no_roll_below(segment_bytes, 1000)


def test_a_rolled_segment_knows_its_newest_timestamp(tmp_path: Path) -> None:
    segment = filled(tmp_path, [batch(BASE, (70,)), batch(BASE + 1, (90, 95)), batch(BASE + 3, (80,))])
    assert (segment.max_timestamp_ms, segment.offset_of_max_timestamp) == (95, BASE + 2)
    segment.become_inactive()
    assert entries(tmp_path, "timeindex") == [(95, 2)]
    segment.become_inactive()
    segment.close()
    assert entries(tmp_path, "timeindex") == [(95, 2)]
    segment = opened(tmp_path)
    assert (segment.largest_timestamp_ms, segment.offset_of_max_timestamp) == (95, BASE + 2)
    segment.close()


# Reading


def test_few_bytes_are_read_once_and_many_are_not_kept() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = opened(FOLDER, disk)
    parts = [*batches(5), batch(BASE + 10, size=9_000)]
    append(segment, *parts)
    reads: list[DiskOperation] = []
    disk.before = lambda operation, _: reads.append(operation)
    size = len(parts[2].data) + len(parts[3].data)
    found = segment.read(parts[2].base_offset, size)
    assert found is not None
    assert found.slice.read() == parts[2].data + parts[3].data
    assert reads == [DiskOperation.READ]
    large = segment.read(parts[5].base_offset, 1)
    assert large is not None
    assert large.slice.held is None
    assert large.slice.read() == parts[5].data


def test_reading_with_bounds(tmp_path: Path) -> None:
    parts = [batch(BASE + 10 * n, (1,) * 10, size=40 + n) for n in range(8)]
    segment = filled(tmp_path, parts)
    sizes = [len(part.data) for part in parts]
    log = b"".join(part.data for part in parts)

    found = segment.read(BASE + 35, 10**6)
    assert found is not None
    assert found.slice.read() == log[sum(sizes[:3]) :]
    assert (found.base_offset, found.position, found.first_batch_size) == (BASE + 30, sum(sizes[:3]), sizes[3])

    found = segment.read(BASE + 35, sizes[3] + 5)
    assert found is not None
    assert len(found.slice) == sizes[3] + 5  # the last one is cut, as in Kafka
    assert len(found.slice) >= found.first_batch_size

    found = segment.read(BASE + 35, 1)
    assert found is not None
    assert found.slice.read() == parts[3].data

    found = segment.read(BASE + 35, 1, min_one=False)
    assert found is not None
    assert found.slice.read() == parts[3].data[:1]
    assert len(found.slice) < found.first_batch_size

    bound = sum(sizes[:5])
    found = segment.read(BASE + 35, 10**6, max_position=bound)
    assert found is not None
    assert found.slice.read() == log[sum(sizes[:3]) : bound]

    for max_position in (sum(sizes[:3]), 5):
        found = segment.read(BASE + 35, 10**6, max_position=max_position)
        assert found is not None
        assert found.slice.read() == b""

    found = segment.read(BASE, 10**6, max_position=10**9)
    assert found is not None
    assert len(found.slice) == len(log)
    assert segment.read(BASE + 80, 1) is None
    segment.close()


@settings(deadline=None, max_examples=examples(60))
@given(
    gaps=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4), st.sampled_from([5, 60, 700])), max_size=25),
    targets=st.lists(st.integers(-1, 250), min_size=1, max_size=10),
    closed=st.booleans(),
)
def test_positions_against_a_list(
    gaps: list[tuple[int, int, int]],
    targets: list[int],
    closed: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("log")
    segment = opened(path)
    model: list[tuple[int, Batch]] = []
    offset = BASE
    for gap, count, size in gaps:
        part = batch(offset + gap, (7,) * count, size=size)
        model.append((segment.size, part))
        append(segment, part)
        offset = part.last_offset + 1
    if closed:
        segment.close()
        segment = opened(path)
    for target in targets:
        expected = next(
            ((position, len(part.data)) for position, part in model if part.last_offset >= BASE + target), None
        )
        assert segment.position_of(BASE + target) == expected
        if expected:
            assert segment.position_of(BASE + target, expected[0]) == expected
        behind = segment.offset_behind(0, expected[0] if expected else segment.size)
        assert behind is None or all(
            part.last_offset < behind or position >= (expected[0] if expected else segment.size)
            for position, part in model
        )
    assert segment.read_next_offset() == offset
    assert [(position, header.base_offset) for position, header in segment.iter_headers()] == [
        (position, part.base_offset) for position, part in model
    ]
    segment.close()


@settings(deadline=None, max_examples=examples(60))
@given(
    times=st.lists(st.lists(st.integers(-1, 60), min_size=1, max_size=4).map(tuple), min_size=1, max_size=20),
    compression=st.sampled_from([Compression.NONE, Compression.GZIP]),
    stamped=st.booleans(),
    targets=st.lists(st.tuples(st.integers(0, 62), st.integers(-1, 40)), min_size=1, max_size=8),
)
def test_records_by_time(
    times: list[tuple[int, ...]],
    compression: Compression,
    stamped: bool,
    targets: list[tuple[int, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("log")
    parts: list[Batch] = []
    for n, timestamps_ms in enumerate(times):
        base_offset = parts[-1].last_offset + 1 if parts else BASE
        stamped_ms = n * 3 if stamped else None
        parts.append(batch(base_offset, timestamps_ms, size=60, compression=compression, stamped_ms=stamped_ms))
    segment = filled(path, parts)
    records = [(ms, part.base_offset + n) for part in parts for n, ms in enumerate(part.timestamps_ms)]
    for timestamp_ms, start in targets:
        expected = next(((ms, offset) for ms, offset in records if ms >= timestamp_ms and offset >= BASE + start), None)
        assert segment.offset_for_timestamp(timestamp_ms, BASE + start) == expected
    newest_ms = max(ms for ms, _ in records)
    assert segment.max_timestamp_ms == newest_ms
    segment.close()


def test_a_wrong_index_entry_is_detected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parts = batches(60, size=30)
    filled(tmp_path, parts).close()
    index = tmp_path / f"{BASE:020d}.index"
    content = index.read_bytes()
    third_offset, third_position = struct.unpack_from(">ii", content, 16)

    def lying(offset: int, position: int) -> Segment:
        index.write_bytes(content[:16] + struct.pack(">iI", offset, position) + content[24:])
        return opened(tmp_path)

    for offset, position in (
        (third_offset, third_position + 1),
        (third_offset, third_position + 70),  # among the zeros of a record
        (third_offset, third_position | 1 << 31),
        (third_offset - 2, third_position),  # would skip a batch
    ):
        segment = lying(offset, position)
        found = segment.read(BASE + offset, 1)
        assert found is not None
        assert found.base_offset <= BASE + offset, f"offset {offset} at byte {position}"
        segment.close()
        assert index.read_bytes() == content  # rebuilt
        assert f"{index}: the offset index does not lead to the batches of its log; it was rebuilt" in caplog.text
        caplog.clear()


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    parts = batches(3)
    filled(tmp_path, parts).close()
    log = tmp_path / f"{BASE:020d}.log"
    content = bytearray(log.read_bytes())
    content[len(parts[0].data) + 16] = 9
    log.write_bytes(content)
    segment = opened(tmp_path)
    message = rf"{BASE:020d}\.log: record batch with base offset {BASE + 2} at byte {len(parts[0].data)}: magic 9"
    with pytest.raises(CorruptRecordsError, match=message):
        segment.read(BASE + 5, 1)
    with pytest.raises(CorruptRecordsError, match=message):
        list(segment.iter_headers())
    segment.close()
    content[len(parts[0].data) + 16] = 2
    content[-1] ^= 1
    log.write_bytes(content)
    segment = opened(tmp_path)
    with pytest.raises(CorruptRecordsError, match="CRC"):
        segment.offset_for_timestamp(102, BASE)
    segment.close()


# Repairing and shortening


@settings(deadline=None, max_examples=examples(80))
@given(count=st.integers(0, 20), cut=st.integers(-2, 45), closed=st.booleans(), sizes=st.sampled_from([10, 150]))
def test_truncation_against_a_list(
    count: int, cut: int, closed: bool, sizes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log")
    parts = batches(count, size=sizes)
    segment = filled(path, parts)
    for n in range(0, count, 3):
        segment.transaction_index.append(AbortedTransaction(1, BASE, parts[n].last_offset, BASE))
    if closed:
        segment.close()
        segment = opened(path)
    size = segment.size
    removed = segment.truncate_to(BASE + cut)
    kept = [part for part in parts if part.last_offset < BASE + cut]
    assert segment.size == sum(len(part.data) for part in kept)
    assert removed == size - segment.size
    assert segment.max_timestamp_ms == max((part.max_timestamp_ms for part in kept), default=-1)
    assert segment.read_next_offset() == (kept[-1].last_offset + 1 if kept else BASE)
    assert [entry.last_offset for entry in segment.transaction_index.all()] == [
        parts[n].last_offset for n in range(0, count, 3) if parts[n].last_offset < BASE + cut
    ]
    more = [batch(BASE + 100 + n, (n,), size=90) for n in range(6)]
    for part in more:
        append(segment, part)
    segment.close()
    assert (path / f"{BASE:020d}.log").read_bytes() == b"".join(part.data for part in [*kept, *more])
    offsets, times = expected_entries([*kept, *more])
    assert entries(path, "index") == offsets
    assert set(entries(path, "timeindex")) >= set(times)


@pytest.mark.parametrize("tail", [b"\0", bytes(500), batch(BASE + 40, size=300).data[:-1], b"\xff" * 70])
def test_a_torn_tail_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    parts = batches(20)
    filled(tmp_path, parts).close()
    index = (tmp_path / f"{BASE:020d}.index").read_bytes()
    with (tmp_path / f"{BASE:020d}.log").open("ab") as log:
        log.write(tail)
    # As a killed Kafka leaves them, and with entries for records that never reached the disk.
    (tmp_path / f"{BASE:020d}.index").write_bytes(index + struct.pack(">ii", 99, 99_999) + bytes(800))
    (tmp_path / f"{BASE:020d}.timeindex").write_bytes(bytes(1200))
    segment = opened(tmp_path)
    segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 4, BASE))
    segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 40, BASE))
    assert segment.recover() == len(tail)
    assert segment.read_next_offset() == BASE + 40
    assert (segment.max_timestamp_ms, segment.offset_of_max_timestamp) == (119, BASE + 39)
    assert len(segment.transaction_index.all()) == 1
    segment.close()
    assert (tmp_path / f"{BASE:020d}.log").read_bytes() == b"".join(part.data for part in parts)
    offsets, times = expected_entries(parts)
    assert entries(tmp_path, "index") == offsets
    assert entries(tmp_path, "timeindex") == times


def test_a_flipped_bit_ends_the_log(tmp_path: Path) -> None:
    parts = batches(20)
    filled(tmp_path, parts).close()
    log = tmp_path / f"{BASE:020d}.log"
    content = bytearray(log.read_bytes())
    good = sum(len(part.data) for part in parts[:7])
    content[good + 70] ^= 4
    log.write_bytes(content)
    segment = opened(tmp_path)
    assert segment.recover() == len(content) - good
    assert segment.read_next_offset() == parts[6].last_offset + 1
    segment.close()


def test_a_log_that_is_lost_from_its_first_batch_on_starts_over(tmp_path: Path) -> None:
    segment = filled(tmp_path, batches(3))
    assert segment.first_batch_timestamp_ms == 100
    segment.flush()
    log = tmp_path / f"{BASE:020d}.log"
    log.write_bytes(bytes(segment.size))
    assert segment.recover() == segment.recover() + 3 * len(batches(1)[0].data)
    assert (segment.size, segment.max_timestamp_ms) == (0, -1)
    append(segment, batch(BASE, (7,)))
    assert (segment.first_batch_timestamp_ms, segment.max_timestamp_ms) == (7, 7)
    segment.close()


def test_recovery_shows_every_batch_and_empties_the_transaction_index(tmp_path: Path) -> None:
    parts = batches(9)
    segment = filled(tmp_path, parts)
    segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 4, BASE))
    seen: list[tuple[int, bytes]] = []

    def on_batch(header: BatchHeader, data: memoryview) -> None:
        seen.append((header.last_offset, bytes(data)))
        if header.last_offset == BASE + 7:
            segment.transaction_index.append(AbortedTransaction(2, BASE, BASE + 7, BASE + 8))

    assert segment.recover(on_batch) == 0
    assert seen == [(part.last_offset, part.data) for part in parts]
    assert segment.transaction_index.all() == [AbortedTransaction(2, BASE, BASE + 7, BASE + 8)]
    segment.close()


def test_recovery_refuses_offsets_beyond_the_segment(tmp_path: Path) -> None:
    log = tmp_path / f"{BASE:020d}.log"
    log.write_bytes(batch(BASE).data + batch(BASE + 2**31).data)
    segment = opened(tmp_path)
    with pytest.raises(SegmentOverflowError, match=str(BASE + 2**31)):
        segment.recover()
    assert log.stat().st_size == 2 * len(batch(BASE).data)
    segment.close()


def test_old_messages(tmp_path: Path) -> None:
    parts = [
        *(old_message(BASE + n, magic=0) for n in range(4)),
        *(old_message(BASE + 4 + n, magic=1, timestamp_ms=10 + n) for n in range(6)),
        batch(BASE + 10, (30, 31)),
        old_message(BASE + 20, magic=1, timestamp_ms=40),
    ]
    (tmp_path / f"{BASE:020d}.log").write_bytes(b"".join(part.data for part in parts))
    segment = opened(tmp_path)
    seen: list[int] = []
    assert segment.recover(lambda header, _: seen.append(header.magic)) == 0
    assert seen == [2]
    assert segment.read_next_offset() == BASE + 21
    found = segment.read(BASE + 7, 1)
    assert found is not None
    assert found.slice.read() == parts[7].data
    assert segment.offset_for_timestamp(12, BASE) == (12, BASE + 6)
    assert segment.offset_for_timestamp(31, BASE) == (31, BASE + 11)
    assert segment.offset_for_timestamp(35, BASE) == (40, BASE + 20)
    assert segment.first_batch_timestamp_ms is None
    assert segment.truncate_to(BASE + 9) == sum(len(part.data) for part in parts[9:])
    assert segment.max_timestamp_ms == 14
    segment.close()
    offsets, _ = expected_entries(parts[:9])
    assert entries(tmp_path, "index") == offsets


def test_old_messages_can_be_appended_by_a_follower(tmp_path: Path) -> None:
    parts = [old_message(BASE + n, magic=n % 2, timestamp_ms=n if n % 2 else -1) for n in range(20)]
    segment = opened(tmp_path)
    append(segment, *parts)
    segment.close()
    offsets, times = expected_entries(parts)
    assert entries(tmp_path, "index") == offsets
    assert entries(tmp_path, "timeindex") == times


def test_offsets_that_fall_in_a_very_old_log(tmp_path: Path) -> None:
    offsets = [*range(10), 0, *range(10), 200]
    parts = [old_message(BASE + offset, magic=1) for offset in offsets]
    (tmp_path / f"{BASE:020d}.log").write_bytes(b"".join(part.data for part in parts))
    segment = opened(tmp_path)
    assert segment.recover() == 0
    assert segment.read_next_offset() == BASE + 201
    found = segment.read(BASE + 150, 1)
    assert found is not None
    assert found.base_offset == BASE + 200
    segment.close()


@pytest.mark.parametrize("offset", [0, BASE - 1, BASE, BASE + 5])
def test_a_batch_whose_offset_falls_is_cut_off(tmp_path: Path, offset: int) -> None:
    parts = [*batches(10), batch(offset, (400,)), *batches(3)]
    (tmp_path / f"{BASE:020d}.log").write_bytes(b"".join(part.data for part in parts))
    segment = opened(tmp_path)
    assert segment.recover() == sum(len(part.data) for part in parts[10:])
    assert segment.read_next_offset() == parts[9].last_offset + 1
    segment.close()


def test_indexes_that_contradict_the_log(tmp_path: Path) -> None:
    filled(tmp_path, batches(30)).close()
    index = tmp_path / f"{BASE:020d}.index"
    content = index.read_bytes()
    segment = opened(tmp_path)
    segment.check_indexes()
    segment.close()
    for damaged in (content[:-1], content[:-4] + struct.pack(">i", 10**6), content[:-1] + b"\x03"):
        index.write_bytes(damaged)
        segment = opened(tmp_path)
        with pytest.raises(CorruptIndexError, match=r"\.index"):
            segment.check_indexes()
        segment.abandon()
    index.write_bytes(content)
    (tmp_path / f"{BASE:020d}.timeindex").write_bytes(b"x")
    segment = opened(tmp_path)
    with pytest.raises(CorruptIndexError, match=r"\.timeindex"):
        segment.check_indexes()
    segment.abandon()


def test_entries_beyond_the_log_are_not_followed(tmp_path: Path) -> None:
    parts = batches(30)
    filled(tmp_path, parts).close()
    log = tmp_path / f"{BASE:020d}.log"
    size = sum(len(part.data) for part in parts[:12])
    log.write_bytes(log.read_bytes()[:size])
    segment = opened(tmp_path)
    assert segment.read_next_offset() == parts[11].last_offset + 1
    assert segment.read(parts[12].base_offset, 1) is None
    segment.close()


def test_an_active_segment_of_a_killed_broker_gets_its_real_size(tmp_path: Path) -> None:
    parts = batches(30)
    filled(tmp_path, parts).close()
    for suffix in ("index", "timeindex"):
        path = tmp_path / f"{BASE:020d}.{suffix}"
        path.write_bytes(path.read_bytes() + bytes(2400))
    segment = opened(tmp_path)
    segment.become_active()
    offsets, times = expected_entries(parts)
    assert entries(tmp_path, "index") == offsets
    assert entries(tmp_path, "timeindex") == times
    segment.close()


# Keeping


def test_what_was_flushed_survives_a_power_cut() -> None:
    parts = batches(40)
    for seed in range(30):
        disk = SimulatedDisk(seed)
        disk.make_directory(FOLDER)
        disk.sync_all()
        segment = opened(FOLDER, disk)
        append(segment, *parts[:20])
        segment.flush()
        append(segment, *parts[20:25])
        segment.transaction_index.append(AbortedTransaction(1, BASE, BASE + 3, BASE))
        segment.flush()
        for part in parts[25:]:
            append(segment, part)
        segment.offset_index.write()
        flushed = disk.after_crash(seed, Survival.NOTHING)
        assert opened(FOLDER, flushed).time_index.last_entry[0] > parts[20].max_timestamp_ms
        disk.restart()
        segment = opened(FOLDER, disk)
        segment.recover()
        headers = [header.base_offset for _, header in segment.iter_headers()]
        assert headers == [part.base_offset for part in parts[: len(headers)]]
        assert len(headers) >= 25
        assert segment.transaction_index.entry_count == 1
        segment.check_indexes()
        segment.close()


def test_a_flush_does_not_rely_on_one_that_is_still_under_way() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    disk.sync_all()
    segment = opened(FOLDER, disk)
    append(segment, *batches(5))

    def during_the_first(operation: DiskOperation, path: Path) -> None:
        if operation is DiskOperation.SYNC and path.suffix == ".log":
            disk.before = None
            segment.flush()
            disk.crash(Survival.NOTHING)

    disk.before = during_the_first
    with pytest.raises(CrashedError):
        segment.flush()
    disk.restart()
    assert opened(FOLDER, disk).read_next_offset() == BASE + 10


@pytest.mark.parametrize("count", [0, 5])
def test_a_flush_after_a_kill_makes_names_safe_that_were_not(count: int) -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    disk.sync_all()
    parts = batches(6)
    killed = opened(FOLDER, disk)
    for part in parts[:count]:
        append(killed, part)
    segment = opened(FOLDER, disk)
    if count:
        segment.recover()  # an empty one may be opened without, after a clean stop
    append(segment, *parts[count:])
    segment.flush()
    disk.crash(Survival.NOTHING)
    disk.restart()
    assert opened(FOLDER, disk).read_next_offset() == BASE + 12


def test_what_was_closed_survives_a_power_cut_as_it_was() -> None:
    parts = batches(40)
    for seed in range(10):
        disk = SimulatedDisk(seed)
        disk.make_directory(FOLDER)
        disk.sync_all()
        segment = opened(FOLDER, disk)
        append(segment, *parts)
        if seed % 2:
            segment.flush()
            append(segment, batch(BASE + 80))
        segment.close()
        before = disk.contents()
        disk.crash(Survival.NOTHING)
        disk.restart()
        assert disk.contents() == before
        segment = opened(FOLDER, disk)
        assert (segment.max_timestamp_ms, segment.read_next_offset()) == (139, BASE + 80 + seed % 2)


def test_an_abandoned_segment_writes_nothing() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER)
    segment = opened(FOLDER, disk)
    append(segment, *batches(40))
    before, steps = disk.contents(), disk.steps
    segment.abandon()
    assert (disk.contents(), disk.steps) == (before, steps)
