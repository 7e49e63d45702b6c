"""Plans of reassignments: right replication factors, racks, balance, and no replica moved without need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import TopicPartition
from ottla.cli.reassign.plan import Goal, PlanError, Replicas, moved_replicas, plan

Assignment = dict[TopicPartition, Replicas]


@st.composite
def assignments(draw: st.DrawFn, *, brokers: int | None = None) -> tuple[Assignment, list[int]]:
    """Some topics on brokers 1 to n, in any order."""
    count = draw(st.integers(1, 6)) if brokers is None else brokers
    ids = list(range(1, count + 1))
    current: Assignment = {}
    for topic in "ab"[: draw(st.integers(1, 2))]:
        factor = draw(st.integers(1, count))
        for index in range(draw(st.integers(1, 12))):
            current[TopicPartition(topic, index)] = tuple(draw(st.permutations(ids))[:factor])
    return current, ids


def after(current: Assignment, planned: Mapping[TopicPartition, Replicas]) -> Assignment:
    return {**current, **planned}


def loads(assignment: Assignment, brokers: list[int]) -> list[int]:
    counts = Counter(broker for replicas in assignment.values() for broker in replicas)
    return [counts[broker] for broker in brokers]


def leads(assignment: Assignment, brokers: list[int]) -> list[int]:
    counts = Counter(replicas[0] for replicas in assignment.values())
    return [counts[broker] for broker in brokers]


def is_even(counts: list[int]) -> bool:
    return max(counts) - min(counts) <= 1


def least_moves(counts: list[int]) -> int:
    """How many replicas must leave the brokers that have too many."""
    share, rest = divmod(sum(counts), len(counts))
    ordered = sorted(counts, reverse=True)
    return sum(max(0, count - share - (place < rest)) for place, count in enumerate(ordered))


def check(assignment: Assignment, before: Assignment) -> None:
    for partition, replicas in assignment.items():
        assert len(set(replicas)) == len(replicas) == len(before[partition])


@given(assignments(), st.integers(0, 3))
def test_replicas_are_even_after_the_fewest_moves(given_: tuple[Assignment, list[int]], new: int) -> None:
    current, brokers = given_
    everyone = [*brokers, *range(50, 50 + new)]
    planned = plan(current, Goal(dict.fromkeys(everyone)))
    result = after(current, planned)
    check(result, current)
    assert is_even(loads(result, everyone))
    assert moved_replicas(current, planned) == least_moves(loads(current, everyone))


@given(assignments(), st.integers(0, 3))
def test_what_is_planned_needs_no_other_plan(given_: tuple[Assignment, list[int]], new: int) -> None:
    current, brokers = given_
    goal = Goal({broker: f"rack {broker % 2}" for broker in [*brokers, *range(50, 50 + new)]})
    assert plan(after(current, plan(current, goal)), goal) == {}


@given(assignments(brokers=4))
def test_preferred_leaders_are_as_even_as_replicas_allow(given_: tuple[Assignment, list[int]]) -> None:
    """With every broker in every partition, leaders can be even; otherwise no lead can be passed to a broker with two
    fewer."""
    current, brokers = given_
    result = after(current, plan(current, Goal(dict.fromkeys(brokers))))
    counts = dict(zip(brokers, leads(result, brokers), strict=True))
    if all(len(replicas) == len(brokers) for replicas in current.values()):
        assert is_even(list(counts.values()))
    for replicas in result.values():
        assert all(counts[replicas[0]] - counts[other] <= 1 for other in replicas[1:])


@given(assignments(brokers=6), st.integers(1, 6))
def test_racks(given_: tuple[Assignment, list[int]], racks: int) -> None:
    current, brokers = given_
    rack_of = {broker: f"rack {broker % racks}" for broker in brokers}
    result = after(current, plan(current, Goal(rack_of)))
    check(result, current)
    for replicas in result.values():
        assert len({rack_of[one] for one in replicas}) == min(len(replicas), racks)


@given(assignments(brokers=6))
def test_a_broker_without_rack_makes_racks_count_for_nothing(given_: tuple[Assignment, list[int]]) -> None:
    current, brokers = given_
    some: dict[int, str | None] = dict.fromkeys(brokers, "same")
    some[1] = None
    assert plan(current, Goal(some)) == plan(current, Goal(dict.fromkeys(brokers)))


@given(assignments(brokers=5), st.integers(1, 2), st.booleans())
def test_a_drained_broker_loses_its_replicas_and_nothing_else_moves(
    given_: tuple[Assignment, list[int]], drained: int, with_racks: bool
) -> None:
    current, brokers = given_
    current = {partition: replicas[:4] for partition, replicas in current.items()}
    targets = {broker: f"rack {broker % 2}" if with_racks else None for broker in brokers if broker != drained}
    planned = plan(current, Goal(targets, spread=False))
    result = after(current, planned)
    check(result, current)
    assert set(planned) == {partition for partition, replicas in current.items() if drained in replicas}
    for partition, replicas in planned.items():
        assert drained not in replicas
        assert set(current[partition]) - {drained} <= set(replicas)


@given(assignments(brokers=5))
def test_a_broker_that_is_kept_gets_nothing_and_loses_nothing(given_: tuple[Assignment, list[int]]) -> None:
    current, brokers = given_
    planned = plan(current, Goal(dict.fromkeys(brokers[1:]), keeping={1}))
    assert loads(after(current, planned), [1]) == loads(current, [1])
    check(after(current, planned), current)


@given(assignments(brokers=5))
def test_to_other_brokers_altogether(given_: tuple[Assignment, list[int]]) -> None:
    current, _ = given_
    others = [11, 12, 13, 14, 15]
    result = after(current, plan(current, Goal(dict.fromkeys(others))))
    check(result, current)
    assert {broker for replicas in result.values() for broker in replicas} <= set(others)
    assert is_even(loads(result, others))


@given(assignments(brokers=5), st.integers(1, 5))
def test_another_replication_factor(given_: tuple[Assignment, list[int]], factor: int) -> None:
    current, brokers = given_
    planned = plan(current, Goal(dict.fromkeys(brokers), replication_factor=factor, spread=False))
    for partition, replicas in after(current, planned).items():
        assert len(set(replicas)) == len(replicas) == factor
        kept = set(replicas) & set(current[partition])
        assert len(kept) == min(factor, len(current[partition]))


def test_a_smaller_replication_factor_keeps_as_many_racks_as_it_can() -> None:
    partition = TopicPartition("a", 0)
    racks = {1: "x", 2: "x", 3: "y"}
    planned = plan({partition: (1, 2, 3)}, Goal(racks, replication_factor=2, spread=False))
    assert set(planned[partition]) == {1, 3}


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "there is no broker that could take replicas"),
        (
            [1, 2],
            "partition a-0 needs 3 replicas, but only brokers 1, 2 can take them: add a broker, or reduce the number "
            "of replicas with --replication-factor",
        ),
    ],
)
def test_what_cannot_be_planned(targets: list[int], message: str) -> None:
    with pytest.raises(PlanError) as raised:
        plan({TopicPartition("a", 0): (1, 2, 3)}, Goal(dict.fromkeys(targets)))
    assert str(raised.value) == message


def test_a_large_cluster_takes_a_few_steps_a_replica() -> None:
    """Two new brokers beside ten, 1,500 partitions."""
    current = {TopicPartition("a", n): tuple(1 + (n + step) % 10 for step in range(3)) for n in range(1500)}
    brokers = list(range(1, 13))
    planned = plan(current, Goal({broker: f"rack {broker % 3}" for broker in brokers}))
    result = after(current, planned)
    assert is_even(leads(result, brokers))
    assert all(len({one % 3 for one in replicas}) == 3 for replicas in result.values())
