"""Groups that form, get another member, and lose their first: how long until all partitions are consumed again.

All members of all groups live in this process, each with a connection of its own. Groups of all sizes are there at the
same time, and go through each event in turn; deaths begin shortly after each other, because a broker is to notice each
only after a session timeout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, TypeVar

import uvloop
from bench.broker.raw import measured
from bench.groups.classic import ClassicMember
from bench.groups.consumer import ConsumerMember
from bench.groups.member import GroupPlan, Member, until
from bench.groups.ownership import Change, Ownership

T = TypeVar("T")
PROTOCOLS: Final[dict[str, type[Member]]] = {"classic": ClassicMember, "consumer": ConsumerMember}
RECORDS_PER_S: Final = 10
"""That are taken to arrive at each partition, to say what a pause costs."""
_DEADLINE_S: Final = 60.0
_BETWEEN_DEATHS_S: Final = 1.5
"""Longer than what a group needs to settle once the death of a member is noticed."""
_BETWEEN_FORMATIONS_S: Final = 0.75


class Group:
    """A group, its members, and what they consume."""

    def __init__(self, plan: GroupPlan, protocol: str, partitions: int, size: int) -> None:
        self.size = size
        self._plan = plan
        self._make = PROTOCOLS[protocol]
        self._ownership = Ownership(partitions)
        self._numbers = count()
        self._members: list[Member] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def form(self) -> Change:
        """All members join in the same moment."""
        members = [await self._new_member(is_late=False) for _ in range(self.size)]
        self._ownership.begin()
        for member in members:
            member.start(self._failed)
        return await self._or_failure(self._ownership.settled(_DEADLINE_S))

    async def grow(self) -> Change:
        member = await self._new_member(is_late=True)
        await until(self._plan.heartbeat_s)
        self._ownership.begin()
        member.start(self._failed)
        return await self._or_failure(self._ownership.settled(_DEADLINE_S))

    async def lose_first(self) -> Change:
        """In a classic group that is its leader."""
        await self._or_failure(self._members.pop(0).die())
        return await self._or_failure(self._ownership.settled(_DEADLINE_S))

    async def end(self) -> None:
        await asyncio.gather(*(member.go() for member in self._members))

    async def _new_member(self, *, is_late: bool) -> Member:
        member = self._make(self._plan, next(self._numbers), self._ownership, is_late=is_late)
        await member.connect()
        self._members.append(member)
        return member

    async def _or_failure(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives; what has gone wrong in a member is raised."""
        task = asyncio.ensure_future(work)
        await asyncio.wait((task, self._failed), return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            task.cancel()
            self._failed.result()
        return await task


@dataclass(frozen=True, slots=True)
class Scene:
    """Groups of one protocol, one of each size, that all consume the same topic."""

    address: str
    topic: str
    protocol: str
    sizes: Sequence[int]
    partitions: int
    heartbeat_s: float
    session_timeout_ms: int

    def groups(self) -> list[Group]:
        """Of names that were never there before."""
        names = {size: f"{self.protocol}-{size}-{time.time_ns()}" for size in self.sizes}
        return [
            Group(
                GroupPlan(self.address, name, self.topic, self.heartbeat_s, self.session_timeout_ms),
                self.protocol,
                self.partitions,
                size,
            )
            for size, name in names.items()
        ]


def rebalances(pid: int, deaths: bool, **scene: Any) -> dict[str, float]:
    """Seconds, and records that came late, for each event and size; and what all together cost."""
    return _with_costs(pid, _rebalances(Scene(**scene), deaths))


def formations(pid: int, **scene: Any) -> dict[str, float]:
    """Only how long groups take to form, on a broker that waits for members to come: all wait at the same time."""
    return _with_costs(pid, _formations(Scene(**scene)))


async def _rebalances(scene: Scene, deaths: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for group in replace(scene, sizes=(1,)).groups():  # What this process does for the first time does not count.
        await group.form()
        await group.end()
    groups = scene.groups()
    for group in groups:
        _note(found, "form", group.size, await group.form())
    for group in groups:
        _note(found, "join", group.size, await group.grow())
    if deaths:
        await asyncio.sleep(scene.heartbeat_s)

        async def lose(group: Group) -> None:
            change = await group.lose_first()
            _note(found, "death", group.size, change, noticed_s=scene.session_timeout_ms / 1000)

        await _one_after_the_other(lose, groups, _BETWEEN_DEATHS_S)
    for group in groups:
        await group.end()
    return found


async def _formations(scene: Scene) -> dict[str, float]:
    found: dict[str, float] = {}

    async def form(group: Group) -> None:
        _note(found, "form", group.size, await group.form())

    groups = scene.groups()
    await _one_after_the_other(form, groups, _BETWEEN_FORMATIONS_S)
    for group in groups:
        await group.end()
    return found


async def _one_after_the_other(
    work: Callable[[Group], Coroutine[Any, Any, None]], groups: Sequence[Group], pause_s: float
) -> None:
    """Begins with each group a while after the one before, which need not be done."""

    async def begin(group: Group, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        await work(group)

    async with asyncio.TaskGroup() as tasks:
        for number, group in enumerate(groups):
            tasks.create_task(begin(group, number * pause_s))


def _with_costs(pid: int, work: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    """With the CPU time of the broker, and of this process: one that is busy all the time would be what is measured."""
    own_cpu_before_s = time.process_time()
    with measured(pid) as spent:
        found = uvloop.run(work)
    own_cpu_s = time.process_time() - own_cpu_before_s
    return {**found, "cpu_s": spent.cpu_s, "driver_cpu_s": own_cpu_s, "elapsed_s": spent.elapsed_s}


def _note(found: dict[str, float], event: str, size: int, change: Change, noticed_s: float = 0.0) -> None:
    found[f"{event}_s_{size}"] = change.seconds - noticed_s
    found[f"{event}_late_{size}"] = change.paused_partition_s * RECORDS_PER_S
    found[f"{event}_kept_paused_{size}"] = change.kept_but_paused
