"""A disk in memory that loses, tears, refuses and rots, reproducibly by seed. It keeps the contract of `Disk`.

The fault model
1. A power cut (`crash`, or `crash_before` a step) takes what was not synced.
   - A file keeps its state of the last `sync` and some first part of the changes since; if the first change that is
     lost is an append, it may be torn at any byte. An unsynced truncation has happened or not, but nothing after it
     without it.
   - Among the bytes appended since, a stretch may read as zeros (`zeroed`): the size was written, a page was not.
   - A folder keeps its names of the last `sync_directory` and some first part of the creations, renames and removals
     since, each wholly or not at all. A file that was synced is lost all the same if its name was not.
   - Files and folders lose independently of each other, whatever the order in time.
   - Locks are gone. Files that were open stay dead for ever, also after `restart`.
2. An operation can be made to fail (`fail`): the n-th, or those that a predicate picks, with EIO, ENOSPC or any errno.
   Of an append that fails a part may have been written. After a sync that failed, some of what it should have made safe
   never will be: the next sync succeeds without it, as on Linux.
3. A bit can be flipped (`flip_bit`), in the cache and on the platter at once.

Left out: reads that are wrong once, writes that go astray, and renames from folder to folder, which fail with EXDEV as
between two mounts.

From the crash on every operation raises `CrashedError` until `restart`. Only closing a file and releasing a lock go
through silently: they change nothing that is kept.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from ottla.base.clock import Clock
from ottla.base.disk import Buffer, File, Lock, SyncFailedError
from ottla.testing.disk_faults import LOOKS, CrashedError, DiskOperation, Fault, Predicate, disk_error
from ottla.testing.manual_clock import ManualClock
from ottla.testing.platter import FileNode, FolderNode, Node, Survival

__all__ = [
    "CrashedError",
    "DiskOperation",
    "Fault",
    "SimulatedDisk",
    "SimulatedFile",
    "Survival",
    "crash_at_every_step",
]

State = TypeVar("State")


class SimulatedFile:
    """A file of a `SimulatedDisk`, dead from the crash of its disk on."""

    __slots__ = ("_closed", "_disk", "_life", "_node", "_path")

    def __init__(self, disk: SimulatedDisk, path: Path, node: FileNode) -> None:
        self._disk = disk
        self._life = disk.crashes
        self._path = path
        self._node = node
        self._closed = False

    def __repr__(self) -> str:
        return f"SimulatedFile({str(self._path)!r}, size={self.size()})"

    @property
    def path(self) -> Path:
        return self._path

    def fileno(self) -> int:
        raise disk_error(errno.EBADF if self._closed else errno.ENOTSUP, self._path)

    def size(self) -> int:
        return len(self._node.content)

    def append(self, data: Buffer) -> None:
        self.append_all((data,))

    def append_all(self, parts: Sequence[Buffer]) -> None:
        with self._disk.guard:
            self._check()
            self._disk._append(self._path, self._node, b"".join(parts))

    def read_at(self, position: int, size: int) -> bytes:
        with self._disk.guard:
            self._check()
            self._disk._begin(DiskOperation.READ, self._path)
            if position < 0:
                raise disk_error(errno.EINVAL, self._path)
            return bytes(self._node.content[position : position + size])

    def truncate(self, size: int) -> None:
        with self._disk.guard:
            self._check()
            if not 0 <= size <= self.size():
                raise ValueError(f"{self._path}: cannot be cut to {size} bytes, it has {self.size()}")
            self._disk._truncate(self._path, self._node, size)

    def sync(self) -> None:
        with self._disk.guard:
            self._check()
            try:
                self._disk._sync(self._path, self._node)
            except OSError as error:
                raise SyncFailedError(error.errno, error.strerror, error.filename) from error

    def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._disk.crashes != self._life:
            raise CrashedError(f"{self._path} was open when the machine crashed")
        if self._closed:
            raise disk_error(errno.EBADF, self._path)


class SimulatedLock:
    """A lock of a `SimulatedDisk`."""

    __slots__ = ("_locked", "_node")

    def __init__(self, locked: set[FileNode], node: FileNode) -> None:
        self._locked = locked
        self._node: FileNode | None = node

    def release(self) -> None:
        if self._node is not None:
            self._locked.discard(self._node)
            self._node = None


class SimulatedDisk:
    """See the module. Any thread may use it; for the seed to reproduce, the threads must take their turns.

    `before` is called ahead of every operation with the operation and its path. It may raise, or `crash` the disk; what
    it does with the disk itself is neither counted nor struck.
    """

    def __init__(self, seed: int = 0, *, clock: Clock | None = None, zeroed: bool = True) -> None:
        self.before: Callable[[DiskOperation, Path], None] | None = None
        self.clock: Clock = clock if clock is not None else ManualClock()
        self.steps = 0
        """Operations so far that change what is kept."""
        self.crashes = 0
        self.guard = threading.RLock()
        self._random = Random(seed)
        self._zeroed = zeroed
        self._root = FolderNode({}, self.clock.now_ms())
        self._faults: list[Fault] = []
        self._locked: set[FileNode] = set()
        self._crash_step: int | None = None
        self._crash_survival = Survival.SEEDED
        self._off = False
        self._in_hook = False

    # What a test does to it

    @property
    def is_off(self) -> bool:
        """Crashed, and not yet restarted."""
        return self._off

    def crash(self, survival: Survival = Survival.SEEDED) -> None:
        """Cuts the power now. Does not raise itself: the next operation does."""
        with self.guard:
            # New nodes throughout: locks and open files still point to the old ones.
            self._root = self._root.after_power_cut(self._random, survival, self._zeroed)
            self._crash_step = None
            self._off = True
            self.crashes += 1

    def crash_before(self, step: int, survival: Survival = Survival.SEEDED) -> None:
        """Cuts the power when `steps` has come to this number and one more step begins."""
        if step < self.steps:
            raise ValueError(f"step {step} is over, {self.steps} have been made")
        self._crash_step = step
        self._crash_survival = survival

    def restart(self) -> None:
        """Shows what the crash has left. Waiting faults are forgotten. Crashes first if it has not."""
        with self.guard:
            if not self._off:
                self.crash()
            self._off = False
            self._faults.clear()

    def after_crash(self, seed: int, survival: Survival = Survival.SEEDED) -> SimulatedDisk:
        """Another disk, as a crash would leave this one now; this one goes on. To try many crashes of one moment."""
        with self.guard:
            other = SimulatedDisk(seed, clock=self.clock, zeroed=self._zeroed)
            other._root = self._root.after_power_cut(other._random, survival, self._zeroed)
            return other

    def fail(
        self,
        code: int = errno.EIO,
        *,
        when: Predicate | DiskOperation | None = None,
        skipped: int = 0,
        times: int | None = 1,
    ) -> Fault:
        """Lets operations fail with this errno: those that `when` picks, but for the first `skipped` of them, so many
        `times`, or until `heal` if None. Without `when` any is picked; for ENOSPC, any that needs space."""
        fault = Fault(code, when, skipped, times)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Takes all faults back."""
        self._faults.clear()

    def flip_bit(self, path: Path, position: int | None = None, bit: int | None = None) -> int:
        """At the position, which is returned; position and bit are drawn where not given."""
        with self.guard:
            node = self._file(path)
            chosen = self._random.randrange(len(node.content)) if position is None else position
            node.flip_bit(chosen, self._random.randrange(8) if bit is None else bit)
            return chosen

    def sync_all(self) -> None:
        """Makes safe all there is, uncounted: for what a test wants to find in place."""
        with self.guard:
            for _, node in _walk(Path("/"), self._root):
                node.sync()

    def contents(self) -> dict[Path, bytes]:
        """Every file with its bytes as they are seen now, uncounted."""
        with self.guard:
            return {
                path: bytes(node.content) for path, node in _walk(Path("/"), self._root) if isinstance(node, FileNode)
            }

    # What the code under test does with it

    def open(self, path: Path, *, create: bool = False) -> File:
        with self.guard:
            self._check()
            if create and self._seek(path) is None:
                return SimulatedFile(self, path, self._create(path))
            self._begin(DiskOperation.OPEN, path)
            return SimulatedFile(self, path, self._file(path))

    def map(self, path: Path) -> memoryview:
        with self.guard:
            self._begin(DiskOperation.MAP, path)
            return memoryview(bytes(self._file(path).content))

    def read(self, path: Path) -> bytes:
        with self.guard:
            self._begin(DiskOperation.READ, path)
            return bytes(self._file(path).content)

    def write(self, path: Path, data: Buffer) -> None:
        with self.guard:
            self._write(path, data)

    def write_atomically(self, path: Path, data: Buffer) -> None:
        temporary = path.with_name(path.name + ".tmp")
        with self.guard:
            try:
                self._sync(temporary, self._write(temporary, data))
                self.replace(temporary, path)
            except OSError as failure:
                try:
                    self.remove(temporary)
                except OSError:
                    raise failure from None
                raise
            self.sync_directory(path.parent)

    def exists(self, path: Path) -> bool:
        with self.guard:
            self._begin(DiskOperation.STAT, path)
            return self._seek(path) is not None

    def size(self, path: Path) -> int:
        with self.guard:
            self._begin(DiskOperation.STAT, path)
            node = self._node(path)
            return len(node.content) if isinstance(node, FileNode) else 0

    def modified_ms(self, path: Path) -> int:
        with self.guard:
            self._begin(DiskOperation.STAT, path)
            return self._node(path).modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """No step: what a crash leaves of a time is not simulated."""
        with self.guard:
            self._begin(DiskOperation.STAT, path)
            self._node(path).modified_ms = modified_ms

    def list(self, directory: Path) -> list[str]:
        with self.guard:
            self._begin(DiskOperation.LIST, directory)
            return sorted(self._folder(directory).entries)

    def is_directory(self, path: Path) -> bool:
        with self.guard:
            self._begin(DiskOperation.STAT, path)
            return isinstance(self._seek(path), FolderNode)

    def make_directory(self, path: Path) -> None:
        with self.guard:
            self._check()
            node = self._seek(path)
            if isinstance(node, FileNode):
                raise disk_error(errno.EEXIST, path)
            if node is None:
                if self._seek(path.parent) is None:
                    self.make_directory(path.parent)
                self._begin(DiskOperation.MAKE_DIRECTORY, path)
                self._change(path.parent, {path.name: FolderNode({}, self.clock.now_ms())})

    def replace(self, source: Path, target: Path) -> None:
        with self.guard:
            self._begin(DiskOperation.REPLACE, target)
            node = self._node(source)
            replaced = self._folder(target.parent).entries.get(target.name)
            if source.parent != target.parent:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))
            if isinstance(node, FileNode) and isinstance(replaced, FolderNode):
                raise disk_error(errno.EISDIR, target)
            if isinstance(node, FolderNode) and isinstance(replaced, FileNode):
                raise disk_error(errno.ENOTDIR, target)
            if isinstance(replaced, FolderNode) and replaced.entries:
                raise disk_error(errno.ENOTEMPTY, target)
            if replaced is not node:
                self._change(target.parent, {source.name: None, target.name: node})

    def remove(self, path: Path) -> None:
        with self.guard:
            self._begin(DiskOperation.REMOVE, path)
            node = self._seek(path)
            if isinstance(node, FolderNode):
                raise disk_error(errno.EISDIR, path)
            if node is not None:
                self._change(path.parent, {path.name: None})

    def remove_directory(self, path: Path) -> None:
        with self.guard:
            self._check()
            if self._seek(path) is not None:
                for name, node in sorted(self._folder(path).entries.items()):
                    if isinstance(node, FolderNode):
                        self.remove_directory(path / name)
                    else:
                        self.remove(path / name)
                self._begin(DiskOperation.REMOVE_DIRECTORY, path)
                self._change(path.parent, {path.name: None})

    def sync_directory(self, path: Path) -> None:
        with self.guard:
            error = self._strike(DiskOperation.SYNC_DIRECTORY, path)
            if error is not None:
                raise SyncFailedError(error.errno, error.strerror, error.filename) from error
            self._folder(path).sync()

    def lock(self, path: Path) -> Lock:
        with self.guard:
            self._begin(DiskOperation.LOCK, path)
            node = self._create(path) if self._seek(path) is None else self._file(path)
            if node in self._locked:
                raise disk_error(errno.EAGAIN, path)
            self._locked.add(node)
            return SimulatedLock(self._locked, node)

    # What both stand on. The guard is held

    def _check(self) -> None:
        if self._off:
            raise CrashedError("the machine is off until it is restarted")

    def _strike(self, operation: DiskOperation, path: Path) -> OSError | None:
        """Counts an operation that begins; tells how it shall fail, if it shall."""
        self._check()
        if self._in_hook:
            return None
        if self.before is not None:
            self._in_hook = True
            try:
                self.before(operation, path)
            finally:
                self._in_hook = False
            self._check()
        if operation not in LOOKS:
            if self.steps == self._crash_step:
                self.crash(self._crash_survival)
                raise CrashedError(f"the power was cut before step {self.steps}: {operation.value} {path}")
            self.steps += 1
        for fault in self._faults:
            error = fault.strike(operation, path)
            if error is not None:
                return error
        return None

    def _begin(self, operation: DiskOperation, path: Path) -> None:
        error = self._strike(operation, path)
        if error is not None:
            raise error

    def _create(self, path: Path) -> FileNode:
        self._begin(DiskOperation.CREATE, path)
        node = FileNode(b"", self.clock.now_ms())
        self._change(path.parent, {path.name: node})
        return node

    def _append(self, path: Path, node: FileNode, data: bytes) -> None:
        error = self._strike(DiskOperation.APPEND, path)
        if error is not None:
            data = data[: self._random.randrange(max(1, len(data)))]
        if data:
            node.append(data)
            node.modified_ms = self.clock.now_ms()
        if error is not None:
            raise error

    def _truncate(self, path: Path, node: FileNode, size: int) -> None:
        self._begin(DiskOperation.TRUNCATE, path)
        node.truncate(size)
        node.modified_ms = self.clock.now_ms()

    def _sync(self, path: Path, node: FileNode) -> None:
        error = self._strike(DiskOperation.SYNC, path)
        if error is not None:
            node.fail_to_sync(self._random)
            raise error
        node.sync()

    def _write(self, path: Path, data: Buffer) -> FileNode:
        self._check()
        if self._seek(path) is None:
            node = self._create(path)
        else:
            node = self._file(path)
            if node.content:
                self._truncate(path, node, 0)
        self._append(path, node, bytes(data))
        return node

    def _change(self, directory: Path, entries: dict[str, Node | None]) -> None:
        folder = self._folder(directory)
        folder.change(entries)
        folder.modified_ms = self.clock.now_ms()

    def _seek(self, path: Path) -> Node | None:
        try:
            return self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _node(self, path: Path) -> Node:
        node: Node | None = self._root
        for part in path.relative_to(path.anchor).parts:
            if isinstance(node, FileNode):
                raise disk_error(errno.ENOTDIR, path)
            node = node.entries.get(part) if node is not None else None
        if node is None:
            raise disk_error(errno.ENOENT, path)
        return node

    def _file(self, path: Path) -> FileNode:
        node = self._node(path)
        if isinstance(node, FolderNode):
            raise disk_error(errno.EISDIR, path)
        return node

    def _folder(self, path: Path) -> FolderNode:
        node = self._node(path)
        if isinstance(node, FileNode):
            raise disk_error(errno.ENOTDIR, path)
        return node


def _walk(path: Path, node: Node) -> Iterator[tuple[Path, Node]]:
    yield path, node
    if isinstance(node, FolderNode):
        for name, child in node.entries.items():
            yield from _walk(path / name, child)


def crash_at_every_step(
    run: Callable[[SimulatedDisk, State], object],
    state: Callable[[], State],
    *,
    make: Callable[[int], SimulatedDisk] = SimulatedDisk,
    seed: int = 0,
    stride: int = 1,
    survival: Survival = Survival.SEEDED,
) -> Iterator[tuple[SimulatedDisk, State]]:
    """Runs the same again and again, and cuts the power one step (or `stride` steps) later each time, the last time
    after its end. Yields each disk, restarted, with what the run has noted in its fresh `state`: what was promised to
    survive, say. What `make`, called with a seed of its own each time, does to the disk is not crashed."""
    step = 0
    finished = False
    while not finished:
        disk = make(seed + step)
        noted = state()
        disk.crash_before(disk.steps + step, survival)
        try:
            run(disk, noted)
            finished = True
        except CrashedError:
            pass
        if finished and disk.is_off:
            raise RuntimeError("the code that was run has swallowed a CrashedError")
        if finished:
            disk.crash(survival)
        disk.restart()
        yield disk, noted
        step += stride
