"""Looks for damage in closed segments: reads every batch again, checks its CRC and its offsets, and compares the offset
index with the batches.

A broker checks what it serves on the first read after a start, and clients check CRCs. Damage that comes later, or in
data that nobody reads, is found here, while there may still be a copy elsewhere.

`Scrubber` chooses the segment, in the thread that owns the logs. `scrub_segment` runs in another thread, with its own
file, at a limited rate. It changes nothing: it reports damage, and leaves a wrong index to `repair`, which runs in the
owner's thread again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.log import segment_scan
from ottla.log.partition_log import MAX_GAP, PartitionLog
from ottla.log.segment import Segment
from ottla.records.errors import RecordError
from ottla.records.layout import MAGIC_V2

_CHUNK_BYTES: Final = 256 * 1024
_REST_MS: Final = 600_000
"""The delay after a segment was opened or created: a starting broker has other things to do."""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """The result for one segment."""

    batch_count: int
    byte_count: int
    damage: RecordError | None
    """The first damaged batch. Nothing after it was checked."""
    lying_index: bool
    """Whether an entry of the offset index leads to no batch, or past some."""


def scrub_segment(
    log: PartitionLog, segment: Segment, end_offset: int, spend: Callable[[int], object] | None = None
) -> Scrubbed:
    """Reads a segment that does not grow, whose offsets are below `end_offset`. `spend` is called with the number of
    bytes read, and may wait. The log reports damage. `OSError` if the segment is removed in the meantime."""
    size = segment.size
    compacted = log.may_lack_offsets_below(end_offset)
    starts: dict[int, int] = {}
    previous, batch_count, position = segment.base_offset - 1, 0, 0
    damage: RecordError | None = None
    file = log.disk.open(segment.path)
    try:
        for position, header, data in segment_scan.iter_batches(file, 0, size, chunk_bytes=_CHUNK_BYTES):
            is_in_order = previous < header.base_offset <= header.last_offset < end_offset
            if header.magic == MAGIC_V2 and not is_in_order:
                reason = f"offsets {header.base_offset} to {header.last_offset} come after {previous}"
                raise segment_scan.OffsetOrderError(reason, position=position)
            previous = max(previous, header.last_offset)
            starts[position] = header.last_offset
            batch_count += 1
            if spend is not None:
                spend(len(data))
        if not compacted and previous + 1 < end_offset and end_offset - previous <= MAX_GAP:
            reason = f"the segment ends with offset {previous}, and the next one begins at {end_offset}"
            raise segment_scan.OffsetOrderError(reason, position=size)
    except RecordError as error:
        damage = error
    finally:
        file.close()
    is_there = segment in log.segments and segment.size == size
    if damage is not None and is_there:
        log.damages.tell(segment.path, damage.position or 0, damage.reason)
    entries = segment.offset_index.entries() if is_there and damage is None else []
    return Scrubbed(
        batch_count,
        size if damage is None else (damage.position or 0),
        damage,
        any(starts.get(at, offset + 1) > offset for offset, at in entries),
    )


class Scrubber:
    """Remembers when each segment was scrubbed. Used in the thread that owns the logs."""

    def __init__(self) -> None:
        self._done_ms: dict[tuple[Path, int], int] = {}

    def due(self, logs: Iterable[PartitionLog], now_ms: int, interval_ms: int) -> list[ScrubTask]:
        """The closed segments of these logs that were not scrubbed for this interval, or never."""
        return [
            ScrubTask(log, segment, end_offset)
            for log in logs
            for segment, end_offset in log.segment_ends()[:-1]
            if segment.size and now_ms >= self._due_ms(log, segment, interval_ms)
        ]

    def _due_ms(self, log: PartitionLog, segment: Segment, interval_ms: int) -> int:
        done_ms = self._done_ms.get(_key(log, segment))
        return segment.created_ms + min(_REST_MS, interval_ms) if done_ms is None else done_ms + interval_ms

    def done(self, task: ScrubTask, now_ms: int) -> None:
        """Called when a segment was scrubbed, whatever was found."""
        self._done_ms[_key(task.log, task.segment)] = now_ms

    def forget_gone(self, logs: Iterable[PartitionLog]) -> None:
        """Forgets segments that no longer exist."""
        present = {_key(log, segment) for log in logs for segment in log.segments}
        self._done_ms = {key: done_ms for key, done_ms in self._done_ms.items() if key in present}


@dataclass(frozen=True, slots=True)
class ScrubTask:
    """A segment to scrub, and the offset after it."""

    log: PartitionLog
    segment: Segment
    end_offset: int

    @property
    def is_present(self) -> bool:
        return self.segment in self.log.segments[:-1]


def _key(log: PartitionLog, segment: Segment) -> tuple[Path, int]:
    return log.directory, segment.base_offset


def repair(segment: Segment, found: Scrubbed) -> None:
    """Rebuilds the offset index if it is wrong. For the thread that owns the log."""
    if found.lying_index:
        segment.repair_offset_index()
