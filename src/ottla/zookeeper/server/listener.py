"""Sockets of the embedded ZooKeeper: splits what clients send into frames, and sends what the core answers.

A client that sends a frame that is too long loses its connection; its session goes on until its timeout. One that does
not read its answers is not read either, so that its session expires. Belongs to the loop that started it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Any, Final, cast

from ottla.zookeeper.protocol.messages import MAX_FRAME_BYTES
from ottla.zookeeper.server.core import LOCAL, Close, Effect, Send, ServerCore, Tell
from ottla.zookeeper.server.four_letters import FOUR_LETTERS
from ottla.zookeeper.server.tree_thread import TreeThread
from ottla.zookeeper.server.watches import ConnectionId

_logger = logging.getLogger(__name__)

_SIZE_BYTES: Final = 4
_MAX_ASKED: Final = 100
"""Requests of one connection that may wait for their answers before another one is taken."""
_CONNECT_S: Final = 30.0
"""A connection that has said nothing by then is closed."""


class TreeListener:
    """Use `start`, and `close` before the thread is closed."""

    def __init__(self, thread: TreeThread) -> None:
        self.thread = thread
        self._connections: dict[ConnectionId, ServedConnection] = {}
        self._ids = count(LOCAL + 1)
        self._server: asyncio.Server | None = None

    @classmethod
    async def start(cls, thread: TreeThread, host: str, port: int) -> TreeListener:
        """Port 0 takes any free one. Effects for connections are to be given to `perform`."""
        listener = cls(thread)
        loop = asyncio.get_running_loop()
        listener._server = await loop.create_server(lambda: ServedConnection(listener), host, port)
        return listener

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the listener is not started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Sessions go on until their timeout: the clients of a server that is restarted come back to them."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections.values()):
            connection.transport.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, Tell):
            return
        connection = self._connections.get(effect.connection)
        if connection is None:
            return  # it is gone
        match effect:
            case Send():
                connection.send(effect.frame)
            case Close():
                connection.close()

    def joined(self, connection: ServedConnection) -> ConnectionId:
        connection_id = next(self._ids)
        self._connections[connection_id] = connection
        return connection_id

    def left(self, connection_id: ConnectionId) -> None:
        self._connections.pop(connection_id, None)


class ServedConnection(asyncio.Protocol):
    """One client."""

    def __init__(self, listener: TreeListener) -> None:
        self._listener = listener
        self._received = bytearray()
        self._unsent: list[bytes] = []
        self._asked = 0
        self._is_first = True
        self._is_reading = True
        self._is_full = False
        """Whether the client has much to read before it is given more."""
        self._id: ConnectionId = -1
        self._address = ""
        self._silence: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport

    # --- from asyncio -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's does not derive from it
        host, port = transport.get_extra_info("peername")[:2]
        self._address = f"{host}:{port}"
        self._id = self._listener.joined(self)
        self._silence = asyncio.get_running_loop().call_later(_CONNECT_S, self.transport.abort)
        self._submit(lambda core: core.opened(self._id, self._address))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._is_first:
            self._begin()
        if not self._is_first:
            self._go_on()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._stop_waiting()
        self._listener.left(self._id)
        self._submit(lambda core: core.closed(self._id))

    # --- what was received ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Whether it is a client, or somebody who asks by four letters."""
        if len(self._received) < _SIZE_BYTES:
            return
        self._is_first = False
        answer = FOUR_LETTERS.get(bytes(self._received[:_SIZE_BYTES]))
        if answer is not None:
            self._stop_waiting()
            self._received.clear()
            self._read(False)
            self._submit(answer, self._tell)

    def _go_on(self) -> None:
        """Takes what was received, as far as the client may ask now, and reads on if all of it was taken."""
        if self.transport.is_closing():
            return
        self._split()
        self._read(self._may_ask)

    @property
    def _may_ask(self) -> bool:
        return self._asked < _MAX_ASKED and not self._is_full

    def _read(self, is_reading: bool) -> None:
        if is_reading != self._is_reading and not self.transport.is_closing():
            self._is_reading = is_reading
            if is_reading:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _split(self) -> None:
        received, at = self._received, 0
        while self._may_ask and len(received) - at >= _SIZE_BYTES:
            size = int.from_bytes(received[at : at + _SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= MAX_FRAME_BYTES:
                _logger.warning(
                    "Closing the ZooKeeper connection from %s: it announces a request of %d bytes, and at most %d are"
                    " accepted.",
                    self._address,
                    size,
                    MAX_FRAME_BYTES,
                )
                received.clear()
                self.transport.abort()
                return
            end = at + _SIZE_BYTES + size
            if end > len(received):
                break
            self._handle(bytes(received[at + _SIZE_BYTES : end]))
            at = end
        del received[:at]

    def _handle(self, frame: bytes) -> None:
        self._stop_waiting()
        self._asked += 1
        self._submit(lambda core: core.handle(self._id, frame), self._handled)

    def _handled(self, outcome: object) -> None:
        self._asked -= 1
        if isinstance(outcome, BaseException):
            _logger.warning("Closing the ZooKeeper connection from %s: %s", self._address, outcome)
            self.transport.abort()
        elif not self._is_reading and self._asked <= _MAX_ASKED // 2:
            self._go_on()

    # --- what is sent -----------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Frames of one turn of the loop leave together."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(frame)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self.transport.is_closing():
            self.transport.write(b"".join(unsent))

    def close(self) -> None:
        """After what was sent, unless the client does not read it."""
        self._flush()
        if self._is_full:
            self.transport.abort()
        else:
            self.transport.close()

    def _tell(self, outcome: Any) -> None:
        if not isinstance(outcome, BaseException):
            self.transport.write(outcome.encode())
        self.transport.close()

    # ----------------------------------------------------------------------------------------------------------------

    def _submit(self, work: Callable[[ServerCore], Any], deliver: Callable[[Any], None] | None = None) -> None:
        if self._listener.thread.is_closing:
            self.transport.abort()
        else:
            self._listener.thread.submit(work, deliver or _nothing)

    def _stop_waiting(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


def _nothing(outcome: object) -> None:
    """Nobody waits for it."""
