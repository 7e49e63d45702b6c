"""Commits and closes that Ctrl-C interrupts, wherever that happens: nothing is committed wrongly, and nothing hangs.

A blocking consumer is interrupted by KeyboardInterrupt at each place where CPython looks for signals. Under asyncio
Ctrl-C cancels the task instead (`asyncio.run` sees to that), so there a task is cancelled in each step of the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.consume import AsyncConsumer, Consumer
from ottla.client.loop_thread import LoopThread
from ottla.client.offsets import OffsetAndMetadata
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.schema import Request
from support.clients.scripted_broker import Answer, Silence
from unit.client.consume.scripted_log import TOPIC, config_for
from unit.client.interruptions import Interruption
from unit.client.membership.scripted_group import ScriptedGroup
from unit.client.test_cluster import run

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
"""Where Ctrl-C comes between the making of a coroutine and its use."""

EVENTS = TopicPartition(TOPIC, 0)


@dataclass
class QuietGroup(ScriptedGroup):
    """A coordinator whose topic has no records. It remembers all that was committed."""

    history: list[int] = field(default_factory=list)

    def _act(self, request: Request) -> Answer | None:
        if isinstance(request, FetchRequest | ListOffsetsRequest):
            return Silence()
        answer = super()._act(request)
        if self.committed and self.history[-1:] != [self.committed[0]]:
            self.history.append(self.committed[0])
        return answer


@pytest.fixture
def group() -> Iterator[QuietGroup]:
    """In a thread of its own: the blocking consumer has the test's."""
    thread, broker = LoopThread("a scripted group"), QuietGroup()
    thread.run(broker.__aenter__())
    yield broker
    thread.run(broker.__aexit__(None, None, None))
    thread.close()


def reading(group: QuietGroup, *, is_auto: bool) -> Consumer:
    """A consumer at offset 5."""
    settings = {"group_id": "g", "enable_auto_commit": is_auto, "auto_commit_interval_ms": 3_600_000}
    consumer: Consumer[Any, Any] = Consumer(config_for(group, **settings))
    consumer.assign([EVENTS])
    consumer.seek(EVENTS, 5)
    return consumer


def commit(consumer: Consumer) -> None:
    consumer.commit()


def commit_offsets(consumer: Consumer) -> None:
    consumer.commit({EVENTS: OffsetAndMetadata(5, "five")})


def commit_async(consumer: Consumer) -> None:
    consumer.commit_async()


COMMITS = [commit, commit_offsets, commit_async]


@pytest.mark.parametrize("commit", COMMITS)
def test_after_an_interrupted_commit_another_goes_on_from_it(
    group: QuietGroup, commit: Callable[[Consumer], None]
) -> None:
    for number in count():
        group.committed.clear()
        group.history.clear()
        consumer, interruption = reading(group, is_auto=False), Interruption(number)
        try:
            with interruption:
                commit(consumer)
        except KeyboardInterrupt:
            assert not consumer._thread._submitting._is_owned(), interruption.where  # type: ignore[attr-defined]
        consumer.commit({EVENTS: 7})
        assert group.committed == {0: 7}, interruption.where
        consumer.close()
        assert group.history in ([7], [5, 7]), interruption.where
        if not interruption.happened:
            return


@pytest.mark.parametrize("commit", COMMITS)
def test_what_an_interrupted_commit_left_is_committed_when_the_consumer_closes(
    group: QuietGroup, commit: Callable[[Consumer], None]
) -> None:
    for number in count():
        group.committed.clear()
        consumer, interruption = reading(group, is_auto=True), Interruption(number)
        try:
            with interruption:
                commit(consumer)
        except KeyboardInterrupt:
            pass
        consumer.close()
        assert group.committed == {0: 5}, interruption.where
        if not interruption.happened:
            return


def test_callbacks_of_commits_are_called_once_though_a_commit_is_interrupted(group: QuietGroup) -> None:
    for number in count():
        consumer, interruption = reading(group, is_auto=False), Interruption(number)
        told: list[Exception | None] = []
        consumer.commit_async({EVENTS: 5}, lambda _, failure, told=told: told.append(failure))  # type: ignore[misc]
        consumer.committed([EVENTS])
        try:
            with interruption:
                consumer.commit()
        except KeyboardInterrupt:
            pass
        consumer.close()
        assert told == [None], interruption.where
        if not interruption.happened:
            return


@pytest.mark.parametrize("is_auto", [False, True])
def test_an_interrupted_close_is_finished_by_the_next(group: QuietGroup, is_auto: bool) -> None:
    for number in count():
        group.committed.clear()
        group.requests.clear()
        consumer, interruption = reading(group, is_auto=is_auto), Interruption(number)
        consumer.commit_async({EVENTS: 5})
        try:
            with interruption:
                consumer.close()
        except KeyboardInterrupt:
            consumer.close()
        assert not consumer._thread._thread.is_alive(), interruption.where
        assert not consumer._thread._submitting._is_owned(), interruption.where  # type: ignore[attr-defined]
        assert group.committed in ({}, {0: 5}), interruption.where
        if not interruption.happened:
            assert group.committed == {0: 5}
            return


def test_an_interrupted_close_of_a_member_leaves_nothing_running(group: QuietGroup) -> None:
    """Not even heartbeats, which would keep its partitions from others."""
    for number in count():
        group.requests.clear()
        consumer: Consumer[Any, Any] = Consumer(config_for(group, group_id="g", heartbeat_interval_ms=5))
        consumer.subscribe([TOPIC])
        while not consumer.assignment():
            consumer.poll(0.01)
        interruption = Interruption(number)
        try:
            with interruption:
                consumer.close()
        except KeyboardInterrupt:
            consumer.close()
        assert not consumer._thread._thread.is_alive(), interruption.where
        assert threading.active_count() < 10, interruption.where
        if not interruption.happened:
            assert group.of(LeaveGroupRequest)
            return


# Under asyncio.


async def async_reading(group: QuietGroup, *, is_auto: bool) -> AsyncConsumer:
    settings = {"group_id": "g", "enable_auto_commit": is_auto, "auto_commit_interval_ms": 3_600_000}
    consumer: AsyncConsumer[Any, Any] = AsyncConsumer(config_for(group, **settings))
    consumer.assign([EVENTS])
    consumer.seek(EVENTS, 5)
    return consumer


async def cancelled_after(steps: int, task: asyncio.Task[None]) -> bool:
    """Whether it was not done by then."""
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return task.cancelled()


@pytest.mark.parametrize("is_auto", [False, True])
def test_after_a_cancelled_commit_another_goes_on_from_it(is_auto: bool) -> None:
    async def scenario() -> None:
        async with QuietGroup() as group:
            for steps in count():
                group.committed.clear()
                group.history.clear()
                consumer = await async_reading(group, is_auto=is_auto)
                was_cancelled = await cancelled_after(steps, asyncio.create_task(consumer.commit()))
                if not is_auto:
                    await consumer.commit({EVENTS: 7})
                await consumer.close()
                assert group.history in ([[5]] if is_auto else [[7], [5, 7]]), steps
                if not was_cancelled:
                    return

    run(scenario)


@pytest.mark.parametrize("is_auto", [False, True])
def test_a_cancelled_close_has_closed(is_auto: bool) -> None:
    async def scenario() -> None:
        async with QuietGroup() as group:
            for steps in count():
                group.committed.clear()
                before = asyncio.all_tasks()
                consumer = await async_reading(group, is_auto=is_auto)
                consumer.commit_async({EVENTS: 5})
                was_cancelled = await cancelled_after(steps, asyncio.create_task(consumer.close()))
                await consumer.close()
                async with asyncio.timeout(10):
                    while group.open_connections or asyncio.all_tasks() - before:
                        await asyncio.sleep(0)
                assert group.committed in ({}, {0: 5}), steps
                if not was_cancelled:
                    assert group.committed == {0: 5}
                    return

    run(scenario)
