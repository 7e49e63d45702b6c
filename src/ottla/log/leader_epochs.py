"""Which leader wrote which offsets of a partition (KIP-101): where each leader epoch begins.

Epochs and their start offsets both increase strictly from entry to entry. An epoch ends where the next begins; the last
one ends at the log's end. Leaders and followers compare these to find where their logs diverge.

Belongs to the thread that owns the log. A change is written at once, atomically and synced, unless that is left to
`flush`, which is thread-safe. It may be left to `flush` if opening the log can restore it: epochs of records after the
recovery point, which recovery reads, and epochs beyond the log's ends, which are removed.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from operator import attrgetter
from pathlib import Path
from typing import Final

from ottla.base.disk import Disk
from ottla.log.checkpoints import EpochEntry, LeaderEpochCheckpoint
from ottla.log.names import LEADER_EPOCHS

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1

_epoch = attrgetter("epoch")
_start_offset = attrgetter("start_offset")


class LeaderEpochs:
    """The epochs of one partition, in memory and in `leader-epoch-checkpoint`. Reads the file, unless the caller knows
    that there is none."""

    __slots__ = ("_directory", "_disk", "_entries", "_latest_epoch", "_latest_start", "_writing", "_written")

    def __init__(self, disk: Disk, directory: Path, *, is_new: bool = False) -> None:
        self._disk = disk
        self._directory = directory
        self._writing = threading.Lock()
        self._written: tuple[EpochEntry, ...] = () if is_new else tuple(self._checkpoint().read())
        """The content of the file."""
        entries: list[EpochEntry] = []
        for entry in self._written:
            _push(entries, entry)
        self._set(tuple(entries))

    def _checkpoint(self) -> LeaderEpochCheckpoint:
        return LeaderEpochCheckpoint(self._disk, self._directory / LEADER_EPOCHS)

    def _set(self, entries: tuple[EpochEntry, ...]) -> None:
        self._entries = entries
        self._latest_epoch, self._latest_start = entries[-1] if entries else (UNDEFINED_EPOCH, UNDEFINED_OFFSET)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """Oldest first. Thread-safe."""
        return self._entries

    @property
    def latest_epoch(self) -> int | None:
        """The epoch of the last record, or of a leader that has not written yet."""
        return self._latest_epoch if self._entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int, *, write: bool = True) -> bool:
        """Sets the epoch from this offset on. Costs almost nothing if it is already the current one; a new epoch, or an
        earlier start, replaces entries that contradict it. Returns whether something changed."""
        if epoch == self._latest_epoch and start_offset >= self._latest_start and epoch >= 0:
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: neither may be negative")
        entries = list(self._entries)
        _push(entries, EpochEntry(epoch, start_offset))
        self._replace(tuple(entries), write=write)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns the largest epoch that is not above the requested one, and where it ends.

        (-1, -1) if that is unknown: an undefined epoch, or one above all known ones. For an epoch below all known ones,
        returns that epoch and the start of the first: its records are gone, and the other side begins there.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._latest_epoch:
            return epoch, log_end_offset
        entries = self._entries
        higher = bisect_right(entries, epoch, key=_epoch)
        if higher == len(entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        return entries[higher - 1].epoch if higher else epoch, entries[higher].start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch of the record at this offset; None before the first entry."""
        at = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[at - 1].epoch if at else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The largest known epoch below this one."""
        at = bisect_left(self._entries, epoch, key=_epoch)
        return self._entries[at - 1].epoch if at else None

    def next_epoch(self, epoch: int) -> int | None:
        """The smallest known epoch above this one."""
        at = bisect_right(self._entries, epoch, key=_epoch)
        return self._entries[at].epoch if at < len(self._entries) else None

    def truncate_from_end(self, end_offset: int, *, write: bool = True) -> None:
        """Removes the epochs that begin at or after the offset. Without `write`, `flush` updates the file."""
        if end_offset >= 0:
            self._replace(self._entries[: bisect_left(self._entries, end_offset, key=_start_offset)], write=write)

    def truncate_from_start(self, start_offset: int, *, write: bool = True) -> None:
        """Removes the epochs that ended before the offset; the one that contains it now begins there."""
        entries = self._entries
        at = bisect_right(entries, start_offset, key=_start_offset)
        if at:
            self._replace((EpochEntry(entries[at - 1].epoch, start_offset), *entries[at:]), write=write)

    def clear(self, *, write: bool = True) -> None:
        """Removes all epochs."""
        self._replace((), write=write)

    def _replace(self, entries: tuple[EpochEntry, ...], *, write: bool) -> None:
        if entries != self._entries:
            self._set(entries)
        if write:
            self.flush()

    def flush(self, log_end: int | None = None) -> None:
        """Writes the file if it is outdated. Epochs that begin at or above `log_end` may be left out: they have no
        records yet, and there may be thousands of leaders that have not written. Thread-safe."""
        with self._writing:
            entries = self._entries
            if log_end is not None:
                entries = entries[: bisect_left(entries, log_end, key=_start_offset)]
            if entries != self._written:
                self._checkpoint().write(entries)
                self._written = entries

    def move_to(self, directory: Path) -> None:
        """Called when the folder was renamed."""
        with self._writing:
            self._directory = directory


def _push(entries: list[EpochEntry], new: EpochEntry) -> None:
    """Appends an entry and removes those that it contradicts. The entries of a file go through here as well, so that
    both numbers increase, whatever wrote it."""
    if entries and entries[-1].epoch == new.epoch and entries[-1].start_offset <= new.start_offset:
        return
    while entries and (entries[-1].epoch >= new.epoch or entries[-1].start_offset >= new.start_offset):
        entries.pop()
    entries.append(new)
