"""Waits until records that this broker wrote itself are committed: those of coordinators, and transaction markers."""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.error_codes import ErrorCode
from ottla.replication.delayed import DelayedOperation
from ottla.replication.partition import AwaitedAppend, Partition


class AwaitedCommit(DelayedOperation[Partition]):
    """Calls `tell` with the outcome of an append: NONE once every in-sync replica has the records."""

    __slots__ = ("_append", "_error", "_tell")

    def __init__(self, append: AwaitedAppend, tell: Callable[[ErrorCode], None]) -> None:
        super().__init__()
        self._append = append
        self._tell = tell
        self._error = ErrorCode.REQUEST_TIMED_OUT

    def is_ready(self, key: Partition) -> bool:
        error = key.outcome(self._append)
        if error is None:
            return False
        self._error = error
        return True

    def complete(self) -> None:
        self._tell(self._error)
