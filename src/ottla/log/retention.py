"""Which segments a log no longer keeps: below its start, by size, and by age. Complete ones only, never the active one.

An active segment that is due by size or age is closed first, and a new one begins: otherwise the last records of a
topic to which nobody writes any more would stay forever. Nothing above the high watermark is deleted: a follower may
still need it.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Final

from ottla.base.disk import is_full
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment

_logger = logging.getLogger(__name__)

_FUTURE_MS: Final = 3_600_000
"""A record with a timestamp further in the future keeps its segment for so long that a warning is justified."""


def apply_retention(log: PartitionLog) -> int:
    """Deletes what is due; returns the number of segments. With only compaction, deletes only what is below the log
    start."""
    deleted = _delete(log, _below_start(log), f"below the log start offset {log.log_start_offset}")
    if log.config.deletes:
        deleted += _delete(log, _beyond_size(log), f"more than retention.bytes={log.config.retention_bytes}")
        deleted += _delete(log, _expired(log), f"older than retention.ms={log.config.retention_ms}")
    return deleted


def _deletable(log: PartitionLog) -> list[Segment]:
    """The oldest segments below the high watermark; an empty active one has nothing to delete."""
    passed = [segment for segment, following in pairwise(log.segments) if following.base_offset <= log.high_watermark]
    if log.active.size and log.next_offset <= log.high_watermark:
        passed.append(log.active)
    return passed


def _expired(log: PartitionLog) -> list[Segment]:
    if log.config.retention_ms < 0:
        return []
    oldest_ms = log.clock.now_ms() - log.config.retention_ms
    doomed = []
    for segment in _deletable(log):
        newest_ms = segment.largest_timestamp_ms
        if newest_ms < oldest_ms or newest_ms > log.clock.now_ms() + _FUTURE_MS:
            segment.prove_newest()
        if segment.largest_timestamp_ms >= oldest_ms:
            break
        doomed.append(segment)
    return doomed


def _beyond_size(log: PartitionLog) -> list[Segment]:
    if log.config.retention_bytes < 0:
        return []
    excess = log.size - log.config.retention_bytes
    doomed = []
    for segment in _deletable(log):
        if excess < segment.size:  # deleting it would leave less than retention.bytes
            break
        excess -= segment.size
        doomed.append(segment)
    return doomed


def _below_start(log: PartitionLog) -> list[Segment]:
    return [segment for segment, following in pairwise(log.segments) if following.base_offset <= log.log_start_offset]


def _delete(log: PartitionLog, doomed: list[Segment], why: str) -> int:
    if not doomed:
        return 0
    sizes = [segment.size for segment in doomed]
    count = _delete_from(log, doomed)
    if count:
        segments = "1 segment" if count == 1 else f"{count} segments"
        what = f"{segments} with offsets below {log.segments[0].base_offset}, {sum(sizes[:count])} bytes"
        _logger.info("%s: removed %s: %s", log.partition, what, why)
    return count


def _delete_from(log: PartitionLog, doomed: list[Segment]) -> int:
    active = log.active
    closed = [segment for segment in doomed if segment is not active]
    log.delete_segments(closed)  # first, so that an active segment that cannot be closed does not keep these
    if doomed[-1] is active:
        try:
            log.roll()
        except OSError as error:
            if not is_full(error):
                raise
            return len(closed)  # there is space for a new segment when their files are removed
        log.delete_segments([active])
    return len(doomed)
