"""Runs a plan: starts what is not under way yet, sets and removes the throttle, shows progress until it is complete.

Can be interrupted at any time and run again: it looks at the cluster, not at what an earlier run did. The throttle is
Kafka's: rates on the brokers involved, and lists of throttled replicas on the topics involved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.base.ids import TopicPartition
from ottla.cli.output import counted, note, size_text
from ottla.cli.partition_names import described_topics
from ottla.cli.reassign.plan import Replicas
from ottla.cli.session import CommandError

if TYPE_CHECKING:
    from ottla.client.administer import AsyncAdmin, Reassignment

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

_LOOK_EVERY_S: Final = 1.0
_SETTLED_WITHIN_S: Final = 10.0


class Execution:
    """One plan on one cluster. Not reusable."""

    def __init__(
        self,
        admin: AsyncAdmin,
        wanted: Mapping[TopicPartition, Replicas],
        moves: Mapping[TopicPartition, Reassignment],
        before: Mapping[TopicPartition, Replicas] | None = None,
    ) -> None:
        self._admin = admin
        self._wanted = dict(wanted)
        self._moves = dict(moves)
        self._before = dict(before or {})
        self.to_start: dict[TopicPartition, Replicas] = {}

    @classmethod
    async def prepare(cls, admin: AsyncAdmin, wanted: Mapping[TopicPartition, Replicas]) -> Self:
        """Reads where the partitions are. Raises if one does not exist, or a broker is not online."""
        current = await _current(admin, wanted)
        live = {node.broker_id for node in (await admin.describe_cluster()).brokers}
        moves = await admin.list_partition_reassignments(wanted)
        execution = cls(admin, wanted, moves, current)
        for partition, replicas in wanted.items():
            if partition not in current:
                raise CommandError(f"partition {partition} does not exist")
            move = moves.get(partition)
            target = current[partition] if move is None else _without(move.replicas, move.removing)
            # Kafka lists the target first, in its order, while a partition moves.
            if target == tuple(replicas):
                continue
            gone = [one for one in replicas if one not in live and one not in current[partition]]
            if gone:
                online = ", ".join(map(str, sorted(live)))
                raise CommandError(
                    f"partition {partition} should move to broker {gone[0]}, which is not online; the online brokers "
                    f"are {online}"
                )
            execution.to_start[partition] = tuple(replicas)
        return execution

    async def start(self, throttle: int | None) -> None:
        """Sets the throttle before anything moves."""
        if throttle is not None and (self.to_start or self._moves):
            await self._set_throttle(throttle)
        under_way = len(self._moves)
        if self.to_start:
            await self._admin.alter_partition_reassignments(self.to_start)
            note(f"Started to move {counted(len(self.to_start), 'partition')}.")
        elif under_way:
            note(f"{counted(under_way, 'partition')} of the plan {'is' if under_way == 1 else 'are'} already moving.")
        else:
            note("All partitions are already where the plan wants them.")

    # The throttle.

    async def _set_throttle(self, rate: int) -> None:
        from ottla.client.administer import ConfigResource

        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        for partition, replicas in self._wanted.items():
            before = self._sources(partition)
            leaders.setdefault(partition.topic, []).extend(f"{partition.partition}:{one}" for one in before)
            added = [one for one in replicas if one not in before]
            followers.setdefault(partition.topic, []).extend(f"{partition.partition}:{one}" for one in added)
        changes: dict[Any, Any] = {
            ConfigResource.topic(topic): {
                LEADER_REPLICAS: ",".join(leaders[topic]),
                FOLLOWER_REPLICAS: ",".join(followers[topic]) or None,
            }
            for topic in leaders
        }
        for broker_id in await self._brokers():
            changes[ConfigResource.broker(broker_id)] = dict.fromkeys(RATES, str(rate))
        await self._admin.incremental_alter_configs(changes)
        note(f"Set the throttle to {size_text(rate)}/s on each broker.")

    async def remove_throttle(self) -> None:
        """Removes the throttle from the topics, and from the brokers unless another reassignment may need it."""
        from ottla.client.administer import ConfigResource

        topics = [ConfigResource.topic(topic) for topic in sorted({one.topic for one in self._wanted})]
        brokers = [ConfigResource.broker(broker_id) for broker_id in await self._brokers()]
        if others := len(await self._admin.list_partition_reassignments()):
            topics, brokers = [], []
        keys = (*RATES, LEADER_REPLICAS, FOLLOWER_REPLICAS)
        described = await self._admin.describe_configs([*topics, *brokers], keys=keys)
        changes: dict[Any, Any] = {}
        for resource, entries in described.items():
            is_set = [name for name, entry in entries.items() if name in keys and not entry.is_default and entry.value]
            if is_set:
                changes[resource] = dict.fromkeys(is_set)
        if changes:
            await self._admin.incremental_alter_configs(changes)
            note("Removed the throttle.")
        elif others:
            note(f"A throttle, if there is one, stays: {counted(others, 'partition')} of other plans still move.")

    def _sources(self, partition: TopicPartition) -> Replicas:
        move = self._moves.get(partition)
        return self._before.get(partition, ()) if move is None else _without(move.replicas, move.adding)

    async def _brokers(self) -> list[int]:
        """The online brokers that have or get replicas of the plan."""
        live = {node.broker_id for node in (await self._admin.describe_cluster()).brokers}
        used = {one for replicas in self._wanted.values() for one in replicas}
        used |= {one for partition in self._wanted for one in self._sources(partition)}
        return sorted(used & live)

    # Progress.

    async def wait(self) -> None:
        """Returns when no partition of the plan is being reassigned any more."""
        total = len(self.to_start | self._moves)
        if not total:
            return
        display = _display()
        shown = ""
        with display or nullcontext():
            while moves := await self._admin.list_partition_reassignments(self._wanted):
                done = total - len(moves)
                text = f"Moved {done:,} of {counted(total, 'partition')}{await self._copied(moves)}"
                if display is not None:
                    display.update(text)
                elif text != shown:
                    note(f"{text}.")
                shown = text
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _copied(self, moves: Mapping[TopicPartition, Reassignment]) -> str:
        """How much of the partitions that move now has been copied."""
        brokers = {one for move in moves.values() for one in move.replicas}
        live = {node.broker_id for node in (await self._admin.describe_cluster()).brokers}
        described = await self._admin.describe_log_dirs(brokers & live, partitions=moves)
        sizes: dict[tuple[TopicPartition, int], int] = {}
        for broker_id, directories in described.items():
            for directory in directories.values():
                for partition, replica in directory.replicas.items():
                    if not replica.is_future:
                        sizes[partition, broker_id] = replica.size
        whole = there = 0
        for partition, move in moves.items():
            size = max((sizes.get((partition, one), 0) for one in move.replicas), default=0)
            whole += size * len(move.adding)
            there += sum(min(size, sizes.get((partition, one), 0)) for one in move.adding)
        return f"; {size_text(there)} of {size_text(whole)} copied of those that move" if whole else ""

    async def verify(self) -> None:
        """Raises if a partition is not where the plan wants it: somebody cancelled the reassignment or started
        another. Brokers learn of the result one by one, so it may take a moment."""
        deadline = asyncio.get_running_loop().time() + _SETTLED_WITHIN_S
        while True:
            current = await _current(self._admin, self._wanted)
            other = [name for name, replicas in self._wanted.items() if current.get(name) != replicas]
            if not other:
                if self.to_start or self._moves:
                    verb = "is" if len(self._wanted) == 1 else "are"
                    note(f"Completed: {counted(len(self._wanted), 'partition')} of the plan {verb} in place.")
                return
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(_LOOK_EVERY_S / 5)
        lines = [
            f"partition {name} should be on brokers {_listed(self._wanted[name])}, but is on "
            f"{_listed(current.get(name, ()))}"
            for name in other[:5]
        ]
        more = f"\nand {len(other) - 5:,} more" if len(other) > 5 else ""
        raise CommandError(
            "\n".join(lines) + more + "\nThe reassignment was cancelled or changed by someone else. Run the plan again."
        )


async def _current(admin: AsyncAdmin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Replicas]:
    topics = await described_topics(admin, {one.topic: None for one in partitions})
    return {TopicPartition(topic.name, one.index): one.replicas for topic in topics for one in topic.partitions}


def _display() -> Any:
    """A line that changes, on a terminal."""
    import sys

    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    return Console(stderr=True).status("Waiting for the first partition …")


def _without(some: Iterable[int], others: Iterable[int]) -> Replicas:
    left_out = set(others)
    return tuple(one for one in some if one not in left_out)


def _listed(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas)) or "none"
