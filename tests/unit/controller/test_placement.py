"""Replicas of new partitions are spread over brokers and racks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.placement import alternated, spread


def first(_count: int) -> int:
    return 0


def test_leaders_and_followers_go_round() -> None:
    assert spread(6, 3, dict.fromkeys((0, 1, 2, 3, 4)), first) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
    ]


def test_racks_alternate() -> None:
    racks = {0: "a", 1: "c", 2: "c", 3: "b", 4: "b", 5: "a"}
    assert alternated(racks) == [0, 3, 1, 5, 4, 2]


def test_racks_count_only_if_all_brokers_have_one() -> None:
    assert spread(2, 2, {0: "a", 1: None, 2: "a"}, first) == [(0, 1), (1, 2)]


def test_added_partitions_continue() -> None:
    brokers: dict[int, str | None] = dict.fromkeys((1, 2, 3))
    assert spread(2, 2, brokers, first, start_partition=1, start_index=0) == spread(3, 2, brokers, first)[1:]


@given(
    count=st.integers(1, 60),
    factor=st.integers(1, 6),
    racks=st.lists(st.sampled_from("abc"), min_size=6, max_size=9),
    with_racks=st.booleans(),
    start=st.integers(0, 5),
)
def test_replicas_are_distinct_and_even(
    count: int, factor: int, racks: list[str], with_racks: bool, start: int
) -> None:
    brokers: dict[int, str | None] = {index * 3: rack if with_racks else None for index, rack in enumerate(racks)}
    assigned = spread(count, factor, brokers, lambda _: start)
    assert all(len(set(replicas)) == factor for replicas in assigned)
    leaders = Counter(replicas[0] for replicas in assigned)
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in brokers) <= 1
    if with_racks:
        reachable = min(factor, len(set(racks)))
        assert all(len({brokers[broker] for broker in replicas}) >= reachable for replicas in assigned)
