"""Consumers that subscribe as members of groups: the Python clients, ours among them, in the same words.

A process that runs one member imports this and nothing of pytest, and of the clients only its own.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from support.groups.flavours import Flavour

Partition = tuple[str, int]
"""Topic and index."""

MakeTopic = Callable[[str, int], list[Partition]]
"""Makes a topic of so many partitions, which are returned."""

WAIT_S = 30.0
_EVENTS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Membership:
    """How a consumer takes part in a group."""

    bootstrap: str
    group: str
    flavour: Flavour
    topics: Sequence[str] = ()
    pattern: str | None = None
    """Instead of topics; it begins with `^`, by which librdkafka tells it from a name."""
    instance: str | None = None
    reset: str = "earliest"
    auto_commit_ms: int | None = None
    session_ms: int = 6_000
    """Of the classic protocol; in the other, the broker says."""
    heartbeat_ms: int = 200
    metadata_age_ms: int = 300


class Consumed(NamedTuple):
    partition: Partition
    offset: int
    value: str


class Assigned(NamedTuple):
    partitions: list[Partition]


class Revoked(NamedTuple):
    """Also what was lost without being asked."""

    partitions: list[Partition]


Event = Consumed | Assigned | Revoked


class GroupRefusedError(Exception):
    """The coordinator refused what the consumer asked for; without a code of Kafka's, it was the client that did."""

    def __init__(self, code: int, reason: object) -> None:
        super().__init__(f"error {code}: {reason}")
        self.code = code


class GroupConsumer(ABC):
    """Subscribed from the start; becomes a member when it is polled."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened, in order, after at most that time unless a rebalance takes longer."""
        self._poll(timeout_s)
        return self._taken()

    def close(self) -> list[Event]:
        """Leaves the group; what happened last."""
        self._close()
        return self._taken()

    def _taken(self) -> list[Event]:
        taken, self._events = self._events, []
        return taken

    def _assigned(self, partitions: Sequence[Any]) -> None:
        self._events.append(Assigned([(each.topic, each.partition) for each in partitions]))

    def _revoked(self, partitions: Sequence[Any]) -> None:
        self._events.append(Revoked([(each.topic, each.partition) for each in partitions]))

    @abstractmethod
    def _poll(self, timeout_s: float) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        """Commits these, or the position of everything that was consumed, and waits until that is done."""

    @abstractmethod
    def commit_later(self, offsets: Mapping[Partition, int]) -> None:
        """Begins to commit these, and does not wait."""

    @abstractmethod
    def committed(self, partition: Partition) -> int | None: ...

    @abstractmethod
    def seek(self, partition: Partition, offset: int) -> None: ...

    @abstractmethod
    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int: ...


class ConfluentMember(GroupConsumer):
    def __init__(self, membership: Membership) -> None:
        import confluent_kafka

        super().__init__()
        self._kafka = confluent_kafka
        flavour = membership.flavour
        settings: dict[str, Any] = {
            "bootstrap.servers": membership.bootstrap,
            "group.id": membership.group,
            "group.protocol": flavour.protocol,
            "auto.offset.reset": membership.reset,
            "enable.auto.commit": membership.auto_commit_ms is not None,
            "auto.commit.interval.ms": membership.auto_commit_ms or 0,
            "topic.metadata.refresh.interval.ms": membership.metadata_age_ms,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 20,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
        if membership.instance is not None:
            settings["group.instance.id"] = membership.instance
        if flavour.protocol == "consumer":
            settings["group.remote.assignor"] = flavour.strategy
        else:
            settings["partition.assignment.strategy"] = flavour.strategy
            settings["session.timeout.ms"] = membership.session_ms
            settings["heartbeat.interval.ms"] = membership.heartbeat_ms
        self.library = confluent_kafka.Consumer(settings)
        self.library.subscribe(
            [membership.pattern] if membership.pattern is not None else list(membership.topics),
            on_assign=lambda _, partitions: self._assigned(partitions),
            on_revoke=lambda _, partitions: self._revoked(partitions),
            on_lost=lambda _, partitions: self._revoked(partitions),
        )

    def _poll(self, timeout_s: float) -> None:
        wait_s = timeout_s
        while len(self._events) < _EVENTS_AT_ONCE and (message := self.library.poll(wait_s)) is not None:
            wait_s = 0
            error = message.error()
            if error is None:
                topic, index, offset, value = message.topic(), message.partition(), message.offset(), message.value()
                assert isinstance(value, bytes)
                self._events.append(Consumed((str(topic), int(index or 0)), int(offset or 0), value.decode()))
            # While the topic is being made, or the broker is away, it tries again by itself.
            elif error.code() != error.UNKNOWN_TOPIC_OR_PART and not error.retriable():
                raise GroupRefusedError(error.code(), error)

    def _close(self) -> None:
        self.library.close()

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        try:
            if offsets is None:
                done = self.library.commit(asynchronous=False)
            else:
                done = self.library.commit(offsets=self._places(offsets), asynchronous=False)
        except self._kafka.KafkaException as error:
            if error.args[0].code() == self._kafka.KafkaError._NO_OFFSET:
                return
            raise GroupRefusedError(error.args[0].code(), error.args[0]) from error
        for place in done or ():
            if place.error is not None:
                raise GroupRefusedError(place.error.code(), place.error)

    def commit_later(self, offsets: Mapping[Partition, int]) -> None:
        self.library.commit(offsets=self._places(offsets), asynchronous=True)

    def _places(self, offsets: Mapping[Partition, int]) -> list[Any]:
        return [self._kafka.TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]

    def committed(self, partition: Partition) -> int | None:
        (found,) = self.library.committed([self._kafka.TopicPartition(*partition)], WAIT_S)
        if found.error is not None:
            raise GroupRefusedError(found.error.code(), found.error)
        return None if found.offset == self._kafka.OFFSET_INVALID else int(found.offset)

    def seek(self, partition: Partition, offset: int) -> None:
        self.library.seek(self._kafka.TopicPartition(*partition, offset))

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int:
        (found,) = self.library.offsets_for_times([self._kafka.TopicPartition(*partition, timestamp_ms)], WAIT_S)
        return int(found.offset)


_LEAST_POLL_S = 1.0
"""kafka-python begins to join anew with each poll, from looking for topics on: that has to fit into one."""


class KafkaPythonMember(GroupConsumer):
    def __init__(self, membership: Membership) -> None:
        with warnings.catch_warnings():
            # It reads its message definitions by functions that Python 3.11 calls deprecated.
            warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
            import kafka
            from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
            from kafka.coordinator.assignors.range import RangePartitionAssignor
            from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        super().__init__()
        self._kafka = kafka
        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self.library = kafka.KafkaConsumer(
            bootstrap_servers=membership.bootstrap,
            group_id=membership.group,
            group_instance_id=membership.instance,
            auto_offset_reset=membership.reset,
            enable_auto_commit=membership.auto_commit_ms is not None,
            auto_commit_interval_ms=membership.auto_commit_ms or 5000,
            partition_assignment_strategy=[assignors[membership.flavour.strategy]],
            session_timeout_ms=membership.session_ms,
            heartbeat_interval_ms=membership.heartbeat_ms,
            metadata_max_age_ms=membership.metadata_age_ms,
            fetch_max_wait_ms=100,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
            retry_backoff_ms=50,
        )
        outer = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Sequence[Any]) -> None:
                outer._assigned(assigned)

            def on_partitions_revoked(self, revoked: Sequence[Any]) -> None:
                outer._revoked(revoked)

        self.library.subscribe(list(membership.topics), membership.pattern, Listener())

    def _poll(self, timeout_s: float) -> None:
        from kafka.errors import KafkaConnectionError

        try:
            polled = self.library.poll(int(max(timeout_s, _LEAST_POLL_S) * 1000))
        except KafkaConnectionError:  # the broker is away: it is for the application to try again
            return
        for place, records in polled.items():
            partition = (place.topic, place.partition)
            self._events += [Consumed(partition, record.offset, record.value.decode()) for record in records]

    def _close(self) -> None:
        self.library.close()

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        from kafka.errors import KafkaError

        try:
            self.library.commit(None if offsets is None else self._places(offsets), int(WAIT_S * 1000))
        except KafkaError as error:
            raise GroupRefusedError(getattr(error, "errno", -1), error) from error

    def commit_later(self, offsets: Mapping[Partition, int]) -> None:
        self.library.commit_async(self._places(offsets))

    def _places(self, offsets: Mapping[Partition, int]) -> dict[Any, Any]:
        metadata = self._kafka.OffsetAndMetadata
        return {
            self._kafka.TopicPartition(*partition): metadata(offset, "", -1) for partition, offset in offsets.items()
        }

    def committed(self, partition: Partition) -> int | None:
        found: int | None = self.library.committed(self._kafka.TopicPartition(*partition))
        return found

    def seek(self, partition: Partition, offset: int) -> None:
        self.library.seek(self._kafka.TopicPartition(*partition), offset)

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int:
        place = self._kafka.TopicPartition(*partition)
        return int(self.library.offsets_for_times({place: timestamp_ms})[place].offset)


class AiokafkaMember(GroupConsumer):
    """Heartbeats are sent while it is polled: its loop runs only then."""

    def __init__(self, membership: Membership) -> None:
        import aiokafka
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        super().__init__()
        self._kafka = aiokafka
        assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
        outer = self

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Sequence[Any]) -> None:
                outer._assigned(list(assigned))

            def on_partitions_revoked(self, revoked: Sequence[Any]) -> None:
                outer._revoked(list(revoked))

        async def start() -> aiokafka.AIOKafkaConsumer:
            made = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=membership.bootstrap,
                group_id=membership.group,
                group_instance_id=membership.instance,
                auto_offset_reset=membership.reset,
                enable_auto_commit=membership.auto_commit_ms is not None,
                auto_commit_interval_ms=membership.auto_commit_ms or 5000,
                partition_assignment_strategy=[assignors[membership.flavour.strategy]],
                session_timeout_ms=membership.session_ms,
                heartbeat_interval_ms=membership.heartbeat_ms,
                metadata_max_age_ms=membership.metadata_age_ms,
                fetch_max_wait_ms=100,
                retry_backoff_ms=50,
            )
            if membership.pattern is not None:
                made.subscribe(pattern=membership.pattern, listener=Listener())
            else:
                made.subscribe(list(membership.topics), listener=Listener())
            await made.start()
            return made

        self._runner = asyncio.Runner()
        self.library = self._runner.run(start())

    def _poll(self, timeout_s: float) -> None:
        polled = self._runner.run(self.library.getmany(timeout_ms=int(timeout_s * 1000)))
        for place, records in polled.items():
            partition = (place.topic, place.partition)
            self._events += [Consumed(partition, record.offset, record.value.decode()) for record in records]

    def _close(self) -> None:
        self._runner.run(self.library.stop())
        self._runner.close()

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        from aiokafka.errors import KafkaError

        wanted = None if offsets is None else {self._kafka.TopicPartition(*each): at for each, at in offsets.items()}
        try:
            self._runner.run(self.library.commit(wanted))
        except KafkaError as error:
            raise GroupRefusedError(getattr(error, "errno", -1), error) from error

    def commit_later(self, offsets: Mapping[Partition, int]) -> None:
        wanted = {self._kafka.TopicPartition(*each): at for each, at in offsets.items()}
        self._begun = self._runner.get_loop().create_task(self.library.commit(wanted))

    def committed(self, partition: Partition) -> int | None:
        found: int | None = self._runner.run(self.library.committed(self._kafka.TopicPartition(*partition)))
        return found

    def seek(self, partition: Partition, offset: int) -> None:
        async def seek() -> None:
            self.library.seek(self._kafka.TopicPartition(*partition), offset)

        self._runner.run(seek())

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int:
        place = self._kafka.TopicPartition(*partition)
        return int(self._runner.run(self.library.offsets_for_times({place: timestamp_ms}))[place].offset)


class OttlaMember(GroupConsumer):
    def __init__(self, membership: Membership) -> None:
        import ottla
        from ottla.client.subscriptions.listeners import RebalanceListener

        super().__init__()
        flavour = membership.flavour
        settings: dict[str, Any] = {
            "bootstrap.servers": membership.bootstrap,
            "group.id": membership.group,
            "group.protocol": flavour.protocol,
            "auto.offset.reset": membership.reset,
            "enable.auto.commit": membership.auto_commit_ms is not None,
            "auto.commit.interval.ms": membership.auto_commit_ms or 5000,
            "metadata.max.age.ms": membership.metadata_age_ms,
            "fetch.max.wait.ms": 100,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "group.instance.id": membership.instance,
        }
        if flavour.protocol == "consumer":
            settings["group.remote.assignor"] = flavour.strategy
        else:
            settings["partition.assignment.strategy"] = flavour.strategy
            settings["session.timeout.ms"] = membership.session_ms
            settings["heartbeat.interval.ms"] = membership.heartbeat_ms
        outer = self

        class Listener(RebalanceListener):
            def on_partitions_assigned(self, partitions: Collection[Any]) -> None:
                outer._assigned(sorted(partitions))

            def on_partitions_revoked(self, partitions: Collection[Any]) -> None:
                outer._revoked(sorted(partitions))

        self._kafka = ottla
        self.library = ottla.Consumer(settings)
        topics = list(membership.topics) if membership.pattern is None else re.compile(membership.pattern)
        self.library.subscribe(topics, listener=Listener())

    def _poll(self, timeout_s: float) -> None:
        for record in self.library.poll(timeout_s):
            assert isinstance(record.value, bytes)
            self._events.append(Consumed((record.topic, record.partition), record.offset, record.value.decode()))

    def _close(self) -> None:
        self.library.close(WAIT_S)

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        from ottla.client.errors import OttlaError

        try:
            self.library.commit(None if offsets is None else self._places(offsets))
        except OttlaError as error:
            raise GroupRefusedError(getattr(error, "code", -1), error) from error

    def commit_later(self, offsets: Mapping[Partition, int]) -> None:
        self.library.commit_async(self._places(offsets))

    def _places(self, offsets: Mapping[Partition, int]) -> dict[Any, Any]:
        from ottla.client.offsets import OffsetAndMetadata

        return {self._kafka.TopicPartition(*partition): OffsetAndMetadata(at) for partition, at in offsets.items()}

    def committed(self, partition: Partition) -> int | None:
        place = self._kafka.TopicPartition(*partition)
        found = self.library.committed([place])[place]
        return None if found is None else found.offset

    def seek(self, partition: Partition, offset: int) -> None:
        self.library.seek(self._kafka.TopicPartition(*partition), offset)

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int:
        place = self._kafka.TopicPartition(*partition)
        found = self.library.offsets_for_times({place: timestamp_ms})[place]
        assert found is not None
        return int(found.offset)


_LIBRARIES: Mapping[str, Callable[[Membership], GroupConsumer]] = {
    "confluent": ConfluentMember,
    "kafka_python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
    "ottla": OttlaMember,
}


def join(membership: Membership) -> GroupConsumer:
    return _LIBRARIES[membership.flavour.library](membership)


def pattern_for(prefix: str) -> str:
    """What all topics match whose names begin so."""
    return f"^{re.escape(prefix)}.*"
