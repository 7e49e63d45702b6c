"""Requests of one transition, batched per broker: LeaderAndIsr, then UpdateMetadata, then StopReplica, as Kafka 3.9 in
ZooKeeper mode sends them. Pure.

`type` is left at 0 ("unknown"): only a KRaft controller that migrates a cluster tells full from incremental requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.base.ids import ZERO_UUID, TopicPartition
from ottla.controller.core.context import ControllerContext
from ottla.controller.core.effects import ControlRequest, Send, Step
from ottla.controller.core.leadership import LEADER_DURING_DELETION, Leadership
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrTopic,
)
from ottla.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataTopic,
)
from ottla.zookeeper.znodes import ReplicaAssignment

_SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class RequestBatch:
    """Collects what brokers must be told; `send` yields it. Use one for each transition."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._roles: dict[int, dict[TopicPartition, LeaderAndIsrPartition]] = {}
        self._made: dict[tuple[TopicPartition, bool], tuple[Leadership, ReplicaAssignment, LeaderAndIsrPartition]] = {}
        """Roles that several brokers are told."""
        self._stops: dict[int, dict[TopicPartition, bool]] = {}
        self._told: set[int] = set()
        self._news: dict[TopicPartition, None] = {}

    def tell_role(self, broker_ids: Iterable[int], name: TopicPartition, *, is_new: bool) -> None:
        """LeaderAndIsr for these brokers, and the partition's metadata for all. `is_new`: the replica cannot be in a
        log directory that is offline, so the broker may create it."""
        context = self._context
        assignment = context.assignment(name) or ReplicaAssignment(())
        leadership = context.leaderships[name]
        for broker_id in broker_ids:
            if broker_id < 0:
                continue
            roles = self._roles.setdefault(broker_id, {})
            before = roles.get(name)
            new = is_new or (before is not None and before.is_new)
            made = self._made.get((name, new))
            if made is None or made[0] is not leadership or made[1] is not assignment:
                role = _role(name.partition, leadership, assignment, is_new=new)
                made = self._made[name, new] = leadership, assignment, role
            roles[name] = made[2]
        self._told.update(context.brokers)
        self._news[name] = None

    def tell_metadata(self, names: Iterable[TopicPartition], broker_ids: Iterable[int] | None = None) -> None:
        """UpdateMetadata about these partitions, also to brokers that shut down: by default to all. Partitions that
        never had a leader are left out."""
        self._told.update(self._context.brokers if broker_ids is None else broker_ids)
        for name in names:
            if name in self._context.leaderships:
                self._news[name] = None

    def tell_stop(self, broker_id: int, name: TopicPartition, *, delete: bool) -> None:
        stops = self._stops.setdefault(broker_id, {})
        stops[name] = delete or stops.get(name, False)

    def send(self) -> Step[None]:
        requests = self.take()
        if requests:
            yield Send(requests)

    def take(self) -> list[ControlRequest]:
        """The requests, for brokers that are registered; the batch is empty afterwards."""
        brokers = self._context.brokers
        requests = [
            ControlRequest(broker_id, self._leader_and_isr(broker_id, roles))
            for broker_id, roles in self._roles.items()
            if broker_id in brokers
        ]
        told = [broker_id for broker_id in brokers if broker_id in self._told]
        if told:
            topics, alive = self._metadata_topics(), self._live_brokers()
            requests += [
                ControlRequest(
                    broker_id,
                    UpdateMetadataRequest(
                        controller_id=self._context.controller_id,
                        controller_epoch=self._context.epoch,
                        broker_epoch=brokers[broker_id].epoch,
                        topic_states=topics,
                        live_brokers=alive,
                    ),
                )
                for broker_id in told
            ]
        requests += [
            ControlRequest(broker_id, self._stop_replica(broker_id, stops))
            for broker_id, stops in self._stops.items()
            if broker_id in brokers
        ]
        self._roles, self._made, self._stops, self._told, self._news = {}, {}, {}, set(), {}
        return requests

    def _leader_and_isr(
        self, broker_id: int, roles: dict[TopicPartition, LeaderAndIsrPartition]
    ) -> LeaderAndIsrRequest:
        context = self._context
        topics: dict[str, LeaderAndIsrTopic] = {}
        leaders = set()
        for (topic_name, _), role in roles.items():
            leaders.add(role.leader)
            topic = topics.get(topic_name)
            if topic is None:
                known = context.topics.get(topic_name)
                topic_id = ZERO_UUID if known is None or known.topic_id is None else known.topic_id
                topic = topics[topic_name] = LeaderAndIsrTopic(topic_name=topic_name, topic_id=topic_id)
            topic.partition_states.append(role)
        return LeaderAndIsrRequest(
            controller_id=context.controller_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=list(topics.values()),
            live_leaders=self._live_leaders(leaders),
        )

    def _live_leaders(self, leaders: set[int]) -> list[LeaderAndIsrLiveLeader]:
        return [
            LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
            for broker_id in sorted(leaders)
            if broker_id in self._context.brokers
            for endpoint in self._context.brokers[broker_id].registration.endpoints
            if endpoint.listener == self._context.inter_broker_listener
        ]

    def _metadata_topics(self) -> list[UpdateMetadataTopic]:
        context = self._context
        topics: dict[str, UpdateMetadataTopic] = {}
        for name in self._news:
            topic = topics.get(name.topic)
            if topic is None:
                known = context.topics.get(name.topic)
                topic_id = ZERO_UUID if known is None or known.topic_id is None else known.topic_id
                topic = topics[name.topic] = UpdateMetadataTopic(topic_name=name.topic, topic_id=topic_id)
            topic.partition_states.append(self._metadata_of(name))
        return list(topics.values())

    def _metadata_of(self, name: TopicPartition) -> UpdateMetadataPartition:
        context = self._context
        leadership, replicas = context.leaderships[name], context.replicas(name)
        is_deleted = context.is_being_deleted(name.topic)
        return UpdateMetadataPartition(
            partition_index=name.partition,
            controller_epoch=leadership.controller_epoch,
            leader=LEADER_DURING_DELETION if is_deleted else leadership.leader,
            leader_epoch=0 if is_deleted else leadership.leader_epoch,
            isr=list(leadership.isr),
            zk_version=0 if is_deleted else leadership.version,
            replicas=list(replicas),
            offline_replicas=[replica for replica in replicas if not context.is_online(replica, name)],
        )

    def _live_brokers(self) -> list[UpdateMetadataBroker]:
        return [
            UpdateMetadataBroker(
                id=broker_id,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=endpoint.port,
                        host=endpoint.host,
                        listener=endpoint.listener,
                        security_protocol=_SECURITY_PROTOCOLS.get(endpoint.security_protocol, 0),
                    )
                    for endpoint in broker.registration.endpoints
                ],
                rack=broker.registration.rack,
            )
            for broker_id, broker in self._context.brokers.items()
        ]

    def _stop_replica(self, broker_id: int, stops: dict[TopicPartition, bool]) -> StopReplicaRequest:
        context = self._context
        topics: dict[str, StopReplicaTopicState] = {}
        for name, delete in stops.items():
            topic = topics.get(name.topic)
            if topic is None:
                topic = topics[name.topic] = StopReplicaTopicState(topic_name=name.topic)
            topic.partition_states.append(
                StopReplicaPartitionState(
                    partition_index=name.partition, leader_epoch=context.leader_epoch(name), delete_partition=delete
                )
            )
        return StopReplicaRequest(
            controller_id=context.controller_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=list(topics.values()),
        )


def _role(index: int, leadership: Leadership, assignment: ReplicaAssignment, *, is_new: bool) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        partition_index=index,
        controller_epoch=leadership.controller_epoch,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        partition_epoch=leadership.version,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
        is_new=is_new,
        leader_recovery_state=int(leadership.is_recovering),
    )
