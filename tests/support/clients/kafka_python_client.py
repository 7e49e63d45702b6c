"""kafka-python in the words of `dialect`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

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

with warnings.catch_warnings():
    # It reads its message definitions by functions that Python 3.11 calls deprecated.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka
    import kafka.codec
    from kafka import TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, ConfigSourceType, KafkaAdminClient, OffsetSpec
    from kafka.errors import BrokerResponseError, KafkaTimeoutError

__all__ = ["KafkaPythonAdmin", "KafkaPythonClient", "KafkaTimeoutError"]

_CODEC_PACKAGES = {
    "snappy": (kafka.codec.has_snappy, "python-snappy"),
    "lz4": (kafka.codec.has_lz4, "lz4"),
    "zstd": (kafka.codec.has_zstd, "zstandard"),
}


class KafkaPythonClient(Client):
    offset_specs = OffsetSpec

    missing_packages: ClassVar = {
        codec: package for codec, (available, package) in _CODEC_PACKAGES.items() if not available()
    }

    @property
    def common(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap, "reconnect_backoff_ms": 10}

    @contextmanager
    def producer(self, settings: ProducerSettings = PRODUCER) -> Iterator[Producer]:
        made = kafka.KafkaProducer(
            **self.common,
            compression_type=None if settings.codec == "none" else settings.codec,
            enable_idempotence=settings.idempotent,
            acks=settings.acks,
            linger_ms=settings.linger_ms,
            max_request_size=settings.max_bytes,
            batch_size=1 << 20,
            retry_backoff_ms=20,
            max_block_ms=settings.hope_ms,
        )
        try:
            yield _Producer(made)
        finally:
            made.close(WAIT_S)

    @contextmanager
    def consumer(
        self, topic: str, partitions: Sequence[int] = (0,), settings: ConsumerSettings = CONSUMER
    ) -> Iterator[Consumer]:
        made = kafka.KafkaConsumer(
            **self.common,
            auto_offset_reset=settings.reset,
            isolation_level="read_committed" if settings.committed_only else "read_uncommitted",
            fetch_min_bytes=settings.min_bytes,
            fetch_max_wait_ms=settings.max_wait_ms,
            max_partition_fetch_bytes=settings.max_partition_bytes,
            request_timeout_ms=settings.max_wait_ms + 30_000,
            retry_backoff_ms=20,
        )
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        made.assign(assigned)
        if settings.reset == "none":
            made.seek_to_beginning(*assigned)
        try:
            yield _Consumer(made, topic)
        finally:
            made.close(autocommit=False)

    @contextmanager
    def admin(self) -> Iterator[KafkaPythonAdmin]:
        with KafkaAdminClient(**self.common) as made:
            yield KafkaPythonAdmin(made)


class _Producer(Producer):
    def __init__(self, producer: kafka.KafkaProducer) -> None:
        self._producer = producer

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        with _answers():
            futures = [
                self._producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            return [future.get(WAIT_S).offset for future in futures]


class _Consumer(Consumer):
    def __init__(self, consumer: kafka.KafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def take(self, count: int, timeout_s: float = WAIT_S) -> list[Seen]:
        seen: list[Seen] = []
        deadline = time.monotonic() + timeout_s
        with _answers():
            while len(seen) < count and (left := deadline - time.monotonic()) > 0:
                polled = self._consumer.poll(int(left * 1000), max_records=count - len(seen))
                seen.extend(_seen(record) for records in polled.values() for record in records)
        return seen

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def bounds(self, partition: int) -> tuple[int, int]:
        which = TopicPartition(self._topic, partition)
        return self._consumer.beginning_offsets([which])[which], self._consumer.end_offsets([which])[which]

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        which = TopicPartition(self._topic, partition)
        found = self._consumer.offsets_for_times({which: timestamp_ms})[which]
        return None if found is None else found.offset


class KafkaPythonAdmin(Admin):
    def __init__(self, admin: KafkaAdminClient) -> None:
        self.library = admin

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(config or {})}
        with _answers():
            self.library.create_topics({name: wanted})

    def delete_topic(self, name: str) -> None:
        with _answers():
            self.library.delete_topics([name])

    def topics(self) -> set[str]:
        return set(self.library.list_topics())

    def describe_topic(self, name: str) -> dict[int, PartitionSeen]:
        (described,) = self.library.describe_topics([name])
        _check(described["error_code"], described)
        return {
            each["partition_index"]: PartitionSeen(
                each["leader_id"], tuple(each["replica_nodes"]), tuple(each["isr_nodes"])
            )
            for each in described["partitions"]
        }

    def create_partitions(self, name: str, total: int) -> None:
        with _answers():
            self.library.create_partitions({name: total})

    def topic_config(self, name: str) -> dict[str, ConfigSeen]:
        return self._config(ConfigResourceType.TOPIC, name)

    def broker_config(self, broker: int) -> dict[str, ConfigSeen]:
        return self._config(ConfigResourceType.BROKER, str(broker))

    def _config(self, kind: ConfigResourceType, name: str) -> dict[str, ConfigSeen]:
        # `describe_configs` does not tell of errors, so the request itself is sent.
        request = self.library._describe_configs_request([ConfigResource(kind, name)])
        (answer,) = self._ask(request, broker=int(name) if kind is ConfigResourceType.BROKER else None).results
        _check(answer.error_code, answer.error_message)
        return {
            each.name: ConfigSeen(each.value, each.config_source == ConfigSourceType.DEFAULT_CONFIG, each.read_only)
            for each in answer.configs
        }

    def synonyms(self, topic: str, name: str) -> list[tuple[str, str, str]]:
        """Where a value could come from, nearest first: name, value, source."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, [name])
        described = self.library.describe_configs([resource], include_synonyms=True, config_filter="all")
        found = described["topic"][topic][name]["synonyms"]
        return [(each["name"], each["value"], each["source"]) for each in found]

    def replace_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        # `alter_configs` adds what is set already, so the request itself is sent.
        resource = ConfigResource(ConfigResourceType.TOPIC, name, dict(config))
        (answer,) = self._ask(self.library._alter_configs_request([resource], incremental=False)).responses
        _check(answer.error_code, answer.error_message)

    def _ask(self, request: Any, broker: int | None = None) -> Any:
        return self.library._manager.run(self.library._manager.send, request, broker)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        which = TopicPartition(topic, partition)
        with _answers():
            low_watermark: int = self.library.delete_records({which: before})[which]["low_watermark"]
        return low_watermark

    def offset(self, topic: str, partition: int, spec: int) -> tuple[int, int]:
        """An offset and its time, by what it is (one of `offset_specs`) or by its time."""
        which = TopicPartition(topic, partition)
        found = self.library.list_partition_offsets({which: spec})[which]
        return found.offset, found.timestamp

    def reassign(self, topic: str, partition: int, replicas: list[int] | None) -> int:
        """Asks for other replicas, or with None to cancel; the error code that is answered."""
        which = TopicPartition(topic, partition)
        error = self.library.alter_partition_reassignments({which: replicas})[which]
        return 0 if error is None else error.errno

    def producers(self, topic: str, partition: int) -> list[Any]:
        """The idempotent producers that a partition remembers."""
        which = TopicPartition(topic, partition)
        return list(self.library.describe_producers([which])[which].active_producers)

    def stored_bytes(self, topic: str, partition: int) -> int:
        """How much a partition takes on the broker's disk, as the broker says."""
        ((directory,),) = (each["log_dirs"] for each in self.library.describe_log_dirs({topic: [partition]}))
        ((described,),) = (each["partitions"] for each in directory["topics"])
        size: int = described["partition_size"]
        return size

    def cluster(self) -> ClusterSeen:
        described = self.library.describe_cluster()
        brokers = {each["broker_id"]: f"{each['host']}:{each['port']}" for each in described["brokers"]}
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
