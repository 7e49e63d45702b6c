"""Our own client in the words of `dialect`: the blocking face, and the asyncio one, which have the same methods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ottla
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import ConfigResource, ConfigSource, NewTopic
from ottla.client.errors import OffsetOutOfRangeError, OttlaError, RecordTooLargeError, RefusedError, UnknownTopicError
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

Run = Callable[[Any], Any]
"""What a method of a face returned, or the result of the coroutine that it returned."""


class OttlaClient(Client):
    """The blocking face."""

    def _common(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "reconnect.backoff.ms": 10, "retry.backoff.ms": 20}

    @contextmanager
    def producer(self, settings: ProducerSettings = PRODUCER) -> Iterator[Producer]:
        with self._open("Producer", _of_producer(settings)) as (library, run):
            yield _Producer(library, run)

    @contextmanager
    def consumer(
        self, topic: str, partitions: Sequence[int] = (0,), settings: ConsumerSettings = CONSUMER
    ) -> Iterator[Consumer]:
        with self._open("Consumer", _of_consumer(settings)) as (library, run):
            assigned = [TopicPartition(topic, partition) for partition in partitions]
            run(library.assign(assigned))
            if settings.reset == "none":
                run(library.seek_to_beginning(assigned))
            yield _Consumer(library, run, topic)

    @contextmanager
    def admin(self) -> Iterator[OttlaAdmin]:
        with self._open("Admin", {}) as (library, run):
            yield OttlaAdmin(library, run)

    @contextmanager
    def _open(self, face: str, settings: Mapping[str, Any]) -> Iterator[tuple[Any, Run]]:
        with getattr(ottla, face)({**self._common(), **settings}) as library:
            yield library, lambda result: result


class OttlaAsyncClient(OttlaClient):
    """The asyncio face. Its loop runs only while something is asked of it."""

    @contextmanager
    def _open(self, face: str, settings: Mapping[str, Any]) -> Iterator[tuple[Any, Run]]:
        async def begin() -> Any:
            return await getattr(ottla, f"Async{face}")({**self._common(), **settings}).__aenter__()

        with asyncio.Runner() as runner:

            def run(result: Any) -> Any:
                return runner.run(_awaited(result)) if isinstance(result, Awaitable) else result

            library = runner.run(begin())
            try:
                yield library, run
            finally:
                runner.run(library.close())


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _of_producer(settings: ProducerSettings) -> dict[str, Any]:
    return {
        "compression.type": settings.codec,
        "enable.idempotence": settings.idempotent,
        "acks": settings.acks,
        "linger.ms": settings.linger_ms,
        "batch.size": 1 << 20,
        "max.request.size": settings.max_bytes,
        "max.block.ms": settings.hope_ms,
    }


def _of_consumer(settings: ConsumerSettings) -> dict[str, Any]:
    return {
        "auto.offset.reset": settings.reset,
        "isolation.level": "read_committed" if settings.committed_only else "read_uncommitted",
        "fetch.min.bytes": settings.min_bytes,
        "fetch.max.wait.ms": settings.max_wait_ms,
        "max.partition.fetch.bytes": settings.max_partition_bytes,
        "request.timeout.ms": settings.max_wait_ms + 30_000,
        "enable.auto.commit": False,
    }


class _Producer(Producer):
    def __init__(self, library: Any, run: Run) -> None:
        self._library = library
        self._run = run

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        with _answers():
            deliveries = [
                self._run(
                    self._library.send(
                        topic,
                        record.value,
                        key=record.key,
                        headers=list(record.headers),
                        timestamp=record.timestamp_ms,
                        partition=record.partition,
                    )
                )
                for record in records
            ]
            self._run(self._library.flush(WAIT_S))
            return [delivery.result(0).offset for delivery in deliveries]


class _Consumer(Consumer):
    def __init__(self, library: Any, run: Run, topic: str) -> None:
        self._library = library
        self._run = run
        self._topic = topic
        self._left: list[Seen] = []
        """What came with records that were asked for, and was not."""

    def take(self, count: int, timeout_s: float = WAIT_S) -> list[Seen]:
        seen, self._left = self._left[:count], self._left[count:]
        deadline = time.monotonic() + timeout_s
        with _answers():
            while len(seen) < count and (left_s := deadline - time.monotonic()) > 0:
                polled = [_seen(record) for record in self._run(self._library.poll(left_s))]
                missing = count - len(seen)
                seen += polled[:missing]
                self._left = polled[missing:]
        return seen

    def seek(self, partition: int, offset: int) -> None:
        self._left = [each for each in self._left if each.partition != partition]
        self._run(self._library.seek(TopicPartition(self._topic, partition), offset))

    def bounds(self, partition: int) -> tuple[int, int]:
        which = TopicPartition(self._topic, partition)
        earliest = self._run(self._library.beginning_offsets([which]))
        latest = self._run(self._library.end_offsets([which]))
        return earliest[which], latest[which]

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        which = TopicPartition(self._topic, partition)
        found = self._run(self._library.offsets_for_times({which: timestamp_ms}))[which]
        return None if found is None else found.offset


class OttlaAdmin(Admin):
    def __init__(self, library: Any, run: Run) -> None:
        self.library = library
        self._run = run

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        with _answers():
            self._run(self.library.create_topics([NewTopic(name, partitions, replicas, configs=config or {})]))

    def delete_topic(self, name: str) -> None:
        with _answers():
            self._run(self.library.delete_topics([name]))

    def topics(self) -> set[str]:
        return {topic.name for topic in self._run(self.library.list_topics())}

    def describe_topic(self, name: str) -> dict[int, PartitionSeen]:
        with _answers():
            described = self._run(self.library.describe_topics([name]))[name]
        return {each.index: PartitionSeen(each.leader_id, each.replicas, each.in_sync) for each in described.partitions}

    def create_partitions(self, name: str, total: int) -> None:
        with _answers():
            self._run(self.library.create_partitions({name: total}))

    def topic_config(self, name: str) -> dict[str, ConfigSeen]:
        return self._config(ConfigResource.topic(name))

    def broker_config(self, broker: int) -> dict[str, ConfigSeen]:
        return self._config(ConfigResource.broker(broker))

    def _config(self, resource: ConfigResource) -> dict[str, ConfigSeen]:
        with _answers():
            found = self._run(self.library.describe_configs([resource]))[resource]
        return {
            name: ConfigSeen(entry.value, entry.source is ConfigSource.DEFAULT, entry.is_read_only)
            for name, entry in found.items()
        }

    def replace_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        with _answers():
            self._run(self.library.replace_configs({ConfigResource.topic(name): config}))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        which = TopicPartition(topic, partition)
        with _answers():
            found: int = self._run(self.library.delete_records({which: None if before == -1 else before}))[which]
        return found

    def cluster(self) -> ClusterSeen:
        described = self._run(self.library.describe_cluster())
        brokers = {each.broker_id: f"{each.host}:{each.port}" for each in described.brokers}
        return ClusterSeen(described.controller_id, brokers)


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


@contextmanager
def _answers() -> Iterator[None]:
    try:
        yield
    except RefusedError as error:
        raise Refused(error.code, error) from error
    except (UnknownTopicError, OffsetOutOfRangeError, RecordTooLargeError) as error:
        raise Refused(_CODES[type(error)], error) from error


_CODES: dict[type[OttlaError], ErrorCode] = {
    UnknownTopicError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    RecordTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
}
