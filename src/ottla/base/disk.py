"""The disk interface. All stored data goes through a `Disk`, so that tests can simulate crashes and failures.

It guarantees what a POSIX file system does, no more: written data is visible to every reader immediately, but only
`sync` makes a file's bytes survive a power cut, and only `sync_directory` makes a creation, a rename or a removal
survive. `replace` is atomic. Failures are `OSError` with an errno and the path.

A full disk is the only temporary failure: operations that need space are refused, all others work (`is_full`). A failed
sync is never temporary, whatever its errno (`SyncFailedError`).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

Buffer = bytes | bytearray | memoryview

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class SyncFailedError(OSError):
    """`sync` or `sync_directory` failed. The system may drop what it could not write and report success the next time:
    the data counts as lost, even if a later sync succeeds."""


def is_full(error: OSError) -> bool:
    """Whether an operation was refused only because the disk is full: nothing was lost, and space may become free."""
    return error.errno in _FULL and not isinstance(error, SyncFailedError)


@runtime_checkable
class File(Protocol):
    """An open file that is appended to. Not thread-safe, except for `read_at` and `sync`."""

    @property
    def path(self) -> Path: ...
    def fileno(self) -> int:
        """A descriptor for `sendfile`; a simulated file has none and raises `OSError`."""
        ...

    def size(self) -> int:
        """The size, without a system call: only this object writes the file."""
        ...

    def append(self, data: Buffer) -> None:
        """Appends all the data. After an error, part of it may be written: the caller truncates."""
        ...

    def append_all(self, parts: Sequence[Buffer]) -> None:
        """Appends the parts one after the other, in one system call."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Reads up to `size` bytes; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """`SyncFailedError` if the system fails to write."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """Held until released, or until the process ends for any reason."""

    def release(self) -> None: ...


class Disk(Protocol):
    """The file system operations that logs need."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Opens a file for reading and appending; with `create`, an absent file is created empty."""
        ...

    def map(self, path: Path) -> memoryview:
        """Maps a file's bytes, read-only; an empty file is an empty view."""
        ...

    def read(self, path: Path) -> bytes: ...
    def write(self, path: Path, data: Buffer) -> None:
        """Writes a whole file; neither atomic nor synced."""
        ...

    def write_atomically(self, path: Path, data: Buffer) -> None:
        """Writes and syncs a whole file so that either the new or the old content survives: a temporary file, then a
        replace."""
        ...

    def exists(self, path: Path) -> bool: ...
    def size(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int: ...
    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...
    def list(self, directory: Path) -> list[str]:
        """The sorted names of the entries."""
        ...

    def is_directory(self, path: Path) -> bool: ...
    def make_directory(self, path: Path) -> None:
        """Creates a directory and its parents. Idempotent."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Renames a file, replacing an existing one."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file. Idempotent."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Removes a directory and its contents. Idempotent."""
        ...

    def sync_directory(self, path: Path) -> None:
        """`SyncFailedError` if the system fails to write."""
        ...

    def lock(self, path: Path) -> Lock:
        """`BlockingIOError` if another process holds it."""
        ...
