"""Clients that two threads close at once, or that are closed by a callback of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from ottla.client.administer import Admin
from ottla.client.consume import Consumer
from ottla.client.errors import WrongLoopError
from ottla.client.loop_thread import LoopThread
from ottla.client.produce import AsyncProducer, Delivery, Producer
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import Request
from support.clients.scripted_broker import Answer, ScriptedBroker
from support.waiting import until
from unit.client.consume.scripted_log import config_for
from unit.client.consume.test_fetcher import EVENTS
from unit.client.interruptions import Interruption
from unit.client.membership.scripted_group import ScriptedGroup
from unit.client.produce.scripted_log import Log, settings
from unit.client.test_cluster import run


async def close_twice(client: Any, go: asyncio.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """`go` lets the broker answer what the first waits for, when the second is under way."""
    begun: list[object] = []
    ended: list[object] = []
    thread: LoopThread = client._thread
    real = thread.run

    async def watched(work: Coroutine[Any, Any, Any]) -> Any:
        begun.append(work)
        try:
            return await work
        finally:
            ended.append(work)

    monkeypatch.setattr(thread, "run", lambda work: real(watched(work)))
    first = asyncio.create_task(asyncio.to_thread(client.close))
    await until(lambda: begun)
    second = asyncio.create_task(asyncio.to_thread(client.close))
    await until(lambda: len(begun) == 2)
    has_passed = threading.Event()
    thread.call_soon(has_passed.set)  # behind the step in which the second began
    assert await asyncio.to_thread(has_passed.wait, 10)
    assert not ended
    go.set()
    await asyncio.gather(first, second)


def test_a_producer_that_is_closed_twice_at_once_sends_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log, go = Log(), asyncio.Event()

        def script(request: Request) -> Answer | Awaitable[Answer] | None:
            return later(request) if isinstance(request, ProduceRequest) else log(request)

        async def later(request: Request) -> Any:
            await go.wait()
            return log(request)

        async with ScriptedBroker(script) as broker:
            producer = await asyncio.to_thread(lambda: Producer(settings(broker)))
            delivery = await asyncio.to_thread(producer.send, "events", b"one")
            await until(lambda: broker.of(ProduceRequest))
            await close_twice(producer, go, monkeypatch)
            assert delivery.result(0).offset == 0

    run(scenario)


class SlowGroup(ScriptedGroup):
    """A coordinator that commits when it may."""

    def __post_init__(self) -> None:
        self.go = asyncio.Event()
        self.script = self._later

    def _later(self, request: Request) -> Answer | Awaitable[Answer] | None:
        return self._wait(request) if isinstance(request, OffsetCommitRequest) else self._act(request)

    async def _wait(self, request: Request) -> Any:
        await self.go.wait()
        return self._act(request)


def test_a_consumer_that_is_closed_twice_at_once_commits_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with SlowGroup() as broker:
            consumer = await asyncio.to_thread(lambda: Consumer(config_for(broker, group_id="g")))
            await asyncio.to_thread(consumer.subscribe, ["events"])
            while not consumer.assignment():
                await asyncio.to_thread(consumer.poll, 0.01)
            consumer.commit_async({EVENTS: 5})
            await close_twice(consumer, broker.go, monkeypatch)
            assert broker.committed == {0: 5}
            assert broker.of(LeaveGroupRequest)

    run(scenario)


def test_a_producer_that_a_callback_cannot_close_goes_on() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(Log()) as broker:
            producer = await asyncio.to_thread(lambda: Producer(settings(broker)))
            refused: list[Exception] = []

            def close(_delivery: Delivery) -> None:
                try:
                    producer.close()
                except WrongLoopError as error:
                    refused.append(error)

            delivery = await asyncio.to_thread(producer.send, "events", b"one")
            delivery.add_done_callback(close)
            await until(lambda: refused)
            assert (await asyncio.to_thread(producer.send_and_wait, "events", b"two")).offset == 1
            await asyncio.to_thread(producer.close)

    run(scenario)


def _admin(broker: ScriptedBroker) -> Admin:
    return Admin(bootstrap_servers=broker.bootstrap)


def _producer(broker: ScriptedBroker) -> Producer[Any, Any]:
    return Producer(settings(broker))


@pytest.mark.parametrize("make", [_admin, _producer])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_interrupted_close_is_finished_by_the_next(make: Callable[[ScriptedBroker], Admin | Producer]) -> None:
    serving, broker = LoopThread("a scripted broker"), ScriptedBroker(Log())
    serving.run(broker.__aenter__())
    for number in count():
        client, interruption = make(broker), Interruption(number)
        try:
            with interruption:
                client.close()
        except KeyboardInterrupt:
            client.close()
        assert not client._thread._thread.is_alive(), interruption.where
        if not interruption.happened:
            break
    serving.run(broker.__aexit__(None, None, None))
    serving.close()


def test_a_cancelled_close_of_a_producer_has_closed() -> None:
    """In whichever step of the loop it is cancelled: no connection and no task is left."""

    async def scenario() -> None:
        async with ScriptedBroker(Log()) as broker:
            for steps in count():
                before = asyncio.all_tasks()
                producer: AsyncProducer[Any, Any] = AsyncProducer(settings(broker))
                await producer.send_and_wait("events", b"one")
                await producer.send("events", b"two")
                closing = asyncio.create_task(producer.close())
                for _ in range(steps):
                    await asyncio.sleep(0)
                closing.cancel()
                await asyncio.wait([closing])
                await producer.close()
                async with asyncio.timeout(10):
                    while broker.open_connections or asyncio.all_tasks() - before:
                        await asyncio.sleep(0)
                if not closing.cancelled():
                    return

    run(scenario)
