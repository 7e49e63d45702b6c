"""Counters of a broker's requests, connections and waiting operations.

Written by the loop for every request; read by any thread, which may see a request in one counter and not yet in
another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BUCKET_COUNT: Final = 64
"""One for every bit length of a number of microseconds; the last has no upper limit."""


class ApiStats:
    """The requests of one API. `buckets[n]` counts those that took less than 2**n microseconds and are not in an
    earlier bucket."""

    __slots__ = ("buckets", "errors", "request_bytes", "requests", "response_bytes", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.seconds = 0.0
        self.buckets = [0] * BUCKET_COUNT
        self.errors: dict[int, int] = {}
        """How often each error code was sent."""

    def observe(self, request_bytes: int, response_bytes: int, seconds: float) -> None:
        """A request was answered, `seconds` after it had been read."""
        self.requests += 1
        self.request_bytes += request_bytes
        self.response_bytes += response_bytes
        self.seconds += seconds
        self.buckets[int(seconds * 1_000_000).bit_length()] += 1

    def count_error(self, code: int) -> None:
        """A request, or a part of one, was answered with this code."""
        self.errors[code] = self.errors.get(code, 0) + 1


class ConnectionStats:
    """Connections of clients. Those refused count neither as opened nor as closed."""

    __slots__ = ("closed", "opened", "refused")

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.refused: dict[str, int] = {}
        """How often, by reason."""

    @property
    def open_now(self) -> int:
        return self.opened - self.closed

    def count_refused(self, reason: str) -> None:
        """`reason` is one of a few words, such as `max.connections`, never an address: each becomes a metric series."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class RequestStats:
    """All counters of a broker."""

    __slots__ = ("apis", "connections", "purgatories")

    def __init__(self) -> None:
        self.apis: dict[int, ApiStats] = {}
        self.connections = ConnectionStats()
        self.purgatories: dict[str, Callable[[], int]] = {}
        """Functions that return the number of waiting operations, by name. Called from other threads, so only a
        `len`."""

    def api(self, api_key: int) -> ApiStats:
        """Always the same object for the same key."""
        stats = self.apis.get(api_key)
        if stats is None:
            stats = self.apis[api_key] = ApiStats()
        return stats
