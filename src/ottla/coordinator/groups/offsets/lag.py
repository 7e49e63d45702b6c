"""How far groups are behind: what they have not read yet, by group and topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ottla.coordinator.groups.offsets.records import decode_value
from ottla.coordinator.groups.offsets.store import OffsetStore

EndOf = Callable[[str, int], int | None]
"""Where a partition ends for consumers; None for one that is not known here."""


class TopicLag(NamedTuple):
    """Of a group in a topic: all its partitions added up."""

    group_id: str
    topic: str
    partition_count: int
    """That the group has committed."""
    lag: int


def lags(stores: Iterable[OffsetStore], end_of: EndOf) -> Iterator[TopicLag]:
    """Partitions that are not known are left out. May run beside the loop, in another thread: what is looked at is
    copied in one step, and each topic is as it was at some moment."""
    for store in stores:
        for topic in store.all_topics():
            count = lag = 0
            for index, value in list(topic.values.items()):
                end = end_of(topic.topic, index)
                if end is not None:
                    count += 1
                    lag += max(end - decode_value(value).offset, 0)
            if count:
                yield TopicLag(topic.group_id, topic.topic, count, lag)
