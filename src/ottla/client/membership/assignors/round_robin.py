"""Deals all partitions of all topics in turn, skipping members that are not subscribed, as Java's RoundRobinAssignor
does."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ottla.base.ids import TopicPartition
from ottla.client.membership.assignors.assignor import Assignment, GroupMember, Topics, in_order


class RoundRobinAssignor:
    name = "roundrobin"
    is_cooperative = False

    def user_data(self, owned: Collection[TopicPartition] | None, generation: int) -> bytes | None:  # noqa: ARG002
        return None

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        ordered = in_order(members)
        turn = 0
        for topic in sorted(topics):
            if not any(topic in member.topics for member in ordered):
                continue
            for index in range(len(topics[topic])):
                while topic not in ordered[turn].topics:
                    turn = (turn + 1) % len(ordered)
                assignment[ordered[turn].member_id].append(TopicPartition(topic, index))
                turn = (turn + 1) % len(ordered)
        return assignment
