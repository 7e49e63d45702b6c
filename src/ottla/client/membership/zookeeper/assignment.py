"""The partitions of a member, computed by each member for itself from what all of them see in ZooKeeper.

There is no leader: members agree because they compute the same result from the same nodes, exactly as Kafka 0.8's
consumers do, so both can be in one group. A member has one or more threads per topic (`<member>-0`, `<member>-1`, …);
partitions are assigned to threads. Ours has one.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.zookeeper.znodes import ConsumerPattern, ConsumerRegistration

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})


class AssignmentError(Exception):
    """The members' subscriptions do not allow an assignment; the message says why."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """What a member read from ZooKeeper."""

    members: Mapping[str, ConsumerRegistration]
    """By member id."""
    brokers: frozenset[int]
    partitions: Mapping[str, tuple[int, ...]]
    """The partitions of the existing topics that this member subscribes to."""
    topics: frozenset[str] = frozenset()
    """All existing topics, if any member subscribes by a pattern."""


Threads = Mapping[str, Sequence[str]]
"""By topic: its threads in order."""
Plan = Mapping[TopicPartition, str]
"""The partitions that a member should own, and the thread of each."""
Strategy = Callable[[GroupView, str, Threads], Plan]


def topics_of(member: ConsumerRegistration, topics: Collection[str], *, with_internal: bool) -> dict[str, int]:
    """Returns the number of threads for each topic that the member subscribes to. `topics` are all existing topics."""
    if member.pattern is ConsumerPattern.STATIC:
        return dict(member.streams)
    found: dict[str, int] = {}
    for text, count in list(member.streams.items())[:1]:
        try:
            pattern = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise AssignmentError(f"the pattern {text!r} is not a regular expression in Python: {error}") from None
        is_wanted = member.pattern is ConsumerPattern.WHITE_LIST
        for name in topics:
            if (pattern.fullmatch(name) is not None) == is_wanted and (with_internal or name not in INTERNAL_TOPICS):
                found[name] = count
    return found


def threads_by_topic(view: GroupView, *, with_internal: bool) -> dict[str, list[str]]:
    """Returns the threads of all members for each topic, in Java's order of their names."""
    threads: dict[str, list[str]] = {}
    for member_id, member in view.members.items():
        try:
            subscribed = topics_of(member, view.topics, with_internal=with_internal)
        except AssignmentError as error:
            raise AssignmentError(f"consumer {member_id}: {error}") from None
        for topic, count in subscribed.items():
            threads.setdefault(topic, []).extend(f"{member_id}-{number}" for number in range(count))
    return {topic: sorted(names, key=_java_order) for topic, names in threads.items()}


def plan_of(view: GroupView, member_id: str, strategy: Strategy, *, with_internal: bool) -> Plan:
    """Returns what the member should own; nothing if it is not in the group."""
    if member_id not in view.members:
        return {}
    return strategy(view, member_id, threads_by_topic(view, with_internal=with_internal))


def assign_range(view: GroupView, member_id: str, threads: Threads) -> Plan:
    """Assigns each topic separately: its partitions, in order, are divided into one range per thread; the first ranges
    have one more if the division leaves a remainder."""
    plan: dict[TopicPartition, str] = {}
    for topic, names in sorted(threads.items()):
        indexes = sorted(view.partitions.get(topic, ()))
        each, longer = divmod(len(indexes), len(names)) if names else (0, 0)
        for place, name in enumerate(names):
            if _member_of(name) == member_id:
                start = each * place + min(place, longer)
                end = start + each + (place < longer)
                plan |= {TopicPartition(topic, index): name for index in indexes[start:end]}
    return plan


def assign_round_robin(view: GroupView, member_id: str, threads: Threads) -> Plan:
    """Deals all partitions of all topics, in the order of a hash that mixes topics, to the threads in turn. All members
    must have the same subscription."""
    by_topic = {topic: tuple(names) for topic, names in threads.items()}
    for topic, names in sorted(by_topic.items()):
        first = min(by_topic)
        if names != by_topic[first]:
            raise AssignmentError(
                "partition.assignment.strategy=roundrobin needs members that all subscribe to the same topics, each "
                f"with the same number of threads for every topic: the threads of topic {first!r} are "
                f"{', '.join(by_topic[first])}, those of {topic!r} are {', '.join(names)}"
            )
    names = next(iter(by_topic.values()), ())
    partitions = [
        TopicPartition(topic, index) for topic in sorted(by_topic) for index in view.partitions.get(topic, ())
    ]
    partitions.sort(key=lambda one: _java_hash(f"[{one.topic},{one.partition}]"))
    dealt = {one: names[place % len(names)] for place, one in enumerate(partitions)} if names else {}
    return {one: name for one, name in dealt.items() if _member_of(name) == member_id}


STRATEGIES: Final[Mapping[str, Strategy]] = {"range": assign_range, "roundrobin": assign_round_robin}


def _member_of(thread: str) -> str:
    return thread.rpartition("-")[0]


def _java_order(text: str) -> bytes:
    """Java compares UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def _java_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (value * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value
