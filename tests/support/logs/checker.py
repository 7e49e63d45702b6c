"""Holds a log against its own bytes: what it says of itself must follow from a scan of its files.

`check` raises `AssertionError` with what is wrong. It asks for nothing that retention may take away: a producer or an
epoch of which the records are gone may be remembered or not.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ottla.base.disk import Disk
from ottla.log.names import DELETED, SEGMENT_SUFFIXES, parse_segment_file
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment, SegmentOptions
from ottla.log.transaction_index import AbortedTransaction
from ottla.records import BatchHeader, BatchView, Record, decode_batch, iter_batches
from ottla.testing.simulated_disk import SimulatedDisk

_SCRATCH = Path("/scratch")


class Scanned(NamedTuple):
    """A batch as it lies in its segment's file."""

    segment: Segment
    position: int
    header: BatchHeader
    records: list[Record]
    data: bytes


def scan(log: PartitionLog) -> list[Scanned]:
    """Every batch of every segment, read past all indexes and caches; each must be whole and valid."""
    found = []
    for segment in log.segments:
        content = log.disk.read(segment.path)
        assert len(content) == segment.size, f"{segment.path}: {len(content)} bytes, the segment says {segment.size}"
        for view in iter_batches(content):
            records = decode_batch(view)  # checks the CRC
            found.append(Scanned(segment, view.position, view.header, records, bytes(view.data)))
    return found


def records_in(log: PartitionLog) -> list[Record]:
    """All data records from the log's start on, by scanning."""
    return [
        record
        for batch in scan(log)
        if not batch.header.is_control
        for record in batch.records
        if record.offset >= log.log_start_offset
    ]


def check(log: PartitionLog, *, exact_indexes: bool = True, deleted_below: int = 0) -> list[Scanned]:
    """Everything there is to check. `exact_indexes`: the index interval has never changed, so that a rebuilt offset
    index is the same byte for byte. `deleted_below`: what was once deleted, even if a crash brought it back."""
    batches = scan(log)
    _check_offsets(log, batches)
    for segment in log.segments:
        _check_indexes(log, segment, [batch for batch in batches if batch.segment is segment], exact=exact_indexes)
    _check_epochs(log, batches, deleted_below)
    _check_producers(log, batches, deleted_below)
    _check_reads(log, batches)
    _check_files(log)
    return batches


def _check_offsets(log: PartitionLog, batches: list[Scanned]) -> None:
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases)), f"segments out of order: {bases}"
    for former, latter in pairwise(batches):
        assert former.header.last_offset < latter.header.base_offset, (
            f"offset {latter.header.base_offset} follows {former.header.last_offset}"
        )
    for batch in batches:
        following = bases.index(batch.segment.base_offset) + 1
        end = bases[following] if following < len(bases) else log.next_offset
        assert batch.segment.base_offset <= batch.header.base_offset, f"{batch.segment}: begins with {batch.header}"
        assert batch.header.last_offset < end, f"{batch.segment}: reaches to {batch.header.last_offset}, beyond {end}"
    assert bases[0] <= log.log_start_offset <= log.next_offset
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.next_offset
    assert log.recovery_point <= log.next_offset
    # Beyond the last batch only where one was cut in its middle.
    assert log.next_offset >= (batches[-1].header.next_offset if batches else bases[-1])


def _check_indexes(log: PartitionLog, segment: Segment, batches: list[Scanned], *, exact: bool) -> None:
    by_position = {batch.position: batch.header for batch in batches}
    data = bytes(segment.offset_index._entries())
    for at in range(0, len(data), 8):
        offset = segment.base_offset + int.from_bytes(data[at : at + 4], "big")
        position = int.from_bytes(data[at + 4 : at + 8], "big")
        assert position in by_position, f"{segment}: an index entry for byte {position}, where no batch begins"
        assert by_position[position].last_offset == offset, f"{segment}: offset {offset} is not at byte {position}"
    newest = -1
    first_with: dict[int, int] = {}
    for batch in batches:
        if batch.header.max_timestamp_ms > newest:
            newest = batch.header.max_timestamp_ms
            first_with[newest] = batch.header.last_offset
    times = bytes(segment.time_index._entries())
    entries = [
        (int.from_bytes(times[at : at + 8], "big", signed=True), int.from_bytes(times[at + 8 : at + 12], "big"))
        for at in range(0, len(times), 12)
    ]
    assert entries == sorted(set(entries)), f"{segment}: time index out of order: {entries}"
    for timestamp_ms, relative in entries:
        assert first_with.get(timestamp_ms) == segment.base_offset + relative, (
            f"{segment}: the time index says {timestamp_ms} at {segment.base_offset + relative}, not so in {first_with}"
        )
    assert segment.max_timestamp_ms == newest, f"{segment}: newest {segment.max_timestamp_ms}, scan says {newest}"
    if exact:
        scratch = SimulatedDisk()
        scratch.make_directory(_SCRATCH)
        scratch.write(_SCRATCH / segment.path.name, b"".join(batch.data for batch in batches))
        options = SegmentOptions(
            index_interval_bytes=log.config.index_interval_bytes,
            max_index_bytes=log.config.segment_index_bytes,
            clock=log.clock,
        )
        rebuilt = Segment.open(scratch, _SCRATCH, segment.base_offset, options)
        rebuilt.recover()
        assert bytes(rebuilt.offset_index._entries()) == data, f"{segment}: the offset index is not that of its log"


def _check_epochs(log: PartitionLog, batches: list[Scanned], deleted_below: int) -> None:
    entries = log.epochs.entries
    for former, latter in pairwise(entries):
        assert former.epoch < latter.epoch, entries
        assert former.start_offset < latter.start_offset, entries
    for batch in batches:
        header = batch.header
        if header.leader_epoch >= 0 and header.base_offset >= max(log.log_start_offset, deleted_below):
            known = log.epochs.epoch_for_offset(header.base_offset)
            assert known == header.leader_epoch, f"epoch of {header.base_offset}: {known} in {entries}, batch {header}"


def _check_producers(log: PartitionLog, batches: list[Scanned], deleted_below: int) -> None:
    """The state in memory against a replay of all that is there. Of what was before the log's start it may know or not:
    a transaction may have begun there."""
    lowest = max(log.segments[0].base_offset, log.log_start_offset, deleted_below)
    scratch: Disk = SimulatedDisk()
    scratch.make_directory(_SCRATCH)
    replayed = ProducerStates(scratch, _SCRATCH)
    expected: dict[int, AbortedTransaction] = {}
    for batch in batches:
        if batch.header.last_offset >= lowest:
            done = replayed.replay(batch.header, lambda batch=batch: batch.data)  # type: ignore[misc]  # bound per loop
            if done is not None:
                expected[done.last_offset] = done
    for producer_id, entry in replayed.entries.items():
        known = log.producers.entries.get(producer_id)
        assert known is not None, f"producer {producer_id} has records and is not known"
        assert known.producer_epoch == entry.producer_epoch, f"producer {producer_id}"
        # A snapshot keeps the last batch only, and of its time what came last, be it a marker.
        told = [recent[:3] for recent in known.batches if recent.last_offset >= lowest]
        seen = [recent[:3] for recent in entry.batches]
        assert bool(told) == bool(seen), f"producer {producer_id}: {told} known, {seen} in the log"
        assert told == seen[len(seen) - len(told) :], f"producer {producer_id}: {told} known, {seen} in the log"
        first, found = known.current_transaction_first_offset, entry.current_transaction_first_offset
        assert first == found or (first is not None and first < lowest), f"producer {producer_id}: {first}, {found}"
        assert known.coordinator_epoch == entry.coordinator_epoch or entry.coordinator_epoch == -1
    for producer_id, known in log.producers.entries.items():
        if producer_id not in replayed.entries:
            assert known.last_offset < lowest, f"producer {producer_id} is known of records that are not there"
    indexed = [entry for segment in log.segments for entry in segment.transaction_index.all()]
    aborted = {entry.last_offset: entry for entry in indexed if entry.last_offset >= lowest}
    for last_offset, transaction in expected.items():
        assert last_offset in aborted, f"{transaction} is not in the index"
        assert aborted[last_offset].producer_id == transaction.producer_id, f"{aborted[last_offset]}, not {transaction}"
    for last_offset, transaction in aborted.items():
        found_first = expected[last_offset].first_offset if last_offset in expected else None
        assert transaction.first_offset in (found_first, *range(lowest)), f"{transaction}, not {expected}"
    ends = (*(segment.base_offset for segment in log.segments[1:]), log.next_offset)
    for segment, end in zip(log.segments, ends, strict=True):
        for transaction in segment.transaction_index.all():
            assert segment.base_offset <= transaction.last_offset < end, f"{segment}: {transaction}"
    if lowest == 0:
        undecided, other = log.producers.first_undecided_offset, replayed.first_undecided_offset
        assert undecided == other, f"first open transaction at {undecided}, replay says {other}"


def _check_reads(log: PartitionLog, batches: list[Scanned]) -> None:
    """Each batch is found by its offsets; behind the end and before the start there is nothing."""
    for batch in batches:
        for offset in {batch.header.base_offset, batch.header.last_offset}:
            if offset >= log.log_start_offset:
                found = log.read(offset, 1)
                assert found.slice is not None, f"nothing found at offset {offset}"
                assert BatchView(found.slice.read()).base_offset == batch.header.base_offset, f"offset {offset}"
    assert log.read(log.next_offset, 1).slice is None


def _check_files(log: PartitionLog) -> None:
    """Nothing is left lying about but what waits for its removal."""
    bases = {segment.base_offset for segment in log.segments}
    for name in log.disk.list(log.directory):
        form = parse_segment_file(name)
        if form is not None and form.suffix in SEGMENT_SUFFIXES and form.state != DELETED:
            assert form.state == "", name
            assert form.base_offset in bases, f"{name} belongs to no segment"
