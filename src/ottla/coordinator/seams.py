"""What a coordinator needs from the broker that it runs in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.base.error_codes import ErrorCode
from ottla.records.new_batch import NewBatch


class CoordinatorTopic(Protocol):
    """The partitions of the coordinator's topic on this broker."""

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic in the cluster; 0 if the topic does not exist."""
        ...

    def append(self, index: int, batch: NewBatch) -> int:
        """Appends one batch as the leader and returns the offset after it. Raises `CoordinatorError` if nothing was
        appended (NOT_COORDINATOR if this broker does not lead the partition)."""
        ...

    def when_committed(self, index: int, offset: int, tell: Callable[[ErrorCode], None]) -> None:
        """Calls `tell` once every in-sync replica has everything below the offset, immediately if that is already the
        case; or with an error if that can no longer be known."""
        ...

    def is_committed(self, index: int, offset: int) -> bool:
        """Whether the high watermark has reached the offset."""
        ...

    def read(self, index: int, offset: int, max_bytes: int) -> bytes:
        """Reads batches from the one that contains the offset, including uncommitted ones; empty at the log end offset.
        The first batch is complete, the last may be truncated. Raises `CoordinatorError` if the log cannot be read."""
        ...

    def start_offset(self, index: int) -> int: ...


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Schedules calls: an event loop, or simulated time."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Caller(Protocol):
    """The client that sent a request, and the version of the request."""

    @property
    def version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str:
        """The IP address of the client."""
        ...
