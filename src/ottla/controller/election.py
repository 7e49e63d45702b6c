"""Elects the next leader of a partition. Pure: nothing here writes or sends.

| case | new leader | in-sync replicas afterwards | leader epoch |
| --- | --- | --- | --- |
| new partition | its first live replica | all live replicas | 0 |
| no live leader | the first live replica in sync | live replicas that were in sync | + 1 |
| no live leader, none in sync is alive, unclean | the first live replica | the new leader alone | + 1 |
| preferred leader wanted | its first replica, if alive and in sync | as before | + 1 |
| leader lost, no successor | none | as before | + 1 |

`version` counts the writes to the partition's node, so it rises with each of these; -1 stands for no node yet.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from ottla.controller.state import NO_LEADER, PartitionState

NO_NODE: Final = -1


def unelected(replicas: tuple[int, ...]) -> PartitionState:
    """A partition that was assigned but has had no leader yet."""
    return PartitionState(replicas, NO_LEADER, 0, (), controller_epoch=0, version=NO_NODE)


def elect_first(partition: PartitionState, live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """Elects the first leader of a new partition; None if none of its replicas is alive."""
    in_sync = tuple(replica for replica in partition.replicas if replica in live)
    if not in_sync:
        return None
    return replace(partition, leader=in_sync[0], isr=in_sync, controller_epoch=controller_epoch, version=0)


def elect_next(
    partition: PartitionState, live: Collection[int], controller_epoch: int, *, unclean: bool = False
) -> PartitionState | None:
    """Elects a leader after the last one is gone; None if no replica is eligible."""
    candidates = [replica for replica in partition.replicas if replica in live]
    for replica in candidates:
        if replica in partition.isr:
            in_sync = tuple(member for member in partition.isr if member in live)
            return _led(partition, replica, in_sync, controller_epoch)
    if unclean and candidates:
        return _led(partition, candidates[0], (candidates[0],), controller_epoch)
    return None


def elect_preferred(partition: PartitionState, live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """Elects the preferred leader, the first assigned replica; None if it is not alive or not in sync."""
    preferred = partition.replicas[0]
    if preferred not in live or preferred not in partition.isr:
        return None
    return _led(partition, preferred, partition.isr, controller_epoch)


def without_leader(partition: PartitionState, controller_epoch: int) -> PartitionState:
    """The leader is gone and there is no successor. In-sync replicas are kept: one of them may lead when it is back."""
    return _led(partition, NO_LEADER, partition.isr, controller_epoch)


def _led(partition: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState:
    return replace(
        partition,
        leader=leader,
        isr=isr,
        leader_epoch=partition.leader_epoch + 1,
        controller_epoch=controller_epoch,
        version=partition.version + 1,
    )
