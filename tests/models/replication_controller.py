"""The smallest controller that is correct: one partition, clean elections only. For the model of replication.

It knows brokers by their epochs, changes the partition's state only for good reasons, and has messages for brokers,
which the model delivers when it likes."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode
from ottla.replication.role import NO_LEADER, PartitionRole
from ottla.wire.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)


class ModelController:
    """See the module."""

    def __init__(self, replicas: tuple[int, ...]) -> None:
        self.role = PartitionRole(replicas[0], 0, replicas, replicas, partition_epoch=0)
        self.alive: dict[int, int] = {}
        """Broker → its epoch."""
        self.outbox: list[tuple[int, int, PartitionRole]] = []
        """Broker, the epoch of the process that it is for, the role."""

    def _change(self, **changes: object) -> None:
        role = self.role
        self.role = role._replace(
            leader_epoch=role.leader_epoch + 1,
            partition_epoch=role.partition_epoch + 1,
            **changes,  # type: ignore[arg-type]
        )
        for broker in self.alive:
            self._tell(broker)

    def _tell(self, broker: int) -> None:
        self.outbox.append((broker, self.alive[broker], self.role))

    def started(self, broker: int, epoch: int) -> None:
        self.alive[broker] = epoch
        if self.role.leader == NO_LEADER and broker in self.role.isr:
            self._change(leader=broker)
        else:
            self._tell(broker)

    def failed(self, broker: int) -> None:
        self.alive.pop(broker, None)
        role = self.role
        isr = tuple(member for member in role.isr if member != broker) or role.isr
        if role.leader == broker:
            self._change(isr=isr, leader=next((member for member in isr if member in self.alive), NO_LEADER))
        elif isr != role.isr:
            self._change(isr=isr)

    def move_leader(self, broker: int) -> None:
        if broker in self.role.isr and broker in self.alive and broker != self.role.leader:
            self._change(leader=broker)

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.alive.get(request.broker_id) != request.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        asked = request.topics[0].partitions[0]
        isr = tuple(member.broker_id for member in asked.new_isr_with_epochs)
        role, error = self.role, ErrorCode.NONE
        if asked.leader_epoch != role.leader_epoch or request.broker_id != role.leader:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif set(isr) != set(role.isr):  # otherwise it was done before
            if asked.partition_epoch != role.partition_epoch:
                error = ErrorCode.INVALID_UPDATE_VERSION
            elif any(
                self.alive.get(member.broker_id) is None
                or member.broker_epoch not in (-1, self.alive[member.broker_id])
                for member in asked.new_isr_with_epochs
            ):
                error = ErrorCode.INELIGIBLE_REPLICA
            else:
                self.role = role = role._replace(isr=isr, partition_epoch=role.partition_epoch + 1)
        answer = AlterPartitionPartitionResponse(
            partition_index=asked.partition_index,
            error_code=error,
            leader_id=role.leader,
            leader_epoch=role.leader_epoch,
            isr=list(role.isr),
            partition_epoch=role.partition_epoch,
        )
        topic = AlterPartitionTopicResponse(topic_id=request.topics[0].topic_id, partitions=[answer])
        return AlterPartitionResponse(topics=[topic])
