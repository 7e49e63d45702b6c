"""What is made once for all workers of a run, since starting Kafka takes seconds."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Once:
    """Makes something in a folder that all workers share; whoever asks first makes it, the others wait for it."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __call__(self, name: str, make: Callable[[Path], T]) -> T:
        """`make` is given an empty folder, and what it returns is pickled for the others."""
        folder, result = self._place / name, self._place / f"{name}.pickle"
        with (self._place / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                if folder.exists():
                    raise RuntimeError(f"making {name} failed before: see the first error")
                folder.mkdir()
                made = make(folder)
                result.write_bytes(pickle.dumps(made))
        loaded: T = pickle.loads(result.read_bytes())
        return loaded
