"""The batches of a producer that a snapshot left out, found in the log.

A snapshot keeps only the last batch of each producer (Kafka's format), while a client may have five in flight. If it
retries an older one after a restart or a truncation, the log has that batch but the state does not know it. Kafka 3.9
then returns OUT_OF_ORDER_SEQUENCE_NUMBER, which is fatal for an idempotent producer of librdkafka. Here the log is
searched before such a batch is refused, at most once for a producer that was loaded from a snapshot.

The search reads headers, from the oldest known batch backwards. It runs in the thread that owns the log, so it is
bounded. No state is changed here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

from ottla.log.errors import CorruptIndexError, CorruptRecordsError
from ottla.log.producer_entry import BATCHES_KEPT, ProducerEntry, RecentBatch
from ottla.log.segment import Segment
from ottla.records.layout import CONTROL_BIT

HEADERS_READ_MAX: Final = 20_000
"""How far back to look, counting the batches of other producers in between."""
_FIRST_SPAN: Final = 1024
"""The first number of offsets to go back; each step doubles it."""


def earlier_batches(
    segments: Sequence[Segment], entry: ProducerEntry, log_start_offset: int, headers_max: int = HEADERS_READ_MAX
) -> list[RecentBatch]:
    """Batches of the same producer epoch before the oldest one in `entry`, oldest first, up to the number it keeps."""
    if not entry.batches:
        return []
    missing = BATCHES_KEPT - len(entry.batches)
    bases = [segment.base_offset for segment in segments]
    end, span, left = entry.batches[0].first_offset, _FIRST_SPAN, headers_max
    found: list[RecentBatch] = []
    try:
        while end > log_start_offset and len(found) < missing and left > 0:
            index = bisect_right(bases, end - 1) - 1
            if index < 0:
                break
            start = max(end - span, bases[index], log_start_offset)
            some, read, is_end = _between(segments[index], entry, start, end, missing - len(found))
            found = [*some, *found]
            if is_end:
                break
            end, span, left = start, span * 2, left - read
    except (CorruptRecordsError, CorruptIndexError):  # already reported; what was found so far is valid
        pass
    return found


def _between(
    segment: Segment, entry: ProducerEntry, start: int, end: int, wanted: int
) -> tuple[list[RecentBatch], int, bool]:
    """The last batches that begin between two offsets, the number of headers read, and whether the producer had another
    epoch there: then there are no more."""
    some: deque[RecentBatch] = deque(maxlen=wanted)
    place = segment.position_of(start)
    read, is_end = 0, False
    for _, header in () if place is None else segment.iter_headers(place[0]):
        if header.base_offset >= end:
            break
        read += 1
        if header.producer_id != entry.producer_id or header.attributes & CONTROL_BIT or header.base_offset < start:
            continue
        if header.producer_epoch != entry.producer_epoch:
            some.clear()
            is_end = True
        else:
            some.append(RecentBatch.of(header))
    return list(some), read, is_end
