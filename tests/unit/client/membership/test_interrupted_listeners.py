"""Polls that Ctrl-C interrupts, wherever that happens: the listener hears of every partition that it is to read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import count
from typing import Any

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.consume import AsyncConsumer, Consumer, RebalanceListener
from unit.client.consume.scripted_log import TOPIC, config_for
from unit.client.consume.test_interrupted_commits import EVENTS, QuietGroup, group
from unit.client.interruptions import Interruption
from unit.client.test_cluster import run

__all__ = ["group"]
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


class Heard(RebalanceListener):
    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.owned.update(partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.owned.difference_update(partitions)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_interrupted_poll_tells_the_listener_all_the_same(group: QuietGroup, protocol: str) -> None:
    for number in count():
        settings = config_for(group, group_id="g", group_protocol=protocol)
        consumer: Consumer[Any, Any] = Consumer(settings)
        heard, interruption = Heard(), Interruption(number)
        consumer.subscribe([TOPIC], heard)
        while not consumer.assignment():
            try:
                with interruption:
                    consumer.poll(0.01)
            except KeyboardInterrupt:
                pass
        consumer.poll(0)
        assert heard.owned == {EVENTS}, interruption.where
        try:
            with interruption:
                consumer.unsubscribe()
        except KeyboardInterrupt:
            consumer.unsubscribe()
        assert heard.owned == set(), interruption.where
        consumer.close()
        if not interruption.happened:
            return


class SlowlyHeard(Heard):
    """One that takes some steps of the loop, and has heard only when they are done."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:  # type: ignore[override]
        for _ in range(3):
            await asyncio.sleep(0)
        super().on_partitions_assigned(partitions)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_cancelled_poll_tells_the_listener_all_the_same(protocol: str) -> None:
    async def scenario() -> None:
        async with QuietGroup() as group:
            for steps in count():
                settings = config_for(group, group_id="g", group_protocol=protocol)
                consumer: AsyncConsumer[Any, Any] = AsyncConsumer(settings)
                heard = SlowlyHeard()
                consumer.subscribe([TOPIC], heard)
                polling = asyncio.create_task(consumer.poll(0.2))
                for _ in range(steps):
                    await asyncio.sleep(0)
                polling.cancel()
                await asyncio.wait([polling])
                was_heard = bool(heard.owned)
                while not consumer.assignment():
                    await consumer.poll(0.01)
                await consumer.poll(0)
                assert heard.owned == {EVENTS}, steps
                await consumer.close()
                if was_heard:
                    return

    run(scenario)
