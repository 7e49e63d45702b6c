"""Requests to brokers: in order, one in flight, tried again until answered, dropped with the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.controller.core.effects import AnyControlRequest, ControlRequest
from ottla.controller.driver import channels as module
from ottla.controller.driver.channels import AnyControlResponse, Channels
from ottla.controller.seams import LiveBroker
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest
from ottla.wire.peer import PeerError
from ottla.wire.schema import Request
from ottla.zookeeper.znodes import BrokerRegistration

BROKER = LiveBroker(2, 7, BrokerRegistration((), 0))


class Scripted:
    """A peer whose answers are given one by one: a response is made, or an error is raised."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self.answers: asyncio.Queue[BaseException | None] = asyncio.Queue()
        self.is_closed = False

    async def send(
        self,
        request: Request,
        response: type[Any],
        *,
        version: int | None = None,  # noqa: ARG002
        timeout_s: float | None = None,  # noqa: ARG002
    ) -> Any:
        self.sent.append(request)
        failure = await self.answers.get()
        if failure is not None:
            raise failure
        return response()

    async def version_of(self, request: type[Request]) -> int:
        return list(request.versions)[-1]

    def close(self) -> None:
        self.is_closed = True


class Links:
    def __init__(self) -> None:
        self.peers: list[Scripted] = []

    def open(self, broker: LiveBroker, on_silent: Callable[[], None], on_answer: Callable[[], None]) -> Scripted:
        del broker, on_silent, on_answer
        self.peers.append(Scripted())
        return self.peers[-1]

    watch_controller = None


def made(answered: list[AnyControlRequest]) -> tuple[Channels, Links]:
    links = Links()

    def on_answer(broker: LiveBroker, request: AnyControlRequest, response: AnyControlResponse) -> None:
        assert broker is BROKER
        assert response.error_code == 0
        answered.append(request)

    return Channels(links, on_answer, lambda _: None, lambda _: None, 30.0), links  # type: ignore[arg-type]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_requests_are_answered_in_order_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0)

    async def run() -> None:
        answered: list[AnyControlRequest] = []
        channels, links = made(answered)
        channels.add(BROKER)
        (peer,) = links.peers
        requests: list[AnyControlRequest] = [LeaderAndIsrRequest(), UpdateMetadataRequest(), StopReplicaRequest()]
        for request in requests:
            channels.send(ControlRequest(2, request))
        channels.send(ControlRequest(9, StopReplicaRequest()))  # unknown: dropped
        settled = asyncio.ensure_future(channels.settled(2, 60))
        await turns()
        assert peer.sent == requests[:1]  # one in flight
        assert channels.queue_size == 4
        peer.answers.put_nowait(PeerError("lost"))
        await turns()
        assert peer.sent == [requests[0], requests[0]]
        for _ in requests:
            peer.answers.put_nowait(None)
        await settled
        assert answered == requests
        channels.close()
        assert peer.is_closed

    asyncio.run(run())


def test_a_restarted_broker_gets_nothing_meant_for_the_one_before() -> None:
    async def run() -> None:
        answered: list[AnyControlRequest] = []
        channels, links = made(answered)
        channels.add(BROKER)
        channels.send(ControlRequest(2, LeaderAndIsrRequest(controller_epoch=1)))
        settled = asyncio.ensure_future(channels.settled(2, 60))
        await turns()
        channels.add(BROKER)
        await settled  # nobody waits for a broker that is gone
        channels.send(ControlRequest(2, LeaderAndIsrRequest(controller_epoch=2)))
        await turns()
        old, new = links.peers
        assert old.is_closed
        assert [request.controller_epoch for request in new.sent if isinstance(request, LeaderAndIsrRequest)] == [2]
        channels.close()

    asyncio.run(run())


def test_a_wait_is_bounded() -> None:
    async def run() -> None:
        channels, _ = made([])
        channels.add(BROKER)
        channels.send(ControlRequest(2, StopReplicaRequest()))
        await channels.settled(2, 0.01)
        await channels.settled(9, 0.01)
        channels.close()

    asyncio.run(run())


def test_a_channel_outlives_what_fails_in_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the broker would hear nothing of its controller until one of the two is restarted."""
    monkeypatch.setattr(module, "_RETRY_S", 0)

    async def run() -> None:
        links = Links()
        answered: list[AnyControlRequest] = []

        def on_answer(_: LiveBroker, request: AnyControlRequest, __: AnyControlResponse) -> None:
            answered.append(request)
            if len(answered) == 1:
                raise RuntimeError("broken")

        channels = Channels(links, on_answer, lambda _: None, lambda _: None, 30.0)  # type: ignore[arg-type]
        channels.add(BROKER)
        (peer,) = links.peers
        first, second = LeaderAndIsrRequest(), UpdateMetadataRequest()
        for request in (first, second):
            channels.send(ControlRequest(2, request))
        peer.answers.put_nowait(asyncio.CancelledError())  # what the request waited for was cancelled: not the channel
        await turns()
        assert peer.sent == [first, first]
        peer.answers.put_nowait(None)
        peer.answers.put_nowait(None)
        await channels.settled(2, 60)
        assert answered == [first, second]
        channels.close()
        await turns()

    asyncio.run(run())
    assert "could not be processed" in caplog.text
