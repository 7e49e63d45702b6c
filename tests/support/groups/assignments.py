"""Groups made by chance: topics, members with subscriptions, and what they had before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from ottla.base.ids import TopicPartition
from ottla.client.membership.assignors import Assignment, GroupMember, Topics

TOPICS = ("a", "b", "c", "d")
RACKS = ("x", "y", "z")

topics = st.dictionaries(
    st.sampled_from(TOPICS),
    st.lists(st.frozensets(st.sampled_from(RACKS), max_size=2), min_size=1, max_size=9).map(tuple),
)


@st.composite
def members(draw: st.DrawFn, *, alike: bool = False) -> list[GroupMember]:
    ids = draw(st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True))
    subscriptions = st.frozensets(st.sampled_from(TOPICS))
    shared = draw(subscriptions)
    return [
        GroupMember(
            member_id=f"member-{number}",
            topics=shared if alike else draw(subscriptions),
            instance_id=draw(st.sampled_from([None, f"instance-{99 - number}"])),
            rack=draw(st.sampled_from([None, *RACKS])),
        )
        for number in ids
    ]


def with_owned(group: Sequence[GroupMember], assignment: Assignment, generation: int) -> list[GroupMember]:
    """The members as they would join next: cooperative ones, which own what they were assigned."""
    return [
        replace(one, owned=tuple(assignment.get(one.member_id, ())), generation=generation)
        if one.member_id in assignment
        else one
        for one in group
    ]


def check_valid(layout: Topics, group: Sequence[GroupMember], assignment: Assignment) -> None:
    """Each partition that anybody subscribes to has one owner, who does."""
    assert assignment.keys() == {member.member_id for member in group}
    subscriptions = {member.member_id: member.topics for member in group}
    for member_id, partitions in assignment.items():
        assert {partition.topic for partition in partitions} <= subscriptions[member_id]
    wanted = [
        TopicPartition(topic, index)
        for topic, racks in layout.items()
        if any(topic in member.topics for member in group)
        for index in range(len(racks))
    ]
    assert Counter(one for share in assignment.values() for one in share) == Counter(wanted)


def check_balanced(group: Sequence[GroupMember], assignment: Assignment) -> None:
    """No partition could go straight to a member that has two fewer."""
    for giver in group:
        for taker in group:
            mine, theirs = assignment[giver.member_id], assignment[taker.member_id]
            if len(mine) > len(theirs) + 1:
                assert not any(one.topic in taker.topics for one in mine), (giver.member_id, taker.member_id)


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions have another owner, of those that both know."""
    owners = {partition: member_id for member_id, share in before.items() for partition in share}
    return sum(
        owners.get(partition, member_id) != member_id for member_id, share in after.items() for partition in share
    )
