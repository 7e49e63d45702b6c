"""The contents of a simulated disk, and what a power cut leaves of them.

Each file and each folder has a visible state, a durable state, and the changes in between, in order. A power cut keeps
the durable state and a prefix of the changes; `simulated_disk` describes the fault model.
"""

from __future__ import annotations

from enum import Enum
from random import Random


class Survival(Enum):
    """How much unsynced data survives a power cut."""

    SEEDED = "seeded"
    """Any part that the fault model allows, chosen by the seed."""
    NOTHING = "nothing"
    """None: the cache was never written back."""
    EVERYTHING = "everything"
    """All: the cache was written back in time; also what a killed process leaves on a running machine."""


class FileNode:
    """A file's bytes. `content` is what readers see."""

    __slots__ = ("_safe", "_unsynced", "content", "modified_ms")

    def __init__(self, content: bytes, modified_ms: int) -> None:
        self.content = bytearray(content)
        self.modified_ms = modified_ms
        self._safe = bytearray(content)
        self._unsynced: list[bytearray | int] = []
        """Appended bytes, or the size after a truncation."""

    def append(self, data: bytes) -> None:
        self.content += data
        self._unsynced.append(bytearray(data))

    def truncate(self, size: int) -> None:
        del self.content[size:]
        self._unsynced.append(size)

    def sync(self) -> None:
        for change in self._unsynced:
            _apply(self._safe, change)
        self._unsynced.clear()

    def fail_to_sync(self, random: Random) -> None:
        """The system reports the failure once and drops what it could not write: a later sync succeeds without it. From
        some byte on, the unsynced bytes are stored as zeros."""
        sizes = [len(change) for change in self._unsynced if isinstance(change, bytearray)]
        written = random.randint(0, sum(sizes))
        for change in self._unsynced:
            if isinstance(change, bytearray):
                kept = min(written, len(change))
                change[kept:] = bytes(len(change) - kept)
                written -= kept

    def flip_bit(self, position: int, bit: int) -> None:
        """Flips it in the cache and on the platter, wherever the byte is now."""
        mask = 1 << bit
        self.content[position] ^= mask
        holder, start, size = self._safe, 0, len(self._safe)
        for change in self._unsynced:
            if isinstance(change, int):
                size = change
            else:
                if size <= position < size + len(change):
                    holder, start = change, size
                size += len(change)
        holder[position - start] ^= mask

    def after_power_cut(self, random: Random, survival: Survival, zeroed: bool) -> FileNode:
        kept = bytearray(self._safe)
        if self._unsynced and survival is not Survival.NOTHING:
            count = len(self._unsynced) if survival is Survival.EVERYTHING else _part(random, len(self._unsynced))
            certain = len(kept)
            for change in self._unsynced[:count]:
                _apply(kept, change)
                certain = min(certain, len(kept))
            if count < len(self._unsynced):
                torn = self._unsynced[count]
                if isinstance(torn, bytearray):
                    kept += torn[: random.randint(0, len(torn))]
            if zeroed and survival is Survival.SEEDED and certain < len(kept) and random.random() < 0.25:
                start = random.randrange(certain, len(kept))
                end = random.choice((len(kept), random.randint(start, len(kept))))
                kept[start:end] = bytes(end - start)
        return FileNode(bytes(kept), self.modified_ms)


class FolderNode:
    """A folder's names. `entries` is what readers see."""

    __slots__ = ("_safe", "_unsynced", "entries", "modified_ms")

    def __init__(self, entries: dict[str, Node], modified_ms: int) -> None:
        self.entries = dict(entries)
        self.modified_ms = modified_ms
        self._safe = dict(entries)
        self._unsynced: list[dict[str, Node | None]] = []

    def change(self, entries: dict[str, Node | None]) -> None:
        """Changes all of these atomically; None removes a name."""
        _rename(self.entries, entries)
        self._unsynced.append(entries)

    def sync(self) -> None:
        for change in self._unsynced:
            _rename(self._safe, change)
        self._unsynced.clear()

    def after_power_cut(self, random: Random, survival: Survival, zeroed: bool) -> FolderNode:
        kept = dict(self._safe)
        count = {
            Survival.SEEDED: _part(random, len(self._unsynced)),
            Survival.NOTHING: 0,
            Survival.EVERYTHING: len(self._unsynced),
        }[survival]
        for change in self._unsynced[:count]:
            _rename(kept, change)
        survivors = {name: node.after_power_cut(random, survival, zeroed) for name, node in kept.items()}
        return FolderNode(survivors, self.modified_ms)


Node = FileNode | FolderNode


def _part(random: Random, count: int) -> int:
    """None, all, all but the last (which may then be torn), or any number: the first three find the most bugs."""
    return random.choice((0, count, max(0, count - 1), random.randint(0, count)))


def _apply(content: bytearray, change: bytearray | int) -> None:
    if isinstance(change, int):
        del content[change:]
    else:
        content += change


def _rename(entries: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
