"""Assigns each topic's partitions in ranges, one per member: equal partition numbers of several topics go together.

The result is exactly that of Java's RangeAssignor, including racks (KIP-881): if members and replicas have racks in
common, and the racks of partitions differ, members first take partitions that have a replica in their rack, and then
the rest. Topics with the same subscribers and the same number of partitions do that together, so that they stay
aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ottla.base.ids import TopicPartition
from ottla.client.membership.assignors.assignor import Assignment, GroupMember, Racks, Topics, in_order


class RangeAssignor:
    name = "range"
    is_cooperative = False

    def user_data(self, owned: Collection[TopicPartition] | None, generation: int) -> bytes | None:  # noqa: ARG002
        return None

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        ranges = []
        for topic in sorted(topics):
            subscribers = in_order([member for member in members if topic in member.topics])
            if subscribers and topics[topic]:
                ranges.append(_TopicRanges(topic, topics[topic], subscribers))
        if any(one.minds_racks for one in ranges):
            _assign_nearby(ranges)
        for one in ranges:
            one.hand_out(_any)
            for member_id, indexes in one.taken.items():
                assignment[member_id] += [TopicPartition(one.topic, index) for index in sorted(indexes)]
        return assignment


class _TopicRanges:
    """How much of one topic is assigned, and how many partitions each of its subscribers may still take."""

    def __init__(self, topic: str, racks: Sequence[Racks], subscribers: list[GroupMember]) -> None:
        self.topic = topic
        self.racks = racks
        self.subscribers = subscribers
        self.taken: dict[str, list[int]] = {member.member_id: [] for member in subscribers}
        self._left = list(range(len(racks)))
        self._each, self._with_one_more = divmod(len(racks), len(subscribers))
        theirs = {member.rack for member in subscribers if member.rack}
        replicas = frozenset[str]().union(*racks)
        self.minds_racks = bool(theirs & replicas) and any(one != replicas for one in racks)

    def is_near(self, member: GroupMember, index: int) -> bool:
        return member.rack is None or member.rack in self.racks[index]

    def room(self, member: GroupMember) -> int:
        return max(0, self._each + (self._with_one_more > 0) - len(self.taken[member.member_id]))

    def take(self, member: GroupMember, indexes: Sequence[int]) -> None:
        taken = self.taken[member.member_id]
        taken += indexes
        for index in indexes:
            self._left.remove(index)
        if len(taken) > self._each:
            self._with_one_more -= 1

    def hand_out(self, may_take: Callable[[GroupMember, int], bool]) -> None:
        for member in self.subscribers:
            allowed = [index for index in self._left if may_take(member, index)][: self.room(member)]
            if allowed:
                self.take(member, allowed)


def _any(member: GroupMember, index: int) -> bool:  # noqa: ARG001
    return True


def _assign_nearby(ranges: Sequence[_TopicRanges]) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_TopicRanges]] = {}
    for one in ranges:
        alike.setdefault((tuple(one.taken), len(one.racks)), []).append(one)
    for together in alike.values():
        if len(together) > 1:
            _assign_aligned(together)
        elif together[0].minds_racks:
            together[0].hand_out(together[0].is_near)


def _assign_aligned(ranges: Sequence[_TopicRanges]) -> None:
    """Gives partitions of one number to the first member that has room in all topics and their replicas in its rack."""
    members = list(ranges[0].subscribers)
    for index in range(len(ranges[0].racks)):
        for member in members:
            if all(one.is_near(member, index) and one.room(member) for one in ranges):
                for one in ranges:
                    one.take(member, [index])
                if not any(one.room(member) for one in ranges):
                    members.remove(member)
                break
