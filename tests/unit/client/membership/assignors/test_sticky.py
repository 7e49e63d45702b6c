from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import TopicPartition
from ottla.client.membership.assignors import (
    ASSIGNORS,
    Assignment,
    CooperativeStickyAssignor,
    GroupMember,
    StickyAssignor,
    Topics,
)
from ottla.client.membership.assignors.sticky import StickyUserData, by_topic
from ottla.wire.codec import encode
from support.groups.assignments import check_balanced, check_valid, members, moved, topics, with_owned

STICKY = StickyAssignor()
COOPERATIVE = CooperativeStickyAssignor()


def partitions(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


def layout_of(**counts: int) -> Topics:
    return {topic: (frozenset(),) * count for topic, count in counts.items()}


def eager(group: list[GroupMember], assignment: Assignment, generation: int) -> list[GroupMember]:
    """The members as they would join next with the sticky assignor: by user data, owning nothing."""
    return [replace(one, user_data=STICKY.user_data(assignment.get(one.member_id), generation)) for one in group]


@given(topics, members())
def test_all_partitions_have_one_owner_and_loads_are_even(layout: Topics, group: list[GroupMember]) -> None:
    for assignor in (STICKY, COOPERATIVE):
        assignment = assignor.assign(layout, group)
        check_valid(layout, group, assignment)
        check_balanced(group, assignment)


@given(topics, members())
def test_nothing_moves_where_nothing_changes(layout: Topics, group: list[GroupMember]) -> None:
    before = STICKY.assign(layout, group)
    assert STICKY.assign(layout, eager(group, before, 1)) == before
    assert COOPERATIVE.assign(layout, with_owned(group, before, 1)) == before


@given(topics, members(alike=True), st.data())
def test_members_keep_everything_when_others_leave(
    layout: Topics, group: list[GroupMember], data: st.DataObject
) -> None:
    before = STICKY.assign(layout, group)
    staying = data.draw(st.lists(st.sampled_from(group), min_size=1, unique=True))
    for assignor, rejoining in (
        (STICKY, eager(staying, before, 1)),
        (COOPERATIVE, with_owned(staying, before, 1)),
    ):
        after = assignor.assign(layout, rejoining)
        check_valid(layout, staying, after)
        check_balanced(staying, after)
        for member in staying:
            assert set(before[member.member_id]) <= set(after[member.member_id])


@given(topics, members(alike=True))
def test_a_new_member_gets_its_share_and_no_more_moves(layout: Topics, group: list[GroupMember]) -> None:
    before = STICKY.assign(layout, group)
    new = GroupMember("newcomer", group[0].topics)
    joining = [*eager(group, before, 1), new]
    after = STICKY.assign(layout, joining)
    check_valid(layout, joining, after)
    check_balanced(joining, after)
    assert moved(before, after) == len(after["newcomer"])


@given(topics, members(), st.data())
def test_a_cooperative_group_settles_in_two_rounds_without_two_owners(
    layout: Topics, group: list[GroupMember], data: st.DataObject
) -> None:
    before = COOPERATIVE.assign(layout, group)
    # Some leave, one comes, and subscriptions change.
    staying = data.draw(st.lists(st.sampled_from(group), min_size=1, unique=True))
    others = data.draw(members())
    joining = with_owned(
        [replace(one, topics=other.topics) for one, other in zip(staying, others, strict=False)]
        + staying[len(others) :]
        + [GroupMember("newcomer", others[0].topics)],
        before,
        1,
    )
    # What is not subscribed to any more is given up before joining.
    joining = [replace(one, owned=tuple(each for each in one.owned if each.topic in one.topics)) for one in joining]
    first = COOPERATIVE.assign(layout, joining)
    owners = {partition: member.member_id for member in joining for partition in member.owned}
    for member_id, share in first.items():
        assert all(owners.get(partition, member_id) == member_id for partition in share)
    rejoining = with_owned(joining, first, 2)
    second = COOPERATIVE.assign(layout, rejoining)
    check_valid(layout, joining, second)
    check_balanced(joining, second)
    assert COOPERATIVE.assign(layout, with_owned(joining, second, 3)) == second


def test_the_claim_of_the_later_generation_holds() -> None:
    layout = layout_of(t=2)
    group = [
        GroupMember("late", frozenset("t"), owned=partitions("t", 0), generation=5),
        GroupMember("early", frozenset("t"), owned=partitions("t", 0, 1), generation=4),
    ]
    assert COOPERATIVE.assign(layout, group) == {"late": [], "early": partitions("t", 1)}
    told = [replace(one, owned=(), user_data=STICKY.user_data(one.owned, one.generation)) for one in group]
    assert STICKY.assign(layout, told) == {"late": partitions("t", 0), "early": partitions("t", 1)}


def test_of_two_claims_in_one_generation_neither_holds_and_both_let_go_first() -> None:
    layout = layout_of(t=3)
    both = partitions("t", 0)
    group = [
        GroupMember("one", frozenset("t"), owned=both, generation=3),
        GroupMember("two", frozenset("t"), owned=[*both, *partitions("t", 1)], generation=3),
    ]
    assignment = COOPERATIVE.assign(layout, group)
    assert both[0] not in assignment["one"] + assignment["two"]
    assert partitions("t", 1)[0] in assignment["two"]


def test_the_generation_of_an_older_client_is_in_its_user_data() -> None:
    layout = layout_of(t=2)
    group = [
        GroupMember("old", frozenset("t"), owned=partitions("t", 0, 1), user_data=(7).to_bytes(4, "big")),
        GroupMember("new", frozenset("t"), owned=partitions("t", 1), generation=8),
    ]
    # Both say that they have partition 1. It is to be the new one's, whose claim is later, but the old one may still
    # read it.
    assert COOPERATIVE.assign(layout, group) == {"old": partitions("t", 0), "new": []}


@pytest.mark.parametrize(
    "user_data",
    [
        None,
        b"",
        b"\xff",
        b"\xff\xff\xff\xff\x00",
        b"\x7f\xff\xff\xff" + bytes(20),
        encode(StickyUserData(previous_assignment=by_topic(partitions("elsewhere", 3))), 1),
        encode(StickyUserData(previous_assignment=by_topic(partitions("t", -1, 99))), 1),
    ],
)
def test_user_data_that_makes_no_sense_is_skipped(user_data: bytes | None) -> None:
    layout = layout_of(t=4)
    group = [GroupMember("one", frozenset("t"), user_data=user_data), GroupMember("two", frozenset("t"))]
    assignment = STICKY.assign(layout, group)
    check_valid(layout, group, assignment)
    check_balanced(group, assignment)


def test_user_data_of_the_first_version_is_read() -> None:
    layout = layout_of(t=4)
    mine = partitions("t", 1, 3)
    data = encode(StickyUserData(previous_assignment=by_topic(mine)), 0)
    group = [GroupMember("a", frozenset("t")), GroupMember("b", frozenset("t"), user_data=data)]
    assert STICKY.assign(layout, group)["b"] == mine


def test_assignors_are_known_by_kafkas_names() -> None:
    assert list(ASSIGNORS) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert [one.is_cooperative for one in ASSIGNORS.values()] == [False, False, False, True]
