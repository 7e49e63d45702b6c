"""What a broker counts of its requests, connections and waiting operations, as plain numbers.

Written by the loop, on the path of every request; read by whoever reports, from any thread: a reader may see a request
in one number and not yet in another, never a broken one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BUCKET_COUNT: Final = 64
"""One for every number of bits that microseconds can have: no time is too long for the last."""


class ApiStats:
    """The requests of one API. `buckets[n]` counts those that took less than 2**n microseconds and were not counted in
    a bucket before."""

    __slots__ = ("buckets", "errors", "request_bytes", "requests", "response_bytes", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.seconds = 0.0
        self.buckets = [0] * BUCKET_COUNT
        self.errors: dict[int, int] = {}
        """Error code -> how often it was answered."""

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
        """Why -> how often."""

    @property
    def open_now(self) -> int:
        return self.opened - self.closed

    def count_refused(self, reason: str) -> None:
        """`reason` is one of a few words, such as `max.connections`, never an address: each is a series of its own."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


class RequestStats:
    """All that a broker counts. A connection keeps the `ApiStats` of the APIs it was asked for at hand."""

    __slots__ = ("apis", "connections", "purgatories")

    def __init__(self) -> None:
        self.apis: dict[int, ApiStats] = {}
        self.connections = ConnectionStats()
        self.purgatories: dict[str, Callable[[], int]] = {}
        """Name -> how many operations wait there. Called from other threads: no more than a `len`."""

    def api(self, api_key: int) -> ApiStats:
        """Always the same object for the same key."""
        stats = self.apis.get(api_key)
        if stats is None:
            stats = self.apis[api_key] = ApiStats()
        return stats
