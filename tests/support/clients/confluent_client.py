"""confluent-kafka (librdkafka) in the words of `dialect`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.base.error_codes import ErrorCode
from support.clients.dialect import (
    CONSUMER,
    PRODUCER,
    WAIT_S,
    Admin,
    Client,
    ClusterSeen,
    ConfigSeen,
    Consumer,
    ConsumerSettings,
    PartitionSeen,
    Producer,
    ProducerSettings,
    Record,
    Refused,
    Seen,
)


class ConfluentClient(Client):
    @property
    def common(self) -> dict[str, Any]:
        # Reconnecting at once keeps tests that cut connections short.
        return {
            "bootstrap.servers": self.bootstrap,
            "log_level": 2,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }

    @contextmanager
    def producer(self, settings: ProducerSettings = PRODUCER) -> Iterator[Producer]:
        made = confluent_kafka.Producer(
            {
                **self.common,
                "compression.type": settings.codec,
                "enable.idempotence": settings.idempotent,
                "acks": settings.acks,
                "linger.ms": settings.linger_ms,
                "message.max.bytes": settings.max_bytes,
                "topic.metadata.propagation.max.ms": settings.hope_ms,
            }
        )
        yield _Producer(made)
        made.flush(WAIT_S)

    @contextmanager
    def consumer(
        self, topic: str, partitions: Sequence[int] = (0,), settings: ConsumerSettings = CONSUMER
    ) -> Iterator[Consumer]:
        made = confluent_kafka.Consumer(
            {
                **self.common,
                # The library wants a name, and asks for no coordinator while nothing is subscribed or committed.
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": {"none": "error"}.get(settings.reset, settings.reset),
                "isolation.level": "read_committed" if settings.committed_only else "read_uncommitted",
                "fetch.min.bytes": settings.min_bytes,
                "fetch.wait.max.ms": settings.max_wait_ms,
                "max.partition.fetch.bytes": settings.max_partition_bytes,
                "fetch.error.backoff.ms": 20,
                "socket.timeout.ms": settings.max_wait_ms + 30_000,
            }
        )
        start = confluent_kafka.OFFSET_END if settings.reset == "latest" else confluent_kafka.OFFSET_BEGINNING
        made.assign([TopicPartition(topic, partition, start) for partition in partitions])
        try:
            yield _Consumer(made, topic)
        finally:
            made.close()

    @contextmanager
    def admin(self) -> Iterator[ConfluentAdmin]:
        yield ConfluentAdmin(AdminClient(self.common))


class _Producer(Producer):
    def __init__(self, producer: confluent_kafka.Producer) -> None:
        self._producer = producer

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        outcomes: list[tuple[confluent_kafka.KafkaError | None, int | None]] = []
        for record in records:
            optional: dict[str, Any] = {}
            if record.timestamp_ms is not None:
                optional["timestamp"] = record.timestamp_ms
            if record.headers:
                optional["headers"] = list(record.headers)
            self._producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                on_delivery=lambda error, message: outcomes.append((error, message.offset())),
                **optional,
            )
        left = self._producer.flush(WAIT_S)
        assert left == 0, f"{left} records are not acknowledged after {WAIT_S} s"
        for error, _ in outcomes:
            if error is not None:
                raise Refused(error.code(), error)
        return [-1 if offset is None else offset for _, offset in outcomes]


class _Consumer(Consumer):
    def __init__(self, consumer: confluent_kafka.Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def take(self, count: int, timeout_s: float = WAIT_S) -> list[Seen]:
        seen: list[Seen] = []
        deadline = time.monotonic() + timeout_s
        while len(seen) < count and (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                raise Refused(_code(error), error)
            seen.append(_seen(message))
        return seen

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition, offset))

    def bounds(self, partition: int) -> tuple[int, int]:
        bounds = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), WAIT_S)
        assert bounds is not None
        return bounds

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        asked = TopicPartition(self._topic, partition, timestamp_ms)
        (answer,) = self._consumer.offsets_for_times([asked], WAIT_S)
        return None if answer.offset == confluent_kafka.OFFSET_END else answer.offset


class ConfluentAdmin(Admin):
    def __init__(self, admin: AdminClient) -> None:
        self.library = admin

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        only_result(self.library.create_topics([new]))

    def delete_topic(self, name: str) -> None:
        only_result(self.library.delete_topics([name]))

    def topics(self) -> set[str]:
        return set(self.library.list_topics(timeout=WAIT_S).topics)

    def describe_topic(self, name: str) -> dict[int, PartitionSeen]:
        description = only_result(self.library.describe_topics(TopicCollection([name])))
        return {
            each.id: PartitionSeen(
                each.leader.id, tuple(node.id for node in each.replicas), tuple(node.id for node in each.isr)
            )
            for each in description.partitions
        }

    def create_partitions(self, name: str, total: int) -> None:
        only_result(self.library.create_partitions([NewPartitions(name, total)]))

    def topic_config(self, name: str) -> dict[str, ConfigSeen]:
        return self._config(ConfigResource(ResourceType.TOPIC, name))

    def broker_config(self, broker: int) -> dict[str, ConfigSeen]:
        return self._config(ConfigResource(ResourceType.BROKER, str(broker)))

    def _config(self, resource: ConfigResource) -> dict[str, ConfigSeen]:
        entries = only_result(self.library.describe_configs([resource]))
        return {name: ConfigSeen(entry.value, entry.is_default, entry.is_read_only) for name, entry in entries.items()}

    def replace_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, name, set_config=dict(config))
        with warnings.catch_warnings():
            # The library calls it deprecated; a broker has to serve it all the same.
            warnings.filterwarnings("ignore", "alter_configs has been deprecated", DeprecationWarning)
            only_result(self.library.alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        deleted = only_result(self.library.delete_records([TopicPartition(topic, partition, before)]))
        low_watermark: int = deleted.low_watermark
        return low_watermark

    def cluster(self) -> ClusterSeen:
        described = result(self.library.describe_cluster())
        return ClusterSeen(described.controller.id, {node.id: f"{node.host}:{node.port}" for node in described.nodes})


def _code(error: confluent_kafka.KafkaError) -> int:
    # With reset policy `error` the library hides the broker's code behind one of its own.
    no_such_offset = error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
    return ErrorCode.OFFSET_OUT_OF_RANGE if no_such_offset else error.code()


def _seen(message: confluent_kafka.Message) -> Seen:
    kind, timestamp_ms = message.timestamp()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers: Any = message.headers() or ()
    key: Any = message.key()
    value: Any = message.value()
    return Seen(partition, offset, timestamp_ms, kind - 1, key, value, tuple(headers))


def result(future: Future[Any]) -> Any:
    try:
        return future.result(WAIT_S)
    except KafkaException as error:
        raise Refused(error.args[0].code(), error.args[0]) from error


def only_result(futures: Mapping[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return result(future)
