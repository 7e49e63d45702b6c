"""A controller on a real tree, with a broker around it that only remembers what it was told."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from ottla.base.clock import SystemClock
from ottla.base.coordination import Coordination, Create, Operation, Watch, Znode
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.store import ConfigStore
from ottla.broker.metadata.metadata_cache import BrokerEndpoint, MetadataCache
from ottla.controller.controller import Controller
from ottla.controller.errors import ControllerError
from ottla.controller.state import TopicState
from ottla.controller.wanted_topics import WantedTopic
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.paths import ensure_persistent_paths

P = ParamSpec("P")

BROKER_ID = 4
TIMEOUT_S = 60


class CountingTree:
    """Lets everything through, counts it, and raises `failure` instead of a write once it is set. States of partitions
    can be made to fail or wait alone."""

    def __init__(self, tree: LocalTree) -> None:
        self.tree = tree
        self.calls: list[str] = []
        self.failure: Exception | None = None
        self.failure_of_deletes: Exception | None = None
        self.failure_of_states: Exception | None = None
        self.may_create_states = asyncio.Event()
        self.may_create_states.set()

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self.tree, name)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Znode | None]:
        self.calls.append("get_many")
        return await self.tree.get_many(paths, watch)

    async def transact(self, operations: Sequence[Operation]) -> None:
        self.calls.append("transact")
        if self.failure is not None:
            raise self.failure
        if any(isinstance(operation, Create) and operation.path.endswith("/state") for operation in operations):
            await self.may_create_states.wait()
            if self.failure_of_states is not None:
                raise self.failure_of_states
        await self.tree.transact(operations)

    async def delete_trees(self, paths: Sequence[str]) -> None:
        self.calls.append("delete_trees")
        if self.failure is not None:
            raise self.failure
        if self.failure_of_deletes is not None:
            raise self.failure_of_deletes
        await self.tree.delete_trees(paths)


class LoneBroker:
    """What handlers see of a broker, with a controller that was loaded."""

    def __init__(self, tree: CountingTree, settings: Mapping[str, str]) -> None:
        self.tree = tree
        self.coordination: Coordination = tree
        self.broker_id = BROKER_ID
        self.config = BrokerConfig(settings)
        self.configs = ConfigStore(self.coordination, self.config, BROKER_ID)
        self.metadata = MetadataCache("a-cluster", BROKER_ID)
        self.metadata.put_broker(BrokerEndpoint(BROKER_ID, "here", 9092, "a rack"))
        self.applied: list[tuple[TopicState, frozenset[int]]] = []
        self.removed: list[TopicState] = []
        self.may_delete = asyncio.Event()
        self.may_delete.set()
        self.controller = Controller(self.coordination, self, BROKER_ID, self.config.given)

    async def apply_topic(self, topic: TopicState, *, new_partitions: frozenset[int]) -> None:
        self.applied.append((topic, new_partitions))
        self.metadata.put_topic(topic)

    def forget_topics(self, topics: Sequence[TopicState]) -> None:
        for topic in topics:
            self.metadata.remove_topic(topic)

    async def delete_replicas(self, topics: Sequence[TopicState]) -> None:
        await self.may_delete.wait()
        self.removed += topics

    async def create(self, name: str, partition_count: int = 1, configs: Mapping[str, str] | None = None) -> TopicState:
        return await self.controller.create_topic(WantedTopic(name, partition_count, 1, configs=configs or {}))

    async def update_configs(self, name: str, configs: Mapping[str, str]) -> TopicState:
        outcome = (await self.controller.update_topic_configs({name: configs}))[name]
        if isinstance(outcome, ControllerError):
            raise outcome
        return outcome

    async def load(self) -> list[TopicState]:
        """As the broker does when it starts."""
        topics = await self.controller.load()
        await self.controller.finish_deletions()
        for topic in topics:
            self.metadata.put_topic(topic)
        return topics

    async def restarted(self) -> LoneBroker:
        """Another process on the same tree, after this one is gone."""
        other = LoneBroker(CountingTree(self.tree.tree), self.config.given)
        await other.load()
        return other

    async def data(self, path: str) -> bytes | None:
        node = await self.tree.tree.get(path)
        return None if node is None else node.data

    async def all_paths(self, path: str = "") -> list[str]:
        found = [path] if path else []
        for name in await self.tree.tree.children(path or "/"):
            found += await self.all_paths(f"{path}/{name}")
        return found


def on_tree(
    test: Callable[Concatenate[LoneBroker, P], Awaitable[None]] | None = None, /, **settings: str
) -> Callable[..., Any]:
    """A test that is given a broker with these settings (`num_partitions="3"`), on an empty tree."""
    given = {key.replace("_", "."): text for key, text in settings.items()}

    def decorate(test: Callable[Concatenate[LoneBroker, P], Awaitable[None]]) -> Callable[..., None]:
        async def play(place: Path, arguments: dict[str, Any]) -> None:
            tree = await LocalTree.open(place / "tree.db", SystemClock())
            try:
                await ensure_persistent_paths(tree)
                broker = LoneBroker(CountingTree(tree), given)
                await broker.load()
                await test(broker, **arguments)  # type: ignore[call-arg]
                await broker.controller.close()
            finally:
                await tree.close()

        def run(tmp_path: Path, **arguments: Any) -> None:
            asyncio.run(asyncio.wait_for(play(tmp_path, arguments), TIMEOUT_S))

        place = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        _, *own = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature([place, *own])  # type: ignore[attr-defined]  # for pytest's fixtures
        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate if test is None else decorate(test)
