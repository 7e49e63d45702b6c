"""What a broker knows of the cluster, as the controller tells it."""

from __future__ import annotations

import asyncio

import pytest

from ottla.base.ids import random_uuid
from ottla.broker.metadata.metadata_cache import NO_CONTROLLER, MetadataCache, TopicChange
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


def test_what_the_controller_has_not_named_yet_may_exist() -> None:
    """A new controller names brokers first, then partitions by urgency: this broker has just started."""

    async def run() -> None:
        cache = MetadataCache("cluster", NO_CONTROLLER)
        orders = random_uuid()
        cache.expect({"orders": [0, 1], "empty": []})
        assert cache.may_exist("nothing", 0)
        assert not cache.knows(["nothing"])
        cache.update(1, [], [])
        assert (cache.may_exist("orders", 1), cache.may_exist("orders", 2), cache.may_exist("nothing", 0)) == (
            True,
            False,
            False,
        )
        assert (cache.knows(["orders"]), cache.knows(["nothing", "empty"]), cache.knows(None)) == (False, True, False)
        cache.update(1, [], [TopicChange("orders", orders, {0: LED})])
        assert cache.is_expected("orders")
        waiting = asyncio.ensure_future(cache.until_known(["orders"]))
        await asyncio.sleep(0)
        assert not waiting.done()
        cache.update(1, [], [TopicChange("orders", orders, {1: LED})])
        await asyncio.wait_for(waiting, 10)
        assert cache.is_complete
        assert not cache.may_exist("orders", 2)

    asyncio.run(run())


def test_what_is_deleted_meanwhile_is_not_expected_any_more() -> None:
    async def run() -> None:
        cache = MetadataCache("cluster", NO_CONTROLLER)
        cache.expect({"orders": [0]})
        cache.update(1, [], [TopicChange("orders", random_uuid(), {0: None})])
        assert cache.is_complete
        assert not cache.may_exist("orders", 0)

    asyncio.run(run())


def test_partitions_that_are_never_named_are_not_expected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.metadata.metadata_cache._EXPECTED_S", 0.01)

    async def run() -> None:
        cache = MetadataCache("cluster", NO_CONTROLLER)
        cache.expect({"orders": [0]})
        cache.update(1, [], [])
        await cache.until(lambda: cache.is_complete or None, 60)
        assert not cache.may_exist("orders", 0)

    asyncio.run(run())
