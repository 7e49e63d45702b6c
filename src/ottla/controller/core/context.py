"""What the active controller knows: brokers, topics, leaders, and the states of its machines. No I/O.

Everything is a cache of the tree, except what brokers report (failed log directories) and what the controller itself
follows (brokers that shut down or are suspected, deletions). A new controller starts with an empty context.

Indexes keep the cost of a broker's death at the partitions on that broker, not at all partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from ottla.base.ids import TopicPartition, Uuid
from ottla.controller.core.leadership import EPOCH_DURING_DELETION, Leadership
from ottla.controller.seams import LiveBroker
from ottla.zookeeper.znodes import ReplicaAssignment

Replica = tuple[TopicPartition, int]
"""A partition on a broker."""


class PartitionPhase(Enum):
    """See `partition_machine`."""

    NON_EXISTENT = auto()
    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()


class ReplicaPhase(Enum):
    """See `replica_machine`."""

    NON_EXISTENT = auto()
    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()
    DELETION_STARTED = auto()
    DELETION_SUCCESSFUL = auto()
    DELETION_INELIGIBLE = auto()


@dataclass(slots=True)
class Topic:
    """`topic_id` is None only if the controller could not give one to a topic created by an old tool."""

    name: str
    topic_id: Uuid | None
    partitions: dict[int, ReplicaAssignment] = field(default_factory=dict)


def target_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """The replicas after a reassignment."""
    return tuple(replica for replica in assignment.replicas if replica not in assignment.removing)


def origin_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """The replicas before a reassignment."""
    return tuple(replica for replica in assignment.replicas if replica not in assignment.adding)


def is_reassigned(assignment: ReplicaAssignment) -> bool:
    return bool(assignment.adding or assignment.removing)


class ControllerContext:
    """Belongs to one active controller, whose epoch is `epoch`."""

    def __init__(self, controller_id: int, epoch: int, inter_broker_listener: str = "PLAINTEXT") -> None:
        self.controller_id = controller_id
        self.epoch = epoch
        self.inter_broker_listener = inter_broker_listener
        self.brokers: dict[int, LiveBroker] = {}
        """Registered brokers, also those that shut down or are suspected."""
        self.shutting_down: set[int] = set()
        self.suspected: set[int] = set()
        """Brokers whose process is evidently gone, although their session is not over."""
        self.doubtful: set[Replica] = set()
        """Replicas that are in an ISR, but may lack records that were committed, because their machine crashed. Others
        in the ISR are preferred, and waited for a while. Once they have left the ISR, they come back with all."""
        self.reached: set[int] = {controller_id}
        """Brokers that have answered this controller: a registration may outlast its process."""
        self.failed_replicas: dict[int, set[TopicPartition]] = {}
        """By broker: replicas in failed log directories."""
        self.topics: dict[str, Topic] = {}
        self.topic_names: dict[Uuid, str] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.partition_phases: dict[TopicPartition, PartitionPhase] = {}
        self.without_leader: set[TopicPartition] = set()
        """Partitions in the phases NEW and OFFLINE."""
        self.replica_phases: dict[Replica, ReplicaPhase] = {}
        self.being_reassigned: dict[TopicPartition, None] = {}
        self.to_delete: dict[str, None] = {}
        self.deletion_started: set[str] = set()
        self.ineligible_for_deletion: set[str] = set()
        self.imbalanced: set[TopicPartition] = set()
        """Partitions whose leader is not their first replica."""
        self._on_broker: dict[int, dict[TopicPartition, None]] = {}
        self._led_by: dict[int, dict[TopicPartition, None]] = {}

    # --- brokers ----------------------------------------------------------------------------------------------------

    def is_live(self, broker_id: int) -> bool:
        """Whether the broker may lead, join an ISR and get new replicas."""
        return broker_id in self.brokers and broker_id not in self.shutting_down and broker_id not in self.suspected

    @property
    def live_ids(self) -> list[int]:
        return [broker_id for broker_id in self.brokers if self.is_live(broker_id)]

    def is_online(self, broker_id: int, name: TopicPartition, *, with_shutting_down: bool = False) -> bool:
        """Whether the replica of a partition on this broker can be used."""
        if with_shutting_down:
            if broker_id not in self.brokers or broker_id in self.suspected:
                return False
        elif not self.is_live(broker_id):
            return False
        failed = self.failed_replicas.get(broker_id)
        return failed is None or name not in failed

    def add_broker(self, broker: LiveBroker) -> None:
        self.brokers[broker.broker_id] = broker

    def remove_broker(self, broker_id: int) -> None:
        del self.brokers[broker_id]
        self.shutting_down.discard(broker_id)
        self.suspected.discard(broker_id)
        self.trust(broker_id)
        if broker_id != self.controller_id:
            self.reached.discard(broker_id)
        self.failed_replicas.pop(broker_id, None)

    def doubt(self, broker_ids: Iterable[int]) -> None:
        """The machines of these brokers crashed: see `doubtful`."""
        for name, broker_id in self.replicas_on(broker_ids):
            leadership = self.leaderships.get(name)
            if leadership is not None and broker_id in leadership.isr:
                self.doubtful.add((name, broker_id))

    def trust(self, broker_id: int) -> None:
        self.doubtful = {replica for replica in self.doubtful if replica[1] != broker_id}

    # --- topics and their replicas ----------------------------------------------------------------------------------

    def add_topic(self, name: str, topic_id: Uuid | None) -> Topic:
        topic = self.topics[name] = Topic(name, topic_id)
        if topic_id is not None:
            self.topic_names[topic_id] = name
        return topic

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        if topic.topic_id is not None and self.topic_names.get(topic.topic_id) == name:
            del self.topic_names[topic.topic_id]
        for index, assignment in topic.partitions.items():
            partition = TopicPartition(name, index)
            self._forget_leadership(partition)
            self.partition_phases.pop(partition, None)
            self.without_leader.discard(partition)
            self.being_reassigned.pop(partition, None)
            for broker_id in assignment.replicas:
                self._on_broker[broker_id].pop(partition, None)
                self.doubtful.discard((partition, broker_id))
                self.replica_phases.pop((partition, broker_id), None)
            for failed in self.failed_replicas.values():
                failed.discard(partition)
        self.to_delete.pop(name, None)
        self.deletion_started.discard(name)
        self.ineligible_for_deletion.discard(name)

    def assign(self, name: TopicPartition, assignment: ReplicaAssignment) -> None:
        partitions = self.topics[name.topic].partitions
        before = partitions.get(name.partition)
        if before is not None:
            for broker_id in before.replicas:
                if broker_id not in assignment.replicas:
                    self._on_broker[broker_id].pop(name, None)
        for broker_id in assignment.replicas:
            self._on_broker.setdefault(broker_id, {})[name] = None
        partitions[name.partition] = assignment
        self._note_balance(name)

    def assignment(self, name: TopicPartition) -> ReplicaAssignment | None:
        topic = self.topics.get(name.topic)
        return None if topic is None else topic.partitions.get(name.partition)

    def replicas(self, name: TopicPartition) -> tuple[int, ...]:
        assignment = self.assignment(name)
        return () if assignment is None else assignment.replicas

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for index in self.topics[topic].partitions]

    def all_partitions(self) -> Iterator[TopicPartition]:
        for name, topic in self.topics.items():
            for index in topic.partitions:
                yield TopicPartition(name, index)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        return list(self._on_broker.get(broker_id, ()))

    def replicas_on(self, broker_ids: Iterable[int]) -> list[Replica]:
        return [(name, broker_id) for broker_id in broker_ids for name in self._on_broker.get(broker_id, ())]

    def replicas_of_topic(self, topic: str) -> list[Replica]:
        return [
            (TopicPartition(topic, index), broker_id)
            for index, assignment in self.topics[topic].partitions.items()
            for broker_id in assignment.replicas
        ]

    def replicas_of(self, names: Iterable[TopicPartition]) -> list[Replica]:
        return [(name, broker_id) for name in names for broker_id in self.replicas(name)]

    def is_being_deleted(self, topic: str) -> bool:
        return topic in self.to_delete

    # --- leaders ----------------------------------------------------------------------------------------------------

    def set_leadership(self, name: TopicPartition, leadership: Leadership) -> None:
        before = self.leaderships.get(name)
        for member in before.isr if self.doubtful and before is not None else ():
            if member not in leadership.isr or member == leadership.leader:
                self.doubtful.discard((name, member))
        if before is None or before.leader != leadership.leader:
            if before is not None:
                self._led_by[before.leader].pop(name, None)
            self._led_by.setdefault(leadership.leader, {})[name] = None
        self.leaderships[name] = leadership
        self._note_balance(name)

    def _note_balance(self, name: TopicPartition) -> None:
        leadership, replicas = self.leaderships.get(name), self.replicas(name)
        if leadership is not None and replicas and leadership.leader != replicas[0]:
            self.imbalanced.add(name)
        else:
            self.imbalanced.discard(name)

    def _forget_leadership(self, name: TopicPartition) -> None:
        self.imbalanced.discard(name)
        before = self.leaderships.pop(name, None)
        if before is not None:
            self._led_by[before.leader].pop(name, None)

    def led_by(self, broker_id: int) -> list[TopicPartition]:
        return list(self._led_by.get(broker_id, ()))

    def leader_epoch(self, name: TopicPartition) -> int:
        """For StopReplica requests: -2 if the topic is being deleted, -1 if there was no leader yet."""
        if self.is_being_deleted(name.topic):
            return EPOCH_DURING_DELETION
        leadership = self.leaderships.get(name)
        return -1 if leadership is None else leadership.leader_epoch

    # --- phases -----------------------------------------------------------------------------------------------------

    def phase(self, name: TopicPartition) -> PartitionPhase:
        return self.partition_phases.get(name, PartitionPhase.NON_EXISTENT)

    def set_phase(self, name: TopicPartition, phase: PartitionPhase) -> None:
        if phase is PartitionPhase.NON_EXISTENT:
            self.partition_phases.pop(name, None)
        else:
            self.partition_phases[name] = phase
        if phase in (PartitionPhase.NEW, PartitionPhase.OFFLINE):
            self.without_leader.add(name)
        else:
            self.without_leader.discard(name)

    def replica_phase(self, replica: Replica) -> ReplicaPhase:
        return self.replica_phases.get(replica, ReplicaPhase.NON_EXISTENT)

    def set_replica_phase(self, replica: Replica, phase: ReplicaPhase) -> None:
        if phase is ReplicaPhase.NON_EXISTENT:
            self.replica_phases.pop(replica, None)
        else:
            self.replica_phases[replica] = phase

    def replicas_in(self, topic: str, phase: ReplicaPhase) -> list[Replica]:
        return [replica for replica in self.replicas_of_topic(topic) if self.replica_phase(replica) is phase]

    # --- figures ----------------------------------------------------------------------------------------------------

    def offline_partition_count(self) -> int:
        if not self.deletion_started:
            return len(self.without_leader)
        return sum(1 for name in list(self.without_leader) if name.topic not in self.deletion_started)

    def racks(self) -> Mapping[int, str | None]:
        """The racks of the brokers that may get new replicas."""
        return {broker_id: self.brokers[broker_id].registration.rack for broker_id in self.live_ids}
