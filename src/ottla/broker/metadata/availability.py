"""Who of a partition's brokers can be reached, as clients are told."""

from __future__ import annotations

from collections.abc import Container

from ottla.controller.state import NO_LEADER, PartitionState


def leader_of(partition: PartitionState, live: Container[int]) -> int:
    """The leader if clients can reach it, else `NO_LEADER`."""
    return partition.leader if partition.leader in live else NO_LEADER


def offline_replicas(partition: PartitionState, live: Container[int]) -> list[int]:
    """Replicas on brokers that are not there, or in a log directory that failed: only for that would a partition be
    without a leader while somebody in sync is there."""
    failed = partition.isr if partition.leader == NO_LEADER else ()
    return [replica for replica in partition.replicas if replica not in live or replica in failed]
