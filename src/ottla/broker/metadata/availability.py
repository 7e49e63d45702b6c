"""Which of a partition's replicas are available, as responses show it."""

from __future__ import annotations

from collections.abc import Container

from ottla.controller.state import NO_LEADER, PartitionState


def leader_of(partition: PartitionState, live: Container[int]) -> int:
    """The leader if clients can reach it, else `NO_LEADER`."""
    return partition.leader if partition.leader in live else NO_LEADER


def offline_replicas(partition: PartitionState, live: Container[int]) -> list[int]:
    """Replicas on brokers that are down, or in a failed log directory: a partition without a leader but with a live
    in-sync replica means the latter."""
    failed = partition.isr if partition.leader == NO_LEADER else ()
    return [replica for replica in partition.replicas if replica not in live or replica in failed]
