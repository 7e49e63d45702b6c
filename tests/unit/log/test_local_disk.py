"""What is particular to the real file system; what it shares with every disk is in the contract."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.base.disk import Buffer
from ottla.log.local_disk import LocalDisk

LOCK_OF_ANOTHER_PROCESS = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("refused", flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""


def contender(path: Path) -> subprocess.Popen[str]:
    """A process that takes the lock as a JVM does, says whether it got it, and holds it until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", LOCK_OF_ANOTHER_PROCESS, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise RuntimeError("the process has no output")
    return process.stdout.readline().strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def disk() -> LocalDisk:
    return LocalDisk()


def open_descriptors() -> set[str]:
    return set(os.listdir("/dev/fd"))  # noqa: PTH208


def test_another_process_keeps_this_one_out_until_it_ends(disk: LocalDisk, folder: Path) -> None:
    with contender(folder / ".lock") as process:
        assert outcome(process) == "held"
        before = open_descriptors()
        with pytest.raises(BlockingIOError, match="another process") as caught:
            disk.lock(folder / ".lock")
        assert caught.value.filename == str(folder / ".lock")
        assert open_descriptors() == before
        process.kill()
    disk.lock(folder / ".lock").release()


def test_this_process_keeps_another_out_even_after_trying_twice(disk: LocalDisk, folder: Path) -> None:
    lock = disk.lock(folder / ".lock")
    with pytest.raises(BlockingIOError, match="this process"):
        disk.lock(folder / ".lock")
    (folder / "alias").symlink_to(folder)
    with pytest.raises(BlockingIOError, match="this process"):
        disk.lock(folder / "alias" / ".lock")
    with contender(folder / ".lock") as process:
        assert outcome(process) == "refused"
    lock.release()
    with contender(folder / ".lock") as process:
        assert outcome(process) == "held"


@contextmanager
def short_writes(monkeypatch: pytest.MonkeyPatch, most: int) -> Iterator[list[int]]:
    """A system that writes at most so many bytes a call, as one may that is interrupted or nearly full."""
    calls: list[int] = []
    write = os.write

    def write_some(descriptor: int, data: Buffer) -> int:
        octets = memoryview(data).cast("B")[:most]
        calls.append(len(octets))
        return write(descriptor, octets)

    def write_some_parts(descriptor: int, parts: Sequence[Buffer]) -> int:
        return write_some(descriptor, b"".join(parts))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_some)
        patch.setattr(os, "writev", write_some_parts)
        yield calls


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
def test_a_write_that_was_cut_short_is_continued(
    disk: LocalDisk, folder: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    file = disk.open(folder / "file", create=True)
    with short_writes(monkeypatch, most) as calls:
        file.append(b"abcd")
        assert file.size() == 4
        file.append(memoryview(b"efgh").cast("I"))
        file.append_all([b"ij", b"", b"klm", memoryview(b"nopq").cast("H"), b"r"])
        assert file.size() == 18
        disk.write(folder / "other", b"0123456789")
    assert max(calls) <= most
    assert disk.read(folder / "file") == b"abcdefghijklmnopqr"
    assert disk.read(folder / "other") == b"0123456789"
    file.close()


def test_a_read_that_was_cut_short_is_continued(disk: LocalDisk, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(folder / "file", create=True)
    file.append(b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, position: pread(descriptor, min(size, 3), position))
    assert file.read_at(1, 8) == b"12345678"
    assert file.read_at(4, 100) == b"456789"
    assert file.read_at(0, 0) == b""
    file.close()


@pytest.fixture
def small_files() -> Iterator[int]:
    """No file of this process may grow beyond this size: the system's own way to refuse the rest of a write."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    yield 10_000
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_size_is_right_after_a_write_that_failed_half_way(disk: LocalDisk, folder: Path, small_files: int) -> None:
    path = folder / "file"
    file = disk.open(path, create=True)
    acts: list[Callable[[], object]] = [
        lambda: file.append(bytes(small_files + 1)),
        lambda: file.append_all([bytes(small_files - 1), b"ab", b"c"]),
    ]
    for act in acts:
        with pytest.raises(OSError, match="file") as caught:
            act()
        assert caught.value.errno == errno.EFBIG
        assert caught.value.filename == str(path)
        assert file.size() == disk.size(path) == small_files
        file.truncate(0)
    file.append(b"goes on")
    assert disk.read(path) == b"goes on"
    file.close()


def test_an_atomic_write_that_failed_leaves_the_old_file_alone(disk: LocalDisk, folder: Path, small_files: int) -> None:
    path = folder / "file"
    disk.write_atomically(path, b"old")
    before = open_descriptors()
    with pytest.raises(OSError, match=r"file\.tmp") as caught:
        disk.write_atomically(path, bytes(small_files + 1))
    assert caught.value.errno == errno.EFBIG
    assert disk.list(folder) == ["file"]
    assert disk.read(path) == b"old"
    assert open_descriptors() == before


def test_an_atomic_write_is_synced_before_and_after_the_replace(
    disk: LocalDisk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, list[str]]] = []
    data_sync, sync = os.fdatasync, os.fsync

    def note(call: Callable[[int], None], descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((target.name if target != folder else "the folder", disk.list(folder)))
        call(descriptor)

    monkeypatch.setattr(os, "fdatasync", lambda descriptor: note(data_sync, descriptor))
    monkeypatch.setattr(os, "fsync", lambda descriptor: note(sync, descriptor))
    disk.write_atomically(folder / "file", b"x")
    assert seen == [("file.tmp", ["file.tmp"]), ("the folder", ["file"])]


def test_nothing_stays_open(disk: LocalDisk, folder: Path) -> None:
    before = open_descriptors()
    file = disk.open(folder / "file", create=True)
    file.append(b"abc")
    file.sync()
    file.close()
    disk.write(folder / "other", b"x")
    disk.write_atomically(folder / "other", b"y")
    disk.read(folder / "other")
    disk.map(folder / "file").release()
    disk.sync_directory(folder)
    disk.lock(folder / ".lock").release()
    assert open_descriptors() == before


@pytest.mark.skipif(sys.version_info < (3, 13), reason="mmap keeps a copy of the descriptor before Python 3.13")
def test_a_map_needs_no_descriptor(disk: LocalDisk, folder: Path) -> None:
    content = bytes(range(250)) * 100
    disk.write(folder / "file", content)
    before = open_descriptors()
    view = disk.map(folder / "file")
    assert open_descriptors() == before
    assert bytes(view) == content


def test_the_view_of_a_small_file_needs_no_descriptor(disk: LocalDisk, folder: Path) -> None:
    """Thousands of indexes are looked at, and nearly all have a few entries."""
    disk.write(folder / "file", b"abc")
    before = open_descriptors()
    view = disk.map(folder / "file")
    assert open_descriptors() == before
    assert bytes(view) == b"abc"


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 2**20 + 4096, 3 * 2**20])
def test_files_of_any_size_are_read_and_mapped_whole(disk: LocalDisk, folder: Path, size: int) -> None:
    content = (b"0123456789a" * (size // 11 + 1))[:size]
    disk.write(folder / "file", content)
    assert disk.read(folder / "file") == content
    assert disk.map(folder / "file") == content


def test_descriptors_are_not_inherited(disk: LocalDisk, folder: Path) -> None:
    file = disk.open(folder / "file", create=True)
    assert not os.get_inheritable(file.fileno())
    file.close()


def test_inaccessible_files_are_not_treated_as_missing(disk: LocalDisk, folder: Path) -> None:
    loop = folder / "loop"
    loop.symlink_to(loop)
    acts: list[Callable[[], object]] = [
        lambda: disk.exists(loop),
        lambda: disk.is_directory(loop),
        lambda: disk.open(loop),
    ]
    for act in acts:
        with pytest.raises(OSError, match="loop") as caught:
            act()
        assert caught.value.errno == errno.ELOOP


def test_removing_a_folder_goes_on_where_someone_else_removed_a_file(
    disk: LocalDisk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = folder / "x"
    disk.make_directory(victim)
    for name in ("a", "b", "c"):
        disk.write(victim / name, b"")
    unlink = os.unlink
    interfered: list[str] = []

    def unlink_after_another(path: str, *, dir_fd: int | None = None) -> None:
        if not interfered:
            interfered.append(path)
            unlink(path, dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink_after_another)
    disk.remove_directory(victim)
    assert interfered
    assert not disk.exists(victim)
