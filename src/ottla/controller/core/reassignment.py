"""Moves partitions to other replicas (KIP-455).

The assignment node holds everything, so that any controller can go on: `replicas` are the target and the origin
replicas together, `adding` the new ones, `removing` those that go.

| step | when | what happens |
| --- | --- | --- |
| update | always | the assignment is written; replicas added earlier that are not wanted any more stop |
| start | a target replica is not in the ISR | a new leader epoch tells all replicas; new ones are created |
| finish | all targets are in the ISR | a target leads; the others leave the ISR and are deleted; written last |

`finish` begins when a leader adds the last target replica to the ISR (AlterPartition).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.controller.core.context import (
    ControllerContext,
    ReplicaPhase,
    is_reassigned,
    origin_replicas,
    target_replicas,
)
from ottla.controller.core.effects import ReadAdminNode, Step, WriteAdminNode, WriteAssignment, write_states
from ottla.controller.core.elections import Election
from ottla.controller.core.leadership import Leadership
from ottla.controller.core.partition_machine import PartitionMachine
from ottla.controller.core.replica_machine import ReplicaMachine
from ottla.controller.core.request_batch import RequestBatch
from ottla.controller.core.topic_deletion import TopicDeletion
from ottla.controller.errors import ControllerError
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import (
    ReplicaAssignment,
    TopicAssignment,
    decode_reassignment,
    encode_reassignment,
)

_logger = logging.getLogger(__name__)


def reassigned_to(assignment: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """The assignment while the partition moves to `target`."""
    origin = origin_replicas(assignment)
    replicas = tuple(dict.fromkeys((*target, *origin)))
    return ReplicaAssignment(
        replicas,
        tuple(replica for replica in replicas if replica not in origin),
        tuple(replica for replica in replicas if replica not in target),
    )


class Reassignments:
    """See the module."""

    def __init__(
        self,
        context: ControllerContext,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        deletion: TopicDeletion,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion

    # --- what is asked for ------------------------------------------------------------------------------------------

    def by_request(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> Step[dict[TopicPartition, ControllerError | None]]:
        """AlterPartitionReassignments: None cancels."""
        outcomes: dict[TopicPartition, ControllerError | None] = {}
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        for name, target in wanted.items():
            try:
                moves[name] = self._planned(name, target, may_change_factor=may_change_factor)
            except ControllerError as error:
                outcomes[name] = error
        # The last reassignment counts, by whichever way it came.
        if moves:
            yield from self._drop_from_node(moves)
        for name, assignment in moves.items():
            outcomes[name] = yield from self._reassign(name, assignment)
        return outcomes

    def by_node(self) -> Step[None]:
        """`/admin/reassign_partitions`, which old tools write."""
        data: bytes | None = yield ReadAdminNode(paths.REASSIGN_PARTITIONS)
        if data is None:
            return
        failed: dict[TopicPartition, None] = {}
        for name, target in decode_reassignment(paths.REASSIGN_PARTITIONS, data).items():
            try:
                assignment = self._planned(name, target, may_change_factor=True, checks_live=False)
            except ControllerError as error:
                failure: ControllerError | None = error
            else:
                failure = yield from self._reassign(name, assignment)
            if failure is not None:
                _logger.warning("cannot reassign %s: %s", name, failure.reason)
                failed[name] = None
        if failed:
            yield from self._drop_from_node(failed)

    def _planned(
        self,
        name: TopicPartition,
        target: Sequence[int] | None,
        *,
        may_change_factor: bool,
        checks_live: bool = True,
    ) -> ReplicaAssignment:
        assignment = self._context.assignment(name)
        if assignment is None or self._context.is_being_deleted(name.topic):
            reason = f"Partition {name} does not exist."
            raise ControllerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        if target is None:
            if not is_reassigned(assignment):
                raise ControllerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name} is not being moved.")
            return self._keeping_records(name, reassigned_to(assignment, origin_replicas(assignment)))
        if not target:
            raise _wrong(f"{name} needs at least one replica.")
        if len(set(target)) != len(target):
            raise _wrong(f"{name} cannot have two replicas on one broker: {_listed(target)}.")
        if any(replica < 0 for replica in target):
            raise _wrong(f"Broker ids cannot be negative: {_listed(target)}.")
        moved = reassigned_to(assignment, target)
        if checks_live:
            dead = [replica for replica in moved.adding if not self._context.is_live(replica)]
            if dead:
                raise _wrong(f"{name} cannot be moved to brokers that are not alive: {_listed(dead)}.")
        if not may_change_factor and len(target) != len(origin_replicas(assignment)):
            reason = f"{name} has {len(origin_replicas(assignment))} replicas; it cannot be changed to {len(target)}."
            raise ControllerError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        return self._keeping_records(name, moved)

    def _keeping_records(self, name: TopicPartition, moved: ReplicaAssignment) -> ReplicaAssignment:
        """Replicas that were added by a move that is now changed or cancelled are deleted at once. By then they may be
        the only ones that are in sync: no other replica is sure to have all committed records."""
        leadership = self._context.leaderships.get(name)
        if leadership is not None and not set(leadership.isr).intersection(moved.replicas):
            raise _wrong(
                f"{name} would lose records: its only replicas in sync are on brokers {_listed(leadership.isr)}, and "
                f"would be deleted. Move it to one of them, or wait until another replica is in sync."
            )
        return moved

    def _reassign(self, name: TopicPartition, assignment: ReplicaAssignment) -> Step[ControllerError | None]:
        if name not in self._context.leaderships:
            reason = f"{name} has never had a leader, so it cannot be reassigned."
            return ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
        yield from self._go_on(name, assignment)
        return None

    # --- what goes on -----------------------------------------------------------------------------------------------

    def resume(self, names: Sequence[TopicPartition]) -> Step[None]:
        """After a failover, or when a broker comes back."""
        for name in names:
            assignment = self._context.assignment(name)
            if assignment is not None and name in self._context.leaderships:
                yield from self._go_on(name, assignment)

    def of_brokers(self, broker_ids: set[int]) -> list[TopicPartition]:
        """Reassignments that wait for one of these brokers."""
        found = []
        for name in self._context.being_reassigned:
            assignment = self._context.assignment(name)
            if assignment is not None and broker_ids.intersection(target_replicas(assignment)):
                found.append(name)
        return found

    def isr_changed(self, name: TopicPartition) -> Step[None]:
        """A leader has changed the ISR: the reassignment may be complete."""
        assignment = self._context.assignment(name)
        if name in self._context.being_reassigned and assignment is not None and self._is_complete(name, assignment):
            yield from self._go_on(name, assignment)

    def _is_complete(self, name: TopicPartition, assignment: ReplicaAssignment) -> bool:
        if not is_reassigned(assignment):
            return True
        return set(target_replicas(assignment)) <= set(self._context.leaderships[name].isr)

    def _go_on(self, name: TopicPartition, assignment: ReplicaAssignment) -> Step[None]:
        context = self._context
        self._deletion.make_ineligible([name.topic], "it is being reassigned")
        yield from self._update(name, assignment)
        if not self._is_complete(name, assignment):
            yield from self._tell_all(name, assignment)
            yield from self._replicas.to_new(
                (name, broker_id)
                for broker_id in assignment.adding
                if context.replica_phase((name, broker_id)) is ReplicaPhase.NON_EXISTENT
            )
            return
        yield from self._replicas.to_online([(name, broker_id) for broker_id in assignment.adding])
        finished = ReplicaAssignment(target_replicas(assignment))
        removed = assignment.removing
        # In memory first: the tree keeps the origin replicas until all else is done.
        context.assign(name, finished)
        yield from self._move_leader(name, finished)
        yield from self._stop(name, removed)
        context.assign(name, finished)
        yield from self._write(name)
        context.being_reassigned.pop(name, None)
        yield from self._drop_from_node({name: finished}, finished.replicas)
        batch = RequestBatch(context)
        batch.tell_metadata([name])
        yield from batch.send()
        _logger.info("reassigned %s to brokers %s", name, _listed(finished.replicas))
        yield from self._deletion.resume([name.topic])

    def _update(self, name: TopicPartition, assignment: ReplicaAssignment) -> Step[None]:
        context = self._context
        before = context.assignment(name)
        if before != assignment and before is not None:
            context.assign(name, assignment)
            try:
                yield from self._write(name)
            except BaseException:
                context.assign(name, before)
                raise
            unneeded = tuple(replica for replica in before.replicas if replica not in assignment.replicas)
            if unneeded:
                yield from self._stop(name, unneeded)
                context.assign(name, assignment)
        context.being_reassigned[name] = None

    def _write(self, name: TopicPartition) -> Step[None]:
        topic = self._context.topics[name.topic]
        yield WriteAssignment(topic.name, TopicAssignment(topic.topic_id, dict(topic.partitions)))

    def _tell_all(self, name: TopicPartition, assignment: ReplicaAssignment) -> Step[None]:
        """A new leader epoch, although neither leader nor ISR change: the leader must learn the assignment."""
        if (yield from self._next_epoch(name)):
            batch = RequestBatch(self._context)
            batch.tell_role(origin_replicas(assignment), name, is_new=False)
            batch.tell_role(assignment.adding, name, is_new=True)
            yield from batch.send()

    def _next_epoch(self, name: TopicPartition) -> Step[bool]:
        context = self._context
        while True:
            leadership: Leadership = context.leaderships[name]
            if leadership.controller_epoch > context.epoch:
                return False
            written = yield from write_states({name: leadership.led_by(leadership.leader)})
            if name in written:
                context.set_leadership(name, written[name])
                return True
            if not (yield from self._partitions.refreshed([name])):
                return False

    def _move_leader(self, name: TopicPartition, finished: ReplicaAssignment) -> Step[None]:
        context = self._context
        leader = context.leaderships[name].leader
        if leader in finished.replicas and context.is_online(leader, name):
            if (yield from self._next_epoch(name)):
                batch = RequestBatch(context)
                batch.tell_role(finished.replicas, name, is_new=False)
                yield from batch.send()
        else:
            yield from self._partitions.to_online([name], Election.REASSIGNED)

    def _stop(self, name: TopicPartition, broker_ids: Sequence[int]) -> Step[None]:
        """Stops and deletes replicas. As in Kafka, nobody waits for the answers: a broker that is down keeps them on
        its disk. They are used again if the partition moves back."""
        replicas = [(name, broker_id) for broker_id in broker_ids]
        known = [
            replica for replica in replicas if self._context.replica_phase(replica) is not ReplicaPhase.NON_EXISTENT
        ]
        yield from self._replicas.to_offline(known)
        yield from self._replicas.to_deletion_started(known)
        self._replicas.to_deletion_successful(known)
        self._replicas.to_non_existent(known)

    def _drop_from_node(
        self, names: Mapping[TopicPartition, object], replicas: Sequence[int] | None = None
    ) -> Step[None]:
        """Removes partitions from `/admin/reassign_partitions`, with `replicas` only if that is their target."""
        data: bytes | None = yield ReadAdminNode(paths.REASSIGN_PARTITIONS)
        if data is None:
            return
        found = decode_reassignment(paths.REASSIGN_PARTITIONS, data)
        kept = {
            name: target
            for name, target in found.items()
            if name not in names or (replicas is not None and tuple(replicas) != target)
        }
        if kept != found:
            content = encode_reassignment(kept) if kept else None
            yield WriteAdminNode(paths.REASSIGN_PARTITIONS, content)


def _wrong(reason: str) -> ControllerError:
    return ControllerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
