"""What a server allows: sizes, connections, idleness, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Kafka's limits of a listener, by its defaults, and two of a server that answers requests as they come."""

    frame_max_bytes: int = 104_857_600
    connections: int = UNLIMITED
    connections_per_address: int = UNLIMITED
    connections_of_address: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    idle_s: float = 600.0
    unanswered_per_connection: int = 256
    """More are not read until some of them are answered."""
    queued_bytes: int = 512 * 2**20
    """Of large frames that are being received, on all connections together."""
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1


class ConnectionCount:
    """How many connections there are, and from where."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open = 0
        self._of_address: Counter[str] = Counter()

    def refusal(self, address: str) -> str | None:
        """Why there may not be another one from there; None if there may."""
        limits = self.limits
        if self.open >= limits.connections:
            return f"there are {self.open} connections, as many as max.connections allows"
        allowed = limits.connections_of_address.get(address, limits.connections_per_address)
        if self._of_address[address] >= allowed:
            return (
                f"there are {self._of_address[address]} connections from {address}, max.connections.per.ip is {allowed}"
            )
        return None

    def opened(self, address: str) -> None:
        self.open += 1
        self._of_address[address] += 1

    def closed(self, address: str) -> None:
        self.open -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]


class MemoryBudget:
    """Bytes that the buffers of large frames take while they are received. Buffers grow as frames arrive, so many
    half-received frames can use up the budget while each of them waits for more: `Server` sees to it that one of them
    may overdraw it then."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.is_short = False
        """A frame waits for memory: buffers that are not needed are given back at once."""

    def has_room(self, held: int, size: int) -> bool:
        """Whether a buffer may grow from `held` to `size` bytes; one beyond the limit itself may when it is alone."""
        others = self.used - held
        return not others or others + size <= self.limit
