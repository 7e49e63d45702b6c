"""Spreads the replicas of new partitions over brokers, as Kafka does. Pure; randomness is given.

Leaders go round the brokers from a random start. Followers of the partitions that one broker leads are spread over the
others by a shift, which grows by one each time round. With racks, the list of brokers alternates between racks, and a
partition gets no second replica in a rack, or on a broker, before all racks and brokers have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Replicas = tuple[int, ...]
Choose = Callable[[int], int]
"""A random number from 0 up to, and without, the given one."""


def spread(
    partition_count: int,
    replication_factor: int,
    racks: Mapping[int, str | None],
    choose: Choose,
    *,
    start_partition: int = 0,
    start_index: int | None = None,
) -> list[Replicas]:
    """Replicas for this many partitions on brokers with these racks, of which there must be enough. Racks count only
    if every broker has one. `start_partition` and `start_index` continue an earlier spread, for added partitions."""
    named = {broker: rack for broker, rack in racks.items() if rack is not None}
    is_by_rack = len(named) == len(racks)
    brokers = alternated(named) if is_by_rack else sorted(racks)
    count = len(brokers)
    rack_count = len(set(named.values()))
    start = choose(count) if start_index is None else start_index
    shift = choose(count) if start_index is None else start_index
    assigned = []
    for partition in range(start_partition, start_partition + partition_count):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        if is_by_rack:
            assigned.append(_across_racks(brokers, named, rack_count, first, shift, replication_factor))
        else:
            followers = (brokers[_place(first, shift, each, count)] for each in range(replication_factor - 1))
            assigned.append((brokers[first], *followers))
    return assigned


def alternated(racks: Mapping[int, str]) -> list[int]:
    """Brokers so that neighbours are in different racks, as far as possible."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    waiting = [by_rack[rack] for rack in sorted(by_rack)]
    arranged: list[int] = []
    depth = 0
    while len(arranged) < len(racks):
        arranged += [brokers[depth] for brokers in waiting if depth < len(brokers)]
        depth += 1
    return arranged


def _across_racks(
    brokers: list[int], racks: Mapping[int, str], rack_count: int, first: int, shift: int, factor: int
) -> Replicas:
    replicas = [brokers[first]]
    used_racks = {racks[brokers[first]]}
    tried = 0
    while len(replicas) < factor:
        broker = brokers[_place(first, shift * rack_count, tried, len(brokers))]
        tried += 1
        is_rack_free = racks[broker] not in used_racks or len(used_racks) == rack_count
        if is_rack_free and broker not in replicas:
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)


def _place(first: int, shift: int, follower: int, count: int) -> int:
    """The position of a follower: never that of the leader."""
    return (first + 1 + (shift + follower) % (count - 1)) % count
