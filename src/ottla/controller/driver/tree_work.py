"""Runs steps of the core: performs their effects on the tree, under a check of the controller epoch, and on channels.

State nodes are written about 100 in a transaction, and all transactions are on their way at once. In a transaction that
fails, only the node that failed is left out; the rest is tried again. After a lost connection the nodes are read: a
write may have been done or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from ottla.base.coordination import (
    BadVersionError,
    Check,
    ConnectionLossError,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    Watch,
)
from ottla.base.ids import TopicPartition
from ottla.controller.core.effects import (
    ControllerMovedError,
    ControlRequest,
    CreateStates,
    Effect,
    ReadAdminNode,
    ReadStates,
    ReadTopicConfigs,
    RemoveTopicNodes,
    Send,
    Step,
    Write,
    WriteAdminNode,
    WriteAssignment,
    WriteStates,
)
from ottla.controller.core.leadership import Leadership
from ottla.zookeeper import paths
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.paths import ConfigKind
from ottla.zookeeper.znodes import decode_config

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_PARTITIONS_AT_ONCE: Final = 100
_OPERATIONS_AT_ONCE: Final = 300
_BYTES_AT_ONCE: Final = 512 * 1024
"""ZooKeeper refuses packets above 1 MiB."""
_RETRY_S: Final = 0.05


class TreeWork:
    """Belongs to one active controller: `epoch_version` is the version of `/controller_epoch` that it wrote."""

    def __init__(
        self,
        tree: Coordination,
        epoch: int,
        epoch_version: int,
        send: Callable[[ControlRequest], None],
        is_over: Callable[[], bool],
        on_admin_node: Watch,
    ) -> None:
        self._tree = tree
        self._epoch = epoch
        self._epoch_version = epoch_version
        self._send = send
        self._is_over = is_over
        self._on_admin_node = on_admin_node
        self._decoded: dict[tuple[bytes, int], Leadership] = {}

    async def run(self, step: Step[T]) -> T:
        """Raises `ControllerMovedError` when another controller has taken over."""
        result: Any = None
        failure: BaseException | None = None
        try:
            while True:
                try:
                    effect = step.send(result) if failure is None else step.throw(failure)
                except StopIteration as end:
                    value: T = end.value
                    return value
                result, failure = None, None
                self._check_reign()
                try:
                    result = await self._perform(effect)
                except SessionExpiredError as error:
                    raise ControllerMovedError(str(error)) from error
                except CoordinationError as error:
                    failure = error
        finally:
            step.close()

    def _check_reign(self) -> None:
        if self._is_over():
            raise ControllerMovedError("this broker is not the controller any more")

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Send():
                for request in effect.requests:
                    self._send(request)
                await asyncio.sleep(0)  # the broker does something else before the next batch
            case ReadStates():
                return await self.read_states(effect.names)
            case WriteStates():
                return await self._in_chunks(effect.states, self._write_chunk)
            case CreateStates():
                return await self._create_states(effect.states)
            case Write():
                return await self.write(effect.operations)
            case ReadTopicConfigs():
                return await self._read_configs(effect.topics)
            case WriteAssignment():
                await self.transact([SetData(paths.topic(effect.topic), effect.assignment.encode())])
            case RemoveTopicNodes():
                await self._remove_topic(effect.topic)
            case ReadAdminNode():
                node = await self._tree.get(effect.path, self._on_admin_node)
                return None if node is None else node.data
            case WriteAdminNode():
                await self._write_admin_node(effect.path, effect.data)
        return None

    # --- reading ----------------------------------------------------------------------------------------------------

    async def read_states(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, Leadership]:
        """Nodes that are gone or cannot be understood are left out: one of them must not stop the others from getting
        leaders. Most states of a cluster are equal, so equal ones are decoded once."""
        state_paths = [paths.partition_state(*name) for name in names]
        found: dict[TopicPartition, Leadership] = {}
        decoded = self._decoded
        for name, path, node in zip(names, state_paths, await self._tree.get_many(state_paths), strict=True):
            if node is None:
                continue
            key = node.data, node.version
            leadership = decoded.get(key)
            if leadership is None:
                try:
                    leadership = decoded[key] = Leadership.decode(path, node)
                except ZnodeError as error:
                    _logger.error("ignoring the state of %s: %s", name, error)
                    continue
            found[name] = leadership
        decoded.clear()
        return found

    async def _read_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        config_paths = [paths.config(ConfigKind.TOPICS, topic) for topic in topics]
        nodes = await self._tree.get_many(config_paths)
        configs: dict[str, dict[str, str]] = {}
        for topic, path, node in zip(topics, config_paths, nodes, strict=True):
            configs[topic] = {}
            try:
                configs[topic] = {} if node is None else decode_config(path, node.data)
            except ZnodeError as error:
                _logger.error("ignoring the configs of topic %s: %s", topic, error)
        return configs

    # --- writing ----------------------------------------------------------------------------------------------------

    async def transact(self, operations: Sequence[Operation]) -> None:
        """One transaction under the check. After a lost connection it is tried again: the caller must be able to bear
        the errors of a second time. Raises `CoordinationError`, and `ControllerMovedError`."""
        checked = [Check(paths.CONTROLLER_EPOCH, self._epoch_version), *operations]
        while True:
            self._check_reign()
            try:
                await self._tree.transact(checked)
            except ConnectionLossError:
                await asyncio.sleep(_RETRY_S)
            except (BadVersionError, NoNodeError) as error:
                if error.path == paths.CONTROLLER_EPOCH:
                    raise ControllerMovedError("another broker is the controller") from error
                raise
            else:
                return

    async def write(self, operations: Sequence[Operation]) -> CoordinationError | None:
        """Writes nodes in as few transactions as their size allows. Returns the first failure."""
        try:
            for chunk in _chunks(operations):
                await self.transact(chunk)
        except SessionExpiredError:
            raise
        except CoordinationError as error:
            return error
        return None

    async def _in_chunks(
        self,
        states: Mapping[TopicPartition, Leadership],
        write: Callable[[Mapping[TopicPartition, Leadership]], Any],
    ) -> dict[TopicPartition, Leadership]:
        items = list(states.items())
        chunks = [
            dict(items[start : start + _PARTITIONS_AT_ONCE]) for start in range(0, len(items), _PARTITIONS_AT_ONCE)
        ]
        written: dict[TopicPartition, Leadership] = {}
        for part in await asyncio.gather(*(write(chunk) for chunk in chunks)):
            written.update(part)
        return written

    async def _write_chunk(self, states: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, Leadership]:
        waiting = dict(states)
        written: dict[TopicPartition, Leadership] = {}
        by_path = {paths.partition_state(*name): name for name in waiting}
        data = {name: state.encode(self._epoch) for name, state in waiting.items()}
        is_unsure = False
        while waiting:
            self._check_reign()
            operations: list[Operation] = [Check(paths.CONTROLLER_EPOCH, self._epoch_version)]
            operations += [
                SetData(paths.partition_state(*name), data[name], state.version) for name, state in waiting.items()
            ]
            try:
                await self._tree.transact(operations)
            except ConnectionLossError:
                is_unsure = True
                await asyncio.sleep(_RETRY_S)
                await self._settle(waiting, data, written, 1)
            except (BadVersionError, NoNodeError) as error:
                if error.path == paths.CONTROLLER_EPOCH:
                    raise ControllerMovedError("another broker is the controller") from error
                if is_unsure and isinstance(error, BadVersionError):
                    # The lost transaction may have been done only after the nodes were read.
                    await self._settle(waiting, data, written, 1)
                waiting.pop(by_path[error.path], None)
            else:
                written.update((name, state.written(self._epoch, state.version + 1)) for name, state in waiting.items())
                break
        return written

    async def _settle(
        self,
        waiting: dict[TopicPartition, Leadership],
        data: Mapping[TopicPartition, bytes],
        written: dict[TopicPartition, Leadership],
        versions_up: int,
    ) -> None:
        """After a lost connection: what was written, and what others wrote, is not tried again."""
        names = list(waiting)
        nodes = await self._tree.get_many([paths.partition_state(*name) for name in names])
        for name, node in zip(names, nodes, strict=True):
            state = waiting[name]
            if node is None or (node.version == state.version and versions_up):
                continue
            if node.data == data[name] and node.version == state.version + versions_up:
                written[name] = state.written(self._epoch, node.version)
            del waiting[name]

    # --- new partitions ---------------------------------------------------------------------------------------------

    async def _create_states(self, states: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, Leadership]:
        topics = sorted({name.topic for name in states})
        parents = [paths.partitions(topic) for topic in topics]
        missing = [
            Create(path) for path, node in zip(parents, await self._tree.get_many(parents), strict=True) if node is None
        ]
        for create in missing:
            # Made after all, or the topic is gone: then its states cannot be created either.
            with suppress(NodeExistsError, NoNodeError):
                await self.transact([create])
        return await self._in_chunks(states, self._create_chunk)

    async def _create_chunk(self, states: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, Leadership]:
        waiting = dict(states)
        written: dict[TopicPartition, Leadership] = {}
        with_node: set[TopicPartition] = set()
        data = {name: state.encode(self._epoch) for name, state in waiting.items()}
        by_path = {paths.partition_state(*name): name for name in waiting}
        by_parent = {paths.partition(*name): name for name in waiting}
        is_unsure = False
        while waiting:
            self._check_reign()
            operations: list[Operation] = [Check(paths.CONTROLLER_EPOCH, self._epoch_version)]
            for name in waiting:
                if name not in with_node:
                    operations.append(Create(paths.partition(*name)))
                operations.append(Create(paths.partition_state(*name), data[name]))
            try:
                await self._tree.transact(operations)
            except ConnectionLossError:
                is_unsure = True
                await asyncio.sleep(_RETRY_S)
                await self._settle(waiting, data, written, 0)
            except (NodeExistsError, NoNodeError, BadVersionError) as error:
                if error.path == paths.CONTROLLER_EPOCH:
                    raise ControllerMovedError("another broker is the controller") from error
                if isinstance(error, NodeExistsError) and error.path in by_parent:
                    with_node.add(by_parent[error.path])
                else:
                    if is_unsure and isinstance(error, NodeExistsError):
                        await self._settle(waiting, data, written, 0)
                    waiting.pop(by_path.get(error.path) or by_parent[error.path], None)
            else:
                written.update((name, state.written(self._epoch, 0)) for name, state in waiting.items())
                break
        return written

    # --- the rest ---------------------------------------------------------------------------------------------------

    async def _remove_topic(self, topic: str) -> None:
        """Children first. What is gone already, by an earlier try, is left out."""
        indexes = await self._tree.children(paths.partitions(topic))
        wanted = [
            *(f"{paths.partitions(topic)}/{index}/state" for index in indexes),
            *(f"{paths.partitions(topic)}/{index}" for index in indexes),
            paths.partitions(topic),
            paths.topic(topic),
            paths.config(ConfigKind.TOPICS, topic),
            paths.deleted_topic(topic),
        ]
        nodes = await self._tree.get_many(wanted)
        there = [path for path, node in zip(wanted, nodes, strict=True) if node is not None]
        try:
            for chunk in _chunks([Delete(path) for path in there]):
                await self.transact(chunk)
        except (NotEmptyError, NoNodeError):
            # Nodes that Kafka does not know, or a transaction that was done although its answer was lost.
            await self.transact([])
            await self._remove_trees([paths.topic(topic), paths.config(ConfigKind.TOPICS, topic)])
            await self._remove_trees([paths.deleted_topic(topic)])

    async def _remove_trees(self, roots: Sequence[str]) -> None:
        while True:
            self._check_reign()
            try:
                await self._tree.delete_trees(roots)
            except ConnectionLossError:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _write_admin_node(self, path: str, data: bytes | None) -> None:
        node = await self._tree.get(path)
        try:
            if data is None:
                if node is not None:
                    await self.transact([Delete(path)])
            elif node is None:
                await self.transact([Create(path, data)])
            else:
                await self.transact([SetData(path, data)])
        except (NoNodeError, NodeExistsError):
            pass  # another program, or this one before it lost the connection


def _chunks(operations: Sequence[Operation]) -> list[list[Operation]]:
    chunks: list[list[Operation]] = []
    size = _BYTES_AT_ONCE
    for operation in operations:
        data = operation.data if isinstance(operation, Create | SetData) else None
        weight = len(operation.path) + len(data or b"") + 64
        if size + weight > _BYTES_AT_ONCE or len(chunks[-1]) >= _OPERATIONS_AT_ONCE:
            chunks.append([])
            size = 0
        chunks[-1].append(operation)
        size += weight
    return chunks
