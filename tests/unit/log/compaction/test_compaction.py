"""A pass over a log, against what the same pass does in plain words."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.log.compaction import CleanerOptions, find_cleanable
from ottla.records import Compression, TimestampType
from support.examples import examples
from support.logs.written_log import (
    ENGINES,
    RETENTION_MS,
    WrittenLog,
    compacted,
    find_aborted,
    find_mapped,
    latest_values,
)

keys = st.integers(0, 5).map(lambda number: b"key %d" % number * (1 + number * 3))
values = st.one_of(st.none(), st.binary(max_size=20))
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), pairs, st.sampled_from(Compression), st.sampled_from([-1, -1, 1, 2])),
        st.tuples(st.just("transact"), pairs, st.sampled_from(Compression), st.sampled_from([11, 12])),
        st.tuples(st.just("end"), st.sampled_from([11, 12]), st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("wait"), st.sampled_from([10, RETENTION_MS, 3 * RETENTION_MS])),
        st.tuples(st.just("reopen")),
    ),
    min_size=4,
    max_size=40,
)


def check_pass(written: WrittenLog, map_keys: int) -> None:
    """Compacts, and compares every batch with what plain words say."""
    log = written.log
    before = written.batches()
    aborted = find_aborted(before)
    offset = written.cleaner.cleaned_offsets(log.directory.parent).get(log.partition)
    cleanable = find_cleanable(log, offset, written.clock.now_ms())
    compaction = written.cleaner.choose([log])
    if compaction is None:
        assert cleanable.dirty_bytes == 0
        return
    entries = log.producers.entries.values()
    offsets, until = find_mapped(before, cleanable.first_dirty_offset, cleanable.first_uncleanable_offset, map_keys)
    expected = compacted(
        before,
        offsets=offsets,
        mapped_until=until,
        cleaned_until=next((s.base_offset for s in log.segments if s.base_offset >= until), until),
        last_offsets={entry.last_offset for entry in entries},
        marker_only={entry.producer_id: entry.producer_epoch for entry in entries if entry.last_offset < 0},
        now_ms=written.clock.now_ms(),
    )
    written.cleaner.run(compaction)
    after = written.batches()
    assert [batch.facts for batch in after] == expected
    assert compaction.end_offset == until
    assert latest_values(after, find_aborted(after)) == latest_values(before, aborted)
    last = [batch.header.last_offset for batch in after]
    assert last == sorted(set(last))


def make(folder: Path, engine: str, slots: int, io_bytes: int, segment_bytes: int, kind: TimestampType) -> WrittenLog:
    options = CleanerOptions(
        dedupe_buffer_bytes=ENGINES[engine].ENTRY_BYTES * slots, load_factor=0.9, io_buffer_bytes=io_bytes
    )
    return WrittenLog.make(
        folder,
        options=options,
        engine=engine,
        min_cleanable_dirty_ratio=0.0,
        segment_bytes=segment_bytes,
        timestamp_type=kind,
    )


def take(step: tuple[Any, ...], written: WrittenLog, open_transactions: set[int]) -> None:
    match step:
        case ("append", [*data], Compression() as codec, int(producer_id)):
            written.append(*data, compression=codec, producer_id=producer_id)
        case ("transact", [*data], Compression() as codec, int(producer_id)):
            open_transactions.add(producer_id)
            written.append(*data, compression=codec, producer_id=producer_id, transactional=True)
        case ("end", int(producer_id), bool(committed)):
            if producer_id in open_transactions:
                open_transactions.discard(producer_id)
                written.end_transaction(producer_id, committed=committed)
        case ("roll",):
            written.log.roll()
        case ("wait", int(duration_ms)):
            written.clock.advance_ms(duration_ms)
        case ("reopen",):
            written.reopen()


@pytest.mark.parametrize("engine", ENGINES)
@settings(deadline=None, max_examples=examples(48), suppress_health_check=[HealthCheck.too_slow])
@given(
    steps,
    st.sampled_from([2, 4, 8, 1000]),
    st.sampled_from([80, 200, 100_000]),
    st.sampled_from(TimestampType),
    st.sampled_from([600, 2000]),
)
def test_a_pass_does_what_plain_words_say(
    engine: str, todo: list[tuple[Any, ...]], slots: int, io_bytes: int, kind: TimestampType, segment_bytes: int
) -> None:
    folder = Path(tempfile.mkdtemp())
    limit = min(int(slots * 0.9), slots - 1)
    try:
        written = make(folder, engine, slots, io_bytes, segment_bytes, kind)
        open_transactions: set[int] = set()
        for step in [*todo, ("roll",), ("compact",)]:
            if step == ("compact",):
                check_pass(written, limit)
            else:
                take(step, written, open_transactions)
        # Until the map has seen all, and again: the second time there is nothing to do.
        for _ in range(100):
            if written.cleaner.choose([written.log]) is None:
                break
            written.cleaner = written.fresh_cleaner()
            check_pass(written, limit)
    finally:
        shutil.rmtree(folder)


SAME_TIMES = [("append", [(b"%d" % key, b"value")], Compression.NONE, -1) for key in range(4)]


@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@example(SAME_TIMES, 1000, 100_000, TimestampType.CREATE_TIME, 2000)
@given(
    steps,
    st.sampled_from([2, 4, 8, 1000]),
    st.sampled_from([0, 80, 200, 100_000]),
    st.sampled_from(TimestampType),
    st.sampled_from([600, 2000]),
)
def test_both_engines_write_the_same_bytes(
    todo: list[tuple[Any, ...]], slots: int, io_bytes: int, kind: TimestampType, segment_bytes: int
) -> None:
    """Of the batches, and of every index."""
    folders = {engine: Path(tempfile.mkdtemp()) for engine in ENGINES}
    try:
        logs = {
            engine: make(folder, engine, slots, io_bytes, segment_bytes, kind) for engine, folder in folders.items()
        }
        for written in logs.values():
            open_transactions: set[int] = set()
            for step in [*todo, ("roll",), ("compact",)]:
                if step == ("compact",):
                    written.compact(roll=False)
                else:
                    take(step, written, open_transactions)
            written.log.flush()
        fast, plain = (files_of(logs[engine]) for engine in ("fast", "plain"))
        assert fast == plain
    finally:
        for folder in folders.values():
            shutil.rmtree(folder)


def files_of(written: WrittenLog) -> dict[str, bytes]:
    paths = written.log.directory.iterdir()
    return {
        path.name: path.read_bytes() for path in paths if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    }
