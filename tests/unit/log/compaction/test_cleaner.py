"""Choosing, finishing, failing; and a pass in its surroundings: memory, time, other threads, other formats."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest

from ottla.base.config import ConfigError
from ottla.base.ids import TopicPartition
from ottla.log.checkpoints import OffsetCheckpoint
from ottla.log.compaction import Cleanable, Cleaner, CleanerOptions, CompactionCancelledError, chunks, find_cleanable
from ottla.log.compaction import cleaner as cleaner_module
from ottla.log.compaction.cleaned_offsets import CleanedOffsets
from ottla.log.compaction.throttle import Throttle
from ottla.log.errors import CorruptRecordsError
from ottla.log.local_disk import LocalDisk
from ottla.log.names import CLEANER_OFFSETS
from ottla.log.partition_log import PartitionLog
from ottla.records import Compression
from ottla.testing.manual_clock import ManualClock
from support.logs.written_log import ENGINES, PARTITION, RETENTION_MS, WrittenLog, take_apart


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def fill(written: WrittenLog, turns: int = 3, keys: int = 5) -> None:
    for turn in range(turns):
        for key in range(keys):
            written.append((b"key %d" % key, b"%d" % turn))
        written.log.roll()


# --- what a pass leaves ---------------------------------------------------------------------------------------------


def test_the_last_value_of_each_key_stays_at_its_offset(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    fill(written)
    written.append((b"key 1", b"in the active segment"))
    assert written.compact(roll=False) == 15
    assert written.pairs() == [
        *((10 + key, b"key %d" % key, b"2") for key in range(5)),
        (15, b"key 1", b"in the active segment"),
    ]
    assert [segment.base_offset for segment in written.log.segments] == [0, 15]


def test_the_pass_is_written_down_where_kafka_has_it(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    fill(written)
    written.compact()
    assert (tmp_path / CLEANER_OFFSETS).read_text() == "0\n1\ncompacted 0 15\n"
    assert written.compact() is None
    assert written.fresh_cleaner().choose([written.log]) is None


def test_a_tombstone_stays_until_its_horizon_has_passed(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine, min_cleanable_dirty_ratio=0.0)
    written.append((b"a", b"1"), (b"b", b"1"))
    written.append((b"a", None))
    written.compact()
    horizon_ms = written.clock.now_ms() + RETENTION_MS
    assert written.pairs() == [(1, b"b", b"1"), (2, b"a", None)]
    assert [batch.header.delete_horizon_ms for batch in written.batches()] == [None, horizon_ms]

    written.clock.advance_ms(RETENTION_MS - 1)
    written.append((b"c", b"1"))
    written.compact()
    assert [batch.header.delete_horizon_ms for batch in written.batches()] == [None, horizon_ms, None]

    written.clock.advance_ms(1)
    written.append((b"d", b"1"))
    written.compact()
    assert written.pairs() == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


def test_timestamps_survive_a_horizon(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    times = [written.clock.now_ms() - 10**9, written.clock.now_ms(), 5]
    written.append((b"a", None), (b"b", b"x" * 200), (b"c", None), timestamps_ms=times)
    written.compact()
    (batch,) = written.batches()
    assert batch.header.delete_horizon_ms == written.clock.now_ms() + RETENTION_MS
    assert [record.timestamp_ms for record in batch.records] == times
    assert batch.header.max_timestamp_ms == times[1]


def test_a_batch_that_loses_nothing_keeps_its_bytes(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    written.append((b"a", b"1"), (b"b", b"2"), compression=Compression.ZSTD)
    before = written.disk.read(written.log.active.path)
    written.append((b"c", b"1"), (b"c", b"2"))
    written.compact()
    assert written.disk.read(written.log.segments[0].path).startswith(before)


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_keeps_its_codec(tmp_path: Path, engine: str, codec: Compression) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    written.append((b"a", b"1" * 100), (b"b", b"2" * 100), (b"a", b"3" * 100), compression=codec, producer_id=7)
    written.compact()
    (batch,) = written.batches()
    assert batch.header.compression is codec
    assert (batch.header.base_offset, batch.header.last_offset, batch.header.record_count) == (0, 2, 2)
    assert (batch.header.base_sequence, batch.header.last_sequence) == (0, 2)
    assert [record.offset for record in batch.records] == [1, 2]


def test_a_producers_last_batch_stays_as_an_empty_one(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    written.append((b"a", b"1"), producer_id=7)
    written.append((b"a", b"2"), producer_id=7)
    written.append((b"a", b"3"))
    written.compact()
    assert [(b.header.base_offset, b.header.producer_id, len(b.records)) for b in written.batches()] == [
        (1, 7, 0),
        (2, -1, 1),
    ]
    empty = written.batches()[0].header
    assert (empty.size_in_bytes, empty.base_timestamp_ms, empty.max_timestamp_ms) == (61, -1, written.clock.now_ms())
    written.reopen()
    assert written.log.producers.entries[7].last_sequence == 1
    written.append((b"b", b"1"), producer_id=7)


def test_markers_go_in_three_passes(tmp_path: Path, engine: str) -> None:
    """The first takes the aborted records, the second sets the horizon, the third is after it."""
    written = WrittenLog.make(tmp_path, engine=engine, min_cleanable_dirty_ratio=0.0)
    written.append((b"a", b"old"))
    written.append((b"a", b"aborted"), producer_id=7, transactional=True)
    written.end_transaction(7, committed=False)
    written.append((b"z", b"last of 7"), producer_id=7, transactional=True)
    written.end_transaction(7, committed=True)

    def look() -> list[tuple[int, int, int | None]]:
        return [(b.header.base_offset, len(b.records), b.header.delete_horizon_ms) for b in written.batches()]

    written.compact()
    assert look() == [(0, 1, None), (2, 1, None), (3, 1, None), (4, 1, None)]
    assert [entry.last_offset for entry in written.log.segments[0].transaction_index.all()] == [2]
    horizon_ms = written.clock.now_ms() + RETENTION_MS
    written.append((b"b", b"1"))
    written.compact()
    assert look()[:4] == [(0, 1, None), (2, 1, horizon_ms), (3, 1, None), (4, 1, None)]
    assert written.log.segments[0].transaction_index.all() == []
    written.clock.advance_ms(RETENTION_MS)
    written.append((b"c", b"1"))
    written.compact()
    assert look()[:3] == [(0, 1, None), (3, 1, None), (4, 1, None)]


def test_a_marker_goes_though_an_older_transaction_of_its_producer_is_still_there(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine, min_cleanable_dirty_ratio=0.0)
    for key in (b"stays", b"replaced"):
        written.append((key, b"1"), producer_id=7, transactional=True)
        written.end_transaction(7, committed=True)
    written.append((b"replaced", b"2"), producer_id=7)
    written.compact()
    assert [batch.header.base_offset for batch in written.batches()] == [0, 1, 3, 4]
    written.append((b"more", b"1"))
    written.compact()
    with_horizon = [b.header.base_offset for b in written.batches() if b.header.has_delete_horizon]
    assert with_horizon == [3]


def test_the_epoch_of_a_producer_with_markers_only_is_not_forgotten(tmp_path: Path, engine: str) -> None:
    """The coordinator has fenced it: the marker has a newer epoch than its data, of which nothing more is known."""
    written = WrittenLog.make(tmp_path, engine=engine, min_cleanable_dirty_ratio=0.0)
    written.append((b"a", b"1"), producer_id=7, transactional=True)
    written.end_transaction(7, committed=False, epoch=1)
    for turn in range(4):
        written.append((b"b", b"%d" % turn))
        written.compact()
        written.clock.advance_ms(RETENTION_MS)
    first, second = written.batches()
    assert (first.header.is_control, first.header.producer_id, first.header.producer_epoch) == (True, 7, 1)
    assert (first.records, len(second.records)) == ((), 1)
    written.reopen()
    assert written.log.producers.entries[7].producer_epoch == 1


def test_a_gap_at_the_end_of_a_segment_counts_as_seen(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine, min_cleanable_dirty_ratio=0.0)
    written.append((b"a", b"1"))
    written.log.next_offset = 10
    written.log.set_high_watermark(10)
    written.log.roll(10)
    assert written.compact(roll=False) == 10
    assert written.compact(roll=False) is None


def test_compressed_batches_are_expanded_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_EXPANDED_BYTES", 1000)
    written = WrittenLog.make(tmp_path)
    for number in range(20):
        written.append((b"%d" % (number % 7), bytes(300)), compression=Compression(number % 5))
    file = written.disk.open(written.log.active.path)
    (chunk,) = chunks.read_chunks(file, file.size(), 100_000)
    pieces = [(first, len(table)) for first, table in chunk.runs()]
    file.close()
    assert len(pieces) == 4
    assert [first for first, _ in pieces] == [sum(size for _, size in pieces[:index]) for index in range(len(pieces))]
    assert sum(size for _, size in pieces) == 20
    written.compact()
    assert [offset for offset, _, _ in written.pairs()] == list(range(13, 20))


def test_old_messages_come_out_as_batches(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    old = b"".join(magic_1(offset, key, value) for offset, (key, value) in enumerate([(b"a", b"1"), (b"b", b"2")]))
    written.log.active.append(old, last_offset=1, max_timestamp_ms=5, offset_of_max_timestamp=1)
    written.log.next_offset = 2
    written.append((b"a", b"3"))
    written.compact()
    assert written.pairs() == [(1, b"b", b"2"), (2, b"a", b"3")]


def magic_1(offset: int, key: bytes, value: bytes) -> bytes:
    body = struct.pack(">bbq", 1, 0, 5) + b"".join(struct.pack(">i", len(part)) + part for part in (key, value))
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_segments_are_joined_up_to_their_size(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine, segment_bytes=1000)
    for number in range(12):
        written.append((b"%d" % number, b"x" * 100))  # about 170 bytes, nothing to drop
        written.log.roll()
    size = written.log.size
    written.compact()
    sizes = [segment.size for segment in written.log.segments]
    assert sum(sizes) == size
    assert [segment.base_offset for segment in written.log.segments] == [0, 5, 10, 12]
    assert max(sizes) <= 1000


def test_segments_are_not_joined_beyond_what_an_index_can_say(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine, segment_index_bytes=24, index_interval_bytes=0)
    for number in range(6):
        written.append((b"%d" % number, b"1"))
        written.append((b"%d" % number, b"2"))
        written.log.roll()
    written.compact()
    assert len(written.log.segments) > 2


def test_a_new_segment_is_as_old_as_the_youngest_it_replaces(tmp_path: Path, engine: str) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    fill(written)
    for number, segment in enumerate(written.log.segments):
        os.utime(segment.path, (1000 + number, 1000 + number))
    written.compact()
    assert [segment.modified_ms for segment in written.log.segments] == [1_002_000, 1_003_000]


# --- within bounds --------------------------------------------------------------------------------------------------


def test_a_full_map_ends_the_pass_early_and_the_next_goes_on(tmp_path: Path, engine: str) -> None:
    options = CleanerOptions(dedupe_buffer_bytes=ENGINES[engine].ENTRY_BYTES * 5, load_factor=0.9)  # four keys
    written = WrittenLog.make(tmp_path, engine=engine, options=options, min_cleanable_dirty_ratio=0.0)
    fill(written, turns=2, keys=6)
    ends = []
    while (end := written.compact()) is not None:
        ends.append(end)
        assert len(ends) < 10
    assert ends == [4, 8, 12]
    assert written.pairs() == [(6 + key, b"key %d" % key, b"1") for key in range(6)]


def test_a_map_smaller_than_a_batch_still_gets_on(tmp_path: Path, engine: str) -> None:
    options = CleanerOptions(dedupe_buffer_bytes=ENGINES[engine].ENTRY_BYTES * 3, load_factor=0.9)  # two keys
    written = WrittenLog.make(tmp_path, engine=engine, options=options, min_cleanable_dirty_ratio=0.0)
    written.append(*((b"%d" % key, b"1") for key in range(7)))
    written.append(*((b"%d" % key, b"2") for key in range(7)))
    ends = []
    while (end := written.compact()) is not None:
        ends.append(end)
        assert len(ends) < 20
    assert ends == sorted(set(ends))
    assert ends[-1] == 14
    assert written.pairs() == [(7 + key, b"%d" % key, b"2") for key in range(7)]


def test_the_throttle_waits_as_long_as_the_bytes_take() -> None:
    clock = ManualClock()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        assert seconds <= 1
        clock.advance_ms(round(seconds * 1000))

    throttle = Throttle(1000.0, clock, wait)
    for _ in range(4):
        throttle.spend(500)
    assert clock.monotonic_s() == pytest.approx(2.0)
    clock.advance_ms(60_000)
    throttle.spend(1000)
    throttle.spend(500)
    assert sum(waits) == pytest.approx(2.5)


def test_a_rate_that_changes_and_a_cancelled_pass_are_heard_of_while_it_waits() -> None:
    clock = ManualClock()
    waits: list[float] = []
    is_cancelled = False

    def wait(seconds: float) -> None:
        nonlocal is_cancelled
        waits.append(seconds)
        clock.advance_ms(round(seconds * 1000))
        if len(waits) == 5:
            throttle.change_rate(1000.0)
        elif len(waits) == 100:
            is_cancelled = True

    throttle = Throttle(1.0, clock, wait)
    throttle.spend(1001)
    assert clock.monotonic_s() == pytest.approx(2.0)
    waits.clear()
    throttle.change_rate(1.0)
    waits.extend([0.0] * 10)
    throttle.spend(1_000_000, lambda: is_cancelled)
    assert len(waits) == 100
    throttle.change_rate(None)
    throttle.spend(1_000_000)
    assert len(waits) == 100


def test_a_pass_is_throttled_for_what_it_reads_and_writes(tmp_path: Path) -> None:
    clock = ManualClock()

    def wait(seconds: float) -> None:
        clock.advance_ms(round(seconds * 1000))

    options = CleanerOptions(max_io_bytes_per_second=1000.0)
    written = WrittenLog.make(tmp_path, clock=clock, options=options)
    fill(written)
    read = written.log.size
    written.cleaner = Cleaner(written.disk, clock, options, wait)
    written.compact()
    assert clock.monotonic_s() == pytest.approx((2 * read + written.log.size) / 1000, rel=0.05)


def test_a_broker_without_work_loads_no_numba() -> None:
    code = (
        "import sys, ottla.log.compaction, ottla.log.loader\n"
        "sys.exit(any(name in sys.modules for name in ('numba', 'numpy', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("No module named 'numba'", name="numba"), r"numba is not installed.*ottla\[columns\]"),
        (RuntimeError("cannot cache function: no locator available"), "no locator available.*NUMBA_CACHE_DIR"),
        (OSError(30, "Read-only file system"), "Read-only file system"),
    ],
)
def test_compaction_goes_on_in_plain_python_where_kernels_cannot_be_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    reason: str,
) -> None:
    class Refused:
        """Raises when the fast engine is imported, as a package in it would."""

        def find_spec(self, name: str, *_: object) -> None:
            if name == "ottla.log.compaction.fast_engine":
                raise error

    monkeypatch.delitem(sys.modules, "ottla.log.compaction.fast_engine")
    monkeypatch.delattr("ottla.log.compaction.fast_engine")
    monkeypatch.setattr(sys, "meta_path", [Refused(), *sys.meta_path])
    written = WrittenLog.make(tmp_path)
    written.cleaner = Cleaner(written.disk, written.clock, written.options)
    for _ in range(2):
        fill(written)
        assert written.compact() is not None
    (line,) = [each.getMessage() for each in caplog.records if "plain Python" in each.getMessage()]
    assert re.search(reason, line)


def test_memory_is_shared_by_the_threads() -> None:
    options = CleanerOptions(dedupe_buffer_bytes=8 * 2**20, io_buffer_bytes=2**20, threads=4).for_one_thread
    assert (options.dedupe_buffer_bytes, options.io_buffer_bytes) == (2 * 2**20, 2**18)


def test_config_has_kafkas_names_and_defaults() -> None:
    assert CleanerOptions.from_properties({"log.dirs": "/data"}) == CleanerOptions()
    given = {
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.cleaner.io.max.bytes.per.second": "1e6",
        "log.cleaner.io.buffer.load.factor": "0.5",
    }
    options = CleanerOptions.from_properties(given)
    assert (options.dedupe_buffer_bytes, options.max_io_bytes_per_second, options.load_factor) == (2**21, 1e6, 0.5)
    with pytest.raises(ConfigError, match=r"log\.cleaner\.dedupe\.buffer\.size.*1 MiB"):
        CleanerOptions.from_properties({"log.cleaner.dedupe.buffer.size": "2097152", "log.cleaner.threads": "2"})


# --- with others about ----------------------------------------------------------------------------------------------


def test_it_runs_beside_appends_in_another_thread(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path, segment_bytes=500)
    fill(written, turns=20)
    compaction = written.cleaner.choose([written.log])
    assert compaction is not None
    while True:
        groups: list[object] = []
        worker = threading.Thread(target=lambda: groups.append(compaction.clean_next()))  # noqa: B023
        worker.start()
        written.append((b"key 0", b"meanwhile"))
        worker.join()
        (group,) = groups
        if group is None:
            break
        compaction.apply(group)  # type: ignore[arg-type]  # It is a group.
    written.cleaner.finish(compaction)
    assert [pair for pair in written.pairs() if pair[0] < 100] == [(95 + k, b"key %d" % k, b"19") for k in range(5)]


def test_a_log_that_was_truncated_meanwhile_keeps_what_it_has(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path, segment_bytes=100_000)
    fill(written)
    compaction = written.cleaner.choose([written.log])
    assert compaction is not None
    group = compaction.clean_next()
    assert group is not None
    written.log.truncate_to(7)
    written.cleaner.truncated(written.log)
    before = written.pairs()
    with pytest.raises(CompactionCancelledError, match="changed"):
        compaction.apply(group)
    with pytest.raises(CompactionCancelledError):
        compaction.clean_next()
    assert written.pairs() == before
    assert not [path for path in written.log.directory.iterdir() if path.suffix in (".cleaned", ".swap")]


def test_cancelling_leaves_no_files(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written)
    compaction = written.cleaner.choose([written.log])
    assert compaction is not None
    assert written.cleaner.choose([written.log]) is None, "it is running"
    compaction.cancel()
    with pytest.raises(CompactionCancelledError):
        compaction.clean_next()
    written.cleaner.fail(compaction, CompactionCancelledError("stopped"))
    assert not list(written.log.directory.glob("*.cleaned"))
    assert written.compact() == 15


def test_a_truncated_log_is_dirty_from_its_new_end_on(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written)
    written.compact()
    written.log.truncate_to(12)
    written.cleaner.truncated(written.log)
    assert written.cleaner.cleaned_offsets(tmp_path).get(PARTITION) == 12
    written.cleaner.forget(tmp_path, PARTITION)
    assert written.cleaner.cleaned_offsets(tmp_path).get(PARTITION) is None


@pytest.mark.parametrize("position", [30, 100, 330])
def test_rotten_bytes_are_neither_dropped_nor_laundered(tmp_path: Path, engine: str, position: int) -> None:
    written = WrittenLog.make(tmp_path, engine=engine)
    fill(written)
    path = written.log.segments[0].path
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)
    with pytest.raises(CorruptRecordsError, match=path.name):
        written.compact()
    assert path.read_bytes() == bytes(data)
    assert written.cleaner.uncleanable == {written.log.directory}
    assert written.compact() is None
    assert not list(written.log.directory.glob("*.cleaned"))


def test_a_log_that_cannot_be_looked_at_keeps_no_other_from_being_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = WrittenLog.make(tmp_path / "good"), WrittenLog.make(tmp_path / "bad")
    for written in (good, bad):
        fill(written)

    def look(log: PartitionLog, cleaned_offset: int | None, now_ms: int) -> Cleanable:
        if log is bad.log:
            raise CorruptRecordsError("its first batch cannot be read")
        return find_cleanable(log, cleaned_offset, now_ms)

    monkeypatch.setattr(cleaner_module, "find_cleanable", look)
    compaction = good.cleaner.choose([bad.log, good.log])
    assert compaction is not None
    assert compaction.log is good.log
    assert good.cleaner.uncleanable == {bad.log.directory}


def test_a_disk_that_fails_is_reported_and_the_others_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = WrittenLog.make(tmp_path / "good"), WrittenLog.make(tmp_path / "bad")
    for written in (good, bad):
        fill(written)
    real = OffsetCheckpoint.read

    def read(checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        if checkpoint.path.parent.name == "bad":
            raise OSError(5, "Input/output error")
        return real(checkpoint)

    monkeypatch.setattr(OffsetCheckpoint, "read", read)
    told: list[object] = []
    compaction = good.cleaner.choose([bad.log, good.log], lambda log, error: told.append((log, error.errno)))
    assert compaction is not None
    assert compaction.log is good.log
    assert told == [(bad.log, 5)]
    assert not good.cleaner.uncleanable


def test_a_partition_deleted_while_its_pass_is_written_down_leaves_no_offset(tmp_path: Path) -> None:
    """Its records are gone: a new partition of that name must be compacted from its start."""
    written = WrittenLog.make(tmp_path)
    fill(written)
    cleaner = written.cleaner
    compaction = cleaner.choose([written.log])
    assert compaction is not None
    while (group := compaction.clean_next()) is not None:
        compaction.apply(group)
    cleaner.forget(tmp_path, PARTITION)
    cleaner.finish(compaction)
    cleaner.write_down(tmp_path)
    assert cleaner.cleaned_offsets(tmp_path).get(PARTITION) is None
    assert CleanedOffsets(LocalDisk(), tmp_path).get(PARTITION) is None


def test_a_log_that_moved_meanwhile_is_neither_touched_nor_blamed(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written)
    compaction = written.cleaner.choose([written.log])
    assert compaction is not None
    group = compaction.clean_next()
    assert group is not None
    assert not compaction.was_overtaken
    written.cleaner.forget(tmp_path, PARTITION)
    assert compaction.was_overtaken
    with pytest.raises(CompactionCancelledError, match="deleted or moved"):
        compaction.apply(group)
    assert len(written.log.segments) == 4
    written.cleaner.fail(compaction, ValueError("whatever came of it"))
    assert not written.cleaner.uncleanable


def test_a_new_partition_of_that_name_waits_for_the_pass_over_the_deleted_one(tmp_path: Path) -> None:
    """Both would write `.cleaned` files of the same names, and the one that was cancelled removes them."""
    written = WrittenLog.make(tmp_path)
    fill(written)
    cleaner = written.cleaner
    compaction = cleaner.choose([written.log])
    assert compaction is not None
    cleaner.forget(tmp_path, PARTITION)
    assert cleaner.choose([written.log]) is None
    with pytest.raises(CompactionCancelledError):
        compaction.clean_next()
    cleaner.fail(compaction, CompactionCancelledError("deleted"))
    assert written.compact() is not None


def test_segments_that_were_deleted_meanwhile_end_the_pass(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path)
    fill(written)
    compaction = written.cleaner.choose([written.log])
    assert compaction is not None
    assert written.cleaner.is_compacting(written.log)
    written.log.delete_segments(list(written.log.segments[:1]))
    with pytest.raises(FileNotFoundError):
        compaction.clean_next()
    assert compaction.was_overtaken


def test_a_log_that_is_not_compacted_is_left_alone(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path, compacts=False, deletes=True)
    fill(written)
    assert written.compact() is None


def test_offsets_of_a_directory_survive_and_garbage_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = CleanedOffsets(LocalDisk(), tmp_path)
    other = TopicPartition("other", 3)
    offsets.set(PARTITION, 5)
    offsets.set(other, 7)
    offsets.truncate(other, 6)
    offsets.truncate(other, 9)
    again = CleanedOffsets(LocalDisk(), tmp_path)
    assert (again.get(PARTITION), again.get(other), again.get(TopicPartition("no", 0))) == (5, 6, None)
    assert again.remove(PARTITION)
    again.write_down()
    assert CleanedOffsets(LocalDisk(), tmp_path).get(PARTITION) is None
    assert not again.remove(PARTITION)
    assert not again.keep_only([other])
    assert again.keep_only([PARTITION])
    again.write_down()
    assert CleanedOffsets(LocalDisk(), tmp_path).get(other) is None
    (tmp_path / CLEANER_OFFSETS).write_text("garbage")
    broken = CleanedOffsets(LocalDisk(), tmp_path)
    assert broken.get(other) is None
    assert CLEANER_OFFSETS in caplog.text
    broken.set(other, 8)
    assert CleanedOffsets(LocalDisk(), tmp_path).get(other) == 8


def test_indexes_of_the_new_segment_lead_to_its_records(tmp_path: Path) -> None:
    written = WrittenLog.make(tmp_path, index_interval_bytes=100)
    fill(written, turns=3, keys=30)
    written.compact()
    (segment, _) = written.log.segments
    segment.check_indexes()
    assert segment.offset_index.entry_count > 5
    for batch in take_apart(written.disk.read(segment.path)):
        found = written.log.read(batch.header.base_offset, 1)
        assert found.slice is not None
        assert take_apart(found.slice.read())[0].facts == batch.facts
    newest = written.log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.timestamp_ms == max(record.timestamp_ms for b in written.batches() for record in b.records)
