"""A connection on which a thread sends a request and waits for the response itself, without an event loop.

For callers that would wait for the response anyway: a request through the loop of another thread costs two switches of
threads, which take as long as the request. The connection is opened in a loop, to a broker that the loop already has a
connection to, so that its versions are known. After that one thread at a time uses it. If anything goes wrong, a signal
handler's exception included, a response may still be on its way, and the connection cannot be used any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from time import monotonic
from typing import Final

from ottla.net.client_connection import ClientConnection, ConnectionLostError, RequestTimeoutError
from ottla.wire.framing import SIZE_BYTES, frame_size

_RECEIVE_BYTES: Final = 16 * 1024
_CORRELATION_ID_BYTES: Final = 4
_CORRELATION_ID_AT: Final = 8
"""In a request frame: after its size, the API key and the version."""
_LAST_CORRELATION_ID: Final = 2**31 - 1


class BlockingExchange:
    """Opened by `open`. Owned by whoever has set `owner`, a thread's id: see `close`."""

    def __init__(self, beside: ClientConnection, connected: socket.socket, slice_s: float) -> None:
        self.beside = beside
        self.owner = 0
        """The thread that uses it; 0 if none does."""
        self.used_at_s = monotonic()
        self._socket = connected
        self._correlation_id = 0
        self._limit = beside.max_response_bytes
        _limit_waits(connected, slice_s)

    @classmethod
    async def open(cls, beside: ClientConnection, slice_s: float) -> BlockingExchange:
        """Connects to the broker of an open connection; raises OSError or TimeoutError. `slice_s` is how long a thread
        waits before it looks at the time, and for signals that came just before it fell asleep."""
        connected = socket.socket(beside.family, socket.SOCK_STREAM)
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(beside.connect_timeout_s):
                await asyncio.get_running_loop().sock_connect(connected, beside.peer)
            return cls(beside, connected, slice_s)
        except BaseException:
            connected.close()
            raise

    def ask(self, before: bytes, after: bytes | bytearray, until_s: float) -> bytes:
        """Sends the request frame, of two parts, with a correlation id of its own, and returns the response's frame
        without its size. Raises `BrokerConnectionError`, `ProtocolError` or OSError. For the owner."""
        number = self._correlation_id = (self._correlation_id + 1) & _LAST_CORRELATION_ID
        correlation_id = number.to_bytes(_CORRELATION_ID_BYTES, "big")
        rest = _CORRELATION_ID_AT + _CORRELATION_ID_BYTES
        self._send(b"".join((before[:_CORRELATION_ID_AT], correlation_id, before[rest:], after)), until_s)
        frame = self._receive(until_s)
        if not frame.startswith(correlation_id):
            raise ConnectionLostError(f"{self.beside.address} answered another request than {number}")
        self.used_at_s = monotonic()
        return frame

    def _send(self, frame: bytes, until_s: float) -> None:
        sent = self._socket.send(frame)
        while sent < len(frame):
            try:
                sent += self._socket.send(memoryview(frame)[sent:])
            except (TimeoutError, BlockingIOError):
                self._check_time(until_s)

    def _receive(self, until_s: float) -> bytes:
        received = b""
        while True:
            try:
                some = self._socket.recv(_RECEIVE_BYTES)
            except (TimeoutError, BlockingIOError):
                self._check_time(until_s)
                continue
            if not some:
                raise ConnectionLostError(f"{self.beside.address}: the broker closed the connection")
            received += some
            if len(received) >= SIZE_BYTES:
                end = SIZE_BYTES + frame_size(received, self._limit)
                if len(received) == end:
                    return received[SIZE_BYTES:]
                if len(received) > end:
                    raise ConnectionLostError(f"{self.beside.address} sent more than the response")

    def _check_time(self, until_s: float) -> None:
        if monotonic() >= until_s:
            raise RequestTimeoutError(f"{self.beside.address} did not answer in time")

    def close(self) -> None:
        """Ends the connection. If another thread owns it, that gets an error and calls this, too: its descriptor must
        not belong to another connection as long as a thread waits for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self.owner:
            self._socket.close()

    def abandon(self) -> None:
        """Called by the owner: the connection must not be used any more."""
        self._socket.close()


def _limit_waits(connected: socket.socket, slice_s: float) -> None:
    """Lets no call wait longer than that: it raises an error then."""
    connected.settimeout(slice_s)
    if sys.platform == "linux" and sys.maxsize > 2**32:
        # Python's own timeout takes another system call for each send and receive.
        connected.settimeout(None)
        limit = struct.pack("@ll", int(slice_s), int(slice_s % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connected.setsockopt(socket.SOL_SOCKET, option, limit)
