"""The connection to the coordinator of a group or of a transactional id: finds the broker, and finds it again when it
changes.

A broker answers the requests of a connection in order, so requests that must not wait for others have their own
connection: a JoinGroup waits for all members, perhaps for minutes, and a commit sent after it would wait as well. For
the same reason neither uses the connection for fetches.
"""

from __future__ import annotations

import asyncio
from enum import Enum, IntEnum
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerConnectionError, raise_if_refused
from ottla.net.client_connection import Address, ClientConnection
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_FIRST_VERSION_WITH_SEVERAL_KEYS: Final = 4
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Lane(Enum):
    """The purpose of a connection to the coordinator."""

    MEMBERSHIP = "group"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


class CoordinatorType(IntEnum):
    """What a coordinator is for, as FindCoordinator numbers it."""

    GROUP = 0
    TRANSACTION = 1


_SUBJECTS: Final = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional.id"}


class CoordinatorLink:
    """Belongs to one loop. `group_id` is the key: for a transaction coordinator, the transactional id."""

    def __init__(self, cluster: Cluster, group_id: str, type_: CoordinatorType = CoordinatorType.GROUP) -> None:
        self.group_id = group_id
        self._type = type_
        self._cluster = cluster
        self._broker_id: int | None = None
        self._finding = asyncio.Lock()

    async def connection(self, lane: Lane) -> ClientConnection:
        """Makes one attempt to connect; finds the coordinator first if it is not known."""
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
        """Checks the error code of a response: if the coordinator has changed, it is looked up again."""
        if code in _MOVED:
            self._broker_id = None

    async def _find(self) -> int:
        connection = await self._cluster.any_connection()
        version = connection.version_for(FindCoordinatorRequest)
        several = version >= _FIRST_VERSION_WITH_SEVERAL_KEYS
        request = FindCoordinatorRequest(
            key="" if several else self.group_id,
            key_type=self._type,
            coordinator_keys=[self.group_id] if several else [],
        )
        answer = await connection.send(request, FindCoordinatorResponse, version=version)
        found = answer.coordinators[0] if several else answer
        subject = f"the coordinator of {_SUBJECTS[self._type]} {self.group_id}"
        raise_if_refused(found.error_code, subject, found.error_message)
        if self._cluster.brokers.get(found.node_id) != Address(found.host, found.port):
            await self._cluster.refresh()  # the broker is new, or has come back elsewhere
        return found.node_id
