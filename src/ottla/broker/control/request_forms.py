"""The control requests in one form, whatever the version: older ones list partitions without their topics, and know one
address of a broker, or one a security protocol. And what no controller can mean, which is not carried out: Kafka's
brokers believe everything, and a name becomes a path. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.broker.metadata.metadata_cache import BrokerEndpoint
from ottla.controller.topic_names import fault_of_name
from ottla.replication.role import PartitionRole
from ottla.wire.messages.leader_and_isr import LeaderAndIsrPartition, LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataPartition, UpdateMetadataRequest

NO_EPOCH: Final = -1
"""Of a StopReplica request that is too old to have a leader epoch."""
EPOCH_DURING_DELETE: Final = -2
LEADER_DURING_DELETE: Final = -2
PARTITION_MAX: Final = 1_000_000
"""No cluster has as many; a list of all partitions up to the highest is kept in memory."""
_RECOVERING: Final = 1
_SECURITY_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


class WantedRole(NamedTuple):
    """A partition that this broker is to lead or follow."""

    name: TopicPartition
    topic_id: Uuid
    """`ZERO_UUID` if the controller does not know topic ids."""
    role: PartitionRole
    is_new: bool
    """Whether the partition has just been created: it can have no log yet."""


class StoppedReplica(NamedTuple):
    """A partition whose replica this broker is to stop."""

    name: TopicPartition
    leader_epoch: int
    delete: bool


class TopicUpdate(NamedTuple):
    """Partitions of a topic as the cluster knows them now."""

    name: str
    topic_id: Uuid
    partitions: list[UpdateMetadataPartition]


def fault_of_index(index: int) -> str | None:
    """Why this cannot be a partition of any topic; None if it can."""
    return None if 0 <= index <= PARTITION_MAX else f"a topic cannot have partition {index}"


def fault_of_role(wanted: WantedRole) -> str | None:
    """Why no controller can want this; None if one can."""
    role = wanted.role
    for what, brokers in (("replicas", role.replicas), ("in-sync replicas", role.isr)):
        if len(set(brokers)) < len(brokers) or any(broker < 0 for broker in brokers):
            return f"its {what} are {brokers}"
    if role.leader_epoch < 0:
        return f"its leader epoch is {role.leader_epoch}"
    if role.leader >= 0 and role.leader not in role.replicas:
        return f"its leader {role.leader} is not among its replicas {role.replicas}"
    return fault_of_index(wanted.name.partition) or fault_of_name(wanted.name.topic)


def wanted_roles(request: LeaderAndIsrRequest) -> list[WantedRole]:
    ungrouped = [
        _wanted(each.topic_name, ZERO_UUID, each, request.controller_epoch)
        for each in request.ungrouped_partition_states
    ]
    return ungrouped + [
        _wanted(topic.topic_name, topic.topic_id, each, request.controller_epoch)
        for topic in request.topic_states
        for each in topic.partition_states
    ]


def _wanted(topic: str, topic_id: Uuid, state: LeaderAndIsrPartition, controller_epoch: int) -> WantedRole:
    role = PartitionRole(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        replicas=tuple(state.replicas),
        partition_epoch=state.partition_epoch,
        controller_epoch=controller_epoch,
        adding=tuple(state.adding_replicas),
        removing=tuple(state.removing_replicas),
        is_recovering=state.leader_recovery_state == _RECOVERING,
    )
    return WantedRole(TopicPartition(topic, state.partition_index), topic_id, role, state.is_new)


def stopped_replicas(request: StopReplicaRequest) -> list[StoppedReplica]:
    delete = request.delete_partitions
    return [
        *(
            StoppedReplica(TopicPartition(each.topic_name, each.partition_index), NO_EPOCH, delete)
            for each in request.ungrouped_partitions
        ),
        *(
            StoppedReplica(TopicPartition(topic.name, index), NO_EPOCH, delete)
            for topic in request.topics
            for index in topic.partition_indexes
        ),
        *(
            StoppedReplica(
                TopicPartition(topic.topic_name, each.partition_index), each.leader_epoch, each.delete_partition
            )
            for topic in request.topic_states
            for each in topic.partition_states
        ),
    ]


def topic_updates(request: UpdateMetadataRequest) -> list[TopicUpdate]:
    ungrouped: dict[str, TopicUpdate] = {}
    for each in request.ungrouped_partition_states:
        ungrouped.setdefault(each.topic_name, TopicUpdate(each.topic_name, ZERO_UUID, [])).partitions.append(each)
    return [
        *ungrouped.values(),
        *(TopicUpdate(topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states),
    ]


def broker_endpoints(request: UpdateMetadataRequest) -> Iterator[tuple[str, BrokerEndpoint]]:
    """Each endpoint of each live broker, with the name of its listener."""
    for broker in request.live_brokers:
        if not broker.endpoints and broker.v0_host:
            yield "PLAINTEXT", BrokerEndpoint(broker.id, broker.v0_host, broker.v0_port, broker.rack or None)
        for each in broker.endpoints:
            listener = each.listener or _SECURITY_PROTOCOLS.get(each.security_protocol, "PLAINTEXT")
            yield listener, BrokerEndpoint(broker.id, each.host, each.port, broker.rack or None)
