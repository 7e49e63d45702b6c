"""What the controller decides about one partition: who leads it, who is in sync. As in a LeaderAndIsr request."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_LEADER: Final = -1


class PartitionRole(NamedTuple):
    """`partition_epoch` is the version of the partition's znode: each change of the in-sync replicas raises it, while
    `leader_epoch` rises only when the controller writes."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0
    controller_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_recovering: bool = False
    """The leader was elected uncleanly (KIP-704)."""
