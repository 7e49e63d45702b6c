"""The cluster's brokers, topics and partitions, as Metadata responses show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ottla.base.ids import Uuid
from ottla.controller.state import TopicState


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The address at which clients reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataCache:
    """Owned by the loop. Topics are replaced as a whole, so a reader always sees a consistent topic."""

    def __init__(self, cluster_id: str, controller_id: int) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self._brokers: dict[int, BrokerEndpoint] = {}
        self._by_listener: dict[str, dict[int, BrokerEndpoint]] = {}
        self._topics: dict[str, TopicState] = {}
        self._names: dict[Uuid, str] = {}

    @property
    def brokers(self) -> Mapping[int, BrokerEndpoint]:
        """The endpoint of each broker's first listener."""
        return MappingProxyType(self._brokers)

    def brokers_of(self, listener: str) -> Mapping[int, BrokerEndpoint]:
        """The endpoints for clients of that listener: each network has its own addresses."""
        return MappingProxyType(self._by_listener.get(listener, self._brokers))

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """By name, unordered."""
        return MappingProxyType(self._topics)

    def topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def put_broker(self, endpoint: BrokerEndpoint, *, listener: str = "") -> None:
        self._brokers.setdefault(endpoint.broker_id, endpoint)
        self._by_listener.setdefault(listener, {})[endpoint.broker_id] = endpoint

    def put_topic(self, topic: TopicState) -> None:
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name

    def remove_topic(self, topic: TopicState) -> None:
        self._topics.pop(topic.name, None)
        self._names.pop(topic.topic_id, None)
