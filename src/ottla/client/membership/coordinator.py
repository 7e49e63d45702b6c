"""The broker that looks after a group: found, asked over connections of our own, and found anew when it is another.

Two connections, opened when they are needed. A broker answers the requests of a connection one after the other, so
what must not wait for others has its own: a JoinGroup waits for all members, minutes perhaps, and a commit that was
sent behind it would too. For the same reason neither is shared with fetches.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerUnreachableError, ClosedError, raise_if_refused
from ottla.net.client_connection import Address, ClientConnection
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_FIRST_VERSION_WITH_SEVERAL_KEYS: Final = 4
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Channel(Enum):
    """What a connection to the coordinator is for."""

    MEMBERSHIP = "membership"
    OFFSETS = "offsets"


class GroupCoordinator:
    """Belongs to one loop. Holds sockets: `close` it."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._address: Address | None = None
        self._connections: dict[Channel, ClientConnection] = {}
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def connection(self, channel: Channel) -> ClientConnection:
        """One attempt to be connected; the coordinator is looked for if it is not known or has gone."""
        connection = self._connections.get(channel)
        if connection is not None and connection.is_open:
            return connection
        async with self._opening:
            connection = self._connections.get(channel)
            if connection is not None and not connection.is_open:
                self.forget(connection)
                connection = None
            if connection is None:
                connection = self._connections[channel] = await self._open()
            return connection

    def look_at(self, code: int, connection: ClientConnection) -> None:
        """An answer of the coordinator: one that says that it is another has to be looked for."""
        if code in _MOVED:
            self.forget(connection)

    def forget(self, connection: ClientConnection) -> None:
        """It has to be looked for, unless that was done since this connection was made."""
        if connection in self._connections.values():
            self._address = None
            for one in self._connections.values():
                closing = asyncio.get_running_loop().create_task(one.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            self._connections.clear()

    async def close(self) -> None:
        self._is_closed = True
        for connection in [*self._connections.values()]:
            await connection.close()
        self._connections.clear()
        await asyncio.gather(*self._closing)

    async def _open(self) -> ClientConnection:
        if self._is_closed:
            raise ClosedError("the client is closed")
        if self._address is None:
            self._address = await self._find()
        try:
            connection = await ClientConnection.open(self._address, self._cluster.options.connection)
        except BrokerUnreachableError:
            self._address = None
            raise
        if self._is_closed:
            await connection.close()
            raise ClosedError("the client is closed")
        return connection

    async def _find(self) -> Address:
        connection = await self._cluster.any_connection()
        version = connection.version_for(FindCoordinatorRequest)
        several = version >= _FIRST_VERSION_WITH_SEVERAL_KEYS
        request = FindCoordinatorRequest(
            key="" if several else self.group_id, coordinator_keys=[self.group_id] if several else []
        )
        answer = await connection.send(request, FindCoordinatorResponse, version=version)
        subject = f"the coordinator of group {self.group_id}"
        if not several:
            raise_if_refused(answer.error_code, subject, answer.error_message)
            return Address(answer.host, answer.port)
        for one in answer.coordinators:
            if one.key == self.group_id:
                raise_if_refused(one.error_code, subject, one.error_message)
                return Address(one.host, one.port)
        raise BrokerUnreachableError(f"{connection.address} was asked for {subject} and did not name it")
