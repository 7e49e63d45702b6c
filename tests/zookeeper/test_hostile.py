"""Whatever a peer sends, the embedded ZooKeeper goes on serving the others."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sized
from contextlib import suppress
from pathlib import Path
from random import Random

from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.protocol.jute import JuteWriter
from ottla.zookeeper.protocol.messages import (
    OPEN_ACL,
    ConnectRequest,
    CreateRequest,
    OpCode,
    RequestHeader,
    WatchedPathRequest,
)
from support.trees.servers import connected, embedded_server

CONNECT = JuteWriter()
ConnectRequest(0, 0, 10_000, 0, bytes(16)).write(CONNECT)


def request(operation: int, body: bytes) -> bytes:
    writer = JuteWriter()
    RequestHeader(1, operation).write(writer)
    writer.raw(body)
    return writer.frame()


async def speak(address: str, *parts: bytes) -> bytes:
    """What comes back until the server closes, or has nothing to say for a moment after everything was sent."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answer = b""
    try:
        for part in parts:
            writer.write(part)
            with suppress(ConnectionError):
                await writer.drain()
        with suppress(TimeoutError, ConnectionError):
            while chunk := await asyncio.wait_for(reader.read(65536), 0.2):
                answer += chunk
    finally:
        writer.transport.abort()
    return answer


def test_noise_and_broken_requests(tmp_path: Path) -> None:
    async def run() -> None:
        random = Random(20261118)
        async with embedded_server(tmp_path) as server, connected(server.address) as tree:
            await tree.create("/kept", b"kept")
            whole = request(OpCode.CREATE, _body(CreateRequest("/made", b"x", OPEN_ACL, 0)))
            hostile = [[random.randbytes(random.randrange(1, 200))] for _ in range(15)]
            hostile += [[CONNECT.frame(), request(random.randrange(-20, 110), random.randbytes(40))] for _ in range(30)]
            hostile += [[CONNECT.frame(), whole[: random.randrange(4, len(whole))]] for _ in range(5)]
            hostile += [
                [struct.pack(">i", 2**31 - 1)],
                [struct.pack(">i", -5)],
                [CONNECT.frame(), struct.pack(">i", 2**20 + 1), bytes(1000)],
                [CONNECT.frame(), CONNECT.frame()],
                [b"GET / HTTP/1.1\r\n\r\n"],
                [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
            ]
            await asyncio.gather(*(speak(server.address, *parts) for parts in hostile))
            node = await tree.get("/kept")
            assert node is not None
            assert node.data == b"kept"
            async with connected(server.address) as another:
                await another.create("/after")

    asyncio.run(asyncio.wait_for(run(), 60))


def test_requests_that_come_in_pieces(tmp_path: Path) -> None:
    async def run() -> None:
        async with embedded_server(tmp_path) as server, connected(server.address) as tree:
            stream = CONNECT.frame() + request(OpCode.CREATE, _body(CreateRequest("/piecemeal", b"x", OPEN_ACL, 0)))
            await speak(server.address, *(stream[at : at + 1] for at in range(len(stream))))
            assert await tree.get("/piecemeal") is not None

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_client_that_does_not_read_costs_only_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with embedded_server(tmp_path) as server, connected(server.address) as tree:
            await tree.create("/large", bytes(500_000))
            host, port = server.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1)
            ask = request(OpCode.GET_DATA, _body(WatchedPathRequest("/large", False)))
            brief = JuteWriter()
            ConnectRequest(0, 0, 500, 0, bytes(16)).write(brief)
            writer.write(brief.frame() + ask * 400)  # 200 MB of answers, which nobody reads
            try:
                await _until_closed(server.listener._connections, 1)
                assert await tree.get("/large") is not None
            finally:
                writer.transport.abort()
                del reader

    asyncio.run(asyncio.wait_for(run(), 60))


async def _until_closed(connections: Sized, left: int) -> None:
    async with asyncio.timeout(40):
        while len(connections) > left:
            await asyncio.sleep(0.01)


def test_a_client_gets_much_at_once(tmp_path: Path) -> None:
    """More than a connection holds: the server waits for the client to read."""

    async def run() -> None:
        async with embedded_server(tmp_path) as server, connected(server.address) as tree:
            names = [f"/{number}" for number in range(200)]
            for name in names:
                await tree.create(name, bytes(400_000))
            assert [node and len(node.data) for node in await tree.get_many(names)] == [400_000] * 200

    asyncio.run(asyncio.wait_for(run(), 60))


def test_many_clients_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with embedded_server(tmp_path) as server:
            trees = await asyncio.gather(*(ZooKeeperTree.open(server.address) for _ in range(100)))
            await asyncio.gather(*(tree.create(f"/{index}", ephemeral=True) for index, tree in enumerate(trees)))
            assert len(await trees[0].children("/")) == 100
            await asyncio.gather(*(tree.close() for tree in trees[1:]))
            assert await trees[0].children("/") == ["0"]
            await trees[0].close()

    asyncio.run(asyncio.wait_for(run(), 60))


def _body(message: CreateRequest | WatchedPathRequest) -> bytes:
    writer = JuteWriter()
    message.write(writer)
    return writer.body()
