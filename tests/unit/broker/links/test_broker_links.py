"""Links to other brokers, over real sockets in one process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.broker.links import held_link
from ottla.broker.links.broker_links import BrokerLinks
from ottla.broker.links.held_link import HeldLink
from ottla.broker.links.settings import LinkSettings
from ottla.broker.links.suspicion import REFUSED_FOR_S
from ottla.controller.seams import LiveBroker
from ottla.net.client_connection import Address, ClientConnection, ConnectionOptions
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.wire.peer import PeerError
from ottla.wire.schema import Request
from ottla.zookeeper.znodes import BrokerRegistration, Endpoint
from support.clients.scripted_broker import Answer, HangUp, ScriptedBroker, Silence
from support.waiting import WAIT_S

OWN = 1
OTHER = 2


class Own:
    """This broker, as far as it answers itself."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None

    async def _take(self, request: Request) -> None:
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        assert version == 7
        await self._take(request)
        return LeaderAndIsrResponse()

    async def stop_replica(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        assert version == 4
        await self._take(request)
        return StopReplicaResponse()

    async def update_metadata(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse:
        assert version == 8
        await self._take(request)
        return UpdateMetadataResponse()

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        assert version == 3
        await self._take(request)
        return AlterPartitionResponse()

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        await self._take(request)
        return ControlledShutdownResponse()

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        await self._take(request)
        return AllocateProducerIdsResponse()


def links_of(own: Own | None = None, settings: LinkSettings | None = None) -> BrokerLinks:
    loop = asyncio.get_running_loop()
    return BrokerLinks(OWN, "INTERNAL", None, own or Own(), settings or LinkSettings(), loop)


def live(address: Address, broker_id: int = OTHER) -> LiveBroker:
    endpoints = (
        Endpoint("PLAINTEXT", "PLAINTEXT", "192.0.2.1", 9),
        Endpoint("INTERNAL", "PLAINTEXT", address.host, address.port),
    )
    return LiveBroker(broker_id, 100, BrokerRegistration(endpoints, 0))


class Told:
    """What a link reports."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._changed = asyncio.Event()

    def silent(self) -> None:
        self.events.append("silent")
        self._changed.set()

    def answer(self) -> None:
        self.events.append("answer")
        self._changed.set()

    async def until(self, events: list[str]) -> None:
        while self.events != events:
            await self._changed.wait()
            self._changed.clear()


async def until_connected(broker: ScriptedBroker) -> None:
    while not broker.open_connections:
        await asyncio.sleep(0.005)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await scenario
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        names = [task.get_name() for task in left if not task.get_name().startswith("Task-")]
        assert not names, f"tasks are left: {names}"

    asyncio.run(bounded())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- a link to another broker ---------------------------------------------------------------------------------------


def test_a_fetch_peer_connects_on_demand_and_again_after_a_loss() -> None:
    async def scenario() -> None:
        hang_up = True

        def script(_: Request) -> Answer:
            return HangUp() if hang_up else FetchResponse()

        async with ScriptedBroker(script) as broker:
            links = links_of()
            links.endpoint_of = lambda broker_id: broker.address if broker_id == OTHER else None
            peer = links.fetch_peer(OTHER)
            assert broker.connections == 0
            with pytest.raises(PeerError) as lost:
                await peer.send(FetchRequest(), FetchResponse)
            assert not lost.value.is_refused
            hang_up = False
            assert (await peer.send(FetchRequest(), FetchResponse)).error_code == 0
            await peer.send(FetchRequest(), FetchResponse)
            assert broker.connections == 2
            await links.close()

    run(scenario())


def test_requests_that_come_while_it_connects_share_the_connection_and_keep_their_order() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(lambda _: FetchResponse()) as broker:
            links = links_of()
            links.endpoint_of = lambda _: broker.address
            peer = links.fetch_peer(OTHER)
            await asyncio.gather(*(peer.send(FetchRequest(max_wait_ms=n), FetchResponse) for n in range(20)))
            assert broker.connections == 1
            assert [request.max_wait_ms for request in broker.requests] == list(range(20))  # type: ignore[attr-defined]
            await links.close()

    run(scenario())


def test_a_cancelled_request_does_not_end_the_attempt_of_the_others() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(lambda _: FetchResponse()) as broker:
            links = links_of()
            links.endpoint_of = lambda _: broker.address
            peer = links.fetch_peer(OTHER)
            first = asyncio.create_task(peer.send(FetchRequest(), FetchResponse))
            second = asyncio.create_task(peer.send(FetchRequest(), FetchResponse))
            await asyncio.sleep(0)
            first.cancel()
            await second
            assert broker.connections == 1
            await links.close()

    run(scenario())


def test_records_are_not_copied_out_of_the_response() -> None:
    async def scenario() -> None:
        records = bytes(200_000)
        partition = FetchPartitionResponse(partition_index=0, records=records)
        answer = FetchResponse(responses=[FetchTopicResponse(partitions=[partition])])
        async with ScriptedBroker(lambda _: answer) as broker:
            links = links_of()
            links.endpoint_of = lambda _: broker.address
            received = await links.fetch_peer(OTHER).send(FetchRequest(), FetchResponse)
            got = received.responses[0].partitions[0].records
            assert isinstance(got, memoryview)
            assert got == records
            await links.close()

    run(scenario())


def test_what_cannot_be_reached_is_a_peer_error() -> None:
    async def scenario() -> None:
        links = links_of()
        peer = links.fetch_peer(OTHER)
        with pytest.raises(PeerError, match="broker 2: its address is not known") as unknown:
            await peer.send(FetchRequest(), FetchResponse)
        assert not unknown.value.is_refused
        links.endpoint_of = lambda _: ("127.0.0.1", free_port())
        with pytest.raises(PeerError, match="connection refused") as refused:
            await peer.send(FetchRequest(), FetchResponse)
        assert refused.value.is_refused
        async with ScriptedBroker(unserved=frozenset({FetchRequest.api_key})) as broker:
            links.endpoint_of = lambda _: broker.address
            with pytest.raises(PeerError, match="does not serve Fetch"):
                await peer.send(FetchRequest(), FetchResponse)
            await links.close()

    run(scenario())


def test_a_request_that_is_not_answered_times_out() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(lambda _: Silence()) as broker:
            links = links_of()
            links.endpoint_of = lambda _: broker.address
            with pytest.raises(PeerError, match=r"within 0\.05 s") as slow:
                await links.fetch_peer(OTHER).send(FetchRequest(), FetchResponse, timeout_s=0.05)
            assert not slow.value.is_refused
            await links.close()

    run(scenario())


def test_closing_fails_what_waits() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(lambda _: Silence()) as broker:
            links = links_of()
            links.endpoint_of = lambda _: broker.address
            answered, connecting = links.fetch_peer(OTHER), links.fetch_peer(OTHER)
            one = asyncio.create_task(answered.send(FetchRequest(), FetchResponse))
            while not broker.requests:
                await asyncio.sleep(0.005)
            other = asyncio.create_task(connecting.send(FetchRequest(), FetchResponse))
            await asyncio.sleep(0)
            answered.close()
            connecting.close()
            for waiting in (one, other):
                with pytest.raises(PeerError):
                    await waiting
            with pytest.raises(PeerError, match="closed"):
                await answered.send(FetchRequest(), FetchResponse)
            answered.close()
            await links.close()

    run(scenario())


# --- evidence -------------------------------------------------------------------------------------------------------


def test_a_broker_whose_process_ends_is_reported_without_a_request() -> None:
    async def scenario() -> None:
        told = Told()
        links = links_of()
        async with ScriptedBroker() as broker:
            links.open(live(broker.address), told.silent, told.answer)
            await until_connected(broker)
            assert told.events == []
        await told.until(["silent"])
        async with ScriptedBroker(port=broker.address.port) as again:
            await told.until(["silent", "answer"])
            assert again.connections == 1
            await links.close()
        assert told.events == ["silent", "answer"]

    run(scenario())


def test_a_connection_that_ends_while_the_broker_listens_is_made_again() -> None:
    async def scenario() -> None:
        told = Told()
        links = links_of()
        async with ScriptedBroker(
            lambda request: HangUp() if isinstance(request, StopReplicaRequest) else None
        ) as broker:
            link = links.open(live(broker.address), told.silent, told.answer)
            with pytest.raises(PeerError):
                await link.send(StopReplicaRequest(), StopReplicaResponse)
            while broker.connections < 2:
                await asyncio.sleep(0.01)
            assert told.events == []
            await links.close()

    run(scenario())


@pytest.mark.parametrize("failure", [asyncio.CancelledError(), RuntimeError("broken")], ids=["cancelled", "broken"])
def test_a_link_goes_on_whatever_an_attempt_to_connect_ends_with(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    """Otherwise nobody would notice the end of that broker's process any more."""
    monkeypatch.setattr(held_link, "_PROBE_MAX_S", 0.01)
    opened = ClientConnection.open
    attempts: list[Address] = []

    async def open_connection(address: Address, options: ConnectionOptions) -> ClientConnection:
        attempts.append(address)
        if len(attempts) <= 2:
            raise failure
        return await opened(address, options)

    monkeypatch.setattr(ClientConnection, "open", open_connection)

    async def scenario() -> None:
        told = Told()
        links = links_of()
        async with ScriptedBroker() as broker:
            links.open(live(broker.address), told.silent, told.answer)
            await until_connected(broker)
        await told.until(["silent"])
        await links.close()

    run(scenario())


def test_a_broker_that_accepts_and_says_nothing_is_not_suspected() -> None:
    async def scenario() -> None:
        told = Told()
        links = links_of(settings=LinkSettings(connect_timeout_s=0.05))
        attempts: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: attempts.append(writer), "127.0.0.1", 0)
        link = links.open(live(Address(*server.sockets[0].getsockname())), told.silent, told.answer)
        while len(attempts) < 6:
            await asyncio.sleep(0.01)
        assert told.events == []
        with pytest.raises(PeerError) as slow:
            await link.send(StopReplicaRequest(), StopReplicaResponse)
        assert not slow.value.is_refused
        await links.close()
        server.close()
        for writer in attempts:
            writer.close()

    run(scenario())


def test_a_closed_link_reports_nothing() -> None:
    async def scenario() -> None:
        told = Told()
        links = links_of()
        async with ScriptedBroker() as broker:
            link = links.open(live(broker.address), told.silent, told.answer)
            await until_connected(broker)
            link.close()
            while broker.open_connections:
                await asyncio.sleep(0.005)
            assert broker.connections == 1
        assert told.events == []
        await links.close()

    run(scenario())


@pytest.mark.parametrize(("age_ms", "is_soon"), [(60_000, True), (1_000, False)])
def test_a_broker_that_was_never_reached_gets_time_to_start_if_it_is_new(age_ms: int, is_soon: bool) -> None:
    async def scenario() -> None:
        links = links_of()
        links.now_ms = lambda: age_ms  # it registered at 0
        link = links.open(live(Address("127.0.0.1", free_port())), lambda: None, lambda: None)
        assert isinstance(link, HeldLink)
        evidence = [link._suspicion.refused(now_s) for now_s in (0.0, REFUSED_FOR_S / 2, REFUSED_FOR_S)]
        assert evidence == [False, False, is_soon]
        await links.close()

    run(scenario())


def test_the_controllers_process_is_watched() -> None:
    async def scenario() -> None:
        told = Told()
        links = links_of()
        async with ScriptedBroker() as broker:
            links.watch_controller((OTHER, broker.address.host, broker.address.port), told.silent)
            await until_connected(broker)
        await told.until(["silent"])
        await links.close()

    run(scenario())


# --- the own broker, and the controller -----------------------------------------------------------------------------


def test_the_own_broker_is_called() -> None:
    async def scenario() -> None:
        own = Own()
        links = links_of(own)
        peer = links.open(live(Address("127.0.0.1", free_port()), OWN), lambda: None, lambda: None)
        await peer.send(LeaderAndIsrRequest(), LeaderAndIsrResponse)
        await peer.send(UpdateMetadataRequest(), UpdateMetadataResponse)
        await peer.send(StopReplicaRequest(), StopReplicaResponse)
        assert [type(request) for request in own.requests] == [
            LeaderAndIsrRequest,
            UpdateMetadataRequest,
            StopReplicaRequest,
        ]
        peer.close()
        with pytest.raises(PeerError, match="closed"):
            await peer.send(StopReplicaRequest(), StopReplicaResponse)
        await links.close()

    run(scenario())


def test_a_request_to_the_own_broker_goes_on_after_its_caller_gave_up() -> None:
    async def scenario() -> None:
        own = Own()
        own.gate = asyncio.Event()
        links = links_of(own)
        peer = links.open(live(Address("127.0.0.1", 1), OWN), lambda: None, lambda: None)
        with pytest.raises(PeerError, match=r"within 0\.01 s"):
            await peer.send(StopReplicaRequest(), StopReplicaResponse, timeout_s=0.01)
        waiting = asyncio.create_task(peer.send(LeaderAndIsrRequest(), LeaderAndIsrResponse))
        await asyncio.sleep(0.01)
        peer.close()
        with pytest.raises(PeerError, match="closed"):
            await waiting
        assert len(own.requests) == 2
        own.gate.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await links.close()

    run(scenario())


def test_a_failure_of_the_own_broker_is_a_peer_error() -> None:
    async def scenario() -> None:
        own = Own()
        own.error = ValueError("broken")
        peer = links_of(own).open(live(Address("127.0.0.1", 1), OWN), lambda: None, lambda: None)
        with pytest.raises(PeerError, match="broken"):
            await peer.send(StopReplicaRequest(), StopReplicaResponse)

    run(scenario())


def test_the_controllers_peer_follows_the_controller() -> None:
    async def scenario() -> None:
        own = Own()
        links = links_of(own)
        peer = links.controller_peer()
        controller = -1
        links.controller_id = lambda: controller
        with pytest.raises(PeerError, match="no controller"):
            await peer.send(AlterPartitionRequest(), AlterPartitionResponse)
        controller = OWN
        await peer.send(AlterPartitionRequest(), AlterPartitionResponse)
        await peer.send(ControlledShutdownRequest(), ControlledShutdownResponse)
        await peer.send(AllocateProducerIdsRequest(), AllocateProducerIdsResponse)
        assert len(own.requests) == 3
        async with ScriptedBroker(lambda _: Silence()) as broker:
            links.endpoint_of = lambda broker_id: broker.address if broker_id == OTHER else None
            controller = OTHER
            waiting = asyncio.create_task(peer.send(AlterPartitionRequest(), AlterPartitionResponse))
            while not broker.requests:
                await asyncio.sleep(0.005)
            controller = OWN
            links.controller_changed()
            with pytest.raises(PeerError):
                await waiting
            await peer.send(AlterPartitionRequest(), AlterPartitionResponse)
            assert len(own.requests) == 4
            while broker.open_connections:
                await asyncio.sleep(0.005)
        await links.close()

    run(scenario())


def test_a_version_can_be_asked_for_and_chosen() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(lambda _: FetchResponse(), newest={1: 11, 18: 4}) as broker:
            links = links_of()
            links.endpoint_of = lambda _: broker.address
            links.controller_id = lambda: OTHER
            for peer in (links.fetch_peer(OTHER), links.open(live(broker.address), lambda: None, lambda: None)):
                assert await peer.version_of(FetchRequest) == 11
                assert await peer.version_of(StopReplicaRequest) == -1
                await peer.send(FetchRequest(rack_id="there"), FetchResponse, version=10)
                assert broker.requests[-1] == FetchRequest()
                with pytest.raises(PeerError, match="does not serve FetchRequest in version 12"):
                    await peer.send(FetchRequest(), FetchResponse, version=12)
            assert await links.controller_peer().version_of(FetchRequest) == 11
            own = links.open(live(broker.address, OWN), lambda: None, lambda: None)
            assert await own.version_of(StopReplicaRequest) == 4
            await links.close()

    run(scenario())
