"""Events of a cluster, and what the active controller does about each: brokers that come, go or are suspected, topics
that appear, answers of brokers, controlled shutdown. No I/O: every method is a `Step` (see `effects`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.controller.core.context import ControllerContext, Replica, ReplicaPhase
from ottla.controller.core.effects import Step
from ottla.controller.core.elections import Election, elect
from ottla.controller.core.partition_machine import IsUnclean, PartitionMachine
from ottla.controller.core.reassignment import Reassignments
from ottla.controller.core.replica_machine import ReplicaMachine
from ottla.controller.core.request_batch import RequestBatch
from ottla.controller.core.topic_deletion import TopicDeletion
from ottla.controller.errors import ControllerError
from ottla.controller.seams import LiveBroker
from ottla.wire.messages.leader_and_isr import LeaderAndIsrResponse
from ottla.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.zookeeper.znodes import ReplicaAssignment, TopicAssignment

_logger = logging.getLogger(__name__)


class ControllerCore:
    """The state machines over one context."""

    def __init__(self, context: ControllerContext, is_unclean: IsUnclean) -> None:
        self.context = context
        self.partitions = PartitionMachine(context, is_unclean)
        self.replicas = ReplicaMachine(context)
        self.deletion = TopicDeletion(context, self.partitions, self.replicas)
        self.reassignments = Reassignments(context, self.partitions, self.replicas, self.deletion)

    # --- failover ---------------------------------------------------------------------------------------------------

    def start(self, marked_for_deletion: Collection[str]) -> Step[None]:
        """The first step of a new controller, whose context was read from the tree."""
        context = self.context
        self.deletion.start(topic for topic in marked_for_deletion if topic in context.topics)
        # Brokers need the list of live brokers before they can follow a leader.
        batch = RequestBatch(context)
        batch.tell_metadata([])
        yield from batch.send()
        yield from self.replicas.leave_doubtful()
        # Partitions that have lost their leader first, then those that have lost a member of the ISR. All others only
        # hear what they know already.
        self.replicas.start()
        changed = yield from self.partitions.start()
        changed |= yield from self.replicas.start_offline()
        yield from self.replicas.tell_roles(changed)
        yield from self.reassignments.by_node()
        yield from self.reassignments.resume(list(context.being_reassigned))
        yield from self.deletion.go_on()

    # --- brokers ----------------------------------------------------------------------------------------------------

    def brokers_started(self, brokers: Sequence[LiveBroker], doubtful: Collection[int] = ()) -> Step[None]:
        """`doubtful` are those that may lack committed records, see `ControllerContext.doubtful`."""
        context = self.context
        new_ids = {broker.broker_id for broker in brokers}
        context.doubt(doubtful)
        for broker in brokers:
            context.failed_replicas.pop(broker.broker_id, None)
            context.add_broker(broker)
        batch = RequestBatch(context)
        batch.tell_metadata([], [broker_id for broker_id in context.brokers if broker_id not in new_ids])
        yield from batch.send()
        batch.tell_metadata(context.leaderships, new_ids)
        yield from batch.send()
        replicas = context.replicas_on(new_ids)
        yield from self._return_online(replicas)
        yield from self.reassignments.resume(self.reassignments.of_brokers(new_ids))
        yield from self.deletion.resume({name.topic for name, _ in replicas})

    def broker_reached(self, broker_id: int) -> Step[None]:
        """A broker has answered for the first time: it may take over from doubtful ones."""
        context = self.context
        context.reached.add(broker_id)
        if context.doubtful:
            yield from self.replicas.leave_doubtful()
            yield from self.partitions.elect_missing()

    def trust(self, broker_id: int) -> Step[None]:
        """Nobody better came back in time: a doubtful broker may lead."""
        self.context.trust(broker_id)
        yield from self.partitions.elect_missing()

    def _return_online(self, replicas: Iterable[Replica]) -> Step[None]:
        """Tells brokers that are there again all their roles, then elects leaders where there were none."""
        context = self.context
        kept = [replica for replica in replicas if not context.is_being_deleted(replica[0].topic)]
        yield from self.replicas.leave_doubtful()
        for replica in kept:
            if context.replica_phase(replica) is ReplicaPhase.NON_EXISTENT:
                context.set_replica_phase(replica, ReplicaPhase.OFFLINE)
        yield from self.replicas.to_online(kept)
        yield from self.partitions.elect_missing()

    def brokers_failed(self, broker_ids: Sequence[int]) -> Step[None]:
        for broker_id in broker_ids:
            self.context.remove_broker(broker_id)
        yield from self.replicas_offline(self.context.replicas_on(broker_ids))

    def replicas_offline(self, replicas: Sequence[Replica]) -> Step[None]:
        """Replicas cannot be used any more: their broker or their log directory is gone."""
        context = self.context
        kept = [replica for replica in replicas if not context.is_being_deleted(replica[0].topic)]
        deleted = [replica for replica in replicas if context.is_being_deleted(replica[0].topic)]
        is_changed = yield from self._leave_leadership(kept)
        yield from self.replicas.to_offline(kept)
        yield from self.deletion.replicas_failed(deleted)
        if not kept and not is_changed:
            batch = RequestBatch(context)
            batch.tell_metadata([])
            yield from batch.send()

    def _leave_leadership(self, replicas: Iterable[Replica]) -> Step[bool]:
        """Elects other leaders for the partitions that these replicas lead. Returns whether one was elected."""
        context = self.context
        self.partitions.to_offline(
            name
            for name, broker_id in replicas
            if name in context.leaderships
            and context.leaderships[name].leader == broker_id
            and not context.is_online(broker_id, name)
        )
        outcomes = yield from self.partitions.elect_missing()
        return any(failure is None for failure in outcomes.values())

    def broker_changed(self, broker: LiveBroker) -> Step[None]:
        """A broker has other endpoints or features, in the same session."""
        self.context.add_broker(broker)
        batch = RequestBatch(self.context)
        batch.tell_metadata([])
        yield from batch.send()

    def broker_suspected(self, broker_id: int) -> Step[None]:
        """A broker's process is evidently gone, although its session is not over: others lead its partitions, and it
        leaves every ISR. It still gets all requests, so that it knows its roles if it is there after all."""
        context = self.context
        if broker_id not in context.brokers or broker_id in context.suspected:
            return
        _logger.warning("broker %d is gone: its connections end and are refused; its partitions move", broker_id)
        context.suspected.add(broker_id)
        context.reached.discard(broker_id)
        replicas = [
            replica for replica in context.replicas_on([broker_id]) if not context.is_being_deleted(replica[0].topic)
        ]
        yield from self._leave_leadership(replicas)
        yield from self.replicas.suspect(replicas)

    def broker_answered(self, broker_id: int) -> Step[None]:
        """A suspected broker is there: it may lead and follow again."""
        context = self.context
        if broker_id not in context.suspected:
            return
        _logger.info("broker %d answers again", broker_id)
        context.suspected.discard(broker_id)
        replicas = context.replicas_on([broker_id])
        yield from self._return_online(replicas)
        yield from self.reassignments.resume(self.reassignments.of_brokers({broker_id}))
        yield from self.deletion.resume({name.topic for name, _ in replicas})

    # --- topics -----------------------------------------------------------------------------------------------------

    def topics_found(self, topics: Mapping[str, TopicAssignment]) -> Step[None]:
        """New topics, whose ids are set."""
        context = self.context
        names = []
        for topic_name, assignment in topics.items():
            context.add_topic(topic_name, assignment.topic_id)
            for index, replicas in assignment.partitions.items():
                names.append(TopicPartition(topic_name, index))
                context.assign(names[-1], replicas)
        yield from self._start_partitions(names)

    def partitions_found(self, topic: str, added: Mapping[int, ReplicaAssignment]) -> Step[None]:
        """Partitions were added to a topic."""
        names = []
        for index, replicas in added.items():
            names.append(TopicPartition(topic, index))
            self.context.assign(names[-1], replicas)
        yield from self._start_partitions(names)

    def _start_partitions(self, names: Sequence[TopicPartition]) -> Step[None]:
        self.partitions.to_new(names)
        yield from self.replicas.to_new(self.context.replicas_of(names))
        yield from self.partitions.to_online(names, Election.OFFLINE)
        yield from self.replicas.to_online(self.context.replicas_of(names))

    # --- answers of brokers -----------------------------------------------------------------------------------------

    def leader_and_isr_answered(self, broker_id: int, response: LeaderAndIsrResponse) -> Step[None]:
        """Learns which replicas are in failed log directories."""
        context = self.context
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            _logger.error("broker %d refused LeaderAndIsr: %s", broker_id, code.name)
            return
        offline, online = set(), set()
        for topic in response.topics:
            topic_name = context.topic_names.get(topic.topic_id)
            if topic_name is None:
                continue
            for each in topic.partition_errors:
                name = TopicPartition(topic_name, each.partition_index)
                if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    offline.add(name)
                elif each.error_code == ErrorCode.NONE:
                    online.add(name)
        before = context.failed_replicas.get(broker_id, set())
        now = before - online | offline
        if now:
            context.failed_replicas[broker_id] = now
        else:
            context.failed_replicas.pop(broker_id, None)
        if back := sorted(before - now):
            yield from self._replicas_returned(back)
        if new := sorted(now - before):
            _logger.warning("%d replicas on broker %d are in failed log directories", len(new), broker_id)
            yield from self.replicas_offline([(name, broker_id) for name in new])

    def _replicas_returned(self, names: Sequence[TopicPartition]) -> Step[None]:
        """Replicas are usable again whose log directory had failed, or was full."""
        batch = RequestBatch(self.context)
        batch.tell_metadata(names)
        yield from batch.send()
        if not self.context.without_leader.isdisjoint(names):
            yield from self.partitions.elect_missing()

    def stop_replica_answered(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> Step[None]:
        """Goes on with deletions."""
        asked = {
            TopicPartition(topic.topic_name, each.partition_index)
            for topic in request.topic_states
            if self.context.is_being_deleted(topic.topic_name)
            for each in topic.partition_states
            if each.delete_partition
        }
        if not asked:
            return
        failed: list[Replica] = []
        deleted: list[Replica] = []
        if response.error_code != ErrorCode.NONE:
            failed = [(name, broker_id) for name in sorted(asked)]
        else:
            for answer in response.partition_errors:
                name = TopicPartition(answer.topic_name, answer.partition_index)
                if name in asked:
                    (deleted if answer.error_code == ErrorCode.NONE else failed).append((name, broker_id))
        yield from self.deletion.replicas_failed(failed)
        if deleted:
            yield from self.deletion.replicas_deleted(deleted)

    def log_dirs_failed(self, broker_ids: Collection[int]) -> Step[None]:
        """Brokers have lost log directories, or can use one again: asks them about all replicas, see
        `leader_and_isr_answered`. Deletions that wait for failed replicas there are tried again: the answer says
        whether they are still lost."""
        context = self.context
        replicas = list(context.replicas_on(broker_ids))
        yield from self.replicas.to_online(
            [replica for replica in replicas if not context.is_being_deleted(replica[0].topic)]
        )
        waiting = set()
        for broker_id in broker_ids:
            failed = context.failed_replicas.get(broker_id, set())
            found = {name for name in failed if context.is_being_deleted(name.topic)}
            failed -= found
            waiting |= {name.topic for name in found}
        yield from self.deletion.resume(waiting)

    # --- requests ---------------------------------------------------------------------------------------------------

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Step[list[TopicPartition]]:
        """Moves leaders away from a broker that is about to stop. Returns the partitions that it still
        leads, without those that nobody else could lead."""
        context = self.context
        broker = context.brokers.get(broker_id)
        if broker is None:
            reason = f"Broker {broker_id} is not registered."
            raise ControllerError(ErrorCode.BROKER_NOT_AVAILABLE, reason)
        if broker_epoch not in (-1, broker.epoch) and broker_epoch < broker.epoch:
            reason = f"Broker {broker_id} was restarted: its epoch is {broker.epoch}, not {broker_epoch}."
            raise ControllerError(ErrorCode.STALE_BROKER_EPOCH, reason)
        _logger.info("broker %d shuts down", broker_id)
        context.shutting_down.add(broker_id)
        moved = [
            name
            for name in context.partitions_on(broker_id)
            if name in context.leaderships
            and len(context.replicas(name)) > 1
            and not context.is_being_deleted(name.topic)
        ]
        led = [name for name in moved if context.leaderships[name].leader == broker_id]
        followed = [name for name in moved if context.leaderships[name].leader != broker_id]
        yield from self.partitions.to_online(led, Election.SHUTDOWN)
        yield from self.replicas.to_offline([(name, broker_id) for name in followed])
        return [
            name
            for name in context.led_by(broker_id)
            if len(context.replicas(name)) > 1 and not context.is_being_deleted(name.topic)
        ]

    def elect_leaders(
        self, names: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> Step[dict[TopicPartition, ControllerError | None]]:
        """ElectLeaders: None stands for all partitions that need an election."""
        context = self.context
        is_for_all = names is None
        outcomes: dict[TopicPartition, ControllerError | None] = {}
        electable = []
        for name in context.all_partitions() if names is None else names:
            leadership, replicas = context.leaderships.get(name), context.replicas(name)
            if not replicas:
                outcomes[name] = ControllerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {name} does not exist."
                )
            elif context.is_being_deleted(name.topic):
                outcomes[name] = ControllerError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name.topic}' is being deleted."
                )
            elif leadership is not None and not (
                not context.is_live(leadership.leader) if unclean else leadership.leader != replicas[0]
            ):
                if not is_for_all:
                    reason = f"{name} already has the right leader."
                    outcomes[name] = ControllerError(ErrorCode.ELECTION_NOT_NEEDED, reason)
            else:
                electable.append(name)
        election = Election.UNCLEAN if unclean else Election.PREFERRED
        for name, failure in (yield from self.partitions.to_online(electable, election)).items():
            if failure is not None and failure.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE and not unclean:
                reason = f"The preferred leader of {name} is not alive or not in sync."
                failure = ControllerError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, reason)
            outcomes[name] = failure
        return outcomes

    def rebalance_leaders(self, imbalance_percentage: int) -> Step[int]:
        """Elects preferred leaders on brokers that lead too few of the partitions they should. Returns how many."""
        context = self.context
        by_preferred: dict[int, list[TopicPartition]] = {}
        for name in context.all_partitions():
            if not context.is_being_deleted(name.topic) and (replicas := context.replicas(name)):
                by_preferred.setdefault(replicas[0], []).append(name)
        moved = 0
        for broker_id, names in by_preferred.items():
            elsewhere = [
                name for name in names if name in context.leaderships and context.leaderships[name].leader != broker_id
            ]
            if not context.is_live(broker_id) or len(elsewhere) * 100 <= imbalance_percentage * len(names):
                continue
            candidates = [
                name
                for name in elsewhere
                if name not in context.being_reassigned
                and elect(context, name, context.leaderships[name], Election.PREFERRED) is not None
            ]
            outcomes = yield from self.partitions.to_online(candidates, Election.PREFERRED)
            moved += sum(failure is None for failure in outcomes.values())
        return moved
