"""Files, as a seam: everything that is kept goes through a `Disk`, so that a simulated one can lose, tear and refuse.

The promises are those of a POSIX file system, no more: what was written is visible at once to every reader, but only
`sync` makes a file's bytes survive a power cut, and only `sync_directory` makes a creation, a rename or a removal
survive. `replace` is atomic. Failures are `OSError` with an errno and the path.

A full disk is the one failure that passes: what needs room is refused, everything else goes on (`is_full`). A sync that
fails is never of that kind, whatever its errno (`SyncFailedError`).
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
    what was to be made safe counts as lost, also after a later sync that succeeds."""


def is_full(error: OSError) -> bool:
    """Whether an operation was refused only because the disk is full: nothing was lost, and there may be room again."""
    return error.errno in _FULL and not isinstance(error, SyncFailedError)


@runtime_checkable
class File(Protocol):
    """An open file that grows at its end. Not thread-safe, but for `read_at` and `sync`, which any thread may call."""

    @property
    def path(self) -> Path: ...
    def fileno(self) -> int:
        """A descriptor for `sendfile`; a simulated file has none and raises `OSError`."""
        ...

    def size(self) -> int:
        """Without asking the system: nobody else writes the file."""
        ...

    def append(self, data: Buffer) -> None:
        """All of it, at the end. After an error part of it may be there: the caller truncates."""
        ...

    def append_all(self, parts: Sequence[Buffer]) -> None:
        """The parts one after the other, in one call to the system."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """At most `size` bytes; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """`SyncFailedError` if the system fails to write."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """Held until it is released, or until the process ends however it ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system, as far as the log needs one."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """For reading and appending; created empty if asked for and absent."""
        ...

    def map(self, path: Path) -> memoryview:
        """A file's bytes, read-only, without reading them all; an empty file is an empty view."""
        ...

    def read(self, path: Path) -> bytes: ...
    def write(self, path: Path, data: Buffer) -> None:
        """A whole file at once, not atomic and not synced."""
        ...

    def write_atomically(self, path: Path, data: Buffer) -> None:
        """Synced, and either all of the new content or all of the old survives: a temporary file, then a replace."""
        ...

    def exists(self, path: Path) -> bool: ...
    def size(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int: ...
    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...
    def list(self, directory: Path) -> list[str]:
        """Names of the entries, sorted."""
        ...

    def is_directory(self, path: Path) -> bool: ...
    def make_directory(self, path: Path) -> None:
        """With its parents; no error if it is there."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename, over an existing file if there is one."""
        ...

    def remove(self, path: Path) -> None:
        """A file; no error if it is gone."""
        ...

    def remove_directory(self, path: Path) -> None:
        """With all that is in it; no error if it is gone."""
        ...

    def sync_directory(self, path: Path) -> None:
        """`SyncFailedError` if the system fails to write."""
        ...

    def lock(self, path: Path) -> Lock:
        """`BlockingIOError` if another process holds it."""
        ...
