"""Faults of a simulated disk: the operations that can fail or crash, and how."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path


class DiskOperation(Enum):
    """The units at which crashes and failures happen; one call of `Disk` may be several. A *step* is an operation that
    changes stored data: a crash anywhere between two steps leaves the same disk."""

    OPEN = "open"
    READ = "read"
    MAP = "map"
    STAT = "stat"
    LIST = "list"
    LOCK = "lock"
    CREATE = "create"
    APPEND = "append"
    TRUNCATE = "truncate"
    SYNC = "sync"
    MAKE_DIRECTORY = "make directory"
    REPLACE = "replace"
    """The path is the new name."""
    REMOVE = "remove"
    REMOVE_DIRECTORY = "remove directory"
    SYNC_DIRECTORY = "sync directory"


LOOKS = frozenset(
    (
        DiskOperation.OPEN,
        DiskOperation.READ,
        DiskOperation.MAP,
        DiskOperation.STAT,
        DiskOperation.LIST,
        DiskOperation.LOCK,
    )
)
"""Operations that are not steps."""
NEEDS_SPACE = frozenset((DiskOperation.CREATE, DiskOperation.APPEND, DiskOperation.MAKE_DIRECTORY))
"""Operations that a full disk refuses."""

Predicate = Callable[[DiskOperation, Path], bool]


class CrashedError(BaseException):
    """The machine is off. Not an `Exception`, so that no code handles it as a failure and goes on."""


class Fault:
    """A failure that is armed for an operation."""

    __slots__ = ("_code", "_remaining", "_skipped", "_when", "strikes")

    def __init__(self, code: int, when: Predicate | DiskOperation | None, skipped: int, times: int | None) -> None:
        self._code = code
        self._when = when
        self._skipped = skipped
        self._remaining = times
        self.strikes = 0
        """How often it has occurred."""

    def strike(self, operation: DiskOperation, path: Path) -> OSError | None:
        """The error for the operation, if this fault applies to it."""
        if self._remaining == 0 or not self._meets(operation, path):
            return None
        if self._skipped:
            self._skipped -= 1
            return None
        if self._remaining is not None:
            self._remaining -= 1
        self.strikes += 1
        return disk_error(self._code, path)

    def _meets(self, operation: DiskOperation, path: Path) -> bool:
        if self._when is None:
            return self._code != errno.ENOSPC or operation in NEEDS_SPACE
        if isinstance(self._when, DiskOperation):
            return operation is self._when
        return self._when(operation, path)


def disk_error(code: int, path: Path) -> OSError:
    """The error that the system would raise; Python chooses the class by the errno."""
    return OSError(code, os.strerror(code), str(path))
