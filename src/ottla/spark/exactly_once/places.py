"""Places: a small number per Python worker of a machine, which nobody else has while the worker lives.

Transactional ids that begin with a place are used by one worker only, whatever becomes of it: a new user of an id
aborts the open transaction of the last one, and a task that comes back late must not do that to the task that replaced
it. A number per machine, and not a random one per worker, keeps the ids few, because workers come and go.

A place is a locked file; the system unlocks it when the worker ends, in whatever way. What the worker has used in the
present batch is written in it, so that the next one that gets the place does not use it again: the worker may have
been killed after Spark knew that its task had succeeded. If somebody deletes the file, another worker makes a new one
of that number: so the name of a place also has the number of its inode, which is not given away while it is open.

A worker has one thread that runs tasks. On systems without such locks, a place is a random text.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_RECENT: Final = 32
"""The numbers of so many scopes are kept: less than a page, which the system writes completely or not at all, even if
the worker is killed."""
_FORGOTTEN: Final = ""
"""The scope of what is not kept."""


class Place:
    """Of this process, from `take` on until it ends."""

    def __init__(self, name: str, file: int | None) -> None:
        self.name = name
        self._file = file
        self._used: dict[str, tuple[int, int]] = {} if file is None else _read(file)

    @classmethod
    def take(cls, directory: Path | None = None) -> Place:
        """The first free place."""
        if fcntl is None:
            return cls(uuid.uuid4().hex[:12], None)
        folder = _folder() if directory is None else directory
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.getuid():
                raise OSError(f"{folder} belongs to somebody else")
            machine = _machine(folder)
            number = 0
            while True:
                file = os.open(folder / f"{number}.place", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return cls(f"{machine}-{number}-{os.fstat(file).st_ino:x}", file)
                except (BlockingIOError, ValueError):  # somebody's, or damaged
                    os.close(file)
                    number += 1
        except OSError:
            return cls(uuid.uuid4().hex[:12], None)

    def next_number(self, scope: str, batch: int) -> int:
        """A number that this place has not used in the batch of the scope: a run of a query, or one write."""
        used = self._used
        last_batch, last = used.pop(scope, (batch, used.get(_FORGOTTEN, (0, -1))[1]))
        number = last + 1 if last_batch == batch else 0
        used[scope] = batch, number
        while len(used) > _RECENT:
            oldest = next(one for one in used if one != _FORGOTTEN)
            used[_FORGOTTEN] = 0, max(used.pop(oldest)[1], used.get(_FORGOTTEN, (0, -1))[1])
        if self._file is not None:
            text = json.dumps(used, separators=(",", ":")).encode()
            os.pwrite(self._file, text.ljust(os.fstat(self._file).st_size), 0)
        return number

    def leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


_mine: tuple[int, Place] | None = None


def place_of_this_process() -> Place:
    """Taken once. A forked child takes its own."""
    global _mine
    pid = os.getpid()
    if _mine is None or _mine[0] != pid:
        _mine = pid, Place.take()
    return _mine[1]


def _folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else os.getlogin()
    return Path(tempfile.gettempdir()) / f"ottla-spark-{user}"


def _machine(folder: Path) -> str:
    """A text for this directory, since the machine has started: after a crash the files may be old."""
    boot = "unknown"
    with suppress(OSError):
        boot = _BOOT.read_text().strip().replace("-", "")[:8]
    file = folder / f"machine-{boot}"
    with suppress(FileExistsError):
        unfinished = folder / f".machine-{uuid.uuid4().hex}"
        unfinished.write_text(uuid.uuid4().hex[:8])
        try:
            os.link(unfinished, file)
        finally:
            unfinished.unlink()
    return file.read_text()


def _read(file: int) -> dict[str, tuple[int, int]]:
    """What the last holders used; nothing if the file is new."""
    text = os.pread(file, 1 << 20, 0)
    if not text:
        return {}
    return {str(scope): (int(batch), int(number)) for scope, (batch, number) in json.loads(text).items()}
