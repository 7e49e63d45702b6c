"""A plain blocking socket on which any request of ours can be sent, and what can come of it."""

from __future__ import annotations

import socket
from typing import Final

from ottla.wire.errors import ProtocolError
from ottla.wire.framing import read_response, request_frame
from ottla.wire.registry import Api
from ottla.wire.schema import Request, Response

PATIENCE_S: Final = 5.0
CLIENT_ID: Final = "differential"


class NoAnswerError(Exception):
    """Nothing came: the message says which way, in one word that both brokers can be compared by."""


class Connection:
    """Owned by one thread. Answers are received in the order of the requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def send(self, request: Request, version: int) -> int:
        """Its correlation id."""
        self._correlation_id += 1
        frame = b"".join(request_frame(request, version, self._correlation_id, CLIENT_ID))
        try:
            self._socket.sendall(frame)
        except OSError:
            raise NoAnswerError("closed") from None
        return self._correlation_id

    def receive(self, api: Api, version: int, correlation_id: int, patience_s: float = PATIENCE_S) -> Response:
        self._socket.settimeout(patience_s)
        size = int.from_bytes(self._read(4), "big")
        frame = self._read(size)
        try:
            answered_id, response = read_response(api, version, frame)
        except ProtocolError as error:
            raise NoAnswerError(f"unreadable: {error}") from error
        if answered_id != correlation_id:
            raise NoAnswerError(f"answer to another request ({answered_id - correlation_id:+d})")
        return response

    def _read(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            try:
                part = self._socket.recv(left)
            except TimeoutError:
                raise NoAnswerError("timeout") from None
            except OSError:
                raise NoAnswerError("closed") from None
            if not part:
                raise NoAnswerError("closed")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()
