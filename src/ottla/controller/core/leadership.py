"""The leader and the in-sync replicas of a partition, as the controller caches them. Pure.

Every change that the controller itself makes raises the leader epoch, because brokers ignore a LeaderAndIsr request
whose leader epoch they know. Changes proposed by a leader (AlterPartition) keep it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ottla.base.coordination import Znode
from ottla.zookeeper.znodes import PartitionLeader

NO_LEADER: Final = -1
LEADER_DURING_DELETION: Final = -2
EPOCH_DURING_DELETION: Final = -2


@dataclass(frozen=True, slots=True)
class Leadership:
    """`version` is the version of the partition's state node, which is Kafka's partition epoch in ZooKeeper mode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int = 0
    is_recovering: bool = False

    def led_by(self, leader: int, isr: tuple[int, ...] | None = None, *, is_unclean: bool = False) -> Leadership:
        """The next leader epoch, with this leader. An unclean leader has to recover; others keep that state."""
        return replace(
            self,
            leader=leader,
            leader_epoch=self.leader_epoch + 1,
            isr=self.isr if isr is None else isr,
            is_recovering=True if is_unclean else self.is_recovering,
        )

    def without(self, replica: int) -> Leadership:
        """The next leader epoch, with this replica out of the ISR. The last member stays: only it is known to have
        all committed records."""
        leader = NO_LEADER if self.leader == replica else self.leader
        isr = self.isr if len(self.isr) == 1 else tuple(member for member in self.isr if member != replica)
        return self.led_by(leader, isr)

    def encode(self, controller_epoch: int) -> bytes:
        """The content of the state node, as written by the controller of that epoch."""
        return PartitionLeader(self.leader, self.leader_epoch, self.isr, controller_epoch, self.is_recovering).encode()

    def written(self, controller_epoch: int, version: int) -> Leadership:
        return replace(self, controller_epoch=controller_epoch, version=version)

    @classmethod
    def decode(cls, path: str, node: Znode) -> Leadership:
        state = PartitionLeader.decode(path, node.data)
        return cls(
            state.leader, state.leader_epoch, state.isr, state.controller_epoch, node.version, state.is_recovering
        )
