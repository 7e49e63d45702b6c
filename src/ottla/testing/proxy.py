"""A TCP proxy between the members of a test cluster, which can cut, block and delay each direction of each pair.

Members are numbered; ZooKeeper is 0. A *flow* is data from one member to another, on whichever side's connections. Each
broker advertises a port of the proxy for the other brokers, and has a port of its own to ZooKeeper.

A blocked flow loses nothing and delivers nothing, as when a cable is unplugged: the sender's buffers fill, the end of a
connection is not noticed on the other side either, and after `heal` TCP delivers what was sent. A new connection hangs
if either flow of the pair is blocked, since its handshake needs both. With `reset`, connections of the pair end at
once, and new ones end as soon as they are opened.

A member that is down refuses connections; so the proxy closes its port for that member until it listens again.

Network namespaces would be stronger (they drop packets, so that even retransmissions stop), but need root or user
namespaces, `ip` and a bridge, which containers and CI machines often forbid. The proxy needs nothing but Linux's
`/proc`.

Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

from ottla.testing.connection_owner import ConnectionOwners

OUTSIDE: Final = -1
"""The source of connections from programs that are not members."""
ZOOKEEPER: Final = 0
_HOST: Final = "127.0.0.1"
_LOOK_AGAIN_S: Final = 0.05
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

Flow = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Route:
    """A port of the proxy, and the member's own port behind it. `source` is set where only one member uses it."""

    listen_port: int
    target: int
    target_port: int
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Faults:
    """The state of the network. Default: no faults."""

    blocked: frozenset[Flow] = frozenset()
    reset: frozenset[Flow] = frozenset()
    delays_s: Mapping[Flow, float] = field(default_factory=dict)

    def is_held(self, one: int, other: int) -> bool:
        """Whether no handshake between the two can succeed."""
        return (one, other) in self.blocked or (other, one) in self.blocked

    def is_reset(self, one: int, other: int) -> bool:
        return (one, other) in self.reset or (other, one) in self.reset

    def touches(self, member: int) -> bool:
        return any(member in flow for flow in self.blocked)


class Proxy:
    """Use `start`, then `apply` whenever the network is to change."""

    def __init__(self, owners: ConnectionOwners) -> None:
        self.faults = Faults()
        self._owners = owners
        self._passages: set[_Passage] = set()
        self._ports: list[_Port] = []

    async def start(self, routes: list[Route]) -> None:
        for route in routes:
            port = _Port(self, route)
            await port.open()
            port.look()
            self._ports.append(port)

    def apply(self, faults: Faults) -> None:
        self.faults = faults
        for passage in list(self._passages):
            passage.look()
        for port in self._ports:
            port.look()

    async def close(self) -> None:
        for passage in list(self._passages):
            passage.end()
        for port in self._ports:
            await port.close()

    # --- for ports and passages ---------------------------------------------------------------------------------------

    def accepted(self, port: _Port, near: _End) -> None:
        transport = near.transport
        route = port.route
        if route.source is not None:
            source = route.source
        else:
            client_port = transport.get_extra_info("peername")[1]
            found = self._owners.member_of(client_port, route.listen_port)
            source = OUTSIDE if found is None else found
        passage = _Passage(self, port, source, near)
        self._passages.add(passage)
        passage.look()

    def forget(self, passage: _Passage) -> None:
        self._passages.discard(passage)


class _Port:
    """A listening port; closed while the member behind it refuses connections."""

    def __init__(self, proxy: Proxy, route: Route) -> None:
        self.route = route
        self._proxy = proxy
        self._server: asyncio.Server | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _End(accepted_by=self), _HOST, self.route.listen_port, reuse_address=True
        )

    def accepted(self, near: _End) -> None:
        self._proxy.accepted(self, near)

    def look(self) -> None:
        """Somebody lost a connection to the member, or the network changed."""
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        """Mirrors the member's port until it listens. While the member is cut off, nobody can know its state."""
        while not await self._listens():
            if self._server is not None and not self._proxy.faults.touches(self.route.target):
                self._server.close()
                self._server = None
            elif self._server is None and self._proxy.faults.touches(self.route.target):
                await self._try_to_open()
            await asyncio.sleep(_LOOK_AGAIN_S)
        while self._server is None:
            await self._try_to_open()

    async def _try_to_open(self) -> None:
        """Another program may have the port for a moment: nobody would look again if this gave up."""
        try:
            await self.open()
        except OSError:
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(_HOST, self.route.target_port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await self._watcher
        if self._server is not None:
            self._server.close()


class _Passage:
    """One connection: `near` is the end of the member that opened it, `far` the other."""

    def __init__(self, proxy: Proxy, port: _Port, source: int, near: _End) -> None:
        self._proxy = proxy
        self._port = port
        self._near = near
        self._far: _End | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.source = source
        self.target = port.route.target
        near.join(self, (source, self.target))

    def is_blocked(self, flow: Flow) -> bool:
        return flow in self._proxy.faults.blocked

    def delay_s(self, flow: Flow) -> float:
        return self._proxy.faults.delays_s.get(flow, 0.0)

    def peer_of(self, end: _End) -> _End | None:
        return self._far if end is self._near else self._near

    def look(self) -> None:
        """Does what the network now allows."""
        faults = self._proxy.faults
        if faults.is_reset(self.source, self.target):
            self.end()
        elif self._far is not None:
            for end in (self._near, self._far):
                end.look()
        elif self._connecting is None and not faults.is_held(self.source, self.target):
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        far = _End()
        far.join(self, (self.target, self.source))
        try:
            await loop.create_connection(lambda: far, _HOST, self._port.route.target_port)
        except OSError:
            self._port.look()
            self.end()
            return
        if self._near.is_lost:
            far.transport.abort()
            self._proxy.forget(self)
            return
        self._far = far
        self.look()

    def lost(self, end: _End) -> None:
        """One end is gone: so is the other, once the news can reach it."""
        if end is self._far:
            self._port.look()
        other = self.peer_of(end)
        if other is None or other.is_lost:
            self._proxy.forget(self)
        elif not self.is_blocked(end.flow):
            other.finish()

    def end(self) -> None:
        for end in (self._near, self._far):
            if end is not None:
                end.abort()
        self._proxy.forget(self)


class _End(asyncio.Protocol):
    """One socket of a passage. What it reads goes to its peer."""

    def __init__(self, accepted_by: _Port | None = None) -> None:
        self.transport: asyncio.Transport
        self.is_lost = False
        self.flow: Flow = (OUTSIDE, OUTSIDE)
        self._accepted_by = accepted_by
        self._passage: _Passage | None = None
        self._is_full = False
        """The socket takes no more for now."""
        self._late: deque[bytes] = deque()
        """Read, and delayed."""
        self._is_finishing = False

    def join(self, passage: _Passage, flow: Flow) -> None:
        self._passage = passage
        self.flow = flow

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()
        if self._accepted_by is not None:
            self._accepted_by.accepted(self)

    def data_received(self, data: bytes) -> None:
        if self._passage is None:
            return
        delay_s = self._passage.delay_s(self.flow)
        if delay_s or self._late:
            self._late.append(data)
            asyncio.get_running_loop().call_later(delay_s, self._deliver_late)
        else:
            self._deliver(data)

    def _deliver_late(self) -> None:
        if self._late:
            self._deliver(self._late.popleft())
        if not self._late and self._is_finishing and self._passage is not None:
            self._passage.lost(self)

    def _deliver(self, data: bytes) -> None:
        peer = None if self._passage is None else self._passage.peer_of(self)
        if peer is not None and not peer.is_lost:
            peer.transport.write(data)

    def eof_received(self) -> bool:
        return False  # brokers do not use half-closed connections

    def pause_writing(self) -> None:
        self._is_full = True
        self._look_at_peer()

    def resume_writing(self) -> None:
        self._is_full = False
        self._look_at_peer()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True
        if self._passage is None:
            return
        if self._late:
            self._is_finishing = True
        else:
            self._passage.lost(self)

    # --- for the passage ----------------------------------------------------------------------------------------------

    def _look_at_peer(self) -> None:
        peer = None if self._passage is None else self._passage.peer_of(self)
        if peer is not None:
            peer.look()

    def look(self) -> None:
        """Reads if what it reads may be passed on."""
        if self._passage is None:
            return
        if self.is_lost:
            self._passage.lost(self)  # the news may have waited for the network
            return
        peer = self._passage.peer_of(self)
        may_read = peer is not None and not peer._is_full and not self._passage.is_blocked(self.flow)
        if self.transport.is_closing():
            return
        if may_read and not self.transport.is_reading():
            self.transport.resume_reading()
        elif not may_read and self.transport.is_reading():
            self.transport.pause_reading()

    def finish(self) -> None:
        """Sends what is left, then ends."""
        if not self.is_lost:
            self.transport.close()

    def abort(self) -> None:
        """Ends with a reset, not in order."""
        if not self.is_lost:
            connection = self.transport.get_extra_info("socket")
            if connection is not None and not self.transport.is_closing():
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()
