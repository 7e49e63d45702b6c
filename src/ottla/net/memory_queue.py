"""Connections that wait for memory to receive a large frame, and what frees it.

While somebody waits, every tick:
- memory that others keep and do not need is taken back;
- a connection whose half-received frame has stalled is closed: within `STALLED_S` at least an eighth of the frame must
  arrive, so no frame keeps others waiting for much longer than eight times that;
- those who wait are granted what there is, in their order. The first, once it has waited for `PATIENCE_S`, may overdraw
  the budget until its frame is received. There is one such connection at a time: without it, half-received frames could
  hold the whole budget and wait for each other.

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
        """In their order, with the time since when."""
        self._progress: dict[int, tuple[int, float]] = {}
        """Of connections with a half-received frame: how many bytes were there, and when."""
        self._favoured: SocketConnection | None = None
        """The one that may overdraw the budget."""
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
        """It is closed."""
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
