"""A broker of configs only: a real tree, controller and config store, for handlers that are called directly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ottla.base.coordination import Coordination
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.configs.store import ConfigStore
from ottla.broker.metadata.metadata_cache import BrokerEndpoint, MetadataCache
from ottla.controller.controller import Controller
from ottla.controller.state import TopicState
from ottla.controller.wanted_topics import WantedTopic
from ottla.testing.manual_clock import ManualClock
from ottla.zookeeper import paths
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.znodes import decode_config

BROKER_ID = 1


@dataclass
class ConfiguredBroker:
    """Has what the handlers of configs use, and hosts topics without logs."""

    coordination: Coordination
    config: BrokerConfig
    configs: ConfigStore
    metadata: MetadataCache = field(default_factory=lambda: MetadataCache("cluster", BROKER_ID))
    broker_id: int = BROKER_ID

    def __post_init__(self) -> None:
        self.controller = Controller(self.coordination, self, BROKER_ID)
        self.metadata.put_broker(BrokerEndpoint(BROKER_ID, "127.0.0.1", 9092))

    async def topic(self, name: str, **configs: str) -> None:
        """Keys with _ for dots."""
        settings = {key.replace("_", "."): text for key, text in configs.items()}
        await self.controller.create_topic(WantedTopic(name, partition_count=1, replication_factor=1, configs=settings))

    async def in_the_tree(self, kind: paths.ConfigKind, name: str) -> Mapping[str, str] | None:
        path = paths.config(kind, name)
        node = await self.coordination.get(path)
        return None if node is None else decode_config(path, node.data)

    async def apply_topic(self, topic: TopicState, *, new_partitions: frozenset[int]) -> None:  # noqa: ARG002
        self.configs.note_topic(topic.name, topic.configs)
        self.metadata.put_topic(topic)

    def forget_topics(self, topics: Sequence[TopicState]) -> None:
        for topic in topics:
            self.metadata.remove_topic(topic)
            self.configs.forget_topic(topic.name)

    async def delete_replicas(self, topics: Sequence[TopicState]) -> None:
        pass


@asynccontextmanager
async def configured_broker(root: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[ConfiguredBroker]:
    """With the tree below `root`; it is there again when the same is opened anew."""
    tree = await LocalTree.open(root / "zookeeper.db", ManualClock())
    try:
        await paths.ensure_persistent_paths(tree)
        config = BrokerConfig(settings or {})
        broker = ConfiguredBroker(tree, config, ConfigStore(tree, config, BROKER_ID))
        await broker.configs.load()
        for topic in await broker.controller.load():
            await broker.apply_topic(topic, new_partitions=frozenset())
        yield broker
    finally:
        await tree.close()
