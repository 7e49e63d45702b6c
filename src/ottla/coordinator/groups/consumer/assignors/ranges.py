"""`range`: splits each topic into ranges, in the order of the members.

Members that subscribe to the same topics get the same partition numbers of topics with the same partition count, which
stream joins need. Static members come first, ordered by instance id, so one that returns with another member id moves
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer.assignors.members import MemberSpec, Partition, Partitions


def assign_ranges(members: Mapping[str, MemberSpec], partition_counts: Mapping[Uuid, int]) -> dict[str, Partitions]:
    ordered = sorted(members, key=lambda member_id: _place(member_id, members[member_id]))
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in ordered:
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    shares: dict[str, list[Partition]] = {member_id: [] for member_id in members}
    for topic, readers in subscribers.items():
        share, extra = divmod(partition_counts.get(topic, 0), len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + share + (place < extra)
            shares[member_id].extend((topic, index) for index in range(start, end))
            start = end
    return {member_id: _keep_if_same(members[member_id].target, share) for member_id, share in shares.items()}


def _place(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    return member.instance_id is None, member_id if member.instance_id is None else member.instance_id


def _keep_if_same(before: Partitions, share: list[Partition]) -> Partitions:
    now = frozenset(share)
    return before if now == before else now
