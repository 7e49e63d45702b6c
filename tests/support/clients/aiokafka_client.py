"""aiokafka in the words of `dialect`: an event loop of its own for each producer, consumer and admin client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import aiokafka
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError

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

_DEFAULT_CONFIG_SOURCE = 5


class AiokafkaClient(Client):
    @property
    def common(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap, "retry_backoff_ms": 20}

    @contextmanager
    def producer(self, settings: ProducerSettings = PRODUCER) -> Iterator[Producer]:
        async def start() -> aiokafka.AIOKafkaProducer:
            made = aiokafka.AIOKafkaProducer(
                **self.common,
                compression_type=None if settings.codec == "none" else settings.codec,
                enable_idempotence=settings.idempotent,
                acks=settings.acks,
                linger_ms=settings.linger_ms,
                max_request_size=settings.max_bytes,
                max_batch_size=settings.max_bytes,
                request_timeout_ms=settings.hope_ms,
            )
            await made.start()
            return made

        with asyncio.Runner() as runner:
            made = runner.run(start())
            try:
                yield _Producer(runner, made)
            finally:
                runner.run(made.stop())

    @contextmanager
    def consumer(
        self, topic: str, partitions: Sequence[int] = (0,), settings: ConsumerSettings = CONSUMER
    ) -> Iterator[Consumer]:
        assigned = [TopicPartition(topic, partition) for partition in partitions]

        async def start() -> aiokafka.AIOKafkaConsumer:
            made = aiokafka.AIOKafkaConsumer(
                **self.common,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset=settings.reset,
                isolation_level="read_committed" if settings.committed_only else "read_uncommitted",
                fetch_min_bytes=settings.min_bytes,
                fetch_max_wait_ms=settings.max_wait_ms,
                max_partition_fetch_bytes=settings.max_partition_bytes,
                request_timeout_ms=settings.max_wait_ms + 30_000,
            )
            await made.start()
            made.assign(assigned)
            if settings.reset == "none":
                await made.seek_to_beginning(*assigned)
            return made

        with asyncio.Runner() as runner:
            made = runner.run(start())
            try:
                yield _Consumer(runner, made, topic)
            finally:
                runner.run(made.stop())

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        async def start() -> AIOKafkaAdminClient:
            made = AIOKafkaAdminClient(**self.common)
            await made.start()
            return made

        with asyncio.Runner() as runner:
            made = runner.run(start())
            try:
                yield _Admin(runner, made)
            finally:
                runner.run(made.close())


class _Producer(Producer):
    def __init__(self, runner: asyncio.Runner, producer: aiokafka.AIOKafkaProducer) -> None:
        self._runner = runner
        self._producer = producer

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        async def send() -> list[int]:
            futures = [
                await self._producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            acknowledged = await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)
            return [-1 if metadata is None else metadata.offset for metadata in acknowledged]

        with _answers():
            return self._runner.run(send())


class _Consumer(Consumer):
    def __init__(self, runner: asyncio.Runner, consumer: aiokafka.AIOKafkaConsumer, topic: str) -> None:
        self._runner = runner
        self._consumer = consumer
        self._topic = topic

    def take(self, count: int, timeout_s: float = WAIT_S) -> list[Seen]:
        async def take() -> list[Seen]:
            seen: list[Seen] = []
            deadline = time.monotonic() + timeout_s
            while len(seen) < count and (left := deadline - time.monotonic()) > 0:
                polled = await self._consumer.getmany(timeout_ms=int(left * 1000), max_records=count - len(seen))
                seen.extend(_seen(record) for records in polled.values() for record in records)
            return seen

        with _answers():
            return self._runner.run(take())

    def seek(self, partition: int, offset: int) -> None:
        async def seek() -> None:
            self._consumer.seek(TopicPartition(self._topic, partition), offset)

        self._runner.run(seek())

    def bounds(self, partition: int) -> tuple[int, int]:
        which = TopicPartition(self._topic, partition)
        earliest = self._runner.run(self._consumer.beginning_offsets([which]))
        latest = self._runner.run(self._consumer.end_offsets([which]))
        return earliest[which], latest[which]

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        which = TopicPartition(self._topic, partition)
        found = self._runner.run(self._consumer.offsets_for_times({which: timestamp_ms}))[which]
        return None if found is None else found.offset


class _Admin(Admin):
    def __init__(self, runner: asyncio.Runner, admin: AIOKafkaAdminClient) -> None:
        self._run = runner.run
        self._admin = admin

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(name, partitions, replicas, topic_configs=dict(config or {}))
        ((_, code, message),) = self._run(self._admin.create_topics([new])).topic_errors
        _check(code, message)

    def delete_topic(self, name: str) -> None:
        ((_, code),) = self._run(self._admin.delete_topics([name])).topic_error_codes
        _check(code, name)

    def topics(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def describe_topic(self, name: str) -> dict[int, PartitionSeen]:
        (described,) = self._run(self._admin.describe_topics([name]))
        _check(described["error_code"], described)
        return {
            each["partition"]: PartitionSeen(each["leader"], tuple(each["replicas"]), tuple(each["isr"]))
            for each in described["partitions"]
        }

    def create_partitions(self, name: str, total: int) -> None:
        with _answers():
            self._run(self._admin.create_partitions({name: NewPartitions(total)}))

    def topic_config(self, name: str) -> dict[str, ConfigSeen]:
        return self._config(ConfigResource(ConfigResourceType.TOPIC, name))

    def broker_config(self, broker: int) -> dict[str, ConfigSeen]:
        return self._config(ConfigResource(ConfigResourceType.BROKER, str(broker)))

    def _config(self, resource: ConfigResource) -> dict[str, ConfigSeen]:
        (answer,) = self._run(self._admin.describe_configs([resource]))
        ((code, message, _, _, entries),) = answer.resources
        _check(code, message)
        return {
            name: ConfigSeen(value, source == _DEFAULT_CONFIG_SOURCE, read_only)
            for name, value, read_only, source, *_ in entries
        }

    def replace_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, dict(config))
        (answer,) = self._run(self._admin.alter_configs([resource]))
        ((code, message, *_),) = answer.resources
        _check(code, message)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        which = TopicPartition(topic, partition)
        with _answers():
            low_watermark: int = self._run(self._admin.delete_records({which: RecordsToDelete(before)}))[which]
        return low_watermark

    def cluster(self) -> ClusterSeen:
        described = self._run(self._admin.describe_cluster())
        brokers = {each["node_id"]: f"{each['host']}:{each['port']}" for each in described["brokers"]}
        return ClusterSeen(described["controller_id"], brokers)


def _seen(record: Any) -> Seen:
    return Seen(
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        tuple(record.headers),
    )


def _check(code: int, message: object) -> None:
    if code:
        raise Refused(code, message)


@contextmanager
def _answers() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise Refused(error.errno, error) from error
