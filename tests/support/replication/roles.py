"""Gives a partition a role, as the controller does, with the next partition epoch."""

from __future__ import annotations

from ottla.replication.partition import Partition
from ottla.replication.role import PartitionRole


def lead(
    partition: Partition,
    *,
    leader_epoch: int,
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    now_s: float = 0.0,
) -> bool:
    role = PartitionRole(partition.broker_id, leader_epoch, isr, replicas, partition.partition_epoch + 1)
    return partition.lead(role, now_s)


def follow(
    partition: Partition,
    leader: int,
    *,
    leader_epoch: int,
    isr: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (),
) -> bool:
    return partition.follow(PartitionRole(leader, leader_epoch, isr, replicas, partition.partition_epoch + 1))
