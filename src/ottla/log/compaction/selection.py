"""Chooses the next log to compact, and the offsets. Pure: reads logs, changes nothing.

    log start ──▶ clean │ dirty, cleanable │ dirty, not yet cleanable ──▶ log end
                        ▲ first dirty      ▲ first uncleanable

Clean is what an earlier pass has seen: no key occurs twice in it. Not yet cleanable are the active segment, segments
that reach the last stable offset (an open transaction may still be aborted) and those younger than
`min.compaction.lag.ms`. A log is due once the dirty bytes are more than `min.cleanable.dirty.ratio` of all, or the
oldest dirty record is older than `max.compaction.lag.ms`. Called by the thread that owns the log.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment

_NEVER_MS: Final = 2**63 - 1

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cleanable:
    """How dirty a log is, and which part can be compacted."""

    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment that is not compacted."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """For how long the compaction of the oldest dirty record has been overdue."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.overdue_ms > 0 and self.dirty_bytes > 0:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def find_cleanable(log: PartitionLog, cleaned_offset: int | None, now_ms: int) -> Cleanable:
    """`cleaned_offset` is how far an earlier pass came, according to the checkpoint."""
    segments = log.segments
    active = segments[-1]
    first_dirty = _first_dirty(log, cleaned_offset)
    dirty = _closed_from(segments, first_dirty)
    bound = min(log.last_stable_offset, active.base_offset)
    if log.config.min_compaction_lag_ms > 0:
        newest_ms = now_ms - log.config.min_compaction_lag_ms
        young = (segment.base_offset for segment in dirty if segment.largest_timestamp_ms > newest_ms)
        bound = min(bound, next(young, bound))
    # Complete segments only: the one that contains the limit is excluded.
    first_uncleanable = next(iter(_closed_from(segments, max(bound, first_dirty))), active).base_offset
    return Cleanable(
        log=log,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(s.size for s in segments if s.base_offset < first_dirty),
        dirty_bytes=sum(s.size for s in dirty if s.base_offset < first_uncleanable),
        overdue_ms=_overdue_ms(log, dirty, now_ms),
    )


def filthiest(candidates: Sequence[Cleanable]) -> Cleanable | None:
    """Of those that are due, the one with the largest share of dirty bytes."""
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda candidate: candidate.dirty_ratio, default=None)


def _first_dirty(log: PartitionLog, cleaned_offset: int | None) -> int:
    start, end = log.log_start_offset, log.next_offset
    if cleaned_offset is None:
        return start
    if cleaned_offset > end:
        _logger.warning(
            "%s: compacted up to %d, says the checkpoint, but the log ends at %d: it is compacted from its start on",
            log.partition,
            cleaned_offset,
            end,
        )
        return start
    return max(cleaned_offset, start)


def _closed_from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """The closed segments from the one that contains the offset on."""
    if offset >= segments[-1].base_offset:
        return ()
    first = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    return segments[max(first, 0) : -1]


def _overdue_ms(log: PartitionLog, dirty: Sequence[Segment], now_ms: int) -> int:
    limit_ms = log.config.max_compaction_lag_ms
    if limit_ms >= _NEVER_MS:
        return 0
    found = [segment.first_batch_timestamp_ms for segment in dirty]
    oldest_ms = min(
        (timestamp_ms for timestamp_ms in found if timestamp_ms is not None and timestamp_ms > 0), default=None
    )
    return 0 if oldest_ms is None else max(now_ms - limit_ms - oldest_ms, 0)
