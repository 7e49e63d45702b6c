"""Options of the connections between brokers."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.net.client_connection import ConnectionOptions


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Timeouts apply to each attempt and each request; a caller's own timeout counts if it is given."""

    connect_timeout_s: float = 4.0
    """Short, so that a healed network is noticed soon: lost packets are repeated after 1, 3 and 7 seconds."""
    fetch_timeout_s: float = 30.0
    """`replica.socket.timeout.ms`."""
    control_timeout_s: float = 30.0
    """`controller.socket.timeout.ms`."""
    receive_buffer_bytes: int | None = None
    """`replica.socket.receive.buffer.bytes`, where it is set: the system adapts its own default."""

    def fetching(self, client_id: str) -> ConnectionOptions:
        return ConnectionOptions(
            client_id=client_id,
            connect_timeout_s=self.connect_timeout_s,
            request_timeout_s=self.fetch_timeout_s,
            receive_buffer_bytes=self.receive_buffer_bytes,
            keep_alive=True,
        )

    def controlling(self, client_id: str) -> ConnectionOptions:
        return ConnectionOptions(
            client_id=client_id,
            connect_timeout_s=self.connect_timeout_s,
            request_timeout_s=self.control_timeout_s,
            keep_alive=True,
        )
