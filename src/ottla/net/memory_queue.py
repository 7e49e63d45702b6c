"""Connections that wait for memory to receive a large frame, and how memory is freed for them.

While a connection waits, every tick:
- releases memory that other connections hold and do not need;
- closes connections whose partial frame has stalled: at least an eighth of the frame must arrive within `STALLED_S`, so
  no frame keeps others waiting for much longer than eight times that;
- grants memory to the waiting connections, in order. The first may exceed the budget once it has waited for
  `PATIENCE_S`, until its frame is received. Only one connection at a time may do so. Without this rule, partial frames
  could hold the whole budget and wait for each other.

Owned by the loop.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import TYPE_CHECKING, Final

from ottla.net.core import SMALL_FRAME

if TYPE_CHECKING:
    from ottla.net.server import Server
    from ottla.net.socket_connection import SocketConnection

TICK_S: Final = 0.1
PATIENCE_S: Final = 1.0
STALLED_S: Final = 10.0
_STEPS: Final = 8


class MemoryQueue:
    """See the module."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waiting: dict[int, tuple[SocketConnection, float]] = {}
        """The waiting connections in order, with the time since when they wait."""
        self._progress: dict[int, tuple[int, float]] = {}
        """For connections with a partial frame: how many bytes had arrived, and when."""
        self._favoured: SocketConnection | None = None
        """The connection that may exceed the budget."""
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, connection: SocketConnection) -> None:
        """Idempotent."""
        self._waiting.setdefault(connection.connection_id, (connection, self._server.loop.time()))
        self._server.budget.is_short = True
        if self._timer is None:
            self._timer = self._server.loop.call_later(TICK_S, self._tick)

    def leave(self, connection: SocketConnection) -> None:
        """Removes a connection that was closed."""
        self._waiting.pop(connection.connection_id, None)
        self._progress.pop(connection.connection_id, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        server = self._server
        self._timer = server.loop.call_later(TICK_S, self._tick)
        now_s = server.loop.time()
        for connection in list(server.connections.values()):
            if connection.connection_id not in self._waiting:
                connection.release_memory()
                if self._is_stalled(connection, now_s):
                    server.stalled(connection)
        self._favour_first(now_s)
        for connection, _ in list(self._waiting.values()):
            if connection.retry_memory():
                self._waiting.pop(connection.connection_id, None)
        if not self._waiting:
            self.close()
            self._progress.clear()
            server.budget.is_short = False

    def _is_stalled(self, connection: SocketConnection, now_s: float) -> bool:
        incoming, key = connection.incoming, connection.connection_id
        if not incoming.reserved or incoming.is_empty:
            self._progress.pop(key, None)
            return False
        filled, since_s = self._progress.get(key, (-1, now_s))
        step = max(SMALL_FRAME, incoming.frame_bytes // _STEPS)
        if filled < 0 or incoming.filled < filled or incoming.filled >= filled + step:
            self._progress[key] = incoming.filled, now_s
            return False
        return now_s - since_s >= STALLED_S

    def _favour_first(self, now_s: float) -> None:
        favoured = self._favoured
        if favoured is not None and favoured.incoming.may_overdraw:
            return
        self._favoured = None
        if self._waiting:
            first, since_s = next(iter(self._waiting.values()))
            if now_s - since_s >= PATIENCE_S:
                first.incoming.may_overdraw = True
                self._favoured = first
