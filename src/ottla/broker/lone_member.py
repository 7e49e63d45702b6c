"""A broker without others, on its embedded tree: it is its own controller, which calls it directly (`topic_host`).

Owned by the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.base.ids import Uuid
from ottla.broker.configs.listeners import Listener
from ottla.broker.observability.cluster_numbers import ClusterNumbers
from ottla.broker.startup.data_directory import foreign_topics_warning, lost_partitions_warning
from ottla.broker.topic_host import TopicHost, partitions_of
from ottla.controller.controller import Controller
from ottla.controller.state import TopicState

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)


class LoneMember:
    """See the module and `ottla.broker.membership`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.topic_host = TopicHost(broker)
        self.controller = Controller(broker.coordination, self.topic_host, broker.broker_id, broker.config.given)
        self.topic_host.controller = self.controller
        self._topics: list[TopicState] = []

    async def load(self) -> Mapping[str, Uuid]:
        self._topics = await self.controller.load()
        for topic in self._topics:
            self._broker.configs.note_topic(topic.name, topic.configs)
        return {topic.name: topic.topic_id for topic in self._topics}

    async def opened(self) -> None:
        """Deletes the logs of topics that a crash left half deleted."""
        broker = self._broker
        broker.replicas.on_hosted = self.topic_host.hosted
        deleted = frozenset(self.controller.deleted)
        await broker.replicas.delete_many(
            [log.partition for log in broker.directories.logs() if log.partition.topic in deleted]
        )
        await self.controller.finish_deletions()

    async def join(self, listeners: Sequence[Listener]) -> None:
        broker = self._broker
        await broker.registrar.register(listeners, broker.config.rack)
        self._warn_of_lost()
        for topic in self._topics:
            await self.topic_host.apply_topic(topic, new_partitions=frozenset())
        self._warn_of_strays()
        await self.controller.replicas_failed(
            [name for name, partition in broker.replicas.partitions.items() if partition.log is None]
        )
        broker.replicas.on_failed = self.topic_host.replicas_failed
        self._topics.clear()

    async def serve(self) -> None:
        """Nothing else knows that the broker serves."""

    def topic_config_changed(self, name: str) -> None:
        self.topic_host.topic_config_changed(name)

    def broker_config_changed(self, _keys: frozenset[str]) -> None:
        for name in self._broker.metadata.topics:
            self.topic_host.topic_config_changed(name)

    def numbers(self) -> ClusterNumbers:
        return ClusterNumbers()

    async def leave(self) -> None:
        """There is no other broker to take over."""

    async def stop(self) -> None:
        """Waits for changes of topics that have begun."""
        await self.controller.close()

    async def close(self) -> None:
        await self.topic_host.close()

    def _warn_of_lost(self) -> None:
        """Warns of partitions without a folder, before empty folders are created for them."""
        directories = self._broker.directories
        refused = {name for directory in directories.directories for name in directory.refused}
        lost = [
            name
            for topic in self._topics
            for name, state in zip(partitions_of(topic), topic.partitions, strict=True)
            if self._broker.broker_id in state.replicas and directories.get(name) is None and name not in refused
        ]
        if lost and len(directories.online()) == len(directories.directories):
            _logger.warning("%s", lost_partitions_warning(lost))
        foreign = foreign_topics_warning(self._topics, self._broker.broker_id)
        if foreign is not None:
            _logger.warning("%s", foreign)

    def _warn_of_strays(self) -> None:
        broker = self._broker
        strays = [
            str(log.partition) for log in broker.directories.logs() if log.partition not in broker.replicas.partitions
        ]
        if strays:
            shown = ", ".join(sorted(strays)[:5]) + (", …" if len(strays) > 5 else "")
            _logger.warning("%d logs belong to no topic of this cluster and are not served: %s", len(strays), shown)
