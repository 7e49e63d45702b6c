"""The controller of a cluster of one broker: creates, grows and deletes topics, and elects the leaders of partitions.

The coordination tree is authoritative: a change is written there first, in one transaction, and then passed to the
broker. A crash between the two is harmless, because the next start reads the tree. Two changes take several steps and
are answered after the first: a deletion begins with a marker, and growth with the new assignment. `load` finishes one
that a crash interrupted.

Used from one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ottla.base.config_changes import changes_of
from ottla.base.coordination import Coordination
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid, format_uuid, random_uuid
from ottla.controller import assignment
from ottla.controller.changes import ChangeQueue, answer_early, change
from ottla.controller.deletions import PendingDeletions, partitions_in_words
from ottla.controller.election import (
    NO_NODE,
    elect_first,
    elect_next,
    elect_preferred,
    unelected,
    without_leader,
)
from ottla.controller.errors import ControllerError
from ottla.controller.state import PartitionState, ReplicaHost, TopicState
from ottla.controller.topic_names import METADATA_TOPIC, collision_key, fault_of_name
from ottla.controller.topic_nodes import TopicNodes
from ottla.controller.wanted_topics import (
    PARTITIONS_AT_ONCE_MAX,
    NewPartitionCount,
    WantedTopic,
    added_replicas,
    assigned_replicas,
    check_config_values,
    checked_configs,
)
from ottla.log.broker_config import topic_defaults

_logger = logging.getLogger(__name__)


class Controller:
    """See the module. Call `load` before anything else.

    `broker_settings` are the broker's own configs; topic configs are checked together with them.
    """

    def __init__(
        self,
        coordination: Coordination,
        host: ReplicaHost,
        broker_id: int,
        broker_settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.epoch = 0
        self._nodes = TopicNodes(coordination)
        self._host = host
        self._brokers = (broker_id,)
        self._broker_settings = broker_settings
        self._topics: dict[str, TopicState] = {}
        self._names: dict[str, str] = {}
        """Topic names by collision key."""
        self._offline: set[TopicPartition] = set()
        """Partitions whose log directory failed on this broker."""
        self.deleted: Sequence[str] = ()
        """Topics whose deletion was unfinished when the broker last stopped."""
        self.changes = ChangeQueue()
        self._deletions = PendingDeletions(self._nodes, host)

    async def close(self) -> None:
        """Waits for changes that have begun, and finishes deletions."""
        await self.changes.drain()
        await self._deletions.finish()

    @property
    def topics(self) -> Mapping[str, TopicState]:
        return MappingProxyType(self._topics)

    # --- start ------------------------------------------------------------------------------------------------------

    async def load(self) -> list[TopicState]:
        """Returns all topics, with leaders where possible. Finishes what a crash interrupted: deletions, and partitions
        that were assigned but not elected. As in Kafka, a leader that comes back keeps its epoch.

        The host is not called: it starts with the result, deletes the logs of topics in `deleted`, and then calls
        `finish_deletions`."""
        async with self.changes.lock:
            self.epoch = await self._nodes.begin_epoch()
            self.deleted = await self._nodes.marked_for_deletion()
            if self.deleted:
                _logger.info("finishing the deletion of %d topics: %s", len(self.deleted), ", ".join(self.deleted))
                await self._nodes.delete(self.deleted)
            found = await self._nodes.read_all()
            topics = [self._with_leaders(topic) for topic in found]
            await self._nodes.update((old, new) for old, new in zip(found, topics, strict=True) if new is not old)
            for topic in topics:
                self._remember(topic)
            return topics

    async def finish_deletions(self) -> None:
        """Call this when the logs of the topics in `deleted` are gone."""
        if self.deleted:
            await self._nodes.unmark(self.deleted)

    def _with_leaders(self, topic: TopicState) -> TopicState:
        """The topic with leaders elected; the same object if nothing changes."""
        if topic.topic_id == ZERO_UUID:  # created by Kafka before 2.8
            topic = replace(topic, topic_id=random_uuid())
        if all(partition.leader in self._brokers for partition in topic.partitions):
            return topic
        elected = tuple(self._with_leader(topic, partition) for partition in topic.partitions)
        return replace(topic, partitions=elected) if elected != topic.partitions else topic

    def _with_leader(self, topic: TopicState, partition: PartitionState) -> PartitionState:
        if partition.leader in self._brokers:
            return partition
        if partition.version == NO_NODE:
            return elect_first(partition, self._brokers, self.epoch) or partition
        return elect_next(partition, self._brokers, self.epoch, unclean=self._is_unclean(topic)) or partition

    def _is_unclean(self, topic: TopicState) -> bool:
        settings = {**topic_defaults(self._broker_settings), **topic.configs}
        return settings.get("unclean.leader.election.enable", "false").strip().lower() == "true"

    # --- topics -----------------------------------------------------------------------------------------------------

    @change
    async def create_topics(
        self, wanted: Sequence[WantedTopic], *, validate_only: bool = False, reason: str = ""
    ) -> list[TopicState | ControllerError]:
        """Returns one outcome per topic, in order. With `validate_only` nothing is created: the states show what the
        topics would be like, without an id. `reason` goes to the log if no client created the topics explicitly."""
        names = [topic.name for topic in wanted if fault_of_name(topic.name) is None]
        await self._deletions.finish(names)
        traces = await self._nodes.traces(names)
        outcomes: list[TopicState | ControllerError] = []
        keys: dict[str, str] = {}
        room = PARTITIONS_AT_ONCE_MAX
        for topic in wanted:
            try:
                made = self._new_topic(topic, keys, traces.left_over, room)
            except ControllerError as error:
                outcomes.append(error)
                continue
            keys[collision_key(made.name)] = made.name
            room -= len(made.partitions)
            outcomes.append(replace(made, topic_id=ZERO_UUID) if validate_only else made)
        created = [outcome for outcome in outcomes if isinstance(outcome, TopicState)]
        if created and not validate_only:
            await self._nodes.create(created, traces.configured)
            for state in created:
                self._remember(state)
                await self._host.apply_topic(state, new_partitions=frozenset(range(len(state.partitions))))
                _tell_created(state, reason)
        return outcomes

    async def auto_create_topics(
        self, wanted: Sequence[WantedTopic], reason: str
    ) -> list[TopicState | ControllerError]:
        """The same for topics that no client created explicitly."""
        return await self.create_topics(wanted, reason=reason)

    async def create_topic(self, wanted: WantedTopic, *, validate_only: bool = False, reason: str = "") -> TopicState:
        """The same for one; raises what is wrong."""
        (outcome,) = await self.create_topics([wanted], validate_only=validate_only, reason=reason)
        if isinstance(outcome, ControllerError):
            raise outcome
        return outcome

    def _new_topic(
        self, wanted: WantedTopic, keys: Mapping[str, str], left_over: frozenset[str], room: int
    ) -> TopicState:
        self._check_name(wanted.name, keys, left_over)
        configs = checked_configs(wanted)
        partitions = self._new_partitions(assigned_replicas(wanted, self._brokers, room))
        check_config_values(configs, self._broker_settings)
        return TopicState(wanted.name, random_uuid(), partitions, configs)

    def _new_partitions(self, assigned: Sequence[assignment.Replicas]) -> tuple[PartitionState, ...]:
        """Equal states are one object: there may be tens of thousands."""
        states = {}
        for replicas in set(assigned):
            partition = unelected(replicas)
            states[replicas] = elect_first(partition, self._brokers, self.epoch) or partition
        return tuple(states[replicas] for replicas in assigned)

    def _check_name(self, name: str, keys: Mapping[str, str], left_over: frozenset[str]) -> None:
        if fault := fault_of_name(name):
            raise ControllerError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name == METADATA_TOPIC:
            raise ControllerError(ErrorCode.INVALID_REQUEST, f"Topic name '{name}' is reserved for the cluster.")
        key = collision_key(name)
        other = self._names.get(key) or keys.get(key)
        if name in self._topics or other == name:
            raise ControllerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in left_over:
            reason = f"Topic '{name}' is still being deleted; restart the broker to finish the deletion."
            raise ControllerError(ErrorCode.TOPIC_ALREADY_EXISTS, reason)
        if other is not None:
            reason = f"Topic '{name}' collides with '{other}': '.' and '_' are the same in metric names."
            raise ControllerError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)

    @change
    async def delete_topics(
        self, names: Sequence[str], ids: Mapping[str, Uuid] = MappingProxyType({})
    ) -> list[ControllerError | None]:
        """Returns one outcome per topic, None for success. When this returns, clients no longer see the topic, and a
        crash does not bring it back. Its replicas and nodes are deleted afterwards, before the name can be used again.
        A topic named in `ids` is deleted only if it has that id: the name may belong to a new topic by then."""
        outcomes = [self._fault_of_deletion(name, ids.get(name)) for name in names]
        found = dict.fromkeys(name for name, fault in zip(names, outcomes, strict=True) if fault is None)
        topics = [self._topics[name] for name in found]
        if topics:
            await self._nodes.mark_for_deletion([topic.name for topic in topics])
            self._forget(topics)
            self._host.forget_topics(topics)
            self._deletions.add(topics)
        return outcomes

    async def delete_topic(self, name: str) -> None:
        """The same for one; raises what is wrong."""
        (error,) = await self.delete_topics([name])
        if error is not None:
            raise error

    def _fault_of_deletion(self, name: str, topic_id: Uuid | None) -> ControllerError | None:
        topic = self._topics.get(name)
        if topic_id is None:
            return _unknown(name) if topic is None else None
        if topic is None or topic.topic_id != topic_id:
            reason = f"Topic with the id {format_uuid(topic_id)} does not exist."
            return ControllerError(ErrorCode.UNKNOWN_TOPIC_ID, reason)
        return None

    @change
    async def update_topic_configs(
        self, configs: Mapping[str, Mapping[str, str]]
    ) -> dict[str, TopicState | ControllerError]:
        """Replaces the configs of topics. Returns the outcome of each by name."""
        outcomes: dict[str, TopicState | ControllerError] = {}
        good: set[frozenset[tuple[str, str]]] = set()  # many topics get the same configs
        for name, own in configs.items():
            try:
                topic = self._known(name)
                if (key := frozenset(own.items())) not in good:
                    check_config_values(own, self._broker_settings)
                    good.add(key)
            except ControllerError as error:
                outcomes[name] = error
            else:
                outcomes[name] = replace(topic, configs=dict(own))
        changed = [outcome for outcome in outcomes.values() if isinstance(outcome, TopicState)]
        if changed:
            await self._nodes.write_configs({topic.name: topic.configs for topic in changed})
        for topic in changed:
            if told := changes_of(self._topics[topic.name].configs, topic.configs):
                _logger.info("changed configs of topic %s: %s", topic.name, told)
            await self._changed(topic)
        return outcomes

    def note_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """The configs of a topic were changed in the tree."""
        if name in self._topics:
            self._topics[name] = replace(self._topics[name], configs=dict(configs))

    # --- partitions -------------------------------------------------------------------------------------------------

    async def grow_topics(
        self, wanted: Sequence[NewPartitionCount], *, validate_only: bool = False
    ) -> list[TopicState | ControllerError]:
        """Returns one outcome per topic, in order: the topic with its new partitions. Each topic may appear once. When
        this returns, the partitions are served, and a crash does not take them back. The nodes with their leaders are
        written afterwards, before the next change."""
        return await self.changes.run_behind(
            lambda answer: self._grow_topics(wanted, answer, validate_only=validate_only), "grow_topics"
        )

    async def _grow_topics(
        self,
        wanted: Sequence[NewPartitionCount],
        answer: asyncio.Future[list[TopicState | ControllerError]],
        *,
        validate_only: bool,
    ) -> list[TopicState | ControllerError]:
        outcomes: list[TopicState | ControllerError] = []
        for each in wanted:
            try:
                topic = self._known(each.name)
                added = self._new_partitions(added_replicas(topic, each, self._brokers))
            except ControllerError as error:
                outcomes.append(error)
            else:
                outcomes.append(replace(topic, partitions=(*topic.partitions, *added)))
        grown = [(self._topics[each.name], each) for each in outcomes if isinstance(each, TopicState)]
        if grown and not validate_only:
            await self._nodes.grow(new for _, new in grown)
            for old, new in grown:
                await self._changed(new, new_partitions=frozenset(range(len(old.partitions), len(new.partitions))))
            await answer_early(answer, outcomes)
            for old, new in grown:
                counts = partitions_in_words(new), len(old.partitions)
                _logger.info("altered topic %s: it now has %s, up from %d", new.name, *counts)
            await self._write_states(grown)
        return outcomes

    async def _write_states(self, grown: Sequence[tuple[TopicState, TopicState]]) -> None:
        """If this fails, the leaders stay, and the next change of such a partition creates its node."""
        try:
            await self._nodes.create_states(grown)
        except BaseException:
            for old, new in grown:
                added = (replace(partition, version=NO_NODE) for partition in new.partitions[len(old.partitions) :])
                topic = self._topics[new.name]  # its configs may have changed meanwhile
                self._topics[new.name] = replace(topic, partitions=(*old.partitions, *added))
            raise

    async def create_partitions(
        self,
        name: str,
        new_total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicState:
        """The same for one; raises what is wrong."""
        wanted = NewPartitionCount(name, new_total, assignments)
        (outcome,) = await self.grow_topics([wanted], validate_only=validate_only)
        if isinstance(outcome, ControllerError):
            raise outcome
        return outcome

    @change
    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, ControllerError | None]:
        """Returns the outcome of each partition, None for success. If `names` is None, tries all partitions."""
        if partitions is None:
            partitions = [
                TopicPartition(topic.name, index)
                for topic in self._topics.values()
                for index in range(len(topic.partitions))
            ]
        outcomes: dict[TopicPartition, ControllerError | None] = {}
        elected: dict[TopicPartition, PartitionState] = {}
        for name in partitions:
            try:
                elected[name] = self._elected(name, unclean=unclean)
                outcomes[name] = None
            except ControllerError as error:
                outcomes[name] = error
        await self._replace_partitions(elected)
        return outcomes

    def _elected(self, name: TopicPartition, *, unclean: bool) -> PartitionState:
        partition = self._partition(name)
        live = () if name in self._offline else self._brokers
        needed = partition.leader not in live if unclean else partition.leader != partition.replicas[0]
        if not needed:
            raise ControllerError(ErrorCode.ELECTION_NOT_NEEDED, f"{name} already has the right leader.")
        if partition.version == NO_NODE:
            elected = elect_first(partition, live, self.epoch)
        elif unclean:
            elected = elect_next(partition, live, self.epoch, unclean=True)
        else:
            elected = elect_preferred(partition, live, self.epoch)
        if elected is None:
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            raise ControllerError(code, f"No eligible replica of {name} is available.")
        return elected

    @change
    async def replicas_failed(self, names: Iterable[TopicPartition]) -> None:
        """The log directory of these replicas failed: they have no leader until the broker restarts."""
        lost = {}
        for name in names:
            topic = self._topics.get(name.topic)
            if topic is None:
                continue
            self._offline.add(name)
            partition = topic.partitions[name.partition]
            if partition.leader in self._brokers:
                lost[name] = without_leader(partition, self.epoch)
        await self._replace_partitions(lost)

    @change
    async def reassign(
        self, name: TopicPartition, replicas: Sequence[int] | None, *, may_change_factor: bool = True
    ) -> None:
        """Reassigns the partition to these brokers; None cancels a reassignment. With one broker none is ever in
        progress: the only possible one drops brokers that are gone, and finishes immediately."""
        if replicas is None:
            raise ControllerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name} is not being moved.")
        target = assignment.checked(name.partition, replicas, self._brokers, factor=len(replicas))
        partition = self._partition(name)
        moved = replace(partition, replicas=target, adding_replicas=(), removing_replicas=())
        if moved == partition:
            return
        if len(target) != len(partition.replicas) and not may_change_factor:
            reason = f"{name} has {len(partition.replicas)} replicas; it cannot be changed to {len(target)}."
            raise ControllerError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        led = elect_next(moved, target, self.epoch)
        if led is None:
            reason = f"None of the new replicas of {name} is in sync."
            raise ControllerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        await self._replace_partitions({name: led})

    async def reassign_all(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, ControllerError | None]:
        """The same for several. Returns the outcome of each, None for success."""
        outcomes: dict[TopicPartition, ControllerError | None] = {}
        for name, replicas in wanted.items():
            try:
                await self.reassign(name, replicas, may_change_factor=may_change_factor)
                outcomes[name] = None
            except ControllerError as error:
                outcomes[name] = error
        return outcomes

    async def reassignments(
        self, names: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionState]:
        """The reassignments in progress, of these partitions or all: those that a cluster left behind."""
        moving = {
            TopicPartition(topic.name, index): partition
            for topic in self._topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.adding_replicas or partition.removing_replicas
        }
        return moving if names is None else {name: moving[name] for name in names if name in moving}

    async def _replace_partitions(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        """Writes the partitions, and passes each topic to the host once."""
        by_topic: dict[str, dict[int, PartitionState]] = {}
        for name, partition in partitions.items():
            by_topic.setdefault(name.topic, {})[name.partition] = partition
        changed = []
        for topic_name, new in by_topic.items():
            old = self._topics[topic_name]
            states = tuple(new.get(index, partition) for index, partition in enumerate(old.partitions))
            changed.append((old, replace(old, partitions=states)))
        await self._nodes.update(changed)
        for _, topic in changed:
            await self._changed(topic)

    # --- what is known ----------------------------------------------------------------------------------------------

    async def _changed(self, topic: TopicState, new_partitions: frozenset[int] = frozenset()) -> None:
        self._topics[topic.name] = topic
        await self._host.apply_topic(topic, new_partitions=new_partitions)

    def _remember(self, topic: TopicState) -> None:
        self._topics[topic.name] = topic
        self._names[collision_key(topic.name)] = topic.name

    def _forget(self, topics: Iterable[TopicState]) -> None:
        for topic in topics:
            del self._topics[topic.name]
            key = collision_key(topic.name)
            if self._names.get(key) == topic.name:
                del self._names[key]
        self._offline = {name for name in self._offline if name.topic in self._topics}

    def _known(self, name: str) -> TopicState:
        try:
            return self._topics[name]
        except KeyError:
            raise _unknown(name) from None

    def _partition(self, name: TopicPartition) -> PartitionState:
        partitions = self._known(name.topic).partitions
        if not 0 <= name.partition < len(partitions):
            reason = f"Topic '{name.topic}' has no partition {name.partition}; it has {len(partitions)}."
            raise ControllerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        return partitions[name.partition]


def _unknown(name: str) -> ControllerError:
    return ControllerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


def _tell_created(topic: TopicState, reason: str) -> None:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    configs = "".join(f", {key}={value}" for key, value in sorted(topic.configs.items()))
    counts = f"{partitions_in_words(topic)}, replication factor {replicas}"
    _logger.info("created topic %s with %s%s%s", topic.name, counts, configs, f" ({reason})" if reason else "")
