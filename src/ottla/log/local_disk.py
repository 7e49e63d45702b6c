"""The machine's own file system as a `Disk`: the only module of the log that makes system calls for files.

Every failure is an `OSError` that names the path, even if the system call got only a descriptor. A path that cannot be
inspected (permission, I/O error) is never treated as missing.

A file is opened in append mode, so that no write ever overwrites older bytes. `read_at` and `sync` are thread-safe; the
owner closes a file only when no other thread is in one of them, because the system reuses descriptors.

Locks are POSIX record locks on the whole file, the kind that a JVM takes, so that a Kafka broker on the same directory
is locked out, too. The system manages them per process: it would grant a second one to the same process, and drop both
when any descriptor of the file is closed. So the locks of this process are remembered here, and checked before a lock
file is opened again.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ottla.base.disk import Buffer, File, Lock, SyncFailedError

_PARTS_MAX: Final = os.sysconf("SC_IOV_MAX")
_SMALL_BYTES: Final = 4096
"""Up to this size a file is read in one call instead of mapped: a map costs at least a page, and more calls."""
_PIECE_BYTES: Final = 2**20
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)

_locks_guard = threading.Lock()
_locks_held: set[tuple[int, int]] = set()
"""Device and inode of each lock file that this process holds; guarded by `_locks_guard`."""


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Adds the path to an error of a call that got only a descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _open(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o644)


def _write_rest(descriptor: int, data: Buffer, written: int) -> Iterator[int]:
    """Writes what a first call left over; yields the number of bytes of each further call."""
    with memoryview(data) as whole, whole.cast("B") as octets:
        while written < len(octets):
            count = os.write(descriptor, octets[written:])
            written += count
            yield count


def _read_all(descriptor: int) -> bytes:
    data = os.read(descriptor, _SMALL_BYTES)
    piece = os.read(descriptor, _PIECE_BYTES) if data else b""
    if not piece:
        return data
    pieces = [data]
    while piece:
        pieces.append(piece)
        piece = os.read(descriptor, _PIECE_BYTES)
    return b"".join(pieces)


def _sync(descriptor: int) -> None:
    # fdatasync also writes the size of a file, but not its times. macOS does not have it.
    if sys.platform == "linux":
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


class LocalFile:
    """An open file that tracks its own size."""

    __slots__ = ("_descriptor", "_path", "_size")

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    def __repr__(self) -> str:
        return f"LocalFile({str(self._path)!r}, size={self._size})"

    @property
    def path(self) -> Path:
        return self._path

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the file is closed", str(self._path))
        return self._descriptor

    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> None:
        try:
            written = os.write(self._descriptor, data)
            self._size += written
            if written != (data.nbytes if isinstance(data, memoryview) else len(data)):
                for count in _write_rest(self._descriptor, data, written):
                    self._size += count
        except OSError as error:
            error.filename = str(self._path)
            raise

    def append_all(self, parts: Sequence[Buffer]) -> None:
        with _naming(self._path):
            for start in range(0, len(parts), _PARTS_MAX):
                self._append_some(parts[start : start + _PARTS_MAX])

    def _append_some(self, parts: Sequence[Buffer]) -> None:
        written = os.writev(self._descriptor, parts)
        self._size += written
        for part in parts:
            part_size = memoryview(part).nbytes
            if written < part_size:
                for count in _write_rest(self._descriptor, part, written):
                    self._size += count
            written = max(0, written - part_size)

    def read_at(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or position + len(data) == self._size:
                return data
            pieces = [data]
            remaining = size - len(data)
            while data and remaining:
                position += len(data)
                data = os.pread(self._descriptor, remaining, position)
                remaining -= len(data)
                pieces.append(data)
            return b"".join(pieces)
        except OSError as error:
            error.filename = str(self._path)
            raise

    def truncate(self, size: int) -> None:
        if not 0 <= size <= self._size:
            raise ValueError(f"{self._path}: cannot be cut to {size} bytes, it has {self._size}")
        with _naming(self._path):
            os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        descriptor = self.fileno()
        try:
            _sync(descriptor)
        except OSError as error:
            raise SyncFailedError(error.errno, error.strerror, str(self._path)) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                error.filename = str(self._path)
                raise


class LocalLock:
    """A lock file that is held open."""

    __slots__ = ("_descriptor", "_identity")

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._descriptor = descriptor
        self._identity = identity

    def release(self) -> None:
        with _locks_guard:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                _locks_held.discard(self._identity)
                os.close(descriptor)


class LocalDisk:
    """The file system of this machine. Stateless: any thread may use it, but only one at a time for the same path."""

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False) -> File:
        descriptor = _open(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0))
        try:
            return LocalFile(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def map(self, path: Path) -> memoryview:
        """The current bytes of the file; a small file is read. The map is released with its last view. Truncating the
        file below what is still being read would kill the process."""
        descriptor = _open(path, os.O_RDONLY)
        try:
            with _naming(path):
                size = os.fstat(descriptor).st_size
                if size <= _SMALL_BYTES:
                    return memoryview(_read_all(descriptor))
                if sys.version_info >= (3, 13):  # earlier versions keep a copy of the descriptor
                    return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False))
                return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)

    def read(self, path: Path) -> bytes:
        descriptor = _open(path, os.O_RDONLY)
        try:
            return _read_all(descriptor)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            os.close(descriptor)

    def write(self, path: Path, data: Buffer) -> None:
        self._write(path, data, synced=False)

    def write_atomically(self, path: Path, data: Buffer) -> None:
        temporary = path.with_name(path.name + ".tmp")
        try:
            self._write(temporary, data, synced=True)
            temporary.replace(path)
        except OSError:
            # On a full disk the partial file would take space that everything else needs.
            with suppress(OSError):
                temporary.unlink()
            raise
        self.sync_directory(path.parent)

    def _write(self, path: Path, data: Buffer, *, synced: bool) -> None:
        descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            for _ in _write_rest(descriptor, data, 0):
                pass
            if synced:
                _sync(descriptor)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            os.close(descriptor)

    def exists(self, path: Path) -> bool:
        try:
            path.stat()
        except _ABSENT:
            return False
        return True

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def list(self, directory: Path) -> list[str]:
        with os.scandir(directory) as entries:  # `iterdir` creates a Path for each
            return sorted([entry.name for entry in entries])

    def is_directory(self, path: Path) -> bool:
        try:
            return stat.S_ISDIR(path.stat().st_mode)
        except _ABSENT:
            return False

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        with suppress(*_ABSENT):
            path.unlink()

    def remove_directory(self, path: Path) -> None:
        while self.exists(path):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                # Another process removed one of its files meanwhile: continue with the others.
                continue

    def sync_directory(self, path: Path) -> None:
        descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise SyncFailedError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> Lock:
        with _locks_guard:
            if self.exists(path):
                status = path.stat()
                if (status.st_dev, status.st_ino) in _locks_held:
                    raise BlockingIOError(errno.EAGAIN, "locked by this process", str(path))
            descriptor = _open(path, os.O_RDWR | os.O_CREAT)
            try:
                with _naming(path):
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    status = os.fstat(descriptor)
            except OSError as error:
                os.close(descriptor)
                if error.errno in (errno.EACCES, errno.EAGAIN):  # POSIX allows either
                    raise BlockingIOError(errno.EAGAIN, "locked by another process", str(path)) from None
                raise
            identity = (status.st_dev, status.st_ino)
            _locks_held.add(identity)
            return LocalLock(descriptor, identity)
