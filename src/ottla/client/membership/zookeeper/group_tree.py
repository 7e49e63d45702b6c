"""What a member of a ZooKeeper group reads and writes there: its registration, owners and offsets, with watches.

The first use opens the session. `leave` ends it, which removes the member's ephemeral nodes at once; the next use opens
another. Errors are those of the client: retriable ones are a `BrokerConnectionError`. Belongs to one loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from ottla.base.coordination import (
    ConnectionLossError,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    WatchEvent,
)
from ottla.base.ids import TopicPartition
from ottla.client.errors import BrokerUnreachableError, ClientError, ConnectionLostError
from ottla.client.membership.zookeeper.assignment import AssignmentError, GroupView, topics_of
from ottla.zookeeper import paths
from ottla.zookeeper.client.tree import ZooKeeperTree
from ottla.zookeeper.node_json import ZnodeError
from ottla.zookeeper.znodes import (
    ConsumerPattern,
    ConsumerRegistration,
    TopicAssignment,
    decode_consumer_offset,
    encode_consumer_offset,
    encode_consumer_owner,
)

_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class TreeSettings:
    connect: str
    session_timeout_ms: int
    connection_timeout_ms: int


class GroupTree:
    """`on_change` is called when something changed that the last `look` read; `on_release` when the owner of a
    partition that could not be claimed releases it; `on_expiry` when the session has expired, and with it everything
    that the member owned."""

    def __init__(self, settings: TreeSettings, group_id: str, *, with_internal: bool) -> None:
        self._settings = settings
        self._group_id = group_id
        self._with_internal = with_internal
        self._tree: ZooKeeperTree | None = None
        self._opening = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._disconnected_s: float | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.on_release: Callable[[], None] = lambda: None
        self.on_expiry: Callable[[], None] = lambda: None

    # The session.

    @property
    def session_id(self) -> int | None:
        return None if self._tree is None else self._tree.session_id

    @property
    def may_be_expired(self) -> bool:
        """Whether ZooKeeper was unreachable for so long that it may have given this member's partitions to others
        without the member noticing."""
        since_s = self._disconnected_s
        return since_s is not None and time.monotonic() - since_s > self._settings.session_timeout_ms / _MS

    async def open(self) -> ZooKeeperTree:
        async with self._opening:
            if self._tree is None:
                settings = self._settings
                try:
                    tree = await ZooKeeperTree.open(
                        settings.connect, settings.session_timeout_ms, settings.connection_timeout_ms / _MS
                    )
                except ConnectionError as error:
                    raise BrokerUnreachableError(str(error)) from None
                tree.on_session(lambda state: self._session_changed(tree, state))
                self._tree, self._disconnected_s = tree, None
            return self._tree

    def _session_changed(self, tree: ZooKeeperTree, state: SessionState) -> None:
        if tree is not self._tree:
            return
        if state is SessionState.DISCONNECTED:
            self._disconnected_s = self._disconnected_s or time.monotonic()
        else:
            self._disconnected_s = None
        if state is SessionState.EXPIRED:
            self.on_expiry()

    def leave(self) -> None:
        """Ends the session in the background; `close` waits for that."""
        tree, self._tree = self._tree, None
        if tree is not None:
            task = asyncio.get_running_loop().create_task(tree.close(), name="ottla-group-session-end")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Takes a few seconds at most: if the server does not answer, the session ends by its timeout."""
        self.leave()
        while self._ending:
            await asyncio.wait(self._ending)

    # The member.

    async def register(self, member_id: str, registration: ConsumerRegistration) -> None:
        """Creates the member's node, again if it exists: others watch for nodes that come and go, not for their
        contents."""
        path, data = paths.consumer_id(self._group_id, member_id), registration.encode()
        with _client_errors():
            tree = await self.open()
            try:
                await tree.create(path, data, ephemeral=True, parents=True)
                return
            except NodeExistsError:
                node = await tree.get(path)
            if node is None or node.owner != tree.session_id:
                raise ConnectionLostError(f"{path} still belongs to an earlier session with ZooKeeper")
            if node.data != data:
                await tree.transact([Delete(path), Create(path, data, ephemeral=True)])

    async def look(self, member_id: str) -> GroupView:
        """Reads the state of the group, with watches on all of it."""
        with _client_errors():
            tree = await self.open()
            member_ids = await self._children(tree, paths.consumer_ids(self._group_id))
            member_paths = [paths.consumer_id(self._group_id, one) for one in member_ids]
            members = {
                one: ConsumerRegistration.decode(path, node.data)
                for one, path, node in zip(member_ids, member_paths, await tree.get_many(member_paths), strict=True)
                if node is not None
            }
            brokers = await self._children(tree, paths.BROKER_IDS)
            topics: list[str] = []
            if any(one.pattern is not ConsumerPattern.STATIC for one in members.values()):
                topics = await self._children(tree, paths.TOPICS)
            partitions: dict[str, tuple[int, ...]] = {}
            if member_id in members:
                with suppress(AssignmentError):  # computing the assignment raises it as well
                    mine = sorted(topics_of(members[member_id], topics, with_internal=self._with_internal))
                    partitions = await self._partitions(tree, mine)
        ids = frozenset(int(one) for one in brokers if one.isdecimal())
        return GroupView(members, ids, partitions, frozenset(topics))

    async def _partitions(self, tree: ZooKeeperTree, topics: Collection[str]) -> dict[str, tuple[int, ...]]:
        topic_paths = [paths.topic(name) for name in topics]
        nodes = await tree.get_many(topic_paths, self._changed)
        return {
            name: tuple(TopicAssignment.decode(path, node.data).partitions)
            for name, path, node in zip(topics, topic_paths, nodes, strict=True)
            if node is not None
        }

    async def _children(self, tree: ZooKeeperTree, path: str) -> list[str]:
        """Watches a node that does not exist yet, too."""
        if await tree.get(path, self._changed) is None:
            return []
        return await tree.children(path, self._changed)

    def _changed(self, _: WatchEvent) -> None:
        self.on_change()

    # Owners.

    async def claim(self, threads: Mapping[TopicPartition, str]) -> set[TopicPartition]:
        """Returns the granted partitions. Watches the owners of the others."""
        with _client_errors():
            tree = await self.open()
            # Wait for all, so that no node is created after a failure was reported.
            answers = await asyncio.gather(
                *(self._claim(tree, *one) for one in threads.items()), return_exceptions=True
            )
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
        return {partition for partition, is_granted in zip(threads, answers, strict=True) if is_granted}

    async def _claim(self, tree: ZooKeeperTree, partition: TopicPartition, thread: str) -> bool:
        path = paths.consumer_owner(self._group_id, *partition)
        while True:
            try:
                await tree.create(path, encode_consumer_owner(thread), ephemeral=True, parents=True)
            except NodeExistsError:
                node = await tree.get(path, self._released)
                if node is not None:
                    return node.owner == tree.session_id  # ours if an earlier response was lost
            else:
                return True

    def _released(self, _: WatchEvent) -> None:
        self.on_release()

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        """Releases only what this member owns: no other member can take it while the session lives."""
        with _client_errors():
            tree = await self.open()
            owner_paths = [paths.consumer_owner(self._group_id, *one) for one in partitions]
            nodes = await tree.get_many(owner_paths)
            mine = [
                path
                for path, node in zip(owner_paths, nodes, strict=True)
                if node is not None and node.owner == tree.session_id
            ]
            await tree.delete_trees(mine)

    # Offsets.

    async def write_offset(self, partition: TopicPartition, offset: int) -> None:
        path, data = paths.consumer_offset(self._group_id, *partition), encode_consumer_offset(offset)
        with _client_errors():
            tree = await self.open()
            try:
                await tree.set(path, data)
            except NoNodeError:
                try:
                    await tree.create(path, data, parents=True)
                except NodeExistsError:
                    raise ConnectionLostError(f"{path} was made by another consumer at the same time") from None

    async def read_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        offset_paths = [paths.consumer_offset(self._group_id, *one) for one in partitions]
        with _client_errors():
            tree = await self.open()
            nodes = await tree.get_many(offset_paths)
            return {
                partition: None if node is None else decode_consumer_offset(path, node.data)
                for partition, path, node in zip(partitions, offset_paths, nodes, strict=True)
            }


@contextmanager
def _client_errors() -> Iterator[None]:
    try:
        yield
    except (ConnectionLossError, SessionExpiredError) as error:
        raise ConnectionLostError(f"ZooKeeper: {error}") from error
    except (CoordinationError, ZnodeError) as error:
        raise ClientError(f"ZooKeeper: {error}") from error
