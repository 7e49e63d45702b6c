"""A connection to ZooKeeper whose transport was closed, before the reader has noticed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ottla.base.coordination import ConnectionLossError, CoordinationError
from ottla.zookeeper.client.connection import ZooKeeperConnection
from ottla.zookeeper.protocol.messages import ConnectResponse, OpCode


class ClosedWriter:
    """As uvloop's: to write raises once the transport is closed."""

    def __init__(self) -> None:
        self.transport = self

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass

    def write(self, _: bytes) -> None:
        raise RuntimeError("unable to perform operation on a closed transport")


def connection(lost: list[ZooKeeperConnection]) -> ZooKeeperConnection:
    response = ConnectResponse(0, 10_000, 7, b"", False)
    return ZooKeeperConnection(asyncio.StreamReader(), cast(Any, ClosedWriter()), response, lambda _: None, lost.append)


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
