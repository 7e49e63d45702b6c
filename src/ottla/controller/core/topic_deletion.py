"""Deletes topics. A topic waits in `to_delete` until every replica is deleted, also across failovers: the marker in
`/admin/delete_topics` is removed last.

| event | what happens |
| --- | --- |
| `enqueue` | clients no longer see the topic; live replicas stop and are deleted; dead ones make the topic ineligible |
| `replicas_deleted` | when all replicas are deleted, so are the topic's nodes |
| `replicas_failed` | the topic is ineligible until a broker comes back |
| `resume` | a broker came back, or a reassignment ended: try again |
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.controller.core.context import ControllerContext, Replica, ReplicaPhase
from ottla.controller.core.effects import RemoveTopicNodes, Step
from ottla.controller.core.partition_machine import PartitionMachine
from ottla.controller.core.replica_machine import ReplicaMachine
from ottla.controller.core.request_batch import RequestBatch

_logger = logging.getLogger(__name__)


class TopicDeletion:
    """See the module."""

    def __init__(self, context: ControllerContext, partitions: PartitionMachine, replicas: ReplicaMachine) -> None:
        self._context = context
        self._partitions = partitions
        self._replicas = replicas

    def start(self, topics: Iterable[str]) -> None:
        """After a failover: topics that are marked, before the machines start. Call `go_on` after them."""
        context = self._context
        for topic in topics:
            context.to_delete[topic] = None
            is_ineligible = any(
                not context.is_online(broker_id, name) for name, broker_id in context.replicas_of_topic(topic)
            ) or any(name.topic == topic for name in context.being_reassigned)
            if is_ineligible:
                context.ineligible_for_deletion.add(topic)

    def enqueue(self, topics: Iterable[str]) -> Step[None]:
        context = self._context
        for topic in topics:
            if any(name.topic == topic for name in context.being_reassigned):
                context.ineligible_for_deletion.add(topic)
            context.to_delete[topic] = None
        yield from self.go_on()

    def resume(self, topics: Iterable[str]) -> Step[None]:
        found = {topic for topic in topics if topic in self._context.to_delete}
        if found:
            self._context.ineligible_for_deletion -= found
            yield from self.go_on()

    def replicas_failed(self, replicas: Iterable[Replica]) -> Step[None]:
        failed = [replica for replica in replicas if self._context.is_being_deleted(replica[0].topic)]
        if failed:
            self._replicas.to_deletion_ineligible(
                replica
                for replica in failed
                if self._context.replica_phase(replica) in (ReplicaPhase.OFFLINE, ReplicaPhase.DELETION_STARTED)
            )
            self.make_ineligible({name.topic for name, _ in failed}, "a replica could not be deleted")
            yield from self.go_on()

    def replicas_deleted(self, replicas: Iterable[Replica]) -> Step[None]:
        deleted = [
            replica
            for replica in replicas
            if self._context.replica_phase(replica) is ReplicaPhase.DELETION_STARTED
            and self._context.is_being_deleted(replica[0].topic)
        ]
        self._replicas.to_deletion_successful(deleted)
        yield from self.go_on()

    def make_ineligible(self, topics: Iterable[str], reason: str) -> None:
        halted = {topic for topic in topics if topic in self._context.to_delete}
        if halted - self._context.ineligible_for_deletion:
            _logger.info("deletion of %s has to wait: %s", ", ".join(sorted(halted)), reason)
        self._context.ineligible_for_deletion |= halted

    def go_on(self) -> Step[None]:
        """Does what can be done now for all topics that wait."""
        context = self._context
        retried: list[Replica] = []
        eligible: list[str] = []
        for topic in list(context.to_delete):
            phases = [context.replica_phase(replica) for replica in context.replicas_of_topic(topic)]
            is_started = ReplicaPhase.DELETION_STARTED in phases
            if all(phase is ReplicaPhase.DELETION_SUCCESSFUL for phase in phases):
                yield from self._finish(topic)
                continue
            if not is_started and topic not in context.ineligible_for_deletion:
                eligible.append(topic)
                retried += context.replicas_in(topic, ReplicaPhase.DELETION_INELIGIBLE)
        if retried:
            yield from self._replicas.to_offline(retried)
        if eligible:
            yield from self._begin(eligible)

    def _finish(self, topic: str) -> Step[None]:
        self._replicas.to_non_existent(self._context.replicas_in(topic, ReplicaPhase.DELETION_SUCCESSFUL))
        yield RemoveTopicNodes(topic)
        self._context.remove_topic(topic)
        _logger.info("deleted topic %s", topic)

    def _begin(self, topics: list[str]) -> Step[None]:
        context = self._context
        unseen = [topic for topic in topics if topic not in context.deletion_started]
        for topic in unseen:
            names = context.partitions_of(topic)
            self._partitions.to_offline(names)
            self._partitions.to_non_existent(names)
            context.deletion_started.add(topic)
        batch = RequestBatch(context)
        batch.tell_metadata([name for topic in topics for name in context.partitions_of(topic)])
        yield from batch.send()
        yield from self._delete_replicas(topics)

    def _delete_replicas(self, topics: list[str]) -> Step[None]:
        context = self._context
        dead: list[Replica] = []
        live: list[Replica] = []
        waiting = set()
        for topic in topics:
            for replica in context.replicas_of_topic(topic):
                name, broker_id = replica
                if not context.is_online(broker_id, name):
                    dead.append(replica)
                    waiting.add(topic)
                elif context.replica_phase(replica) is not ReplicaPhase.DELETION_SUCCESSFUL:
                    live.append(replica)
        yield from self._replicas.to_offline(
            replica for replica in dead if context.replica_phase(replica) is ReplicaPhase.ONLINE
        )
        self._replicas.to_deletion_ineligible(
            replica for replica in dead if context.replica_phase(replica) is ReplicaPhase.OFFLINE
        )
        yield from self._replicas.to_offline(live)
        yield from self._replicas.to_deletion_started(live)
        if waiting:
            self.make_ineligible(waiting, "some of its replicas are offline")
