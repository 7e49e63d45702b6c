"""A peer over a socket: connects on demand, and again after a failure.

Requests that come while it connects share the attempt and are sent in order. The address is looked up for each attempt,
because a broker may come back elsewhere. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.broker.links.request_versions import as_of, highest_version
from ottla.net.client_connection import (
    Address,
    BrokerConnectionError,
    BrokerUnreachableError,
    ClientConnection,
    ConnectionOptions,
)
from ottla.net.frame_exchange import FrameExchange
from ottla.wire.peer import AnyResponse, PeerError
from ottla.wire.schema import Request

_CLOSED: Final = "the link is closed"
_OPEN_SLACK_S: Final = 1.0
"""For closing a connection that failed, beyond the time for connecting."""


class BrokerPeer:
    """See the module; implements `ottla.wire.peer.Peer`. `name` is the broker in messages, for instance "broker 2"."""

    def __init__(
        self,
        name: str,
        endpoint: Callable[[], Address | None],
        options: ConnectionOptions,
        *,
        on_attempt: Callable[[PeerError | None], None] = lambda _: None,
    ) -> None:
        """`on_attempt` is told the outcome of each attempt to connect: None for success."""
        self.name = name
        self._endpoint = endpoint
        self._options = options
        self._on_attempt = on_attempt
        self._connection: ClientConnection | None = None
        self._connecting: asyncio.Task[ClientConnection] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"BrokerPeer({self.name}, {'connected' if self.is_connected else 'not connected'})"

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    async def send(
        self,
        request: Request,
        response: type[AnyResponse],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> AnyResponse:
        """See `Peer`. The timeout holds for connecting and for the answer, each."""
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self.connect(timeout_s)
        try:
            chosen = connection.version_for(type(request), highest_version(request) if version is None else version)
            if version is not None and chosen != version:  # it came back as an older one
                raise PeerError(f"{self.name}: it does not serve {type(request).__name__} in version {version}")
            return await connection.send(as_of(request, chosen), response, version=chosen, timeout_s=timeout_s)
        except BrokerConnectionError as error:
            raise PeerError(f"{self.name}: {error}") from error

    async def version_of(self, request: type[Request]) -> int:
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self.connect()
        served = connection.served.get(request.api_key)
        return -1 if served is None else served.high

    def exchange(
        self,
        request: type[Request],
        *,
        answered: Callable[[bytes | memoryview], None],
        failed: Callable[[Exception], None],
        timeout_s: float,
    ) -> tuple[FrameExchange, str] | None:
        """See `ottla.wire.peer.FramePeer`."""
        connection = self._connection
        if connection is None or not connection.is_open:
            return None

        def fail(error: Exception) -> None:
            failed(PeerError(f"{self.name}: {error}"))

        exchange = connection.exchange(request, answered=answered, failed=fail, timeout_s=timeout_s)
        return exchange, connection.client_id

    async def connect(self, timeout_s: float | None = None) -> ClientConnection:
        """The open connection, or a new one. Raises `PeerError`."""
        if self._is_closed:
            raise PeerError(f"{self.name}: {_CLOSED}")
        connection = self._connection
        if connection is not None and connection.is_open:
            return connection
        attempt = self._connecting
        if attempt is None:
            attempt = self._connecting = asyncio.create_task(self._open(), name=f"connecting to {self.name}")
            attempt.add_done_callback(_retrieve)
        try:
            # Shared with other requests: if this one is cancelled, the attempt goes on.
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(attempt)
        except TimeoutError:
            raise PeerError(f"{self.name}: not connected within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            if attempt.cancelled() and self._is_closed:
                raise PeerError(f"{self.name}: {_CLOSED}") from None
            raise

    async def _open(self) -> ClientConnection:
        try:
            address = self._endpoint()
            if address is None:
                raise PeerError(f"{self.name}: its address is not known")
            try:
                # All requests share the attempt: whatever it waits for, it must end.
                async with asyncio.timeout(self._options.connect_timeout_s + _OPEN_SLACK_S):
                    connection = await ClientConnection.open(address, self._options)
            except TimeoutError:
                raise PeerError(f"{self.name}: {address}: connecting did not end in time") from None
            except BrokerConnectionError as error:
                is_refused = isinstance(error, BrokerUnreachableError) and error.is_refused
                raise PeerError(f"{self.name}: {error}", is_refused=is_refused) from error
        except PeerError as error:
            self._connecting = None
            self._on_attempt(error)
            raise
        except BaseException:
            self._connecting = None
            raise
        self._connecting = None
        self._connection = connection
        self._on_attempt(None)
        return connection

    def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self.disconnect()

    def disconnect(self) -> None:
        """Requests in flight fail; the next one connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()


def _retrieve(attempt: asyncio.Task[ClientConnection]) -> None:
    """Everybody who waited may have been cancelled: then nobody retrieves the exception."""
    if not attempt.cancelled():
        attempt.exception()
