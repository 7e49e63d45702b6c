"""The broker that looks after a group: found, asked in lanes of its own, and found anew when it is another.

A broker answers the requests of a connection one after the other, so what must not wait for others goes by its own: a
JoinGroup waits for all members, minutes perhaps, and a commit that was sent behind it would too. For the same reason
neither goes where fetches go.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerConnectionError, raise_if_refused
from ottla.net.client_connection import ClientConnection
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_FIRST_VERSION_WITH_SEVERAL_KEYS: Final = 4
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Lane(Enum):
    """What a connection to the coordinator is for."""

    MEMBERSHIP = "group"
    OFFSETS = "offsets"


class CoordinatorLink:
    """Belongs to one loop."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._broker_id: int | None = None
        self._finding = asyncio.Lock()

    async def connection(self, lane: Lane) -> ClientConnection:
        """One attempt to be connected; the coordinator is looked for if it is not known."""
        async with self._finding:
            if self._broker_id is None:
                self._broker_id = await self._find()
            broker_id = self._broker_id
        try:
            return await self._cluster.connection(broker_id, lane.value)
        except BrokerConnectionError:
            self._broker_id = None
            raise

    def look_at(self, code: int) -> None:
        """At an answer of the coordinator: whether it is another now, and has to be looked for."""
        if code in _MOVED:
            self._broker_id = None

    async def _find(self) -> int:
        connection = await self._cluster.any_connection()
        version = connection.version_for(FindCoordinatorRequest)
        several = version >= _FIRST_VERSION_WITH_SEVERAL_KEYS
        request = FindCoordinatorRequest(
            key="" if several else self.group_id, coordinator_keys=[self.group_id] if several else []
        )
        answer = await connection.send(request, FindCoordinatorResponse, version=version)
        found = answer.coordinators[0] if several else answer
        raise_if_refused(found.error_code, f"the coordinator of group {self.group_id}", found.error_message)
        if found.node_id not in self._cluster.brokers:
            await self._cluster.refresh()
        return found.node_id
