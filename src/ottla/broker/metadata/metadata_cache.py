"""The cluster's brokers, topics and partitions, as this broker knows them.

A lone broker's controller puts topics in directly (`topic_host`). In a cluster, the controller sends UpdateMetadata
requests (`update`): each names all live brokers, and the partitions that changed. A partition that has never had a
leader is not named, so there can be gaps, which hold `UNKNOWN_PARTITION`.

A new controller names brokers first, then partitions in the order of their urgency. So a broker that starts meanwhile
knows only some of them for a moment. It must not take the others for deleted: clients would give up, and transactions
would end without their markers. What it has to wait for is in ZooKeeper (`expect`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from ottla.base.ids import ZERO_UUID, Uuid
from ottla.controller.state import UNKNOWN_PARTITION, PartitionState, TopicState

T = TypeVar("T")
NO_CONTROLLER: Final = -1
_FIRST_UPDATE_S: Final = 2.0
_EXPECTED_S: Final = 30.0
"""How long partitions may be missing after the controller's first request. Those without a leader are never named."""


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The address at which clients reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Partitions of a topic that changed, by index; None for those that are deleted."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionState | None] = field(default_factory=dict)


class MetadataCache:
    """Owned by the loop. Topics are replaced as a whole, so a reader always sees a consistent topic."""

    def __init__(self, cluster_id: str, controller_id: int) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        """`NO_CONTROLLER` if none is known."""
        self.is_told = controller_id != NO_CONTROLLER
        """False in a broker of a cluster until the controller has told it something."""
        self._brokers: dict[int, BrokerEndpoint] = {}
        self._by_listener: dict[str, dict[int, BrokerEndpoint]] = {}
        self._topics: dict[str, TopicState] = {}
        self._names: dict[Uuid, str] = {}
        self._expected: dict[str, set[int]] = {}
        self.on_replaced: Callable[[str], None] = lambda _: None
        """Called with a topic that was deleted and created again, without a word of the deletion."""
        self._waiting: dict[asyncio.Future[None], None] = {}

    # --- brokers ------------------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> Mapping[int, BrokerEndpoint]:
        """The endpoint of each live broker's first listener."""
        return MappingProxyType(self._brokers)

    def brokers_of(self, listener: str) -> Mapping[int, BrokerEndpoint]:
        """The endpoints for clients of that listener: each network has its own addresses."""
        return MappingProxyType(self._by_listener.get(listener, self._brokers))

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        """None if the broker is not in the cluster, or has no such listener."""
        return self._by_listener.get(listener, {}).get(broker_id)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self._brokers

    def put_broker(self, endpoint: BrokerEndpoint, *, listener: str = "") -> None:
        self._brokers.setdefault(endpoint.broker_id, endpoint)
        self._by_listener.setdefault(listener, {})[endpoint.broker_id] = endpoint

    def _replace_brokers(self, endpoints: Iterable[tuple[str, BrokerEndpoint]]) -> None:
        self._brokers, self._by_listener = {}, {}
        for listener, endpoint in endpoints:
            self.put_broker(endpoint, listener=listener)

    # --- topics -------------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """By name, unordered."""
        return MappingProxyType(self._topics)

    def topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def note_id(self, topic_id: Uuid, name: str) -> None:
        """This broker has replicas of the topic: requests may name its id before the topic itself is put in."""
        if topic_id != ZERO_UUID:
            self._names[topic_id] = name

    def partition(self, topic: str, index: int) -> PartitionState | None:
        """None if it is not known: it does not exist, or has never had a leader."""
        known = self._topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return None
        found = known.partitions[index]
        return None if found is UNKNOWN_PARTITION else found

    def has_leaders(self, topic: str) -> bool:
        """Whether the topic is known, and each of its partitions has a live leader."""
        known = self._topics.get(topic)
        return known is not None and all(each.leader in self._brokers for each in known.partitions)

    def may_exist(self, topic: str, index: int) -> bool:
        """Whether the partition exists, or the controller may just not have named it yet."""
        if not self.is_told or self.partition(topic, index) is not None:
            return True
        return index in self._expected.get(topic, ())

    def is_expected(self, topic: str) -> bool:
        """Whether the controller has yet to name some partition of the topic."""
        return topic in self._expected

    def expected_of(self, topic: str) -> Collection[int]:
        """The partitions of the topic that the controller has yet to name."""
        return self._expected.get(topic, ())

    def expect(self, partitions: Mapping[str, Iterable[int]]) -> None:
        """Says which partitions there are in ZooKeeper, before the controller has told this broker anything."""
        self._expected = {topic: missing for topic, indexes in partitions.items() if (missing := set(indexes))}

    def put_topic(self, topic: TopicState) -> None:
        known = self._topics.get(topic.name)
        if known is not None and known.topic_id != topic.topic_id:
            self._names.pop(known.topic_id, None)
        self._topics[topic.name] = topic
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = topic.name
        self._changed()

    def remove_topic(self, topic: TopicState) -> None:
        self._topics.pop(topic.name, None)
        self._names.pop(topic.topic_id, None)
        self._changed()

    def update(
        self, controller_id: int, endpoints: Iterable[tuple[str, BrokerEndpoint]], changes: Sequence[TopicChange]
    ) -> list[str]:
        """Takes what the controller sent: all live brokers by listener, and changed topics. Returns the names of topics
        that are gone."""
        self.controller_id = controller_id
        if self._expected:
            if not self.is_told:
                asyncio.get_running_loop().call_later(_EXPECTED_S, self._expect_nothing)
            for change in changes:
                missing = self._expected.get(change.name)
                if missing is not None:
                    missing.difference_update(change.partitions)
                    if not missing:
                        del self._expected[change.name]
        self.is_told = True
        self._replace_brokers(endpoints)
        gone = [change.name for change in changes if not self._change_topic(change)]
        self._changed()
        return gone

    def _change_topic(self, change: TopicChange) -> bool:
        """Whether the topic is still there."""
        known = self._topics.get(change.name)
        if known is not None and ZERO_UUID != known.topic_id != change.topic_id != ZERO_UUID:
            self.remove_topic(known)  # deleted while this broker was cut off, and created again
            known = None
            self.on_replaced(change.name)
        partitions = [] if known is None else list(known.partitions)
        for index, partition in change.partitions.items():
            if index >= len(partitions):
                partitions += [UNKNOWN_PARTITION] * (index + 1 - len(partitions))
            partitions[index] = UNKNOWN_PARTITION if partition is None else partition
        if all(partition is UNKNOWN_PARTITION for partition in partitions):
            if known is not None:
                self.remove_topic(known)
            return False
        self.put_topic(
            TopicState(change.name, change.topic_id, tuple(partitions), {} if known is None else known.configs)
        )
        return True

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def until(self, found: Callable[[], T | None], timeout_s: float) -> T | None:
        """What `found` returns as soon as that is not None; it is asked again after every change. None after the
        timeout."""
        value = found()
        if value is not None:
            return value
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while value is None and (left_s := deadline_s - loop.time()) > 0:
            changed: asyncio.Future[None] = loop.create_future()
            self._waiting[changed] = None
            try:
                await asyncio.wait([changed], timeout=left_s)
            finally:
                self._waiting.pop(changed, None)
            value = found()
        return value

    @property
    def is_complete(self) -> bool:
        """Whether the controller has told of all that this broker found in ZooKeeper when it started."""
        return self.is_told and not self._expected

    def knows(self, topics: Iterable[str] | None) -> bool:
        """Whether the controller has told of these topics, or of all, what there is to tell."""
        return self.is_complete or (self.is_told and topics is not None and self._expected.keys().isdisjoint(topics))

    async def until_known(self, topics: Collection[str] | None) -> None:
        """Waits for that, but not for long: clients should not see a broker that has just started as a cluster of its
        own, or existing topics as deleted."""
        await self.until(lambda: self.knows(topics) or None, _FIRST_UPDATE_S)

    def _expect_nothing(self) -> None:
        self._expected = {}
        self._changed()

    def wake(self) -> None:
        """Asks all who wait again: something else that they look at has changed."""
        self._changed()

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)
