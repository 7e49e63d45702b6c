"""Distributes partitions evenly over members, which keep their previous partitions as far as possible.

If all members subscribe to the same topics, their numbers of partitions differ by at most one, and no partition moves
that could have stayed. If subscriptions differ, a partition moves, possibly through other members, as long as that
takes one from a member and gives one to another that has at least two fewer. The result is as balanced as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from ottla.base.ids import TopicPartition
from ottla.client.membership.assignors.assignor import Assignment, Topics


def balance(
    topics: Topics, subscriptions: Mapping[str, frozenset[str]], owners: Mapping[TopicPartition, str]
) -> Assignment:
    """Returns each member's partitions, in order. `owners` are the previous owners of partitions; it may contain only
    owners that are still subscribed, and only partitions that still exist."""
    known = {member_id: frozenset(topics) & mine for member_id, mine in sorted(subscriptions.items())}
    if len(set(known.values())) == 1:
        return _spread(topics, known, owners)
    return _shift(topics, known, owners)


def _spread(
    topics: Topics, subscriptions: Mapping[str, frozenset[str]], owners: Mapping[TopicPartition, str]
) -> Assignment:
    """For members that all have the same subscription."""
    held: Assignment = {member_id: [] for member_id in subscriptions}
    free = []
    for partition in _partitions(topics, next(iter(subscriptions.values()))):
        owner = owners.get(partition)
        if owner is None:
            free.append(partition)
        else:
            held[owner].append(partition)
    each, one_more = divmod(len(free) + sum(map(len, held.values())), len(held))
    for mine in held.values():
        keep = each
        if len(mine) > each and one_more:
            keep, one_more = each + 1, one_more - 1
        free += mine[keep:]
        del mine[keep:]
    free.sort()
    _deal(free, [mine for mine in held.values() if len(mine) < each], each)
    _deal(free, [mine for mine in held.values() if len(mine) == each], each + 1)
    return {member_id: sorted(mine) for member_id, mine in held.items()}


def _deal(free: list[TopicPartition], hands: list[list[TopicPartition]], full: int) -> None:
    """Deals partitions in turn, until none is left or every hand is full."""
    lacking = sum(full - len(hand) for hand in hands)
    dealt = free[:lacking]
    del free[:lacking]
    turn = cycle(hands)
    for partition in dealt:
        while len(hand := next(turn)) >= full:
            pass
        hand.append(partition)


def _shift(
    topics: Topics, subscriptions: Mapping[str, frozenset[str]], owners: Mapping[TopicPartition, str]
) -> Assignment:
    """For members with different subscriptions."""
    subscribers: dict[str, list[str]] = {}
    for member_id, mine in subscriptions.items():
        for topic in mine:
            subscribers.setdefault(topic, []).append(member_id)
    held: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in subscriptions}
    load = dict.fromkeys(subscriptions, 0)

    def give(partition: TopicPartition, member_id: str) -> None:
        held[member_id].setdefault(partition.topic, []).append(partition.partition)
        load[member_id] += 1

    def least_loaded(topic: str) -> str:
        return min(subscribers[topic], key=lambda member_id: (load[member_id], member_id))

    free = []
    for partition in _partitions(topics, subscribers):
        owner = owners.get(partition)
        if owner is None:
            free.append(partition)
        else:
            give(partition, owner)
    # Partitions with few possible owners go first, so that later choices take them into account.
    for partition in sorted(free, key=lambda one: (len(subscribers[one.topic]), one)):
        give(partition, least_loaded(partition.topic))

    # Every shift reduces the sum of the squares of the loads, so this terminates.
    shifted = True
    while shifted:
        shifted = False
        for giver in sorted(load, key=lambda member_id: (-load[member_id], member_id)):
            while path := _way_out(giver, held, subscribers, load):
                for source, topic, taker in path:
                    index = _to_move(topic, held[source][topic], source, taker, owners)
                    held[source][topic].remove(index)
                    load[source] -= 1
                    give(TopicPartition(topic, index), taker)
                shifted = True
    return {
        member_id: sorted(TopicPartition(topic, index) for topic, indexes in mine.items() for index in indexes)
        for member_id, mine in held.items()
    }


def _way_out(
    giver: str,
    held: Mapping[str, Mapping[str, Sequence[int]]],
    subscribers: Mapping[str, Sequence[str]],
    load: Mapping[str, int],
) -> list[tuple[str, str, str]]:
    """Returns the fewest moves, each of one topic from a member to another, after which the giver has one partition
    less and a member with at least two fewer has one more; empty if there are none."""
    ways: dict[str, list[tuple[str, str, str]]] = {giver: []}
    reached = [giver]
    for member_id in reached:
        for topic, indexes in held[member_id].items():
            if indexes:
                for taker in subscribers[topic]:
                    if taker not in ways:
                        ways[taker] = [*ways[member_id], (member_id, topic, taker)]
                        if load[giver] - load[taker] > 1:
                            return ways[taker]
                        reached.append(taker)
    return []


def _to_move(topic: str, indexes: Sequence[int], giver: str, taker: str, owners: Mapping[TopicPartition, str]) -> int:
    """Prefers a partition that the taker had before, then one that the giver did not have before."""

    def cost(index: int) -> tuple[int, int]:
        owner = owners.get(TopicPartition(topic, index))
        return (0 if owner == taker else 2 if owner == giver else 1), -index

    return min(indexes, key=cost)


def _partitions(topics: Topics, some: Mapping[str, object] | frozenset[str]) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in sorted(some) for index in range(len(topics[topic]))]
