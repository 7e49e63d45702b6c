"""Frames that are exchanged one at a time: in the turn in which they arrive, within their time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from models.step_loop import StepLoop
from ottla.net.client_connection import ClientConnection, ConnectionLostError, ConnectionOptions, RequestTimeoutError
from ottla.net.frame_exchange import Frame, FrameExchange
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from ottla.wire.schema import Request
from support.clients.scripted_broker import Answer, ScriptedBroker, Silence

TIMEOUT_S = 30.0


class Exchanged:
    """An exchange, and everything that it did."""

    def __init__(self, loop: StepLoop) -> None:
        self.sent: list[bytes] = []
        self.events: list[Frame | Exception] = []
        self.timeouts = 0
        self.exchange = FrameExchange(
            "Metadata",
            loop,
            lambda frame, _: self.sent.append(bytes(frame)),
            answered=self.events.append,
            failed=self.events.append,
            timeout_s=TIMEOUT_S,
            on_timeout=self._timed_out,
        )

    def _timed_out(self) -> None:
        self.timeouts += 1


@pytest.fixture
def loop() -> Iterator[StepLoop]:
    loop = StepLoop()
    yield loop
    loop.close()


def test_each_request_has_the_whole_time(loop: StepLoop) -> None:
    world = Exchanged(loop)
    for _ in range(3):
        world.exchange.send(bytearray(b"question"))
        loop.advance(TIMEOUT_S * 0.9)
        world.exchange.set_result(b"answer")
    world.exchange.send(bytearray(b"last"))
    loop.advance(TIMEOUT_S * 0.9)
    assert (world.timeouts, world.events) == (0, [b"answer"] * 3)
    loop.advance(TIMEOUT_S * 0.2)
    assert world.timeouts == 1


def test_time_without_a_request_does_not_count(loop: StepLoop) -> None:
    world = Exchanged(loop)
    world.exchange.send(bytearray(b"question"))
    world.exchange.set_result(b"answer")
    for _ in range(4):
        loop.advance(TIMEOUT_S * 0.9)
    assert world.timeouts == 0


def test_an_answer_after_the_end_is_dropped_but_still_has_its_time(loop: StepLoop) -> None:
    world = Exchanged(loop)
    world.exchange.send(bytearray(b"question"))
    world.exchange.close()
    loop.advance(TIMEOUT_S * 1.1)
    assert world.timeouts == 1
    world = Exchanged(loop)
    world.exchange.send(bytearray(b"question"))
    world.exchange.close()
    world.exchange.set_result(b"answer")
    loop.advance(TIMEOUT_S * 1.1)
    assert (world.timeouts, world.events) == (0, [])


def test_a_failure_ends_it(loop: StepLoop) -> None:
    world = Exchanged(loop)
    world.exchange.send(bytearray(b"question"))
    lost = ConnectionLostError("lost")
    world.exchange.set_exception(lost)
    world.exchange.set_exception(lost)
    loop.advance(TIMEOUT_S * 1.1)
    assert (world.timeouts, world.events) == (0, [lost])


def unexpected(event: object) -> None:
    raise AssertionError(event)


def asked(name: str, version: int) -> bytearray:
    request = MetadataRequest(topics=[MetadataTopic(name=name)])
    return bytearray(b"".join(request_frame(request, version, 0, "ottla")))


def test_the_next_frame_can_be_sent_where_the_last_is_answered() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(topics=dict.fromkeys(("a", "b", "c"), 1)) as broker:
            connection = await ClientConnection.open(broker.address)
            version = connection.version_for(MetadataRequest)
            names = ["a", "b", "c"]
            seen: list[str] = []
            over = asyncio.Event()

            def answered(frame: Frame) -> None:
                response = read_response(api_of(MetadataRequest.api_key), version, frame)[1]
                assert isinstance(response, MetadataResponse)
                seen.append(response.topics[0].name or "")
                if len(seen) < len(names):
                    exchange.send(asked(names[len(seen)], version))
                else:
                    over.set()

            exchange = connection.exchange(MetadataRequest, answered=answered, failed=unexpected, timeout_s=TIMEOUT_S)
            exchange.send(asked("a", version))
            # Other requests of the connection are not confused with it.
            other = await connection.send(MetadataRequest(topics=[MetadataTopic(name="c")]), MetadataResponse)
            assert other.topics[0].name == "c"
            await asyncio.wait_for(over.wait(), TIMEOUT_S)
            assert seen == names
            await connection.close()

    asyncio.run(scenario())


def test_a_broker_that_is_silent_or_gone_fails_the_exchange() -> None:
    async def scenario() -> None:
        def silent(_: Request) -> Answer:
            return Silence()

        async with ScriptedBroker(silent) as broker:
            for timeout_s, expected in ((0.001, RequestTimeoutError), (TIMEOUT_S, ConnectionLostError)):
                connection = await ClientConnection.open(broker.address, ConnectionOptions())
                failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
                exchange = connection.exchange(
                    MetadataRequest, answered=unexpected, failed=failed.set_result, timeout_s=timeout_s
                )
                exchange.send(asked("a", connection.version_for(MetadataRequest)))
                if timeout_s == TIMEOUT_S:
                    connection.abort()
                assert isinstance(await asyncio.wait_for(failed, TIMEOUT_S), expected)
                with pytest.raises(expected):
                    exchange.send(asked("a", 12))
                await connection.close()

    asyncio.run(scenario())
