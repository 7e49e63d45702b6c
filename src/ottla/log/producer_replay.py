"""Restores the producer state of a log from its batches. Owned by the thread that owns the log."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from ottla.log.errors import CorruptRecordsError, InvalidRecordsError
from ottla.log.producer_state import ProducerStates
from ottla.log.segment import Segment

_logger = logging.getLogger(__name__)


def rebuild_producers(
    producers: ProducerStates, segments: Sequence[Segment], log_start: int, log_end: int, now_ms: int
) -> None:
    """Restores the state of a log between these offsets: from the newest snapshot, and the batches after it."""
    producers.truncate_and_reload(log_start, log_end, now_ms)
    start = max(producers.map_end_offset, log_start)
    if start < log_end:
        replay_producers(segments, producers, start, log_end)
    producers.map_end_offset = log_end


def replay_producers(segments: Sequence[Segment], producers: ProducerStates, start: int, end: int) -> None:
    """Updates the state with the batches between two offsets."""
    bases = [segment.base_offset for segment in segments]
    for segment in segments[max(bisect_right(bases, start) - 1, 0) :]:
        if segment.base_offset >= end:
            break
        try:
            found = segment.position_of(start)
            if found is None:
                continue
            for position, header in segment.iter_headers(found[0]):
                if header.base_offset >= end:
                    break
                if header.producer_id >= 0:
                    producers.replay(header, partial(segment.log.read_at, position, header.size_in_bytes))
        except (CorruptRecordsError, InvalidRecordsError) as error:
            _logger.warning("%s; the producer state after that is not known", error)
