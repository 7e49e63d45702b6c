"""The limits of a server, as a broker's config sets them."""

from __future__ import annotations

from typing import Final

from ottla.broker.configs.broker_config import BrokerConfig
from ottla.net.limits import Limits

_QUEUED_FRAMES: Final = 4
"""How many frames of the maximum size may be in memory unless queued.max.request.bytes is set."""


def limits_of(config: BrokerConfig) -> Limits:
    queued: int = config["queued.max.request.bytes"]
    largest: int = config["socket.request.max.bytes"]
    idle_ms: int = config["connections.max.idle.ms"]
    return Limits(
        frame_max_bytes=largest,
        connections=config["max.connections"],
        connections_per_address=config["max.connections.per.ip"],
        connections_of_address=config.connection_limits,
        idle_s=idle_ms / 1000 if idle_ms >= 0 else float("inf"),
        queued_bytes=queued if queued > 0 else _QUEUED_FRAMES * largest,
        # Kafka's default of 100 KiB slows down a fast client on a fast network; the system's default does not.
        receive_buffer_bytes=config["socket.receive.buffer.bytes"]
        if "socket.receive.buffer.bytes" in config.given
        else -1,
        send_buffer_bytes=config["socket.send.buffer.bytes"] if "socket.send.buffer.bytes" in config.given else -1,
    )
