"""CreateTopics, CreatePartitions and DeleteTopics of a cluster. Each runs as one event of the active controller.

A topic's nodes are written first (configs, assignment), then the states of its partitions, about 100 in a transaction.
When the controller dies in between, the next one finds partitions without a state, and elects their first leaders.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ottla.base.coordination import Coordination, Create, NodeExistsError, Operation, SetData, Znode
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, Uuid, format_uuid, random_uuid
from ottla.controller.assignment import Replicas
from ottla.controller.core.context import ControllerContext
from ottla.controller.driver.active_controller import ActiveController
from ottla.controller.driver.tree_reader import read_brokers, read_topics
from ottla.controller.election import unelected
from ottla.controller.errors import ControllerError
from ottla.controller.placement import spread
from ottla.controller.settings import ControllerSettings
from ottla.controller.state import PartitionState, TopicState
from ottla.controller.topic_names import METADATA_TOPIC, collision_key, fault_of_name
from ottla.controller.wanted_topics import (
    PARTITIONS_AT_ONCE_MAX,
    NewPartitionCount,
    WantedTopic,
    added_replicas,
    assigned_replicas,
    check_config_values,
    checked_configs,
)
from ottla.zookeeper import paths
from ottla.zookeeper.paths import ConfigKind
from ottla.zookeeper.znodes import ReplicaAssignment, TopicAssignment, encode_config

_logger = logging.getLogger(__name__)

Racks = Mapping[int, str | None]
Outcome = TopicState | ControllerError


def topic_state(context: ControllerContext, name: str, configs: Mapping[str, str]) -> TopicState:
    """A topic as the rest of the broker knows it."""
    topic = context.topics[name]
    partitions = []
    for partition in context.partitions_of(name):
        assigned = topic.partitions[partition.partition]
        leadership = context.leaderships.get(partition)
        if leadership is None:
            state = unelected(assigned.replicas)
        else:
            state = PartitionState(
                assigned.replicas,
                leadership.leader,
                leadership.leader_epoch,
                leadership.isr,
                leadership.controller_epoch,
                leadership.version,
            )
        partitions.append(replace(state, adding_replicas=assigned.adding, removing_replicas=assigned.removing))
    return TopicState(name, topic.topic_id or ZERO_UUID, tuple(partitions), configs)


# --- creating -------------------------------------------------------------------------------------------------------


class NewTopics:
    """Checks topics to be created, one after the other, and assigns their replicas."""

    def __init__(
        self,
        settings: ControllerSettings,
        racks: Racks,
        all_brokers: Sequence[int],
        known: Mapping[str, object],
        being_deleted: Mapping[str, object],
    ) -> None:
        self._settings = settings
        self._racks = racks
        self._all_brokers = all_brokers
        self._known = known
        self._being_deleted = being_deleted
        self._keys = {collision_key(name): name for name in known}
        self._room = PARTITIONS_AT_ONCE_MAX

    def plan(self, wanted: WantedTopic, nodes: Sequence[Znode | None]) -> TopicState | ControllerError:
        """`nodes` are the topic's node and its deletion marker, as far as they exist."""
        try:
            self._check_name(wanted.name, nodes)
            configs = checked_configs(wanted)
            replicas = assigned_replicas(wanted, self._all_brokers, self._room, self._place)
            check_config_values(configs, self._settings.broker_settings)
        except ControllerError as error:
            return error
        self._keys[collision_key(wanted.name)] = wanted.name
        self._room -= len(replicas)
        return TopicState(wanted.name, random_uuid(), tuple(map(unelected, replicas)), configs)

    def _place(self, count: int, factor: int) -> list[Replicas]:
        """Brokers that shut down get new replicas only if there are not enough others."""
        racks = self._racks if len(self._racks) >= factor else dict.fromkeys(self._all_brokers)
        return spread(count, factor, racks, random.randrange)

    def _check_name(self, name: str, nodes: Sequence[Znode | None]) -> None:
        if fault := fault_of_name(name):
            raise ControllerError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name == METADATA_TOPIC:
            raise ControllerError(ErrorCode.INVALID_REQUEST, f"Topic name '{name}' is reserved for the cluster.")
        other = self._keys.get(collision_key(name))
        if name in self._being_deleted:
            raise ControllerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is still being deleted.")
        if name in self._known or other == name or any(node is not None for node in nodes):
            raise ControllerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if other is not None:
            reason = f"Topic '{name}' collides with '{other}': '.' and '_' are the same in metric names."
            raise ControllerError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


async def _plan(
    tree: Coordination, wanted: Sequence[WantedTopic], planner: NewTopics
) -> tuple[list[Outcome], dict[str, Znode | None]]:
    """One outcome per topic; and the config nodes that exist already, which Kafka's tools allow."""
    readable = [topic.name for topic in wanted if fault_of_name(topic.name) is None]
    found = iter(
        await tree.get_many(
            [
                path
                for name in readable
                for path in (paths.topic(name), paths.deleted_topic(name), paths.config(ConfigKind.TOPICS, name))
            ]
        )
    )
    nodes = {name: (next(found), next(found), next(found)) for name in readable}
    outcomes = [planner.plan(topic, nodes.get(topic.name, (None, None))[:2]) for topic in wanted]
    return outcomes, {name: config for name, (_, _, config) in nodes.items()}


def _creation(topic: TopicState, config: Znode | None) -> list[Operation]:
    config_path, data = paths.config(ConfigKind.TOPICS, topic.name), encode_config(topic.configs)
    return [
        SetData(config_path, data) if config is not None else Create(config_path, data),
        Create(paths.topic(topic.name), _assignment(topic).encode()),
        Create(paths.partitions(topic.name)),
    ]


def _assignment(topic: TopicState) -> TopicAssignment:
    partitions = {index: ReplicaAssignment(each.replicas) for index, each in enumerate(topic.partitions)}
    return TopicAssignment(topic.topic_id, partitions)


async def create_topics(
    active: ActiveController, wanted: Sequence[WantedTopic], *, validate_only: bool, reason: str
) -> list[Outcome]:
    context = active.context
    planner = NewTopics(active.settings, context.racks(), list(context.brokers), context.topics, context.to_delete)
    outcomes, configs = await _plan(active.tree, wanted, planner)
    if validate_only:
        return [replace(each, topic_id=ZERO_UUID) if isinstance(each, TopicState) else each for each in outcomes]
    new = [each for each in outcomes if isinstance(each, TopicState)]
    failures = await _write_topics(active, new, configs)
    created = [topic for topic in new if topic.name not in failures]
    if created:
        await active.run(active.core.topics_found({topic.name: _assignment(topic) for topic in created}))
        await active.watch_topics([topic.name for topic in created])
    for topic in created:
        tell_created(topic, reason)
    return [
        each
        if isinstance(each, ControllerError)
        else failures.get(each.name) or topic_state(context, each.name, each.configs)
        for each in outcomes
    ]


async def _write_topics(
    active: ActiveController, topics: Sequence[TopicState], configs: Mapping[str, Znode | None]
) -> dict[str, ControllerError]:
    """All at once; if that fails, one by one. Returns the failures."""
    operations = [operation for topic in topics for operation in _creation(topic, configs.get(topic.name))]
    if not operations or await active.work.write(operations) is None:
        return {}
    failures = {}
    for topic in topics:
        if await _is_written(active.tree, topic):
            continue  # in a transaction whose answer was lost, or before the one that failed
        failure = await active.work.write(_creation(topic, configs.get(topic.name)))
        if isinstance(failure, NodeExistsError):
            message = f"Topic '{topic.name}' already exists."
            failures[topic.name] = ControllerError(ErrorCode.TOPIC_ALREADY_EXISTS, message)
        elif failure is not None:
            failures[topic.name] = ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failure))
    return failures


async def _is_written(tree: Coordination, topic: TopicState) -> bool:
    found = (await read_topics(tree, [topic.name])).get(topic.name)
    return found is not None and found.topic_id == topic.topic_id


async def create_topics_from_afar(
    tree: Coordination, settings: ControllerSettings, wanted: Sequence[WantedTopic], reason: str
) -> list[Outcome]:
    """On a broker that is not the controller: writes the topics' nodes only; the controller's watch does the rest."""
    brokers = await read_brokers(tree)
    names = await tree.children(paths.TOPICS)
    marked = await tree.children(paths.DELETE_TOPICS)
    racks = {broker_id: broker.registration.rack for broker_id, broker in brokers.items()}
    planner = NewTopics(settings, racks, list(brokers), dict.fromkeys(names), dict.fromkeys(marked))
    outcomes, configs = await _plan(tree, wanted, planner)
    for position, outcome in enumerate(outcomes):
        if isinstance(outcome, ControllerError):
            continue
        try:
            # Without /partitions, which the controller makes: Kafka's brokers do not make it either.
            await tree.transact(_creation(outcome, configs.get(outcome.name))[:2])
        except NodeExistsError:
            if not await _is_written(tree, outcome):
                message = f"Topic '{outcome.name}' already exists."
                outcomes[position] = ControllerError(ErrorCode.TOPIC_ALREADY_EXISTS, message)
        else:
            tell_created(outcome, reason)
    return outcomes


# --- growing --------------------------------------------------------------------------------------------------------


async def grow_topics(
    active: ActiveController, wanted: Sequence[NewPartitionCount], *, validate_only: bool
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for each in wanted:
        try:
            outcomes.append(await _grown(active, each, validate_only=validate_only))
        except ControllerError as error:
            outcomes.append(error)
    return outcomes


async def _grown(active: ActiveController, wanted: NewPartitionCount, *, validate_only: bool) -> TopicState:
    context = active.context
    if wanted.name not in context.topics or context.is_being_deleted(wanted.name):
        raise unknown_topic(wanted.name)
    topic = topic_state(context, wanted.name, {})
    racks = context.racks()
    first = topic.partitions[0].replicas[0] if topic.partitions else 0

    def place(count: int, factor: int) -> list[Replicas]:
        chosen = racks if len(racks) >= factor else dict.fromkeys(context.brokers)
        start = sorted(chosen).index(first) if first in chosen else 0
        return spread(count, factor, chosen, random.randrange, start_partition=len(topic.partitions), start_index=start)

    added = added_replicas(topic, wanted, list(context.brokers), place)
    new = {len(topic.partitions) + offset: ReplicaAssignment(replicas) for offset, replicas in enumerate(added)}
    if validate_only:
        return replace(topic, partitions=(*topic.partitions, *map(unelected, added)))
    known = context.topics[wanted.name]
    assignment = TopicAssignment(known.topic_id, {**known.partitions, **new})
    failure = await active.work.write([SetData(paths.topic(wanted.name), assignment.encode())])
    if failure is not None:
        raise ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failure))
    await active.run(active.core.partitions_found(wanted.name, new))
    _logger.info(
        "altered topic %s: it now has %d partitions, up from %d", wanted.name, wanted.total, len(topic.partitions)
    )
    return topic_state(context, wanted.name, {})


# --- deleting -------------------------------------------------------------------------------------------------------


async def delete_topics(
    active: ActiveController, names: Sequence[str], ids: Mapping[str, Uuid]
) -> list[ControllerError | None]:
    context = active.context
    outcomes = [_fault_of_deletion(context, name, ids.get(name)) for name in names]
    found = list(dict.fromkeys(name for name, fault in zip(names, outcomes, strict=True) if fault is None))
    fresh = [name for name in found if not context.is_being_deleted(name)]
    for name in fresh:
        failure = await active.work.write([Create(paths.deleted_topic(name))])
        if failure is not None and not isinstance(failure, NodeExistsError):
            raise ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failure))
    if fresh:
        _logger.info("deleting topics: %s", ", ".join(fresh))
        await active.run(active.core.deletion.enqueue(fresh))
    return outcomes


def _fault_of_deletion(context: ControllerContext, name: str, topic_id: Uuid | None) -> ControllerError | None:
    topic = context.topics.get(name)
    if topic_id is None:
        return unknown_topic(name) if topic is None else None
    if topic is None or topic.topic_id != topic_id:
        reason = f"Topic with the id {format_uuid(topic_id)} does not exist."
        return ControllerError(ErrorCode.UNKNOWN_TOPIC_ID, reason)
    return None


def unknown_topic(name: str) -> ControllerError:
    return ControllerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


def tell_created(topic: TopicState, reason: str) -> None:
    count = len(topic.partitions)
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    configs = "".join(f", {key}={value}" for key, value in sorted(topic.configs.items()))
    counts = f"{count} partition{'' if count == 1 else 's'}, replication factor {replicas}"
    _logger.info("created topic %s with %s%s%s", topic.name, counts, configs, f" ({reason})" if reason else "")
