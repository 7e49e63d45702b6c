"""Connections over real sockets: order, file slices, slow clients, limits, strangers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.file_slice import FileSlice
from ottla.log.local_disk import LocalDisk
from ottla.net.core import Slot
from ottla.net.limits import Limits
from ottla.net.server import Server
from ottla.net.socket_connection import SocketConnection
from servers import WAIT_S, Counters, echo, framed, read_frame, serving, until


def test_who_waits_for_requests_is_served_before_their_answers_leave(run: Callable[..., None]) -> None:
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


@pytest.mark.parametrize(
    ("sent", "told", "answered"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP", b"HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like a TLS handshake", b""),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes is announced", b""),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes is announced", b""),
    ],
)
def test_strangers_are_told_and_hung_up_on(run: Callable[..., None], sent: bytes, told: str, answered: bytes) -> None:
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


def test_idle_connections_are_closed_and_busy_ones_are_not(run: Callable[..., None]) -> None:
    async def work() -> None:
        async with serving(echo, Limits(idle_s=0.2)) as running:
            idle_reader, idle_writer = await running.connect()
            busy_reader, busy_writer = await running.connect()
            closed = asyncio.create_task(idle_reader.read())
            while not closed.done():
                busy_writer.write(framed(b"x"))
                assert await read_frame(busy_reader) == b"x"
                await asyncio.sleep(0.01)
            assert closed.result() == b""
            idle_writer.close()
            busy_writer.close()

    run(work())


def test_a_port_that_is_taken_is_named() -> None:
    async def work() -> None:
        async with serving(echo) as running:
            server = Server(asyncio.get_running_loop(), echo, Limits(), Counters(), lambda _, __: None)
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{running.port}.*another process"):
                server.listen("PLAINTEXT", "127.0.0.1", running.port)

    asyncio.run(work())
