"""Which of a partition's replicas are available, as responses show it."""

from __future__ import annotations

from collections.abc import Container

from ottla.controller.state import NO_LEADER, PartitionState


def leader_of(partition: PartitionState, live: Container[int]) -> int:
    """The leader if clients can reach it, else `NO_LEADER`."""
    return partition.leader if partition.leader in live else NO_LEADER


def offline_replicas(partition: PartitionState, live: Container[int]) -> list[int]:
    """Replicas on brokers that are down, or in a failed log directory. A cluster's controller has told them. In a lone
    broker, a partition without a leader but with a live in-sync replica means a failed log directory."""
    told = partition.offline_replicas
    if told is not None:
        return [replica for replica in partition.replicas if replica in told or replica not in live]
    failed = partition.isr if partition.leader == NO_LEADER else ()
    return [replica for replica in partition.replicas if replica not in live or replica in failed]
