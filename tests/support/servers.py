"""A server on a free port of this machine, and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ottla.net.limits import Limits
from ottla.net.server import Server
from ottla.net.socket_connection import SocketConnection
from support.waiting import WAIT_S


@dataclass
class Counters:
    opened: int = 0
    closed: int = 0
    refused: list[str] = field(default_factory=list)

    def count_refused(self, reason: str) -> None:
        self.refused.append(reason)


@dataclass
class Running:
    server: Server
    port: int
    counters: Counters
    complaints: list[str]
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that is closed with the server at the latest: one that a failed test leaves open is blamed on the
        later test in which it is collected."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self.server.close()


@asynccontextmanager
async def serving(
    on_frame: Callable[[SocketConnection, memoryview], None], limits: Limits | None = None
) -> AsyncIterator[Running]:
    counters = Counters()
    complaints: list[str] = []
    server = Server(
        asyncio.get_running_loop(),
        on_frame,
        limits or Limits(),
        counters,
        lambda _, what: complaints.append(what),
    )
    running = Running(server, server.listen("PLAINTEXT", "127.0.0.1", 0).port, counters, complaints)
    server.start()
    try:
        yield running
    finally:
        running.close()


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def echo(connection: SocketConnection, frame: memoryview) -> None:
    connection.answer([framed(bytes(frame))])


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(WAIT_S):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)
