"""Answers that leave together, by a thread: each arrives whole, at whom it is for, in the order of the requests."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import cast

import pytest

from ottla.base.background_load import BackgroundLoad
from ottla.net.core import Slot
from ottla.net.limits import Limits
from ottla.net.sender import MANY, AnswerSender
from ottla.net.sending_layout import ANSWERS_MAX, BYTES_MAX, SLOTS
from ottla.net.socket_connection import SocketConnection
from support.servers import Running, framed, read_frame, serving
from support.waiting import WAIT_S, until

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Waiting:
    """Requests that are answered when the test says so."""

    def __init__(self) -> None:
        self.requests: list[tuple[SocketConnection, Slot, bytes]] = []

    def take(self, connection: SocketConnection, frame: memoryview) -> None:
        connection.reserve(slot := Slot())
        self.requests.append((connection, slot, bytes(frame)))

    async def come(self, count: int) -> None:
        await until(lambda: len(self.requests) == count)

    def answer(self, running: Running, body: Callable[[bytes], bytes] = lambda request: request) -> None:
        """All of them, together."""
        requests, self.requests = self.requests, []
        with running.server.together():
            for connection, slot, request in requests:
                connection.fill(slot, [framed(body(request))])


@asynccontextmanager
async def with_clients(
    count: int, limits: Limits | None = None
) -> AsyncIterator[tuple[Running, Waiting, list[Client], AnswerSender]]:
    """And a sender whose thread is running, and has nothing to do."""
    waiting = Waiting()
    async with serving(waiting.take, limits) as running:
        sender = running.server.sender
        sender.load_at = 0
        clients = [await running.connect() for _ in range(count)]
        async with asyncio.timeout(WAIT_S):
            while not sender.is_running:
                await ask(clients, waiting, [b"warm"] * count)
                waiting.answer(running)
                assert [await read_frame(reader) for reader, _ in clients] == [b"warm"] * count
        await all_back(sender)
        yield running, waiting, clients, sender
    assert not sender.is_running


async def all_back(sender: AnswerSender) -> None:
    """Clients may have their answers before the loop hears from the thread: until then, connections are still away."""
    await until(lambda: not sender.is_busy)


async def ask(clients: list[Client], waiting: Waiting, bodies: list[bytes]) -> None:
    for (_, writer), body in zip(clients, bodies, strict=True):
        writer.write(framed(body))
    await waiting.come(len(clients))


def test_each_gets_its_own_answer(run: Callable[..., None]) -> None:
    async def work() -> None:
        count = ANSWERS_MAX + 40  # more than the thread takes at a time
        async with with_clients(count) as (running, waiting, clients, sender):
            for turn in range(12):  # and more batches than it has places
                bodies = [b"%d of %d" % (number, turn) * (number % 5) for number in range(count)]
                await ask(clients, waiting, bodies)
                handed = sender.handed_over
                waiting.answer(running)
                assert sender.handed_over - handed == ANSWERS_MAX
                assert [await read_frame(reader) for reader, _ in clients] == bodies
                await all_back(sender)

    run(work())


def test_a_client_that_does_not_read_gets_everything_in_the_end(run: Callable[..., None]) -> None:
    async def work() -> None:
        large = BYTES_MAX - 1000
        async with with_clients(MANY, Limits(send_buffer_bytes=4096)) as (running, waiting, clients, sender):
            loop = asyncio.get_running_loop()
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                slow.setblocking(False)
                await loop.sock_connect(slow, ("127.0.0.1", running.port))
                for turn in range(5):
                    await loop.sock_sendall(slow, framed(b"large %d" % turn))
                    await waiting.come(1)
                    connection = waiting.requests[0][0]
                    for _, writer in clients:
                        writer.write(framed(b"small"))
                    await waiting.come(1 + MANY)
                    handed = sender.handed_over
                    waiting.answer(running, lambda body: body.ljust(large, b".") if body[:5] == b"large" else body)
                    assert sender.handed_over - handed == 1 + MANY
                    assert [await read_frame(reader) for reader, _ in clients] == [b"small"] * MANY
                    await all_back(sender)
                    assert not connection.is_idle
                    got = b""
                    while len(got) < 4 + large:
                        got += await loop.sock_recv(slow, 65536)
                    assert got == framed((b"large %d" % turn).ljust(large, b"."))
                    assert connection.is_idle

    run(work())


@asynccontextmanager
async def asleep(sender: AnswerSender, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The thread is not woken meanwhile."""
    woken = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd_write", lambda descriptor, _: woken.append(descriptor))
        yield
    for descriptor in woken:
        os.eventfd_write(descriptor, 1)
    await all_back(sender)


def test_a_connection_that_closes_keeps_its_descriptor_until_the_thread_is_done_with_it(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with with_clients(MANY) as (running, waiting, clients, sender):
            await ask(clients, waiting, [b"x"] * MANY)
            connection = waiting.requests[0][0]
            async with asleep(sender, monkeypatch):
                waiting.answer(running)
                assert sender.is_busy
                connection.close()
                assert connection.is_closed
                os.fstat(connection.descriptor)
                newcomer = await running.connect()
                await until(lambda: len(running.server.connections) == MANY)
                assert connection.descriptor not in [other.descriptor for other in running.server.connections.values()]
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(connection.descriptor)
            newcomer[1].write(framed(b"mine"))
            await waiting.come(1)
            waiting.answer(running)
            assert await read_frame(newcomer[0]) == b"mine"
            newcomer[1].close()
            ended = [await reader.read() for reader, _ in clients if reader.at_eof()]
            assert b"mine" not in b"".join(ended)

    run(work())


def test_later_answers_are_sent_after_it(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with with_clients(MANY) as (running, waiting, clients, sender):
            await ask(clients, waiting, [b"first"] * MANY)
            connections = [connection for connection, _, _ in waiting.requests]
            async with asleep(sender, monkeypatch):
                waiting.answer(running)
                assert not any(connection.is_idle for connection in connections)
                await ask(clients, waiting, [b"second"] * MANY)
                for connection, slot, request in waiting.requests[: MANY // 2]:  # each by itself
                    connection.fill(slot, [framed(request)])
                del waiting.requests[: MANY // 2]
                waiting.answer(running)
                await asyncio.sleep(0)
            for reader, _ in clients:
                assert await read_frame(reader) == b"first"
                assert await read_frame(reader) == b"second"
            assert all(connection.is_idle for connection in connections)

    run(work())


def test_a_connection_that_is_away_handles_no_more_than_it_can_keep(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of small requests may come at once, and their answers may be large."""

    async def work() -> None:
        async with with_clients(MANY) as (running, waiting, clients, sender):
            await ask(clients, waiting, [b"first"] * MANY)
            reader, writer = clients[0]
            connection = waiting.requests[0][0]
            handled = 0

            def at_once(connection: SocketConnection, frame: memoryview) -> None:
                nonlocal handled
                handled += 1
                connection.answer([framed(bytes(frame))])

            async with asleep(sender, monkeypatch):
                waiting.answer(running)
                connection._frame_handler = at_once
                writer.write(framed(b"more") * 1000)
                await until(lambda: handled > 0)
                other = await running.connect()  # a whole exchange: the first had its chance
                other[1].write(framed(b"other"))
                await waiting.come(1)
                waiting.answer(running)
                assert await read_frame(other[0]) == b"other"
                other[1].close()
                assert handled < 100
            assert await read_frame(reader) == b"first"
            assert [await read_frame(reader) for _ in range(1000)] == [b"more"] * 1000

    run(work())


def test_when_all_places_are_taken_connections_send_themselves(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with with_clients(MANY * (SLOTS + 1)) as (running, waiting, clients, sender):
            handed = sender.handed_over
            async with asleep(sender, monkeypatch):
                for at in range(0, len(clients), MANY):
                    await ask(clients[at : at + MANY], waiting, [b"%d" % at] * MANY)
                    waiting.answer(running)
                assert sender.handed_over - handed == MANY * (SLOTS - 1)
                assert [await read_frame(reader) for reader, _ in clients[-MANY:]] == [b"%d" % at] * MANY
            for number, (reader, _) in enumerate(clients[:-MANY]):
                assert await read_frame(reader) == b"%d" % (number // MANY * MANY)

    run(work())


@pytest.mark.parametrize("sent", [-1, 0, 3])
def test_the_connection_sends_what_the_thread_could_not(run: Callable[..., None], sent: int) -> None:
    async def work() -> None:
        async with with_clients(MANY) as (running, waiting, clients, _):
            reader, writer = clients[0]
            writer.write(framed(b"x"))
            await waiting.come(1)
            connection, slot, _ = waiting.requests.pop()
            with running.server.together():
                connection.fill(slot, [framed(b"answer")])
                answer = connection.take_only_answer(100)
                assert answer == framed(b"answer")
                assert connection.take_only_answer(100) is None
            connection.take_back(answer, sent)
            assert await reader.readexactly(10 - max(sent, 0)) == answer[max(sent, 0) :]

    run(work())


def test_a_client_that_is_gone_is_noticed(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with with_clients(MANY) as (running, waiting, clients, sender):
            await ask(clients, waiting, [b"x"] * MANY)
            clients[0][1].transport.abort()
            async with asleep(sender, monkeypatch):
                waiting.answer(running)
            await until(lambda: len(running.server.connections) == MANY - 1)
            assert [await read_frame(reader) for reader, _ in clients[1:]] == [b"x"] * (MANY - 1)

    run(work())


@pytest.mark.parametrize("is_found", [True, False])
def test_without_numba_connections_send_themselves(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    def broken() -> None:
        raise ImportError("no numba")

    monkeypatch.setitem(sys.modules, "ottla.net.sending_kernel", None)

    async def work() -> None:
        waiting = Waiting()
        async with serving(waiting.take) as running:
            sender = running.server.sender
            sender.load_at = 0
            sender.loading = BackgroundLoad(broken, ("json" if is_found else "no_such_package",))
            clients = [await running.connect() for _ in range(MANY)]
            for number in range(20):
                body = b"%d" % number
                await ask(clients, waiting, [body] * MANY)
                waiting.answer(running)
                assert [await read_frame(reader) for reader, _ in clients] == [body] * MANY
            assert not sender.is_running

    run(work())


@pytest.mark.parametrize("broken", ["import", "table", "descriptors", "thread"])
def test_a_thread_that_cannot_be_started_costs_no_answer(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """numba, for one, raises RuntimeError where it has nowhere to keep what it compiles."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    class BrokenKernel(ModuleType):
        BatchTable = staticmethod(fail)

    if broken == "import":
        monkeypatch.setitem(sys.modules, "ottla.net.sending_kernel", BrokenModule("ottla.net.sending_kernel"))
    elif broken == "table":
        monkeypatch.setitem(sys.modules, "ottla.net.sending_kernel", BrokenKernel("ottla.net.sending_kernel"))
    elif broken == "descriptors":
        monkeypatch.setattr(os, "eventfd", fail)
    else:
        monkeypatch.setattr("ottla.net.sender.threading.Thread", fail)

    async def work() -> None:
        waiting = Waiting()
        async with serving(waiting.take) as running:
            sender = running.server.sender
            sender.load_at = 0
            sender.loading = BackgroundLoad(lambda: None, ("no_such_package",))
            clients = [await running.connect() for _ in range(MANY)]
            for number in range(3):
                body = b"%d" % number
                await ask(clients, waiting, [body] * MANY)
                waiting.answer(running)
                assert [await read_frame(reader) for reader, _ in clients] == [body] * MANY
            assert not sender.is_running
            assert caplog.text.count("answers are sent without it: cannot cache function") == 1

    run(work())


class BrokenModule(ModuleType):
    """Raises when something is imported from it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("cannot cache function: no locator available")


def test_answers_that_the_thread_cannot_be_given_leave_by_themselves(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no more events")

    async def work() -> None:
        async with with_clients(MANY) as (running, waiting, clients, sender):
            await ask(clients, waiting, [b"x"] * MANY)
            with monkeypatch.context() as patch:
                patch.setattr(os, "eventfd_write", fail)
                waiting.answer(running)
            assert not sender.is_busy
            assert [await read_frame(reader) for reader, _ in clients] == [b"x"] * MANY
            await ask(clients, waiting, [b"y"] * MANY)
            waiting.answer(running)
            assert sender.is_busy
            assert [await read_frame(reader) for reader, _ in clients] == [b"y"] * MANY
            assert "no more events" in caplog.text

    run(work())


class Clock:
    """All that a sender without a thread asks of its loop."""

    now_s = 100.0

    def time(self) -> float:
        return self.now_s


class Sending:
    """All that it asks of a connection then."""

    flushed = 0

    def flush(self) -> None:
        self.flushed += 1


def test_nothing_is_loaded_for_moments_that_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ottla.net.sending_kernel", None)
    clock, connection = Clock(), Sending()
    sender = AnswerSender(cast("asyncio.AbstractEventLoop", clock))
    sender.load_at = 10
    sender.loading = BackgroundLoad(lambda: None, ("no_such_package",))
    connections = cast("list[SocketConnection]", [connection] * MANY)
    for _ in range(5):
        for _ in range(9):
            sender.send_all(connections)
        clock.now_s += 1.5
    assert not sender.loading.is_begun
    for _ in range(10):
        sender.send_all(connections)
        clock.now_s += 0.09
    assert sender.loading.is_begun
    assert connection.flushed == 55 * MANY


def test_few_answers_wake_nobody(run: Callable[..., None]) -> None:
    async def work() -> None:
        async with with_clients(MANY) as (running, waiting, clients, sender):
            handed = sender.handed_over
            some = clients[: MANY - 1]
            await ask(some, waiting, [b"x"] * len(some))
            waiting.answer(running)
            assert sender.handed_over == handed
            assert [await read_frame(reader) for reader, _ in some] == [b"x"] * len(some)

    run(work())
