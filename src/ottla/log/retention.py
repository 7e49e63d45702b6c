"""Which segments a log no longer keeps: by age, by size, and below its start. Whole ones only, never the active one.

Nothing goes that the high watermark has not passed: it may still be needed by a follower.
"""

from __future__ import annotations

from itertools import pairwise

from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment


def apply_retention(log: PartitionLog) -> int:
    """Deletes what is due; how many segments. A log that is only compacted loses just what is below its start."""
    deleted = 0
    if log.config.deletes:
        deleted += _delete(log, _expired(log))
        deleted += _delete(log, _beyond_size(log))
    return deleted + _delete(log, _below_start(log))


def _deletable(log: PartitionLog) -> list[Segment]:
    """The oldest segments, as far as the high watermark has passed them."""
    return [segment for segment, following in pairwise(log.segments) if following.base_offset <= log.high_watermark]


def _expired(log: PartitionLog) -> list[Segment]:
    if log.config.retention_ms < 0:
        return []
    oldest_ms = log.clock.now_ms() - log.config.retention_ms
    doomed = []
    for segment in _deletable(log):
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
        if excess < segment.size:  # deleting it would leave less than was asked for
            break
        excess -= segment.size
        doomed.append(segment)
    return doomed


def _below_start(log: PartitionLog) -> list[Segment]:
    return [segment for segment, following in pairwise(log.segments) if following.base_offset <= log.log_start_offset]


def _delete(log: PartitionLog, doomed: list[Segment]) -> int:
    log.delete_segments(doomed)
    return len(doomed)
