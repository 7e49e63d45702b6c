"""The proxy of test clusters: what passes, what is held, what ends, and who is told."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ottla.testing.connection_owner import ConnectionOwners, listed_inode, member_mark, socket_inode
from ottla.testing.proxy import Faults, Proxy, Route
from ottla.testing.proxy_process import faults_from_json, faults_to_json
from ottla.testing.server_process import unused_port
from support.waiting import WAIT_S, until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

A, B = 1, 2


class FixedOwners(ConnectionOwners):
    """Every connection is A's."""

    def __init__(self) -> None:
        super().__init__("test")

    def member_of(self, client_port: int, server_port: int) -> int | None:  # noqa: ARG002
        return A


class Echo:
    """B's server: answers with what it was sent."""

    def __init__(self) -> None:
        self.port = unused_port()
        self.received = b""
        self.writers: list[asyncio.StreamWriter] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No coroutine: one that has not begun when the test ends would leave its connection open."""
        if self._server is None or not self._server.is_serving():
            writer.transport.abort()
            return
        self.writers.append(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.received += data
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Scene:
    def __init__(self, proxy: Proxy, echo: Echo, port: int) -> None:
        self.proxy = proxy
        self.echo = echo
        self.port = port
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        client = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(client)
        return client


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    echo = Echo()
    await echo.start()
    port = unused_port()
    proxy = Proxy(FixedOwners())
    await proxy.start([Route(port, B, echo.port)])
    made = Scene(proxy, echo, port)
    try:
        yield made
    finally:
        for _, writer in made.clients:
            writer.close()
        echo.stop()
        await proxy.close()


def played(play: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(WAIT_S), scene() as made:
            await play(made)

    asyncio.run(run())


async def said(client: Client, data: bytes) -> None:
    client[1].write(data)
    assert await client[0].readexactly(len(data)) == data


def test_data_passes_both_ways() -> None:
    async def play(made: Scene) -> None:
        client = await made.connect()
        await said(client, b"hello")
        await said(client, bytes(1_000_000))

    played(play)


def test_a_blocked_flow_holds_data_until_it_heals() -> None:
    async def play(made: Scene) -> None:
        client = await made.connect()
        await said(client, b"before")
        made.proxy.apply(Faults(frozenset({(A, B)})))
        client[1].write(b"held")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client[0].read(1), 0.1)
        assert made.echo.received == b"before"
        made.proxy.apply(Faults())
        assert await client[0].readexactly(4) == b"held"

    played(play)


def test_one_way_blocks_answers_only() -> None:
    async def play(made: Scene) -> None:
        client = await made.connect()
        await said(client, b"before")
        made.proxy.apply(Faults(frozenset({(B, A)})))
        client[1].write(b"heard")
        await until(lambda: made.echo.received == b"beforeheard", "the flow to B is open")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client[0].read(1), 0.1)
        made.proxy.apply(Faults())
        assert await client[0].readexactly(5) == b"heard"

    played(play)


@pytest.mark.parametrize("flow", [(A, B), (B, A)])
def test_a_new_connection_hangs_if_either_flow_is_blocked(flow: tuple[int, int]) -> None:
    async def play(made: Scene) -> None:
        made.proxy.apply(Faults(frozenset({flow})))
        client = await made.connect()
        client[1].write(b"late")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client[0].read(1), 0.1)
        assert made.echo.received == b""
        made.proxy.apply(Faults())
        assert await client[0].readexactly(4) == b"late"

    played(play)


def test_flows_of_others_are_not_touched() -> None:
    async def play(made: Scene) -> None:
        client = await made.connect()
        made.proxy.apply(Faults(frozenset({(3, B), (B, 3)}), frozenset({(3, A)})))
        await said(client, b"hello")

    played(play)


def test_reset_ends_connections() -> None:
    async def play(made: Scene) -> None:
        client = await made.connect()
        await said(client, b"before")
        made.proxy.apply(Faults(reset=frozenset({(A, B)})))
        with pytest.raises(ConnectionResetError):
            await client[0].readexactly(1)
        again = await made.connect()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await again[0].readexactly(1)

    played(play)


def test_the_end_of_a_member_is_not_noticed_across_a_cut() -> None:
    async def play(made: Scene) -> None:
        client = await made.connect()
        await said(client, b"before")
        made.proxy.apply(Faults(frozenset({(A, B), (B, A)})))
        made.echo.stop()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client[0].read(1), 0.2)
        made.proxy.apply(Faults())
        assert await client[0].read(1) == b""

    played(play)


def test_a_member_that_is_down_refuses_connections_through_the_proxy() -> None:
    async def refused(made: Scene) -> bool:
        try:
            await made.connect()
        except ConnectionRefusedError:
            return True
        return False

    async def play(made: Scene) -> None:
        client = await made.connect()
        await said(client, b"before")
        made.echo.stop()
        assert await client[0].read(1) == b""
        while not await refused(made):
            await asyncio.sleep(0.01)
        await made.echo.start()
        while await refused(made):
            await asyncio.sleep(0.01)
        await said(await made.connect(), b"after")

    played(play)


def test_a_port_that_another_program_has_for_a_while_is_opened_later() -> None:
    async def play(made: Scene) -> None:
        client = await made.connect()
        await said(client, b"before")
        made.echo.stop()
        assert await client[0].read(1) == b""
        while True:  # until the proxy lets go of its port
            try:
                taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", made.port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                break
        await made.echo.start()
        await asyncio.sleep(0.2)  # several looks of the proxy, all in vain
        taken.close()
        while True:
            try:
                await said(await made.connect(), b"after")
            except (ConnectionError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.01)
            else:
                break

    played(play)


def test_a_delayed_flow_keeps_its_order() -> None:
    async def play(made: Scene) -> None:
        client = await made.connect()
        made.proxy.apply(Faults(delays_s={(A, B): 0.02}))
        for number in range(5):
            client[1].write(b"%d" % number)
            await asyncio.sleep(0.005)
        assert await client[0].readexactly(5) == b"01234"

    played(play)


def test_faults_survive_the_way_to_the_process() -> None:
    faults = Faults(frozenset({(1, 2), (0, 3)}), frozenset({(2, 1)}), {(1, 3): 0.5})
    assert faults_from_json(faults_to_json(faults)) == faults


def test_the_owner_of_a_connection_is_found_in_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process stands for the member: its environment was fixed when it started, so only the mark is faked."""
    owners = ConnectionOwners("mine")
    monkeypatch.setattr(owners, "_mark_of", lambda process_id: 7 if process_id == os.getpid() else None)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ports = client.getsockname()[1], server.getsockname()[1]
        assert socket_inode(*ports) == listed_inode(*ports) == str(os.fstat(client.fileno()).st_ino)
        assert owners.member_of(*ports) == 7
        assert owners.member_of(1, 2) is None
    assert socket_inode(*ports) == listed_inode(*ports) == ""


def test_a_mark_names_cluster_and_member() -> None:
    assert member_mark("mine", 3) == {"OTTLA_TESTING_MEMBER": "mine:3"}
