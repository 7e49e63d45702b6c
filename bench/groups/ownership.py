"""Who consumes which partition, from when to when: what all members of a group tell, and what comes of it.

A partition is consumed from the moment a member has it assigned and knows where to begin, to the moment the member lets
go of it or dies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Change:
    """What a group did from an event until all partitions were consumed again, by members with equal shares."""

    seconds: float
    paused_partition_s: float
    """The sum, over all partitions, of the time in which nobody consumed them."""
    kept_but_paused: int
    """Partitions that had the same consumer before and after, but not all the time."""


@dataclass(slots=True)
class _Watch:
    """An event that is being looked at."""

    begun_s: float
    before: list[str | None]
    """The owner of each partition when it began."""
    free_since_s: dict[int, float]
    paused_s: float = 0.0
    interrupted: set[int] = field(default_factory=set)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    ended_s: float = 0.0


class Ownership:
    """Of one group's partitions, which it consumes all. Owned by the loop."""

    def __init__(self, partitions: int) -> None:
        self._owners: list[str | None] = [None] * partitions
        self._held: dict[str, int] = {}
        self._free = partitions
        self._watch: _Watch | None = None

    @property
    def size(self) -> int:
        """How many partitions there are."""
        return len(self._owners)

    def enter(self, member: str) -> None:
        """A member that is to have its share."""
        self._held[member] = 0

    def take(self, member: str, partitions: Iterable[int]) -> None:
        now_s = time.perf_counter()
        for partition in partitions:
            owner = self._owners[partition]
            if owner is not None:
                raise RuntimeError(f"partition {partition} is given to {member} while {owner} has it")
            self._owners[partition] = member
            self._held[member] += 1
            self._free -= 1
            if self._watch is not None:
                self._watch.paused_s += now_s - self._watch.free_since_s.pop(partition)
        self._check(now_s)

    def release(self, member: str, partitions: Iterable[int]) -> None:
        now_s = time.perf_counter()
        for partition in partitions:
            if self._owners[partition] != member:
                raise RuntimeError(f"{member} lets go of partition {partition}, which is not its own")
            self._owners[partition] = None
            self._held[member] -= 1
            self._free += 1
            if self._watch is not None:
                self._watch.free_since_s[partition] = now_s
                self._watch.interrupted.add(partition)

    def leave(self, member: str, partitions: Collection[int]) -> None:
        """A member that is dead, with what it had."""
        self.release(member, partitions)
        del self._held[member]

    def begin(self) -> None:
        """The event comes now."""
        now_s = time.perf_counter()
        free = {partition: now_s for partition, owner in enumerate(self._owners) if owner is None}
        self._watch = _Watch(now_s, list(self._owners), free)

    async def settled(self, deadline_s: float) -> Change:
        """What came of the event, once all is consumed again."""
        watch = self._watch
        if watch is None:
            raise RuntimeError("nothing has begun that could settle")
        try:
            async with asyncio.timeout(deadline_s):
                await watch.done.wait()
        except TimeoutError:
            shares = sorted(self._held.values())
            raise RuntimeError(
                f"after {deadline_s:g} s {self._free} of {len(self._owners)} partitions have no consumer, and "
                f"{len(shares)} members have shares from {shares[0]} to {shares[-1]}"
            ) from None
        kept = sum(1 for partition in watch.interrupted if watch.before[partition] == self._owners[partition])
        self._watch = None
        return Change(watch.ended_s - watch.begun_s, watch.paused_s, kept)

    def _check(self, now_s: float) -> None:
        """Whether the event is over: nothing is free, and nobody has less than the others' share."""
        if self._watch is None or self._free or self._watch.done.is_set():
            return
        share = len(self._owners) // len(self._held)
        if all(held >= share for held in self._held.values()):
            self._watch.ended_s = now_s
            self._watch.done.set()
