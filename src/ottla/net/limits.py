"""The limits of a server: sizes, connections, idle time, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Kafka's limits with their defaults, and two limits that Kafka does not have."""

    frame_max_bytes: int = 104_857_600
    connections: int = UNLIMITED
    connections_per_address: int = UNLIMITED
    connections_of_address: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    idle_s: float = 600.0
    unanswered_per_connection: int = 256
    """No more requests are read until some are answered."""
    queued_bytes: int = 512 * 2**20
    """The memory for large frames that are being received, on all connections together."""
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1


class ConnectionCount:
    """Counts connections, in total and by address."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open = 0
        self._of_address: Counter[str] = Counter()

    def refusal(self, address: str) -> str | None:
        """Why another connection from the address is refused; None if it is allowed."""
        limits = self.limits
        if self.open >= limits.connections:
            return f"{self.open} connections are open, the limit of max.connections"
        allowed = limits.connections_of_address.get(address, limits.connections_per_address)
        if self._of_address[address] >= allowed:
            return (
                f"{self._of_address[address]} connections from {address} are open; max.connections.per.ip is {allowed}"
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
    """The memory for buffers of large frames that are being received. Buffers grow as frames arrive, so many partial
    frames can use up the budget while each waits for more: `MemoryQueue` then lets one of them exceed it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.is_short = False
        """Whether a frame waits for memory: unused buffers are then released immediately."""

    def has_room(self, held: int, size: int) -> bool:
        """Whether a buffer may grow from `held` to `size` bytes; one above the limit may if it is the only one."""
        others = self.used - held
        return not others or others + size <= self.limit
