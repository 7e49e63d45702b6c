"""What a broker knows of the cluster, as the controller tells it."""

from __future__ import annotations

import asyncio

from ottla.base.ids import random_uuid
from ottla.broker.metadata.metadata_cache import MetadataCache, TopicChange
from ottla.controller.state import PartitionState

LED = PartitionState((1, 2), 1, 0, (1, 2), 1, 0)


def test_a_topic_that_was_created_again_has_nothing_of_the_one_before() -> None:
    """This broker was cut off when the first one was deleted."""
    cache = MetadataCache("cluster", 1)
    first, second = random_uuid(), random_uuid()
    cache.update(1, [], [TopicChange("orders", first, {0: LED, 1: LED, 2: LED})])
    cache.update(1, [], [TopicChange("orders", first, {1: LED})])
    known = cache.topic("orders")
    assert known is not None
    assert len(known.partitions) == 3
    assert cache.update(1, [], [TopicChange("orders", second, {0: LED})]) == []
    known = cache.topic("orders")
    assert known is not None
    assert (known.topic_id, known.partitions) == (second, (LED,))
    assert cache.name_of(first) is None
    assert cache.name_of(second) == "orders"


def nothing() -> bool | None:
    return None


def test_cancelled_waiters_are_forgotten() -> None:
    async def run() -> None:
        cache = MetadataCache("cluster", 1)
        for _ in range(3):
            assert await cache.until(nothing, 0.001) is None
        gone = asyncio.ensure_future(cache.until(nothing, 60))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert not cache._waiting

    asyncio.run(run())
