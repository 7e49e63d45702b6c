"""Both assignors: every partition has one owner, who subscribes to it; and what each promises beyond that."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer.assignors import ASSIGNORS
from ottla.coordinator.groups.consumer.assignors.members import NO_PARTITIONS, MemberSpec, Partitions
from ottla.coordinator.groups.consumer.assignors.ranges import assign_ranges
from ottla.coordinator.groups.consumer.assignors.uniform import assign_uniformly


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


TOPICS = [topic(number) for number in range(4)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))


def members(subscriptions: list[set[Uuid]]) -> dict[str, MemberSpec]:
    return {f"m{n}": MemberSpec(frozenset(topics), NO_PARTITIONS, None) for n, topics in enumerate(subscriptions)}


def again(specs: dict[str, MemberSpec], assigned: dict[str, Partitions]) -> dict[str, MemberSpec]:
    """The same members, with what they were assigned."""
    return {name: spec._replace(target=assigned.get(name, spec.target)) for name, spec in specs.items()}


def moved(before: dict[str, Partitions], after: dict[str, Partitions]) -> int:
    owners = {partition: name for name, share in before.items() for partition in share}
    return sum(
        owners.get(partition, name) != name
        for name, share in after.items()
        for partition in share
        if partition in owners
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@given(
    subscriptions=st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=8),
    later=st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=8),
    counts=COUNTS,
    later_counts=COUNTS,
)
def test_every_partition_has_one_subscribed_owner(
    name: str,
    subscriptions: list[set[Uuid]],
    later: list[set[Uuid]],
    counts: dict[Uuid, int],
    later_counts: dict[Uuid, int],
) -> None:
    first = ASSIGNORS[name](members(subscriptions), counts)
    for specs, present in (
        (members(subscriptions), counts),
        (again(members(later), first), counts),
        (again(members(later), first), later_counts),
    ):
        assigned = ASSIGNORS[name](specs, present)
        assert assigned.keys() == specs.keys()
        owned = [partition for share in assigned.values() for partition in share]
        assert len(owned) == len(set(owned))
        assert all(partition[0] in specs[each].topics for each, share in assigned.items() for partition in share)
        read = set().union(*(spec.topics for spec in specs.values()))
        assert set(owned) == {(each, index) for each in read for index in range(present.get(each, 0))}


@given(
    count=st.integers(1, 12),
    others=st.integers(1, 12),
    counts=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1),
)
def test_uniform_with_equal_subscriptions_is_equal_and_moves_only_what_is_too_much(
    count: int, others: int, counts: dict[Uuid, int]
) -> None:
    everything = set(counts)
    first = assign_uniformly(members([everything] * count), counts)
    specs = again(members([everything] * others), first)
    then = assign_uniformly(specs, counts)
    for assigned in (first, then):
        sizes = [len(share) for share in assigned.values()]
        assert max(sizes) - min(sizes) <= 1
    share, extra = divmod(sum(counts.values()), others)
    # Of those who stay, as many keep one beyond the share as there are such places.
    kept = [len(first[name]) for name in then if name in first]
    above = sum(size > share for size in kept)
    surplus = sum(max(size - share, 0) for size in kept) - min(extra, above)
    assert moved({name: first[name] for name in then if name in first}, then) == surplus


def test_uniform_without_a_change_gives_the_same_objects() -> None:
    counts = {TOPICS[0]: 7, TOPICS[1]: 5}
    for subscriptions in ([set(counts)] * 3, [set(counts), {TOPICS[0]}, {TOPICS[1]}]):
        specs = members(subscriptions)
        assigned = assign_uniformly(specs, counts)
        specs = again(specs, assigned)
        assert all(share is specs[name].target for name, share in assign_uniformly(specs, counts).items())


@given(
    subscriptions=st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=2, max_size=8),
    counts=COUNTS,
    seed=st.integers(0, 1000),
)
def test_uniform_with_different_subscriptions_leaves_no_move_that_would_help(
    subscriptions: list[set[Uuid]], counts: dict[Uuid, int], seed: int
) -> None:
    specs = members(subscriptions)
    partitions = [(each, index) for each, count in counts.items() for index in range(count)]
    start: dict[str, set[tuple[Uuid, int]]] = {name: set() for name in specs}
    choose = random.Random(seed)
    for partition in partitions:
        start[choose.choice(list(specs))].add(partition)
    assigned = assign_uniformly(again(specs, {name: frozenset(share) for name, share in start.items()}), counts)
    for name, share in assigned.items():
        for other, others in assigned.items():
            could_move = any(partition[0] in specs[other].topics for partition in share)
            assert not could_move or len(share) - len(others) <= 1, (name, other)


def test_uniform_with_different_subscriptions_moves_nothing_without_need() -> None:
    counts = {TOPICS[0]: 6, TOPICS[1]: 6}
    specs = members([{TOPICS[0]}, {TOPICS[0], TOPICS[1]}, {TOPICS[1]}])
    first = assign_uniformly(specs, counts)
    assert [len(first[name]) for name in specs] == [4, 4, 4]
    fewer = {name: spec for name, spec in again(specs, first).items() if name != "m2"}
    then = assign_uniformly(fewer, counts)
    assert moved({name: first[name] for name in fewer}, then) == min(
        2, len({partition for partition in first["m1"] if partition[0] == TOPICS[0]})
    )


def test_range_gives_the_same_numbers_of_each_topic() -> None:
    assigned = assign_ranges(members([set(TOPICS[:2])] * 3), {TOPICS[0]: 7, TOPICS[1]: 7})
    numbers = [sorted(index for each, index in assigned[name] if each == TOPICS[0]) for name in ("m0", "m1", "m2")]
    assert numbers == [[0, 1, 2], [3, 4], [5, 6]]
    assert all(
        {(TOPICS[1], index) for each, index in share if each == TOPICS[0]} <= share for share in assigned.values()
    )


def test_range_puts_static_members_first_by_instance() -> None:
    everything = frozenset(TOPICS[:1])
    specs = {
        "a": MemberSpec(everything, NO_PARTITIONS, None),
        "b": MemberSpec(everything, NO_PARTITIONS, "second"),
        "c": MemberSpec(everything, NO_PARTITIONS, "first"),
    }
    assigned = assign_ranges(specs, {TOPICS[0]: 3})
    assert {name: [index for _, index in share] for name, share in assigned.items()} == {"c": [0], "b": [1], "a": [2]}


def test_a_group_without_members_has_nothing_to_assign() -> None:
    assert [assign({}, {TOPICS[0]: 3}) for assign in ASSIGNORS.values()] == [{}, {}]
