"""Shares of members, as Kafka 0.8's consumers compute them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import TopicPartition
from ottla.client.membership.zookeeper.assignment import (
    AssignmentError,
    GroupView,
    Strategy,
    assign_range,
    assign_round_robin,
    plan_of,
    topics_of,
)
from ottla.zookeeper.znodes import ConsumerPattern, ConsumerRegistration

STATIC, WHITE, BLACK = ConsumerPattern.STATIC, ConsumerPattern.WHITE_LIST, ConsumerPattern.BLACK_LIST


def registered(streams: Mapping[str, int], pattern: ConsumerPattern = STATIC) -> ConsumerRegistration:
    return ConsumerRegistration(streams, pattern, 0)


def view(members: Mapping[str, ConsumerRegistration], sizes: Mapping[str, int]) -> GroupView:
    partitions = {topic: tuple(range(size)) for topic, size in sizes.items()}
    return GroupView(members, frozenset({1}), partitions, frozenset(sizes))


def shares(seen: GroupView, strategy: Strategy = assign_range) -> dict[str, dict[str, list[int]]]:
    """By thread and topic."""
    found: dict[str, dict[str, list[int]]] = {}
    for member in seen.members:
        for (topic, index), thread in plan_of(seen, member, strategy, with_internal=False).items():
            found.setdefault(thread, {}).setdefault(topic, []).append(index)
    return found


def test_ranges_are_cut_per_topic_and_the_first_are_longer() -> None:
    members = {name: registered({"t": 1, "u": 1}) for name in ("g_b", "g_a", "g_c")}
    assert shares(view(members, {"t": 7, "u": 2})) == {
        "g_a-0": {"t": [0, 1, 2], "u": [0]},
        "g_b-0": {"t": [3, 4], "u": [1]},
        "g_c-0": {"t": [5, 6]},
    }


def test_threads_of_one_member_count_each() -> None:
    members = {"g_a": registered({"t": 2}), "g_b": registered({"t": 1})}
    assert shares(view(members, {"t": 5})) == {"g_a-0": {"t": [0, 1]}, "g_a-1": {"t": [2, 3]}, "g_b-0": {"t": [4]}}


def test_threads_are_in_the_order_of_their_names() -> None:
    """As texts: the eleventh thread comes before the third."""
    members = {"g": registered({"t": 12})}
    found = shares(view(members, {"t": 12}))
    assert [found[f"g-{number}"]["t"] for number in (0, 1, 10, 11, 2)] == [[0], [1], [2], [3], [4]]


def test_names_are_compared_as_java_does() -> None:
    """By UTF-16 units: what lies beyond the first plane comes before what is at its end."""
    members = {"g_\uffee": registered({"t": 1}), "g_\U0001f600": registered({"t": 1})}
    assert shares(view(members, {"t": 2})) == {"g_\U0001f600-0": {"t": [0]}, "g_\uffee-0": {"t": [1]}}


def test_members_have_only_what_they_subscribe_to() -> None:
    members = {"g_a": registered({"t": 1}), "g_b": registered({"t": 1, "u": 1}), "g_c": registered({"missing": 1})}
    assert shares(view(members, {"t": 2, "u": 2})) == {"g_a-0": {"t": [0]}, "g_b-0": {"t": [1], "u": [0, 1]}}
    assert plan_of(view(members, {"t": 2}), "g_gone", assign_range, with_internal=False) == {}


def test_partitions_need_not_begin_at_0() -> None:
    members = {"g_a": registered({"t": 1}), "g_b": registered({"t": 1})}
    seen = GroupView(members, frozenset({1}), {"t": (9, 3, 5)})
    assert shares(seen) == {"g_a-0": {"t": [3, 5]}, "g_b-0": {"t": [9]}}


def test_patterns() -> None:
    topics = ["a", "ab", "b", "__consumer_offsets", "__transaction_state"]
    white, black = registered({"a.*": 2}, WHITE), registered({"a.*|_.*": 1}, BLACK)
    assert topics_of(white, topics, with_internal=False) == {"a": 2, "ab": 2}
    assert topics_of(black, topics, with_internal=True) == {"b": 1}
    assert set(topics_of(registered({".*": 1}, WHITE), topics, with_internal=True)) == set(topics)
    assert set(topics_of(registered({".*": 1}, WHITE), topics, with_internal=False)) == {"a", "ab", "b"}
    assert topics_of(registered({}, WHITE), topics, with_internal=True) == {}
    assert topics_of(registered({"__consumer_offsets": 1}), [], with_internal=False) == {"__consumer_offsets": 1}


def test_a_pattern_that_python_cannot_read_names_its_member() -> None:
    members = {"g_a": registered({"t": 1}), "g_jvm": registered({"a{1|2}(": 1}, WHITE)}
    with pytest.raises(AssignmentError, match=r"consumer g_jvm: the pattern 'a\{1\|2\}\(' is not a regular expression"):
        shares(view(members, {"t": 1}))


def test_round_robin_deals_in_the_order_of_hashes() -> None:
    """Of Java's `"[topic,partition]".hashCode()`: [orders,0] has -1,093,576,615, [t,0] has 87,540,032, [clicks,0] has
    1,627,908,499, and each next partition 31 more."""
    members = {name: registered({"t": 1, "clicks": 1, "orders": 1}) for name in ("g_a", "g_b")}
    assert shares(view(members, {"t": 3, "clicks": 2, "orders": 2}), assign_round_robin) == {
        "g_a-0": {"orders": [0], "t": [0, 2], "clicks": [1]},
        "g_b-0": {"orders": [1], "t": [1], "clicks": [0]},
    }


def test_round_robin_needs_members_that_are_alike() -> None:
    members = {"g_a": registered({"t": 1, "u": 1}), "g_b": registered({"t": 1})}
    with pytest.raises(AssignmentError, match=r"the threads of topic 't' are g_a-0, g_b-0, those of 'u' are g_a-0"):
        shares(view(members, {"t": 1, "u": 1}), assign_round_robin)
    members = {"g_a": registered({"t": 1, "u": 2})}
    with pytest.raises(AssignmentError, match="needs members that all subscribe to the same topics"):
        shares(view(members, {"t": 1, "u": 1}), assign_round_robin)


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.dictionaries(st.sampled_from("tuv"), st.integers(1, 3)), min_size=1
    ),
    st.dictionaries(st.sampled_from("tuv"), st.integers(0, 9)),
)
def test_each_partition_that_anybody_wants_has_one_owner(
    streams: dict[str, dict[str, int]], sizes: dict[str, int]
) -> None:
    seen = view({f"g_{name}": registered(one) for name, one in streams.items()}, sizes)
    owners: dict[TopicPartition, list[str]] = {}
    counts: dict[tuple[str, str], int] = {}
    for thread, by_topic in shares(seen).items():
        for topic, indexes in by_topic.items():
            assert topic in streams[thread[2]]
            counts[thread, topic] = len(indexes)
            for index in indexes:
                owners.setdefault(TopicPartition(topic, index), []).append(thread)
    wanted = {topic for one in streams.values() for topic in one}
    assert owners.keys() == {
        TopicPartition(topic, index) for topic, size in sizes.items() if topic in wanted for index in range(size)
    }
    assert all(len(some) == 1 for some in owners.values())
    for topic, size in sizes.items():
        shared = [count for (_, one), count in counts.items() if one == topic]
        threads = sum(one.get(topic, 0) for one in streams.values())
        if shared:
            assert max(shared) - (min(shared) if threads <= size else 0) <= 1
