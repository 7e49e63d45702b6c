"""Connections over real sockets: order, file slices, slow clients, limits, strangers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.step_loop import StepLoop
from ottla.base.file_slice import FileSlice
from ottla.log.local_disk import LocalDisk
from ottla.net.core import Slot
from ottla.net.limits import Limits
from ottla.net.server import Server
from ottla.net.socket_connection import BLOCKED, SocketConnection
from support.servers import Counters, echo, framed, read_frame, serving
from support.waiting import WAIT_S, until


def test_waiting_requests_are_served_before_their_answers_are_sent(run: Callable[..., None]) -> None:
    async def work() -> None:
        seen: list[object] = []

        def note(connection: SocketConnection, frame: memoryview) -> None:
            seen.append(bytes(frame))
            echo(connection, frame)

        async with serving(note) as running:

            def handled() -> None:
                (connection,) = running.server.connections.values()
                seen.append("all answers wait" if not connection.is_idle else "gone")

            running.server.on_handled = handled
            reader, writer = await running.connect()
            writer.write(framed(b"a") + framed(b"b"))
            assert [await read_frame(reader) for _ in range(2)] == [b"a", b"b"]
            assert seen == [b"a", b"b", "all answers wait"]
            writer.close()

    run(work())


def test_requests_are_answered_in_order_whatever_their_size(run: Callable[..., None]) -> None:
    async def work() -> None:
        async with serving(echo) as running:
            reader, writer = await running.connect()
            bodies = [bytes([n % 256]) * (n * 7919 % 300_000) for n in range(60)]

            async def send() -> None:
                for body in bodies:
                    writer.write(framed(body))
                    await writer.drain()

            sending = asyncio.create_task(send())
            for body in bodies:
                assert await read_frame(reader) == body
            await sending
            writer.close()
            await until(lambda: running.counters.closed == 1)

    run(work())


def test_later_answers_keep_their_place(run: Callable[..., None]) -> None:
    async def work() -> None:
        slots: list[tuple[SocketConnection, Any, bytes]] = []

        def delay_first(connection: SocketConnection, frame: memoryview) -> None:
            if bytes(frame) == b"slow":
                connection.reserve(slot := Slot())
                slots.append((connection, slot, bytes(frame)))
            else:
                connection.answer([framed(bytes(frame))])

        async with serving(delay_first) as running:
            reader, writer = await running.connect()
            writer.write(framed(b"slow") + framed(b"quick"))
            await until(lambda: bool(slots))
            connection, slot, body = slots[0]
            connection.fill(slot, [framed(body)])
            assert await read_frame(reader) == b"slow"
            assert await read_frame(reader) == b"quick"
            writer.close()

    run(work())


def test_slices_of_files_are_sent_between_bytes(run: Callable[..., None], tmp_path: Path) -> None:
    content = b"".join(number.to_bytes(4, "big") for number in range(1_000_000))
    path = tmp_path / "file"
    path.write_bytes(content)

    async def work() -> None:
        file = LocalDisk().open(path)

        def answer(connection: SocketConnection, frame: memoryview) -> None:
            start = int.from_bytes(frame, "big")
            piece = FileSlice(file, start, len(content) - start)
            connection.answer([(piece.size + 4).to_bytes(4, "big"), b"head", piece])

        async with serving(answer) as running:
            reader, writer = await running.connect()
            starts = [0, 1, 3_000_000, 17]
            for start in starts:
                writer.write(framed(start.to_bytes(4, "big")))
            for start in starts:
                assert await read_frame(reader) == b"head" + content[start:]
            writer.close()
        file.close()

    run(work())


def test_a_file_that_is_gone_closes_the_connection_and_nothing_else(run: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)

    async def work() -> None:
        file = LocalDisk().open(tmp_path / "file")
        file.close()

        def answer(connection: SocketConnection, frame: memoryview) -> None:
            connection.answer([FileSlice(file, 0, 100)] if bytes(frame) == b"file" else [framed(b"fine")])

        async with serving(answer) as running:
            reader, writer = await running.connect()
            writer.write(framed(b"file"))
            assert await reader.read() == b""
            other_reader, other_writer = await running.connect()
            other_writer.write(framed(b"other"))
            assert await read_frame(other_reader) == b"fine"
            assert len(running.complaints) == 1
            writer.close()
            other_writer.close()

    run(work())


def test_a_client_that_does_not_read_is_not_read_from_and_stalls_nobody(run: Callable[..., None]) -> None:
    answer = framed(bytes(100_000))
    handled: dict[int, int] = {}

    def count(connection: SocketConnection, _: memoryview) -> None:
        handled[connection.connection_id] = handled.get(connection.connection_id, 0) + 1
        connection.answer([answer])

    async def work() -> None:
        async with serving(count) as running:
            loop = asyncio.get_running_loop()
            silent = socket.create_connection(("127.0.0.1", running.port))
            silent.setblocking(False)
            sent = 0
            request = framed(b"x" * 1000)
            # Until the server takes no more: then its answers and our requests fill all there is between us.
            idle_rounds = 0
            while idle_rounds < 50:
                try:
                    sent += silent.send(request)
                    idle_rounds = 0
                except BlockingIOError:
                    idle_rounds += 1
                    await asyncio.sleep(0.01)
            stuck_at = handled[1]
            assert stuck_at < sent // len(request)
            reader, writer = await running.connect()
            for _ in range(20):
                writer.write(request)
                assert len(await read_frame(reader)) == 100_000
            assert handled[1] == stuck_at
            # Once it reads, everything goes on.
            received = 0
            while received < stuck_at * len(answer):
                received += len(await asyncio.wait_for(loop.sock_recv(silent, 1 << 20), WAIT_S))
            await until(lambda: handled[1] > stuck_at)
            silent.close()
            writer.close()

    run(work())


def test_a_connection_with_too_many_unanswered_requests_is_not_read_from(run: Callable[..., None]) -> None:
    async def work() -> None:
        pending: list[tuple[SocketConnection, Any]] = []

        def answer_later(connection: SocketConnection, _: memoryview) -> None:
            connection.reserve(slot := Slot())
            pending.append((connection, slot))

        async with serving(answer_later, Limits(unanswered_per_connection=10)) as running:
            reader, writer = await running.connect()
            for _ in range(10):
                writer.write(framed(b"x"))
                await writer.drain()
            await until(lambda: len(pending) == 10)
            writer.write(framed(b"x"))
            await writer.drain()
            other_reader, other_writer = await running.connect()  # a whole exchange: the first had its chance
            other_writer.write(framed(b"x"))
            await until(lambda: len(pending) == 11)
            assert pending[-1][0] is not pending[0][0]
            for connection, slot in pending[:10]:
                connection.fill(slot, [framed(b"done")])
            for _ in range(10):
                assert await read_frame(reader) == b"done"
            await until(lambda: len(pending) == 12)
            assert pending[-1][0] is pending[0][0]
            writer.close()
            other_writer.close()
            del other_reader

    run(work())


def test_a_peer_that_left_is_noticed_though_its_connection_is_not_read() -> None:
    slots: list[Slot] = []

    def answer_later(connection: SocketConnection, _: memoryview) -> None:
        connection.reserve(slot := Slot())
        slots.append(slot)

    loop = StepLoop()
    limits = Limits(unanswered_per_connection=10)
    server = Server(loop, answer_later, limits, Counters(), lambda _, __: None)
    server.start()
    pairs = [socket.socketpair() for _ in range(2)]
    connections = []
    for ours, theirs in pairs:
        ours.setblocking(False)
        connections.append(server.adopt(ours, ("peer", 1), "PLAINTEXT"))
        theirs.sendall(framed(b"x") * 20)
    loop.turn(3)
    assert len(slots) == 20
    pairs[0][1].close()
    for _ in range(3):
        loop.advance(5.1)
    assert [connection.is_closed for connection in connections] == [True, False]
    server.close()
    pairs[1][1].close()
    loop.close()


class TellingSlot(Slot):
    """Notes that its connection closed, and breaks."""

    def __init__(self, told: list[Slot]) -> None:
        super().__init__()
        self.told = told

    def connection_closed(self) -> None:
        self.told.append(self)
        raise ZeroDivisionError


def test_unanswered_requests_learn_that_the_connection_closed(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        told: list[Slot] = []
        slots: list[Slot] = []

        def answer_later(connection: SocketConnection, _: memoryview) -> None:
            connection.reserve(slot := TellingSlot(told))
            slots.append(slot)

        async with serving(answer_later) as running:
            _, writer = await running.connect()
            writer.write(framed(b"x") * 4)
            await until(lambda: len(slots) == 4)
            (connection,) = running.server.connections.values()
            connection.fill(slots[2], [framed(b"waits behind the first")])
            writer.close()
            await until(lambda: connection.is_closed)
            assert told == [slots[0], slots[1], slots[3]]
            assert caplog.text.count("Could not cancel a waiting request") == 3
            connection.fill(slots[0], [framed(b"too late")])
        assert len(told) == 3
        caplog.clear()

    run(work())


def test_a_connection_is_read_again_after_its_rest_was_handled(run: Callable[..., None]) -> None:
    """The first answer fills the socket, and what came with its request is handled when the client has read it."""
    large = framed(bytes(8_000_000))
    pieces = [large[at : at + 100_000] for at in range(0, len(large), 100_000)]

    def answer(connection: SocketConnection, frame: memoryview) -> None:
        connection.answer(list(pieces) if bytes(frame) == b"large" else [framed(bytes(frame))])

    async def work() -> None:
        async with serving(answer) as running:
            reader, writer = await running.connect()
            await until(lambda: bool(running.server.connections))
            (connection,) = running.server.connections.values()
            for turn in range(3):
                writer.write(framed(b"large") + framed(b"small %d" % turn))
                await until(lambda: connection.held_by == BLOCKED)
                assert len(await read_frame(reader)) == 8_000_000
                assert await read_frame(reader) == b"small %d" % turn
            writer.close()

    run(work())


@pytest.mark.parametrize("error", [ZeroDivisionError("on purpose"), asyncio.CancelledError(), MemoryError()])
def test_a_handler_that_raises_closes_its_connection_and_nothing_else(
    run: Callable[..., None], error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(connection: SocketConnection, frame: memoryview) -> None:
        if bytes(frame) == b"raise":
            raise error
        echo(connection, frame)

    async def work() -> None:
        async with serving(answer) as running:
            reader, writer = await running.connect()
            other_reader, other_writer = await running.connect()
            writer.write(framed(b"raise") + framed(b"never handled"))
            assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            assert "a request could not be handled" in caplog.text
            other_writer.write(framed(b"fine"))
            assert await read_frame(other_reader) == b"fine"
            writer.close()
            other_writer.close()

    run(work())


def test_requests_are_answered_though_waking_others_fails(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        async with serving(echo) as running:
            running.server.on_handled = fail
            reader, writer = await running.connect()
            for _ in range(2):
                writer.write(framed(b"x"))
                assert await read_frame(reader) == b"x"
            assert "ZeroDivisionError" in caplog.text
            writer.close()

    run(work())


def test_memory_is_given_back_when_a_handler_hangs_up_before_a_large_frame(run: Callable[..., None]) -> None:
    async def work() -> None:
        async with serving(lambda connection, _: connection.close()) as running:
            for _ in range(3):
                reader, writer = await running.connect()
                writer.write(framed(b"abcd") + (90_000_000).to_bytes(4, "big") + b"x" * 100)
                assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
                writer.close()
            assert running.server.budget.used == 0

    run(work())


def test_peers_that_announce_much_and_stall_do_not_keep_others_waiting(run: Callable[..., None]) -> None:
    async def work() -> None:
        async with serving(echo, Limits(queued_bytes=500_000_000)) as running:
            stalling = [await running.connect() for _ in range(5)]
            for _, writer in stalling:
                writer.write((100_000_000).to_bytes(4, "big") + bytes(70_000))
            await until(lambda: running.server.budget.used >= 5 * 70_000)
            body = bytes(200_000)
            reader, writer = await running.connect()
            writer.write(framed(body))
            assert await read_frame(reader) == body
            assert not running.complaints
            for _, each in [*stalling, (reader, writer)]:
                each.close()

    run(work())


@pytest.mark.parametrize(
    ("sent", "told", "answered"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP", b"HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like a TLS handshake", b""),
        (b"\x7f\xff\xff\xff", "the frame has 2147483647 bytes", b""),
        (b"\xff\xff\xff\xff", "the frame has -1 bytes", b""),
    ],
)
def test_connections_of_other_protocols_are_logged_and_closed(
    run: Callable[..., None], sent: bytes, told: str, answered: bytes
) -> None:
    async def work() -> None:
        async with serving(echo) as running:
            reader, writer = await running.connect()
            writer.write(sent)
            answer = await asyncio.wait_for(reader.read(), WAIT_S)
            assert answer.startswith(answered)
            assert bool(answer) == bool(answered)
            assert len(running.complaints) == 1
            assert told in running.complaints[0]
            writer.close()

    run(work())


def test_connections_beyond_the_limits_are_refused(run: Callable[..., None]) -> None:
    async def work() -> None:
        async with serving(echo, Limits(connections=5, connections_per_address=2)) as running:
            kept = [await running.connect() for _ in range(2)]
            reader, writer = await running.connect()
            assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            assert running.counters.refused == ["limit"]
            kept[0][1].close()
            await until(lambda: running.counters.closed == 1)
            again = await running.connect()
            again[1].write(framed(b"hello"))
            assert await read_frame(again[0]) == b"hello"
            for _, each in [*kept, again]:
                each.close()
            writer.close()

    run(work())


def test_idle_connections_are_closed_and_busy_ones_are_not(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.net.server._UPKEEP_S", 0.01)

    async def work() -> None:
        async with serving(echo, Limits(idle_s=1000)) as running:
            idle_reader, idle_writer = await running.connect()
            busy_reader, busy_writer = await running.connect()
            await until(lambda: len(running.server.connections) == 2)
            by_port = {connection.port: connection for connection in running.server.connections.values()}
            idle, busy = (by_port[writer.get_extra_info("sockname")[1]] for writer in (idle_writer, busy_writer))
            accepted_s = busy.last_active_s
            busy.last_active_s -= 500
            busy_writer.write(framed(b"x"))
            assert await read_frame(busy_reader) == b"x"
            assert busy.last_active_s >= accepted_s
            idle.last_active_s -= 1001
            assert await idle_reader.read() == b""
            busy_writer.write(framed(b"y"))
            assert await read_frame(busy_reader) == b"y"

    run(work())


def test_a_port_that_is_taken_is_named() -> None:
    async def work() -> None:
        async with serving(echo) as running:
            server = Server(asyncio.get_running_loop(), echo, Limits(), Counters(), lambda _, __: None)
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{running.port}.*another process"):
                server.listen("PLAINTEXT", "127.0.0.1", running.port)

    asyncio.run(work())
