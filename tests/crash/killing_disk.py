"""A disk that kills the process that uses it, at a chosen one of its operations, amid the write if it is one."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ottla.base.disk import Buffer, File
from ottla.log.local_disk import LocalDisk

KINDS = ("any", "create", "append", "truncate", "sync", "write", "replace", "remove", "sync_directory")


@dataclass
class Fate:
    """Kills before the `remaining`-th operation of a kind. `share` is how much of a write still happens."""

    kind: str
    remaining: int
    share: float

    @classmethod
    def draw(cls, random: Random) -> Fate:
        kind = random.choice(KINDS)
        return cls(kind, random.randint(1, 150 if kind in ("any", "append") else 12), random.random())

    def strikes(self, kind: str) -> bool:
        if self.kind in ("any", kind):
            self.remaining -= 1
        return self.remaining == 0

    def step(self, kind: str) -> None:
        if self.strikes(kind):
            die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillingFile:
    """A file whose changes count."""

    def __init__(self, file: File, fate: Fate) -> None:
        self._file = file
        self._fate = fate

    @property
    def path(self) -> Path:
        return self._file.path

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return self._file.size()

    def append(self, data: Buffer) -> None:
        if self._fate.strikes("append"):
            self._file.append(data[: int(len(data) * self._fate.share)])
            die()
        self._file.append(data)

    def append_all(self, parts: Sequence[Buffer]) -> None:
        self.append(b"".join(parts))

    def read_at(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def truncate(self, size: int) -> None:
        self._fate.step("truncate")
        self._file.truncate(size)

    def sync(self) -> None:
        self._fate.step("sync")
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class KillingDisk(LocalDisk):
    """The real file system; what changes it counts."""

    __slots__ = ("fate",)

    def __init__(self, fate: Fate) -> None:
        self.fate = fate

    def open(self, path: Path, *, create: bool = False) -> File:
        if create and not self.exists(path):
            self.fate.step("create")
        return KillingFile(super().open(path, create=create), self.fate)

    def write(self, path: Path, data: Buffer) -> None:
        if self.fate.strikes("write"):
            super().write(path, data[: int(len(data) * self.fate.share)])
            die()
        super().write(path, data)

    def write_atomically(self, path: Path, data: Buffer) -> None:
        temporary = path.with_name(path.name + ".tmp")
        self.write(temporary, data)
        file = self.open(temporary)
        file.sync()
        file.close()
        self.replace(temporary, path)
        self.sync_directory(path.parent)

    def replace(self, source: Path, target: Path) -> None:
        self.fate.step("replace")
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        self.fate.step("remove")
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self.fate.step("sync_directory")
        super().sync_directory(path)
