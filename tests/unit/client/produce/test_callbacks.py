"""Callbacks of deliveries, whatever they do: the other records, and the producer, go on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import AsyncProducer, Producer
from ottla.base.error_codes import ErrorCode
from ottla.client.errors import BufferFullError, ConfigError
from ottla.client.produce import Delivery, RecordMetadata
from support.clients.scripted_broker import ScriptedBroker
from unit.client.produce.scripted_log import Log, settings
from unit.client.test_cluster import run

WAIT_S = 20.0


class Unforeseen(BaseException):
    pass


@asynccontextmanager
async def blocking_producer(broker: ScriptedBroker, **changes: object) -> AsyncIterator[Producer]:
    """Its methods are to be called in threads: the broker is in this loop."""
    producer = await asyncio.to_thread(Producer, settings(broker, **changes))
    try:
        yield producer
    finally:
        await asyncio.to_thread(producer.close)


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, SystemExit, Unforeseen])
def test_what_a_callback_raises_does_not_reach_other_records(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Delivery) -> None:
        raise error("out of luck")

    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log, {"events": 2}) as broker, blocking_producer(broker, linger_ms=50) as producer:

            def work() -> None:
                producer.send("events", b"0", partition=0).result(WAIT_S)
                called: list[Delivery] = []
                first = producer.send("events", b"1", partition=0)
                for callback in (fail, called.append, fail):
                    first.add_done_callback(callback)
                neighbour = producer.send("events", b"2", partition=0)
                neighbour.add_done_callback(called.append)
                elsewhere = producer.send("events", b"3", partition=1)
                assert neighbour.result(WAIT_S).offset == 2
                assert elsewhere.result(WAIT_S).offset == 0
                producer.flush(WAIT_S)
                assert called == [first, neighbour]
                assert producer.send("events", b"4", partition=1).result(WAIT_S).offset == 1

            await asyncio.to_thread(work)

    with caplog.at_level(logging.ERROR):
        run(scenario)
    assert "out of luck" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_in_a_callback_ends_the_loop_after_all_others_ran(error: type[BaseException]) -> None:
    called: list[Delivery] = []

    def fail(_: Delivery) -> None:
        raise error

    async def scenario() -> None:
        async with ScriptedBroker(Log(), {"events": 2}) as broker, AsyncProducer(settings(broker)) as producer:
            for partition in (0, 1):
                delivery = await producer.send("events", b"x", partition=partition)
                delivery.add_done_callback(fail)
                delivery.add_done_callback(called.append)
            await asyncio.sleep(WAIT_S)

    with pytest.raises(error):
        run(scenario)
    assert called


def test_an_interceptor_that_raises_anything_does_not_reach_other_records() -> None:
    class Strange:
        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            raise asyncio.CancelledError(metadata, error)

    async def scenario() -> None:
        log = Log()
        changes: dict[str, Any] = {"interceptors": [Strange()], "linger_ms": 20}
        async with ScriptedBroker(log, {"events": 2}) as broker, AsyncProducer(settings(broker, **changes)) as producer:
            deliveries = [await producer.send("events", b"x", partition=partition) for partition in (0, 1, 0)]
            assert [(await one).offset for one in deliveries] == [0, 0, 1]

    run(scenario)


def test_a_callback_that_is_added_late_is_called_at_once_and_cannot_raise(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Delivery) -> None:
        raise ValueError("too late")

    async def scenario() -> None:
        async with ScriptedBroker(Log()) as broker, AsyncProducer(settings(broker)) as producer:
            delivery = await producer.send("events", b"x")
            await delivery
            delivery.add_done_callback(fail)

    run(scenario)
    assert "too late" in caplog.text


def test_coroutine_functions_are_awaited_before_the_producer_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        called: list[object] = []

        async def slow(delivery: Delivery) -> None:
            await asyncio.sleep(0.01)
            called.append((await delivery).offset)

        async def fail(delivery: Delivery) -> None:
            await asyncio.sleep(0)
            raise ValueError(f"{delivery} does not please")

        class Watching:
            async def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
                await asyncio.sleep(0.01)
                called.append((metadata.topic, error))

        changes: dict[str, Any] = {"interceptors": [Watching()]}
        async with ScriptedBroker(Log()) as broker:
            async with AsyncProducer(settings(broker, **changes)) as producer:
                delivery = await producer.send("events", b"x")
                delivery.add_done_callback(slow)
                delivery.add_done_callback(fail)
            assert sorted(called, key=str) == [("events", None), 0]
            delivery.add_done_callback(slow)
            await asyncio.to_thread(delivery.add_done_callback, slow)
            while len(called) < 4:
                await asyncio.sleep(0.001)

    run(scenario)
    assert "does not please" in caplog.text


def test_a_blocking_producer_refuses_coroutine_functions() -> None:
    async def callback(delivery: Delivery) -> None:
        raise AssertionError(delivery)

    class Watching:
        async def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            raise AssertionError(metadata, error)

    class Sending:
        async def on_send(self, record: Any) -> Any:
            raise AssertionError(record)

    async def scenario() -> None:
        async with ScriptedBroker(Log()) as broker, blocking_producer(broker) as producer:
            delivery = await asyncio.to_thread(producer.send, "events", b"x")
            with pytest.raises(TypeError, match="function must not be a coroutine function"):
                delivery.add_done_callback(callback)
            with pytest.raises(TypeError, match="function must be callable, not int"):
                delivery.add_done_callback(5)  # type: ignore[arg-type]

    run(scenario)
    with pytest.raises(TypeError, match="on_acknowledgement must not be a coroutine function"):
        Producer(bootstrap_servers="localhost:9092", interceptors=[Watching()])
    with pytest.raises(ConfigError, match="on_send must be a function"):
        AsyncProducer(bootstrap_servers="localhost:9092", interceptors=[Sending()])


def test_sending_from_a_callback_with_a_full_buffer_fails_at_once_and_holds_up_nobody() -> None:
    async def scenario() -> None:
        log = Log()
        changes = {"buffer_memory": 40_000, "batch_size": 16_384, "max_block_ms": 3_600_000}
        async with ScriptedBroker(log) as broker, blocking_producer(broker, **changes) as producer:
            outcomes: list[object] = []
            over = threading.Event()

            def again(_: Delivery) -> None:
                try:
                    while True:
                        outcomes.append(producer.send("events", bytes(12_000)))
                except BufferFullError as error:
                    outcomes.append(error)
                over.set()

            def work() -> None:
                producer.send("events", b"0").result(WAIT_S)
                producer.send("events", b"1").add_done_callback(again)
                assert over.wait(WAIT_S)
                producer.flush(WAIT_S)

            await asyncio.to_thread(work)
            *taken, refused = outcomes
            assert isinstance(refused, BufferFullError)
            assert "a callback cannot wait" in str(refused)
            assert len(log.values()) == 2 + len(taken)

    run(scenario)


# Deliveries of an AsyncProducer, elsewhere than in its loop.


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_delivery_that_is_waited_for_elsewhere_does_not_linger(way: str) -> None:
    async def scenario() -> None:
        changes = {"linger_ms": 3_600_000, "delivery_timeout_ms": 7_200_000}
        async with ScriptedBroker(Log()) as broker, AsyncProducer(settings(broker, **changes)) as producer:
            await producer.send_and_wait("events", b"first")
            delivery = await producer.send("events", b"second")
            results: list[RecordMetadata] = []
            done = asyncio.Event()
            loop = asyncio.get_running_loop()

            async def awaiting() -> RecordMetadata:
                return await delivery

            def wait() -> None:
                results.append(delivery.result(WAIT_S) if way == "thread" else asyncio.run(awaiting()))
                loop.call_soon_threadsafe(done.set)

            await asyncio.sleep(0.01)  # The loop has nothing else to do: only a wake-up from outside is noticed.
            thread = threading.Thread(target=wait)
            thread.start()
            await done.wait()
            thread.join(WAIT_S)
            assert [one.offset for one in results] == [1]

    run(scenario)


@pytest.mark.parametrize("key", [None, b"key"])
def test_a_second_loop_is_refused_when_the_first_is_closed(key: bytes | None) -> None:
    producers: list[AsyncProducer] = []
    deliveries: list[Delivery] = []

    async def first() -> None:
        changes = {"linger_ms": 3_600_000, "delivery_timeout_ms": 7_200_000}
        async with ScriptedBroker(Log()) as broker:
            producer = AsyncProducer(settings(broker, **changes))
            producers.append(producer)
            await producer.send_and_wait("events", b"first", key)
            deliveries.extend([await producer.send("events", b"never sent", key) for _ in range(3)])
            await producer._core.cluster.close()

    async def second() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await producers[0].send("events", b"second", key)
        with pytest.raises(RuntimeError, match="loop was closed"):
            await deliveries[0]

    run(first)
    run(second)
    with pytest.raises(RuntimeError, match="loop was closed"):
        deliveries[0].result(WAIT_S)


def test_a_failed_record_can_be_sent_again_from_its_callback() -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as broker, blocking_producer(broker) as producer:
            again: list[Delivery] = []

            def work() -> None:
                producer.send("events", b"0").result(WAIT_S)
                log.faults = [ErrorCode.INVALID_RECORD]
                failing = producer.send("events", b"1")
                failing.add_done_callback(lambda _: again.append(producer.send("events", b"1")))
                assert failing.exception(WAIT_S) is not None
                producer.flush(WAIT_S)
                assert again[0].result(WAIT_S).offset == 1

            await asyncio.to_thread(work)

    run(scenario)
