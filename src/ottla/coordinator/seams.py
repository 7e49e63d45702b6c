"""What a coordinator needs of the broker it runs in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.base.error_codes import ErrorCode
from ottla.records.new_batch import NewBatch


class CoordinatorTopic(Protocol):
    """The partitions of the coordinator's topic on this broker."""

    @property
    def partition_count(self) -> int:
        """Of the topic in the whole cluster; 0 while there is no such topic."""
        ...

    def append(self, index: int, batch: NewBatch) -> int:
        """Appends one batch as the leader; the offset behind it. Raises `CoordinatorError` where that cannot be done
        (NOT_COORDINATOR when this broker does not lead the partition), and then nothing was appended."""
        ...

    def when_committed(self, index: int, offset: int, tell: Callable[[ErrorCode], None]) -> None:
        """Calls back when every in-sync replica has everything below the offset, at once if that is so already; or with
        the error that makes it unsure."""
        ...

    def is_committed(self, index: int, offset: int) -> bool:
        """Whether the high watermark has reached the offset."""
        ...

    def read(self, index: int, offset: int, max_bytes: int) -> bytes:
        """Batches from the one that holds the offset to the log's end, whether committed or not; empty at the end. The
        first is whole, the last may be cut off. Raises `CoordinatorError` where they cannot be read."""
        ...

    def start_offset(self, index: int) -> int: ...


class Timer(Protocol):
    """Something that will happen."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Time for coordinators: an event loop, or a simulation of one."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Caller(Protocol):
    """Whose request it is, and in which version it came."""

    @property
    def version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str:
        """The address it came from."""
        ...
