"""Topics in the coordination tree: `TopicState`, stored in the same nodes as Kafka's.

    /brokers/topics/<topic>                          id, and the replicas of each partition
    /brokers/topics/<topic>/partitions/<n>/state     leader, epochs, in-sync replicas
    /config/topics/<topic>                           the topic's own configs
    /admin/delete_topics/<topic>                     exists while the topic is being deleted

A change is one transaction, except for two. A deletion takes several, and the marker in /admin shows it. The states of
partitions that are added to a topic come in a second one: without it, the next start elects their leaders.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.base.coordination import Coordination, Create, Operation, SetData, Znode
from ottla.base.ids import ZERO_UUID
from ottla.controller.election import NO_NODE, unelected
from ottla.controller.state import PartitionState, TopicState
from ottla.zookeeper import paths
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.paths import ConfigKind
from ottla.zookeeper.transaction import ancestors_of
from ottla.zookeeper.znodes import (
    PartitionLeader,
    ReplicaAssignment,
    TopicAssignment,
    decode_config,
    decode_controller_epoch,
    encode_config,
    encode_controller_epoch,
)

_WRITES_AT_ONCE: Final = 1000
"""Writes in one transaction that need not be atomic: a server limits the size of a transaction."""


class Traces(NamedTuple):
    """Names of unknown topics with nodes in the tree."""

    left_over: frozenset[str]
    """The deletion of these failed."""
    configured: frozenset[str]
    """These have configs: Kafka's tools can write them before the topic exists."""


class TopicNodes:
    """Only the controller writes these nodes, so concurrent changes are not expected."""

    def __init__(self, coordination: Coordination) -> None:
        self._tree = coordination

    async def begin_epoch(self) -> int:
        """Begins a new controller epoch, one above the last."""
        path = paths.CONTROLLER_EPOCH
        node = await self._tree.get(path)
        if node is None:
            await self._tree.create(path, encode_controller_epoch(1))
            return 1
        epoch = decode_controller_epoch(path, node.data) + 1
        await self._tree.set(path, encode_controller_epoch(epoch), node.version)
        return epoch

    # --- reading ----------------------------------------------------------------------------------------------------

    async def read_all(self) -> list[TopicState]:
        """Reads all topics, with few reads however many there are. A topic without an id has the zero id, a partition
        without a state has `NO_NODE` as its version."""
        names = await self._tree.children(paths.TOPICS)
        nodes = await self._tree.get_many([paths.topic(name) for name in names])
        configs = await self._tree.get_many([_config(name) for name in names])
        found = [
            (name, _assignment(name, node), _configs(name, config))
            for name, node, config in zip(names, nodes, configs, strict=True)
            if node is not None
        ]
        state_paths = [
            paths.partition_state(name, index)
            for name, assignment, _ in found
            for index in range(len(assignment.partitions))
        ]
        states = iter(zip(state_paths, await self._tree.get_many(state_paths), strict=True))
        read = _PartitionReader()
        return [
            TopicState(
                name,
                ZERO_UUID if assignment.topic_id is None else assignment.topic_id,
                tuple(read(replicas, *next(states)) for replicas in assignment.partitions.values()),
                config,
            )
            for name, assignment, config in found
        ]

    async def traces(self, names: Sequence[str]) -> Traces:
        """What there is in the tree of topics that the controller does not know."""
        found = await self._tree.get_many(
            [path for name in names for path in (paths.deleted_topic(name), paths.topic(name), _config(name))]
        )
        nodes = list(zip(names, found[::3], found[1::3], found[2::3], strict=True))
        return Traces(
            frozenset(name for name, marker, topic, _ in nodes if marker is not None or topic is not None),
            frozenset(name for name, _, _, config in nodes if config is not None),
        )

    async def marked_for_deletion(self) -> list[str]:
        return await self._tree.children(paths.DELETE_TOPICS)

    # --- writing ----------------------------------------------------------------------------------------------------

    async def create(self, topics: Sequence[TopicState], configured: Container[str]) -> None:
        """All of them, or none. `configured` are the names that have a config node already."""
        operations: list[Operation] = []
        for topic in topics:
            operations.append(_config_write(topic.name, topic.configs, is_there=topic.name in configured))
            operations.append(Create(paths.topic(topic.name), _encode(topic)))
            operations.append(Create(paths.partitions(topic.name)))
            operations.extend(_new_partitions(topic, range(len(topic.partitions))))
        await self._tree.transact(operations)

    async def grow(self, topics: Iterable[TopicState]) -> None:
        """Writes topics that have more partitions now: all of them, or none. Their states are not written yet."""
        await self._tree.transact([SetData(paths.topic(topic.name), _encode(topic)) for topic in topics])

    async def create_states(self, changes: Iterable[tuple[TopicState, TopicState]]) -> None:
        """Writes the states of the partitions that the new one of (old, new) has more: all of them, or none."""
        operations: list[Operation] = []
        for old, new in changes:
            operations.extend(_new_partitions(new, range(len(old.partitions), len(new.partitions))))
        await self._tree.transact(operations)

    async def update(self, changes: Iterable[tuple[TopicState, TopicState]]) -> None:
        """Writes (old, new) states with the same number of partitions. Each node is consistent by itself: many nodes
        are written in several transactions."""
        operations: list[Operation] = []
        missing: dict[str, bytes] = {}
        for old, new in changes:
            if _assigned(old) != _assigned(new):
                operations.append(SetData(paths.topic(new.name), _encode(new)))
            for index, (before, after) in enumerate(zip(old.partitions, new.partitions, strict=True)):
                path = paths.partition_state(new.name, index)
                if before is after:
                    continue
                if before.version == NO_NODE:
                    missing[path] = _encode_leader(after)
                else:
                    operations.append(SetData(path, _encode_leader(after), before.version))
        if missing:
            operations += await self._creations(missing)
        for start in range(0, len(operations), _WRITES_AT_ONCE):
            await self._tree.transact(operations[start : start + _WRITES_AT_ONCE])

    async def _creations(self, missing: Mapping[str, bytes]) -> list[Operation]:
        """Creates nodes, and first those above them that do not exist either."""
        above = list(dict.fromkeys(ancestor for path in missing for ancestor in ancestors_of(path)))
        found = await self._tree.get_many(above)
        absent = [Create(path) for path, node in zip(above, found, strict=True) if node is None]
        return [*absent, *(Create(path, data) for path, data in missing.items())]

    async def write_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Writes the configs of topics: all of them, or none."""
        nodes = await self._tree.get_many([_config(name) for name in configs])
        await self._tree.transact(
            [
                _config_write(name, own, is_there=node is not None)
                for (name, own), node in zip(configs.items(), nodes, strict=True)
            ]
        )

    async def mark_for_deletion(self, names: Sequence[str]) -> None:
        """All of them, or none."""
        await self._tree.transact([Create(paths.deleted_topic(name)) for name in names])

    async def delete(self, names: Sequence[str], *, with_markers: bool = False) -> None:
        """Deletes all nodes of topics; the markers only if the topics are deleted on disk as well."""
        markers = map(paths.deleted_topic, names) if with_markers else ()
        await self._tree.delete_trees([*map(paths.topic, names), *map(_config, names), *markers])

    async def unmark(self, names: Sequence[str]) -> None:
        """Removes the markers: these topics are deleted, also on disk."""
        await self._tree.delete_trees([paths.deleted_topic(name) for name in names])


def _config(name: str) -> str:
    return paths.config(ConfigKind.TOPICS, name)


def _config_write(name: str, configs: Mapping[str, str], *, is_there: bool) -> Operation:
    data = encode_config(configs)
    return SetData(_config(name), data) if is_there else Create(_config(name), data)


def _assignment(name: str, node: Znode) -> TopicAssignment:
    path = paths.topic(name)
    assignment = TopicAssignment.decode(path, node.data)
    if not assignment.partitions or list(assignment.partitions) != list(range(len(assignment.partitions))):
        numbers = ", ".join(map(str, assignment.partitions)) or "none"
        raise ZnodeError(path, f"partitions of a topic must be numbered from 0 without gaps, but there are {numbers}")
    return assignment


def _configs(name: str, node: Znode | None) -> dict[str, str]:
    return {} if node is None else decode_config(_config(name), node.data)


class _PartitionReader:
    """Decodes states, equal ones only once: most are equal, and there may be tens of thousands."""

    def __init__(self) -> None:
        self._read: dict[tuple[ReplicaAssignment, bytes, int], PartitionState] = {}

    def __call__(self, assigned: ReplicaAssignment, path: str, node: Znode | None) -> PartitionState:
        if node is None:
            new = unelected(assigned.replicas)
            return replace(new, adding_replicas=assigned.adding, removing_replicas=assigned.removing)
        key = assigned, node.data, node.version
        partition = self._read.get(key)
        if partition is None:
            leader = PartitionLeader.decode(path, node.data)
            partition = self._read[key] = PartitionState(
                assigned.replicas,
                leader.leader,
                leader.leader_epoch,
                leader.isr,
                leader.controller_epoch,
                node.version,
                assigned.adding,
                assigned.removing,
            )
        return partition


def _new_partitions(topic: TopicState, indexes: Iterable[int]) -> Iterator[Operation]:
    for index in indexes:
        yield Create(paths.partition(topic.name, index))
        yield Create(paths.partition_state(topic.name, index), _encode_leader(topic.partitions[index]))


def _assigned(topic: TopicState) -> TopicAssignment:
    partitions = {
        index: ReplicaAssignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)
        for index, partition in enumerate(topic.partitions)
    }
    return TopicAssignment(topic.topic_id, partitions)


def _encode(topic: TopicState) -> bytes:
    return _assigned(topic).encode()


@lru_cache(maxsize=64)  # new partitions have equal states
def _encode_leader(partition: PartitionState) -> bytes:
    return PartitionLeader(partition.leader, partition.leader_epoch, partition.isr, partition.controller_epoch).encode()
