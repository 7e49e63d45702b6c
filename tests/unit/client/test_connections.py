"""Connections to brokers: which are opened, when again, when they are closed, and what is said if they cannot be."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ottla.client import connections
from ottla.client.connections import Connections, ReconnectOptions
from ottla.client.errors import BrokerUnreachableError, ClosedError, NoBrokerError
from ottla.net.client_connection import Address, ClientConnection, ConnectionOptions
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.clients.scripted_broker import BROKER_ID, ScriptedBroker, Silence
from support.waiting import until

BOUND_S = 30
QUICK = ReconnectOptions(backoff_s=0.001, backoff_max_s=0.002)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND_S):
            await scenario()

    asyncio.run(bounded())


@asynccontextmanager
async def opened(*bootstrap: Address, options: ReconnectOptions = QUICK) -> AsyncIterator[Connections]:
    some = Connections(bootstrap, options)
    try:
        yield some
    finally:
        await some.close()


async def nowhere() -> Address:
    async with ScriptedBroker() as broker:
        return broker.address


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_shuffled", lambda addresses: addresses)


@pytest.mark.usefixtures("in_order")
def test_an_address_that_keeps_silent_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_NEXT_ADDRESS_AFTER_S", 0.01)
    patient = ReconnectOptions(ConnectionOptions(connect_timeout_s=1000))

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            mute = Address(*silent.getsockname())
            async with ScriptedBroker() as broker, opened(mute, broker.address, options=patient) as some:
                assert (await some.to_any()).address == broker.address

    run(scenario)


@pytest.mark.usefixtures("in_order")
def test_known_brokers_are_asked_before_bootstrap_addresses() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as bootstrap, ScriptedBroker() as known, opened(bootstrap.address) as some:
            some.brokers = {BROKER_ID: known.address}
            assert (await some.to_any()).address == known.address
            assert bootstrap.connections == 0

    run(scenario)


def test_unreachable_brokers_are_reported_with_all_attempts() -> None:
    async def scenario() -> None:
        one, other = await nowhere(), await nowhere()
        async with opened(one, other) as some:
            with pytest.raises(NoBrokerError) as first:
                await some.to_any()
            for address in (one, other):
                assert f"{address}: connection refused: nothing listens there" in str(first.value)
            assert str(first.value).startswith("no broker can be reached: 127.0.0.1:")
            assert str(first.value).endswith(
                ". Check bootstrap.servers, that a broker is running there, and that this machine can reach it"
            )
            with pytest.raises(NoBrokerError, match=r"nothing listens there \(2 attempts in \d+\.\d s\)"):
                await some.to_any()

    run(scenario)


def test_a_broker_that_cannot_be_reached_where_it_says_it_is() -> None:
    async def scenario() -> None:
        gone = await nowhere()
        async with ScriptedBroker() as broker, opened(broker.address) as some:
            await some.to_any()
            some.brokers = {3: gone}
            with pytest.raises(BrokerUnreachableError) as caught:
                await some.to(3)
            assert str(caught.value) == (
                f"broker 3 at {gone}: connection refused: nothing listens there; "
                "the broker advertises this address: check its advertised.listeners"
            )
            with pytest.raises(BrokerUnreachableError, match="broker 4 is not part of the cluster"):
                await some.to(4)

    run(scenario)


def test_a_broker_that_fails_is_left_alone_for_a_while() -> None:
    async def scenario() -> None:
        gone = await nowhere()
        async with opened(gone, options=ReconnectOptions(backoff_s=1000, backoff_max_s=1000)) as some:
            with pytest.raises(NoBrokerError):
                await some.to_any()
            again = asyncio.create_task(some.to_any())
            _, waiting = await asyncio.wait([again], timeout=0.05)
            assert waiting == {again}
            again.cancel()
            await asyncio.wait([again])

    run(scenario)


def test_the_wait_grows_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits_s: list[float] = []
    timeouts_s: list[float] = []

    async def refuse(address: Address, options: ConnectionOptions) -> ClientConnection:
        timeouts_s.append(options.connect_timeout_s)
        raise BrokerUnreachableError(f"{address}: no")

    async def sleep(seconds: float) -> None:
        waits_s.append(seconds)

    async def scenario() -> None:
        options = ReconnectOptions(backoff_s=100, backoff_max_s=500)
        async with opened(Address("a", 1), options=options) as some:
            monkeypatch.setattr(ClientConnection, "open", refuse)
            for _ in range(5):
                with monkeypatch.context() as patched:
                    patched.setattr(asyncio, "sleep", sleep)
                    with pytest.raises(NoBrokerError):
                        await some.to_any()

    run(scenario)
    assert timeouts_s == [10, 20, 30, 30, 30]
    for wait_s, expected_s in zip(waits_s, [100, 200, 400, 500], strict=True):
        assert 0.79 * expected_s < wait_s < 1.21 * expected_s


def test_a_lane_is_a_connection_of_its_own() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, opened(broker.address) as some:
            first = await some.to_any()
            some.brokers = {BROKER_ID: broker.address}
            fetching, again = await asyncio.gather(some.to(BROKER_ID, "fetch"), some.to(BROKER_ID, "fetch"))
            assert fetching is again
            assert fetching is not first
            # The one to the bootstrap address is that broker's; and is what any request takes.
            assert await some.to(BROKER_ID) is first
            assert await some.to_any() is first
            assert broker.connections == 2
            await first.close()
            assert await some.to_any() is not fetching

    run(scenario)


def test_a_connection_that_nobody_uses_is_closed_and_opened_again() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, opened(broker.address, options=ReconnectOptions(idle_s=0.01)) as some:
            first = await some.to_any()
            some.brokers = {BROKER_ID: broker.address}
            other = await some.to(BROKER_ID, "fetch")
            await until(lambda: min(first.idle_s, other.idle_s) > 0.01)
            await some.close_idle()
            assert not first.is_open
            assert not other.is_open
            assert (await some.to_any()).is_open

    run(scenario)


def test_a_connection_on_which_an_answer_is_waited_for_is_not_idle() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker(lambda _: Silence()) as broker,
            opened(broker.address, options=ReconnectOptions(idle_s=0.001)) as some,
        ):
            connection = await some.to_any()
            request = asyncio.create_task(connection.send(MetadataRequest(), MetadataResponse))
            await until(lambda: bool(broker.requests))
            await asyncio.sleep(0.01)
            await some.close_idle()
            assert connection.idle_s == 0
            assert connection.is_open
            request.cancel()
            await asyncio.wait([request])

    run(scenario)


def test_without_rebootstrap_only_known_brokers_count() -> None:
    async def scenario(rebootstrap: bool) -> None:
        gone = await nowhere()
        options = ReconnectOptions(backoff_s=0.001, rebootstrap=rebootstrap)
        async with ScriptedBroker() as broker, opened(broker.address, options=options) as some:
            some.brokers = {BROKER_ID: gone}
            if rebootstrap:
                assert (await some.to_any()).address == broker.address
            else:
                with pytest.raises(NoBrokerError, match=str(gone)):
                    await some.to_any()

    run(lambda: scenario(True))
    run(lambda: scenario(False))


def test_closing_while_a_connection_is_opened() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = Address(*silent.getsockname())
            some = Connections([address], ReconnectOptions(ConnectionOptions(connect_timeout_s=1000)))
            some.brokers = {BROKER_ID: address}
            opening = [asyncio.create_task(some.to_any()), asyncio.create_task(some.to(BROKER_ID))]
            await until(lambda: len(some._attempts) == 2)
            await some.close()
            for one in opening:
                with pytest.raises(ClosedError):
                    await one
            with pytest.raises(ClosedError):
                await some.to(BROKER_ID)

    run(scenario)


def test_a_caller_cancelled_during_close_is_cancelled() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            some = Connections([], QUICK)
            some.brokers = {BROKER_ID: Address(*silent.getsockname())}
            opening = asyncio.create_task(some.to(BROKER_ID))
            await until(lambda: len(some._attempts) == 1)
            opening.cancel()
            await some.close()
            await asyncio.wait([opening])
            assert opening.cancelled()

    run(scenario)


@pytest.mark.parametrize("is_done", [False, True], ids=["about to be made", "made"])
@pytest.mark.parametrize("which", ["of a broker", "any"])
def test_a_caller_cancelled_on_success_leaves_no_connection_open(
    which: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = ClientConnection.open

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            some = Connections([broker.address], QUICK)
            some.brokers = {BROKER_ID: broker.address}
            made: list[ClientConnection] = []

            async def open_too_late(address: Address, options: ConnectionOptions) -> ClientConnection:
                made.append(await really(address, options))
                if is_done:
                    asyncio.get_running_loop().call_soon(opening.cancel)
                else:
                    opening.cancel()
                return made[0]

            monkeypatch.setattr(ClientConnection, "open", open_too_late)
            opening = asyncio.create_task(some.to(BROKER_ID) if which == "of a broker" else some.to_any())
            await asyncio.wait([opening])
            assert opening.cancelled()
            await some.close()
            assert not made[0].is_open

    run(scenario)


@pytest.mark.parametrize("turns", range(4))
def test_a_connection_that_comes_while_all_is_closed(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    really = ClientConnection.open

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            some = Connections([broker.address], QUICK)
            made: list[ClientConnection] = []
            is_made = asyncio.Event()

            async def open_and_tell(address: Address, options: ConnectionOptions) -> ClientConnection:
                made.append(await really(address, options))
                is_made.set()
                return made[0]

            monkeypatch.setattr(ClientConnection, "open", open_and_tell)
            opening = asyncio.create_task(some.to_any())
            await is_made.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            await some.close()
            await asyncio.wait([opening])
            assert not made[0].is_open

    run(scenario)


def test_a_broker_that_came_back_begins_with_a_clean_slate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, opened(broker.address) as some:
            some.brokers = {BROKER_ID: broker.address}
            outcomes = [False, False, True, False]
            really = ClientConnection.open

            async def sometimes(address: Address, options: ConnectionOptions) -> ClientConnection:
                if outcomes.pop(0):
                    return await really(address, options)
                raise BrokerUnreachableError(f"{address}: no")

            monkeypatch.setattr(ClientConnection, "open", sometimes)
            for expected in (r": no$", r": no \(2 attempts in 0\.\d s\)$"):
                with pytest.raises(BrokerUnreachableError, match=expected):
                    await some.to(BROKER_ID)
            await (await some.to(BROKER_ID)).close()
            with pytest.raises(BrokerUnreachableError, match=r": no$"):
                await some.to(BROKER_ID)

    run(scenario)


def test_the_system_s_buffers_are_set_if_they_are_to_be() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            options = ConnectionOptions(receive_buffer_bytes=20_000, send_buffer_bytes=30_000)
            connection = await ClientConnection.open(broker.address, options)
            assert connection._transport is not None
            used = connection._transport.get_extra_info("socket")
            # Linux doubles what is asked for.
            assert used.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (20_000, 40_000)
            assert used.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (30_000, 60_000)
            await connection.close()

    run(scenario)


# Forks, in processes of their own.

PROGRAM = """
    import asyncio, gc, os, sys
    from ottla.client import loop_thread
    from ottla.client.cluster import Cluster
    from ottla.client.errors import ForkedError
    from ottla.client.loop_thread import LoopThread

    address, kind, ending = sys.argv[1:]
    if kind == "asyncio":
        loop_thread._new_loop = asyncio.new_event_loop
    thread = LoopThread("a client")

    async def connect():
        cluster = Cluster(address)
        await cluster.refresh(["events"])
        await cluster.connection(7, "another")
        return cluster

    cluster = thread.run(connect())
    child = os.fork()
    if child == 0:
        for use in (lambda: cluster.refresh(), lambda: cluster.connection(7), lambda: cluster.connection(7, "another")):
            try:
                asyncio.run(use())
            except ForkedError as error:
                print(error, flush=True)
        asyncio.run(cluster.close())
        if ending == "abrupt":
            os._exit(7)
        del thread, cluster, use
        gc.collect()
        sys.exit(7)
    _, status = os.waitpid(child, 0)
    before = thread.run(cluster.connection(7, "another"))
    for _ in range(3):
        assert thread.run(cluster.refresh(["events"]), 20)[0].name == "events"
    assert thread.run(cluster.connection(7, "another")) is before
    print("child", os.waitstatus_to_exitcode(status), "parent", len(cluster.brokers))
    thread.run(cluster.close())
    thread.close()
"""


@pytest.mark.parametrize("ending", ["abrupt", "with a last tidying up"])
@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_a_forked_child_is_refused_and_the_parent_s_connections_live(kind: str, ending: str) -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-W", "ignore:This process:DeprecationWarning"),  # of a fork beside threads, from Python 3.12 on
                *("-c", textwrap.dedent(PROGRAM), broker.bootstrap, kind, ending),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            try:
                out, err = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
            refusal = (
                "the client was created before os.fork and cannot be used in the child process: create a new one\n"
            )
            assert err.decode() == ""
            assert out.decode() == refusal * 3 + "child 7 parent 1\n"
            assert broker.connections == 2

    run(scenario)
