"""Consumer lag by group and topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ottla.coordinator.groups.offsets.records import decode_value
from ottla.coordinator.groups.offsets.store import OffsetStore

EndOf = Callable[[str, int], int | None]
"""The end offset of a partition for consumers; None if this broker does not know it."""


class TopicLag(NamedTuple):
    """The lag of a group for a topic, summed over partitions."""

    group_id: str
    topic: str
    partition_count: int
    """Partitions with a committed offset."""
    lag: int


def lags(stores: Iterable[OffsetStore], end_of: EndOf) -> Iterator[TopicLag]:
    """Leaves out unknown partitions. Can run in another thread: it copies what it reads in one step, so each topic is
    consistent."""
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
