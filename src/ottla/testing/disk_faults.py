"""What can be done to a simulated disk from outside: the operations that can be struck, and what strikes them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path


class DiskOperation(Enum):
    """The grain at which a crash or a failure strikes; one call of `Disk` may be several. A *step* is an operation that
    changes what is kept: a crash anywhere between two steps finds the same disk."""

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
    """Its path is the new name."""
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
"""Those that are no steps."""
NEEDS_SPACE = frozenset((DiskOperation.CREATE, DiskOperation.APPEND, DiskOperation.MAKE_DIRECTORY))
"""Those that a full disk refuses."""

Predicate = Callable[[DiskOperation, Path], bool]


class CrashedError(BaseException):
    """The machine is off. No `Exception`, so that nothing that runs on it takes it for a failure and goes on."""


class Fault:
    """A failure that waits for its operation."""

    __slots__ = ("_code", "_remaining", "_skipped", "_when", "strikes")

    def __init__(self, code: int, when: Predicate | DiskOperation | None, skipped: int, times: int | None) -> None:
        self._code = code
        self._when = when
        self._skipped = skipped
        self._remaining = times
        self.strikes = 0
        """How often it has struck."""

    def strike(self, operation: DiskOperation, path: Path) -> OSError | None:
        """What the operation shall fail with, if this fault is for it."""
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
    """The error that the system would raise; Python picks the class by the number."""
    return OSError(code, os.strerror(code), str(path))
