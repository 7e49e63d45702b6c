"""A connection to ZooKeeper: what it sends, also when its transport was closed before the reader has noticed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ottla.base.coordination import ConnectionLossError, CoordinationError
from ottla.zookeeper.client.connection import ZooKeeperConnection
from ottla.zookeeper.protocol.messages import ConnectResponse, OpCode


class Writer:
    """As uvloop's: to write raises once the transport is closed."""

    def __init__(self, *, is_closed: bool) -> None:
        self.transport = self
        self.is_closed = is_closed
        self.written: list[bytes] = []

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True

    def write(self, data: bytes) -> None:
        if self.is_closed:
            raise RuntimeError("unable to perform operation on a closed transport")
        self.written.append(data)


def connection(lost: list[ZooKeeperConnection], writer: Writer | None = None) -> ZooKeeperConnection:
    response = ConnectResponse(0, 10_000, 7, b"", False)
    writer = writer or Writer(is_closed=True)
    return ZooKeeperConnection(asyncio.StreamReader(), cast(Any, writer), response, lambda _: None, lost.append)


def test_a_request_fails_as_a_lost_connection() -> None:
    failures: list[CoordinationError] = []

    async def ask() -> None:
        connection([]).request(OpCode.EXISTS, b"", "/brokers", lambda *_: None, failures.append)
        await asyncio.sleep(0)

    asyncio.run(ask())
    assert [(type(failure), failure.path) for failure in failures] == [(ConnectionLossError, "/brokers")]


def test_the_connection_is_given_up() -> None:
    async def start() -> bool:
        lost: list[ZooKeeperConnection] = []
        given_up = connection(lost)
        given_up.start()
        await asyncio.sleep(0)
        return lost == [given_up]

    assert asyncio.run(start())


def test_requests_of_one_turn_leave_together_and_in_order() -> None:
    writer = Writer(is_closed=False)

    async def ask() -> None:
        asked = connection([], writer)
        for turn in (b"ab", b"c"):
            for body in turn:
                asked.request(OpCode.EXISTS, bytes([body]), "/brokers", lambda *_: None, lambda _: None)
            await asyncio.sleep(0)

    asyncio.run(ask())
    size, exists = (9).to_bytes(4, "big"), (3).to_bytes(4, "big")
    frames = [size + xid.to_bytes(4, "big") + exists + body for xid, body in enumerate((b"a", b"b", b"c"), 1)]
    assert writer.written == [frames[0] + frames[1], frames[2]]


def test_a_transport_that_closes_before_a_request_leaves_fails_it_when_the_connection_is_given_up() -> None:
    writer, failures = Writer(is_closed=False), list[CoordinationError]()
    errors: list[dict[str, Any]] = []

    async def ask() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        asked = connection([], writer)
        asked.request(OpCode.EXISTS, b"", "/brokers", lambda *_: None, failures.append)
        writer.is_closed = True
        await asyncio.sleep(0)
        assert not failures
        asked.drop("the server closed it")

    asyncio.run(ask())
    assert ([type(failure) for failure in failures], errors) == ([ConnectionLossError], [])
