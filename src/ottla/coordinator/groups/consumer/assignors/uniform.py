"""`uniform`: balances as far as subscriptions allow, and then moves as few partitions as possible.

If all members subscribe to the same topics, their partition counts differ by at most one, and a partition moves only
if its owner has too many. If subscriptions differ, no single move of a partition would improve the balance.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from functools import lru_cache

from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer.assignors.members import MemberSpec, Partition, Partitions


def assign_uniformly(members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]) -> dict[str, Partitions]:
    subscriptions = {member.topics for member in members.values()}
    if not subscriptions:
        return {}
    if len(subscriptions) == 1:
        return _equal_shares(members, _partitions_of(subscriptions.pop(), partition_counts))
    return _Mixed(members, partition_counts).assign()


def _partitions_of(topics: Iterable[Uuid], partition_counts: Mapping[Uuid, int]) -> set[Partition]:
    return set().union(*(_partitions(topic, partition_counts.get(topic, 0)) for topic in topics))


@lru_cache(maxsize=1_000)
def _partitions(topic: Uuid, count: int) -> Partitions:
    return frozenset((topic, index) for index in range(count))


def _equal_shares(members: Mapping[str, MemberSpec], free: set[Partition]) -> dict[str, Partitions]:
    """Linear in members and partitions: a group of hundreds is computed again with every join."""
    share, extra = divmod(len(free), len(members))
    kept: dict[str, Partitions] = {}
    surplus: list[tuple[str, Partitions]] = []
    wanting: list[str] = []
    for member_id, member in members.items():
        # The rest belongs to topics without subscribers, or another member keeps it.
        still = member.target if member.target <= free else member.target & free
        free -= still
        kept[member_id] = still
        if len(still) > share:
            surplus.append((member_id, still))
        else:
            wanting.append(member_id)
    # Members with more than the share keep one extra partition, as long as extra partitions are left.
    for place, (member_id, still) in enumerate(surplus):
        limit = share + (place < extra)
        if len(still) > limit:
            ordered = sorted(still)
            kept[member_id] = frozenset(ordered[:limit])
            free.update(ordered[limit:])
    unclaimed = (
        sorted(free, reverse=True) if len(wanting) > 1 else list(free)
    )  # A single member gets them all, in any order.
    extra -= min(extra, len(surplus))
    for member_id in wanting:
        room = share + (extra > 0) - len(kept[member_id])
        extra -= extra > 0
        if room > 0:
            gained = unclaimed[-room:]
            del unclaimed[-room:]
            kept[member_id] = kept[member_id].union(gained)
    return kept


class _Mixed:
    """Members with different subscriptions."""

    def __init__(self, members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]) -> None:
        self._members = members
        self._subscribers: dict[Uuid, list[str]] = {}
        for member_id, member in members.items():
            for topic in member.topics:
                if topic in partition_counts:
                    self._subscribers.setdefault(topic, []).append(member_id)
        self._free = _partitions_of(self._subscribers, partition_counts)
        self._loads = dict.fromkeys(members, 0)
        self._owned: dict[Uuid, dict[str, list[int]]] = {topic: {} for topic in self._subscribers}

    def assign(self) -> dict[str, Partitions]:
        self._keep()
        # Topics with few subscribers first: members with many topics can be balanced with the others.
        topics = sorted(self._subscribers, key=lambda topic: (len(self._subscribers[topic]), topic))
        self._give_out(topics)
        while any(self._even_out(topic) for topic in topics):
            pass
        shares: dict[str, list[Partition]] = {member_id: [] for member_id in self._members}
        for topic, owners in self._owned.items():
            for member_id, indexes in owners.items():
                shares[member_id].extend((topic, index) for index in indexes)
        result = {}
        for member_id, share in shares.items():
            before, now = self._members[member_id].target, frozenset(share)
            result[member_id] = before if before == now else now
        return result

    def _keep(self) -> None:
        for member_id, member in self._members.items():
            for partition in sorted(member.target & self._free):
                if partition[0] in member.topics:
                    self._free.remove(partition)
                    self._give(partition, member_id)

    def _give(self, partition: Partition, member_id: str) -> None:
        topic, index = partition
        self._owned[topic].setdefault(member_id, []).append(index)
        self._loads[member_id] += 1

    def _give_out(self, topics: list[Uuid]) -> None:
        """Assigns each free partition to the subscriber with the fewest."""
        free: dict[Uuid, list[int]] = {}
        for topic, index in sorted(self._free):
            free.setdefault(topic, []).append(index)
        for topic in topics:
            if topic in free:
                readers = [(self._loads[member_id], member_id) for member_id in self._subscribers[topic]]
                heapq.heapify(readers)
                for index in free[topic]:
                    load, member_id = readers[0]
                    self._give((topic, index), member_id)
                    heapq.heapreplace(readers, (load + 1, member_id))

    def _even_out(self, topic: Uuid) -> bool:
        """Moves partitions of the topic from the member with most to the one with fewest; returns whether any moved.
        Each move improves the balance, so this ends."""
        owned, loads, readers = self._owned[topic], self._loads, self._subscribers[topic]
        moved = False
        while owned:
            most = max(owned, key=loads.__getitem__)
            least = min(readers, key=loads.__getitem__)
            if loads[most] - loads[least] < 2:
                break
            # The newest one moves: older ones stay if possible.
            self._give((topic, owned[most].pop()), least)
            loads[most] -= 1
            if not owned[most]:
                del owned[most]
            moved = True
        return moved
