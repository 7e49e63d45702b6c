"""Range and round-robin. Beside Java's own they are held in `tests/compat/test_assignors.py`."""

from __future__ import annotations

from hypothesis import given

from ottla.base.ids import TopicPartition
from ottla.client.membership.assignors import GroupMember, RangeAssignor, RoundRobinAssignor, Topics
from support.groups.assignments import check_valid, members, topics

RANGE = RangeAssignor()
ROUND_ROBIN = RoundRobinAssignor()
NOWHERE = frozenset[str]()


def indexes(partitions: list[TopicPartition], topic: str) -> list[int]:
    return [partition.partition for partition in partitions if partition.topic == topic]


@given(topics, members())
def test_all_partitions_have_one_owner(layout: Topics, group: list[GroupMember]) -> None:
    for assignor in (RANGE, ROUND_ROBIN):
        check_valid(layout, group, assignor.assign(layout, group))


def test_ranges_are_cut_topic_by_topic() -> None:
    group = [GroupMember(name, frozenset({"t", "u"})) for name in ("one", "two", "three")]
    shares = RANGE.assign({"t": [NOWHERE] * 7, "u": [NOWHERE] * 2, "other": [NOWHERE]}, group)
    assert {name: indexes(share, "t") for name, share in shares.items()} == {
        "one": [0, 1, 2],
        "three": [3, 4],
        "two": [5, 6],
    }
    assert {name: indexes(share, "u") for name, share in shares.items()} == {"one": [0], "three": [1], "two": []}


def test_static_members_come_first_by_their_instance_ids() -> None:
    group = [
        GroupMember("a", frozenset("t")),
        GroupMember("z", frozenset("t"), instance_id="first"),
        GroupMember("b", frozenset("t"), instance_id="second"),
    ]
    layout = {"t": [NOWHERE] * 3}
    for assignor in (RANGE, ROUND_ROBIN):
        shares = assignor.assign(layout, group)
        assert {name: indexes(share, "t") for name, share in shares.items()} == {"z": [0], "b": [1], "a": [2]}


def test_partitions_are_dealt_past_members_that_do_not_subscribe() -> None:
    group = [
        GroupMember("one", frozenset({"t"})),
        GroupMember("two", frozenset({"t", "u"})),
        GroupMember("three", frozenset({"u"})),
    ]
    shares = ROUND_ROBIN.assign({"t": [NOWHERE] * 3, "u": [NOWHERE] * 3}, group)
    # In turn: one, three, two.
    assert [(str(partition), name) for name, share in shares.items() for partition in share] == [
        ("t-0", "one"),
        ("t-2", "one"),
        ("t-1", "two"),
        ("u-1", "two"),
        ("u-0", "three"),
        ("u-2", "three"),
    ]


def test_members_take_partitions_on_their_own_rack() -> None:
    group = [
        GroupMember("one", frozenset("t"), rack="x"),
        GroupMember("two", frozenset("t"), rack="y"),
    ]
    layout = {"t": [frozenset("y"), frozenset("x"), frozenset("y"), frozenset("x")]}
    shares = RANGE.assign(layout, group)
    assert {name: indexes(share, "t") for name, share in shares.items()} == {"one": [1, 3], "two": [0, 2]}


def test_topics_that_are_joined_stay_aligned_also_by_rack() -> None:
    group = [
        GroupMember("one", frozenset("tu"), rack="x"),
        GroupMember("two", frozenset("tu"), rack="y"),
    ]
    by_rack = [frozenset("y"), frozenset("x"), frozenset("y"), frozenset("x")]
    shares = RANGE.assign({"t": by_rack, "u": by_rack[1:] + by_rack[:1]}, group)
    for share in shares.values():
        assert indexes(share, "t") == indexes(share, "u")
