"""What a query reads next, and in which pieces: arithmetic on offsets, without a broker. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from ottla.base.ids import TopicPartition
from ottla.spark.offsets import EARLIEST_OFFSET, LATEST_OFFSET, PartitionOffsets
from ottla.spark.ranges import OffsetRange


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The non-empty ranges between starts and ends, of the partitions that both contain, in order."""
    both = sorted(starts.keys() & ends.keys())
    return [OffsetRange(*one, starts[one], ends[one]) for one in both if starts[one] < ends[one]]


# Pieces.


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The same offsets in the same order, each once: in pieces of at most `max_records`, and about `min_partitions` of
    them, for which large ranges are divided further. A piece is never empty."""
    pieces = [one for one in ranges if len(one)]
    if max_records is not None:
        pieces = [part for one in pieces for part in _cut(one, math.ceil(len(one) / max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _spread(pieces, min_partitions)
    return pieces


def _spread(pieces: list[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Small pieces stay whole; the others share the rest of the wanted number in proportion to their sizes."""
    total = sum(map(len, pieces))
    large = [one for one in pieces if _share(len(one), total, wanted) > 1]
    total_large = sum(map(len, large))
    wanted_large = max(1, wanted - (len(pieces) - len(large)))
    is_large = set(large)
    return [
        part
        for one in pieces
        for part in _cut(one, _share(len(one), total_large, wanted_large) if one in is_large else 1)
    ]


def _share(size: int, total: int, wanted: int) -> int:
    """At least one; halves are rounded up."""
    return max(1, (2 * size * wanted + total) // (2 * total))


def _cut(one: OffsetRange, parts: int) -> list[OffsetRange]:
    """Divides a range into equal parts, or fewer if it has fewer offsets."""
    size = len(one)
    parts = min(parts, size)
    bounds = [one.start + size * part // parts for part in range(parts + 1)]
    return [replace(one, start=start, until=until) for start, until in pairwise(bounds)]


def bound_late(
    pieces: Iterable[OffsetRange], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """Restores -2 and -1 at ends that were specified so: a task resolves them when it runs. A DataFrame that is used
    again then sees new records, also in partitions that are empty now."""
    of_partition: dict[TopicPartition, list[OffsetRange]] = {}
    for one in pieces:
        of_partition.setdefault(TopicPartition(one.topic, one.partition), []).append(one)
    for partition, end in ends.items():
        its_own = of_partition.get(partition)
        if its_own is None:
            if end == LATEST_OFFSET and starts[partition] != LATEST_OFFSET:
                of_partition[partition] = [OffsetRange(*partition, starts[partition], end)]
            continue
        if starts[partition] == EARLIEST_OFFSET:
            its_own[0] = replace(its_own[0], start=EARLIEST_OFFSET)
        if end == LATEST_OFFSET:
            its_own[-1] = replace(its_own[-1], until=LATEST_OFFSET)
    return [one for partition in sorted(of_partition) for one in of_partition[partition]]


# Limits per batch.


def is_enough(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], least: int) -> bool:
    """Whether at least so many offsets lie between. A partition without a start is new, and begins at 0."""
    return sum(end - starts.get(partition, 0) for partition, end in ends.items()) >= least


def admit(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int) -> PartitionOffsets:
    """Where to end so that about `most` offsets are read: each partition contributes in proportion to what it has, and
    at least one, so that a small one does not wait for large ones. Needs a start for every partition."""
    sizes = {partition: end - starts[partition] for partition, end in ends.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= most:
        return dict(ends)
    return {
        partition: starts[partition] + min(size, max(1, most * size // total)) if size > 0 else ends[partition]
        for partition, size in sizes.items()
    }
