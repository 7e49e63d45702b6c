"""Whatever other threads do while the sender looks, it looks again: nothing that could leave waits for a time-out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.client.errors import ClientError
from ottla.client.metadata import TopicInfo
from ottla.client.produce import AsyncProducer, Delivery
from ottla.client.produce.channel import Channel
from ottla.client.produce.record import PreparedRecord
from ottla.client.produce.sender import Sender
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import Request
from support.clients.scripted_broker import Answer, ScriptedBroker
from unit.client.produce.scripted_log import Log, settings
from unit.client.test_cluster import run

PATIENCE_S = 20.0


class Moment(dict[int, Channel]):
    """The channels of a sender, which are the last that it looks at: another thread gets its turn just before."""

    def __init__(self, channels: dict[int, Channel]) -> None:
        super().__init__(channels)
        self.then: Callable[[], object] = lambda: None

    def values(self) -> Any:
        then, self.then = self.then, lambda: None
        then()
        return super().values()


def interrupted(producer: AsyncProducer) -> Moment:
    sender = producer._core.sender
    assert isinstance(sender, Sender)
    sender._channels = moment = Moment(sender._channels)
    return moment


def known(producer: AsyncProducer) -> TopicInfo:
    info = producer._core.known("events")
    assert info is not None
    return info


@pytest.mark.parametrize("one_at_a_time", [{"max_in_flight_requests_per_connection": 1}, {"acks": 0}])
def test_a_batch_that_is_encoded_while_the_sender_looks_leaves(one_at_a_time: dict[str, Any]) -> None:
    async def scenario() -> None:
        log = Log()
        changes = {"linger_ms": 60_000, **one_at_a_time}
        async with ScriptedBroker(log) as broker, AsyncProducer(settings(broker, **changes)) as producer:
            await producer.send_and_wait("events", b"first")
            core, moment = producer._core, interrupted(producer)
            queue = core.accumulator.topic(known(producer)).queues[0]
            second = await producer.send("events", b"second")
            with core.accumulator.lock:
                # As by a thread that has filled it, and encodes it.
                batch = second.batch
                core.accumulator.close(batch)
                batch.is_encoding = True
                core.accumulator.can_send = False  # since the last look

            def encoded() -> None:
                assert queue.first is batch
                batch.is_encoding = False
                core.accumulator.wake_to_send()

            moment.then = encoded
            core.accumulator.wake()
            async with asyncio.timeout(PATIENCE_S):
                while not second.done():
                    await asyncio.sleep(0.001)
            assert core.accumulator.unfinished == {}

    run(scenario)


def test_a_batch_that_is_opened_while_the_sender_looks_does_not_linger_longer() -> None:
    async def scenario() -> None:
        log = Log()
        is_there = asyncio.Event()

        async def answered(request: ProduceRequest) -> Answer | None:
            answer = log(request)
            if b"second" in log.values(0):
                await is_there.wait()
            return answer

        def script(request: Request) -> Answer | Awaitable[Answer | None] | None:
            return answered(request) if isinstance(request, ProduceRequest) else log(request)

        two: Any = script, {"events": 2}
        async with ScriptedBroker(*two) as broker, AsyncProducer(settings(broker, linger_ms=20)) as producer:
            await producer.send_and_wait("events", b"first", partition=0)
            core, moment = producer._core, interrupted(producer)
            info = known(producer)
            sent: list[Delivery] = []

            def send() -> None:
                delivery = core.offer(info, PreparedRecord("events", b"third", None, None, None, 1, 20))
                assert delivery is not None
                sent.append(delivery)

            await producer.send("events", b"second", partition=0)
            await asyncio.sleep(0)  # The sender has looked: it will look again when the second is ripe.
            moment.then = send
            async with asyncio.timeout(PATIENCE_S):
                while not log.values(1):
                    await asyncio.sleep(0.001)
            is_there.set()
            assert (await sent[0]).offset == 0

    run(scenario)


def test_a_batch_after_one_that_cannot_be_encoded_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log = Log()
        async with ScriptedBroker(log) as broker, AsyncProducer(settings(broker, linger_ms=50)) as producer:
            await producer.send_and_wait("events", b"first")
            core = producer._core
            encode = core.encoder.encode

            def encode_most(batch: Any) -> bytearray:
                if b"wrong" in batch.values:
                    raise OverflowError("out of range")
                return encode(batch)

            monkeypatch.setattr(core.encoder, "encode", encode_most)
            wrong = await producer.send("events", b"wrong")
            with core.accumulator.lock:
                core.accumulator.close(wrong.batch)
            wrong.add_done_callback(lambda _: None)  # so that closing does not raise it
            right = await producer.send("events", b"right")
            with core.accumulator.lock:
                core.accumulator.close(right.batch)
            core.accumulator.wake()
            async with asyncio.timeout(PATIENCE_S):
                while not right.done():
                    await asyncio.sleep(0.001)
            assert isinstance(wrong.exception(), ClientError)
            assert log.values() == [b"first", b"right"]

    run(scenario)


def test_a_wake_up_that_is_interrupted_does_not_keep_later_ones_from_the_sender() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(Log()) as broker, AsyncProducer(settings(broker)) as producer:
            await producer.send_and_wait("events", b"first")
            accumulator = producer._core.accumulator
            wake = accumulator._wake

            def interrupt() -> None:
                accumulator._wake = wake
                raise KeyboardInterrupt

            accumulator._wake = interrupt
            with pytest.raises(KeyboardInterrupt):
                accumulator.wake()
            async with asyncio.timeout(PATIENCE_S):
                await producer.send_and_wait("events", b"second")

    run(scenario)
