"""The states of replicas.

| to | from | what happens |
| --- | --- | --- |
| NEW | NON_EXISTENT | the broker becomes a follower, if the partition has a leader |
| ONLINE | NEW | nothing |
| ONLINE | ONLINE, OFFLINE, DELETION_INELIGIBLE | the broker is told its role |
| OFFLINE | NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE | the broker stops; it leaves the ISR, and the others are told |
| DELETION_STARTED | OFFLINE | the broker stops and deletes the replica |
| DELETION_SUCCESSFUL | DELETION_STARTED | nothing: the broker has answered |
| DELETION_INELIGIBLE | OFFLINE, DELETION_STARTED | nothing: the broker is down, or failed to delete |
| NON_EXISTENT | DELETION_SUCCESSFUL | the replica leaves the assignment |

A replica that is suspected only (`suspect`) leaves the ISR but is not stopped: its broker may still be there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ottla.base.ids import TopicPartition
from ottla.controller.core.context import ControllerContext, PartitionPhase, Replica, ReplicaPhase
from ottla.controller.core.effects import Step, in_batches, read_states, write_states
from ottla.controller.core.leadership import NO_LEADER, Leadership
from ottla.controller.core.request_batch import RequestBatch

_logger = logging.getLogger(__name__)

_R = ReplicaPhase
_VALID_BEFORE: Final = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}


class ReplicaMachine:
    """Moves replicas between states."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def start(self) -> None:
        """The states after a failover."""
        context = self._context
        for name in context.all_partitions():
            for broker_id in context.replicas(name):
                # On a broker that is gone: not OFFLINE, so that the deletion of its topic waits for the broker; without
                # a deletion there is no difference.
                is_online = context.is_online(broker_id, name)
                phase = ReplicaPhase.ONLINE if is_online else ReplicaPhase.DELETION_INELIGIBLE
                context.set_replica_phase((name, broker_id), phase)

    def start_offline(self) -> Step[set[TopicPartition]]:
        """Takes replicas on dead and suspected brokers out of the ISRs: brokers may have died while there was no
        controller. To be called after elections, which leave few of them. Returns the partitions whose replicas have
        been told."""
        context = self._context
        dead: list[Replica] = []
        gone: list[Replica] = []
        for replica, phase in context.replica_phases.items():
            if phase is ReplicaPhase.DELETION_INELIGIBLE and not context.is_being_deleted(replica[0].topic):
                (gone if replica[1] in context.suspected else dead).append(replica)
        told: set[TopicPartition] = set()
        for part in in_batches([*dead, *gone]):
            batch = RequestBatch(context)
            # All others are told with the roles of live replicas.
            batch.tell_metadata(
                name
                for name, _ in part
                if not any(context.is_online(replica, name) for replica in context.replicas(name))
            )
            told |= yield from self._leave_isr(part, batch, also_tell_it=True, tells_all=False)
            for replica in part:
                context.set_replica_phase(replica, ReplicaPhase.OFFLINE)
            yield from batch.send()
        return told

    def tell_roles(self, told: Collection[TopicPartition]) -> Step[None]:
        """The last step of a failover. Live replicas are told their roles: the last controller may have written them
        and not told them. `told` are the partitions of which this controller has told them already."""
        context = self._context
        yield from self.to_online(
            [
                replica
                for replica, phase in context.replica_phases.items()
                if phase is ReplicaPhase.ONLINE and replica[0] not in told
            ]
        )

    def to_new(self, replicas: Iterable[Replica]) -> Step[None]:
        batch = RequestBatch(self._context)
        for replica in self._valid(replicas, ReplicaPhase.NEW):
            name, broker_id = replica
            leadership = self._context.leaderships.get(name)
            if leadership is not None:
                if leadership.leader == broker_id:
                    _logger.error("replica %d of %s cannot be new: it leads the partition", broker_id, name)
                    continue
                batch.tell_role([broker_id], name, is_new=True)
            self._context.set_replica_phase(replica, ReplicaPhase.NEW)
        yield from batch.send()

    def to_online(self, replicas: Iterable[Replica]) -> Step[None]:
        context = self._context
        for part in in_batches(self._valid(replicas, ReplicaPhase.ONLINE)):
            batch = RequestBatch(context)
            for replica in part:
                name, broker_id = replica
                if context.replica_phase(replica) is not ReplicaPhase.NEW and name in context.leaderships:
                    batch.tell_role([broker_id], name, is_new=False)
                context.set_replica_phase(replica, ReplicaPhase.ONLINE)
            yield from batch.send()

    def to_offline(self, replicas: Iterable[Replica]) -> Step[None]:
        for part in in_batches(self._valid(replicas, ReplicaPhase.OFFLINE)):
            batch = RequestBatch(self._context)
            for name, broker_id in part:
                batch.tell_stop(broker_id, name, delete=False)
            yield from self._leave_isr(part, batch)
            for replica in part:
                self._context.set_replica_phase(replica, ReplicaPhase.OFFLINE)
            yield from batch.send()

    def suspect(self, replicas: Sequence[Replica]) -> Step[None]:
        """The replicas leave the ISR; their phases stay."""
        for part in in_batches(replicas):
            batch = RequestBatch(self._context)
            yield from self._leave_isr(part, batch, also_tell_it=True)
            yield from batch.send()

    def leave_doubtful(self) -> Step[None]:
        """Replicas that may lack committed records leave ISRs in which others are alive, and leaderships if there are
        others at all. They are told so, and catch up."""
        context = self._context
        batch = RequestBatch(context)
        remaining = sorted(context.doubtful)
        while remaining:
            wanted: dict[TopicPartition, Leadership] = {}
            for name, broker_id in remaining:
                leadership = context.leaderships.get(name)
                if leadership is not None and not context.is_being_deleted(name.topic) and name not in wanted:
                    changed = self._without_doubtful(name, leadership, broker_id)
                    if changed is not None:
                        wanted[name] = changed
            written = yield from write_states(wanted)
            for name, leadership in written.items():
                context.set_leadership(name, leadership)
                if leadership.leader == NO_LEADER and context.phase(name) is PartitionPhase.ONLINE:
                    context.set_phase(name, PartitionPhase.OFFLINE)
                batch.tell_role(context.replicas(name), name, is_new=False)
            known = yield from read_states([name for name in wanted if name not in written])
            for name, leadership in known.items():
                context.set_leadership(name, leadership)
            # Also partitions with a second doubtful replica, whose turn comes now.
            remaining = [replica for replica in remaining if replica[0] in wanted]
        yield from batch.send()

    def _without_doubtful(self, name: TopicPartition, leadership: Leadership, broker_id: int) -> Leadership | None:
        others = [member for member in leadership.isr if (name, member) not in self._context.doubtful]
        if broker_id not in leadership.isr or not others or leadership.controller_epoch > self._context.epoch:
            return None
        if any(self._context.is_online(member, name) and member in self._context.reached for member in others):
            return leadership.without(broker_id)
        return leadership.led_by(NO_LEADER) if leadership.leader == broker_id else None

    def to_deletion_started(self, replicas: Iterable[Replica]) -> Step[None]:
        batch = RequestBatch(self._context)
        for replica in self._valid(replicas, ReplicaPhase.DELETION_STARTED):
            name, broker_id = replica
            self._context.set_replica_phase(replica, ReplicaPhase.DELETION_STARTED)
            batch.tell_stop(broker_id, name, delete=True)
        yield from batch.send()

    def to_deletion_successful(self, replicas: Iterable[Replica]) -> None:
        for replica in self._valid(replicas, ReplicaPhase.DELETION_SUCCESSFUL):
            self._context.set_replica_phase(replica, ReplicaPhase.DELETION_SUCCESSFUL)

    def to_deletion_ineligible(self, replicas: Iterable[Replica]) -> None:
        for replica in self._valid(replicas, ReplicaPhase.DELETION_INELIGIBLE):
            self._context.set_replica_phase(replica, ReplicaPhase.DELETION_INELIGIBLE)

    def to_non_existent(self, replicas: Iterable[Replica]) -> None:
        for replica in self._valid(replicas, ReplicaPhase.NON_EXISTENT):
            name, broker_id = replica
            assignment = self._context.assignment(name)
            if assignment is not None:
                self._context.assign(
                    name,
                    replace(
                        assignment,
                        replicas=_without(assignment.replicas, broker_id),
                        adding=_without(assignment.adding, broker_id),
                        removing=_without(assignment.removing, broker_id),
                    ),
                )
            self._context.set_replica_phase(replica, ReplicaPhase.NON_EXISTENT)

    def _valid(self, replicas: Iterable[Replica], target: ReplicaPhase) -> list[Replica]:
        valid = []
        for replica in replicas:
            phase = self._context.replica_phase(replica)
            if phase in _VALID_BEFORE[target]:
                valid.append(replica)
            else:
                name, broker_id = replica
                _logger.error("replica %d of %s cannot become %s: it is %s", broker_id, name, target.name, phase.name)
        return valid

    def _leave_isr(
        self,
        replicas: Sequence[Replica],
        batch: RequestBatch,
        *,
        also_tell_it: bool = False,
        tells_all: bool = True,
    ) -> Step[set[TopicPartition]]:
        """Takes replicas out of the ISR. One broker after the other, because each changes the same states. Returns the
        partitions that changed."""
        context = self._context
        all_changed: set[TopicPartition] = set()
        by_broker: dict[int, list[TopicPartition]] = {}
        for name, broker_id in replicas:
            by_broker.setdefault(broker_id, []).append(name)
        for broker_id, names in by_broker.items():
            if tells_all:  # the offline replicas of all have changed
                batch.tell_metadata(names)
            # States of topics that are being deleted are not written any more: their nodes are removed soon.
            remaining = [
                name for name in names if name in context.leaderships and not context.is_being_deleted(name.topic)
            ]
            while remaining:
                wanted: dict[TopicPartition, Leadership] = {}
                for name in remaining:
                    leadership = context.leaderships[name]
                    if leadership.controller_epoch > context.epoch:
                        _logger.error("%s was written by the controller of epoch %d", name, leadership.controller_epoch)
                        continue
                    changed = self._left_by(name, leadership, broker_id)
                    if changed is not None:
                        wanted[name] = changed
                written = yield from write_states(wanted)
                for name, leadership in written.items():
                    context.set_leadership(name, leadership)
                    told = [each for each in context.replicas(name) if also_tell_it or each != broker_id]
                    batch.tell_role(told, name, is_new=False)
                all_changed.update(written)
                conflicts = [name for name in wanted if name not in written]
                remaining = []
                if conflicts:
                    known = yield from read_states(conflicts)
                    for name, leadership in known.items():
                        context.set_leadership(name, leadership)
                    remaining = list(known)
        return all_changed

    def _left_by(self, name: TopicPartition, leadership: Leadership, broker_id: int) -> Leadership | None:
        """The leadership after a replica has left; None if nothing changes. As long as nobody leads, nothing is
        committed, so that every member of the ISR keeps all that was: whoever comes back first may then lead. (Kafka
        keeps only one of them.) A replica that is not assigned any more leaves in any case."""
        if broker_id not in leadership.isr:
            return None
        leader = leadership.leader
        is_led = leader != broker_id and self._context.is_online(leader, name, with_shutting_down=True)
        if is_led or (broker_id not in self._context.replicas(name) and len(leadership.isr) > 1):
            return leadership.without(broker_id)
        return leadership.led_by(NO_LEADER) if leader == broker_id else None


def _without(replicas: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica != broker_id)
