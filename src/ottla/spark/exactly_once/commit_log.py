"""The commit topic: the newest commit record of each sink, and how one is added.

A record counts if it is the newest one of its sink when it is written. Kafka has no such write, so it is made of two
things that it has. The producer is transactional, with an id per sink: `init_transactions` fences every other producer
of that id, and settles what they had under way. Then the newest record is read, and the new one is written in a
transaction: if another driver did the same meanwhile, the commit is refused, and everything starts again.

Blocking; used by one thread at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from zlib import crc32

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import LATEST, Admin, ConfigResource, NewTopic, SomeRefusedError
from ottla.client.config import ADMIN_CONFIG, CONSUMER_CONFIG
from ottla.client.errors import CallTimeoutError, ClientError, TransactionError
from ottla.client.produce import Producer
from ottla.spark.exactly_once.errors import CommitTopicError
from ottla.spark.exactly_once.identifiers import Identifiers
from ottla.spark.exactly_once.records import CommitRecord
from ottla.spark.worker_clients import CONSUMERS

_logger = logging.getLogger(__name__)

T = TypeVar("T")

PARTITIONS: Final = 8
_STATE_TOPIC: Final = "__transaction_state"
_REPLICAS: Final = 3
_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Small: a run reads its partition from the beginning when it starts.
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
_TRANSACTION_TIMEOUT_MS: Final = 30_000
"""Of the transaction around one record. Others with the same partition wait for it, if its driver dies in it."""
_ATTEMPTS: Final = 8
_READING: Final = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
}
_NOT_FOR_OTHER_CLIENTS: Final = frozenset({"interceptor.classes", "client.id", "metadata.max.age.ms"})
_FOR_RECORDS: Final = {"compression.type": "none", "linger.ms": "0"}
_LOOK_S: Final = 1.0


def partition_of(sink: str) -> int:
    return crc32(sink.encode()) % PARTITIONS


def admin_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of the sink's producer that are also an admin client's."""
    return {key: text for key, text in settings.items() if key in ADMIN_CONFIG and key not in _NOT_FOR_OTHER_CLIENTS}


def newest_record(settings: Mapping[str, str], admin: Admin, topic: str, sink: str) -> CommitRecord | None:
    """The newest record of the sink, in the settings of its producer. None if there is no such topic."""
    partition = TopicPartition(topic, partition_of(sink))
    try:
        described = admin.describe_topics([topic])[topic]
    except SomeRefusedError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise
    if len(described.partitions) != PARTITIONS:
        raise CommitTopicError(
            f"topic {topic!r} has {len(described.partitions)} partitions, but the commit topic must have {PARTITIONS}, "
            "because records are found by them: set commitTopic to another topic, which is then created"
        )
    end = admin.list_offsets({partition: LATEST}, isolation_level="read_uncommitted")[partition].offset or 0
    reading = {key: text for key, text in settings.items() if key in CONSUMER_CONFIG}
    reading = {key: text for key, text in reading.items() if key not in _NOT_FOR_OTHER_CLIENTS} | _READING
    key = sink.encode()
    newest: bytes | None = None
    with CONSUMERS.lent(reading) as consumer:
        consumer.assign([partition])
        first = consumer.beginning_offsets([partition])[partition]
        if first < end:
            consumer.seek(partition, first, until=end)
        patience_s = consumer.config.default_api_timeout_ms / 1000
        position, since_s = first, time.monotonic()
        while position < end:
            batch = consumer.poll_arrow(_LOOK_S, ["key", "value"])
            keys, values = batch.column("key").to_pylist(), batch.column("value")
            for index in range(len(keys) - 1, -1, -1):
                if keys[index] == key:
                    newest = values[index].as_py()
                    break
            before, position = position, consumer.position(partition)
            if position != before:
                since_s = time.monotonic()
            elif time.monotonic() - since_s > patience_s:
                raise CommitTopicError(
                    f"partition {partition} of the commit topic could not be read from offset {position} to {end} "
                    f"within {patience_s:g} s: probably an open transaction is in the way. See `ottla transactions "
                    "list --state ongoing`"
                )
    return None if newest is None else CommitRecord.decode(newest)


class CommitLog:
    """The records of one sink. `newest` is valid after `open`, until another driver writes one."""

    def __init__(
        self, settings: Mapping[str, str], admin: Admin, topic: str, identifiers: Identifiers, writer: str | None = None
    ) -> None:
        """`writer`: the transactional id, if it is not that of the sink, because nobody else writes its records."""
        self._settings = settings
        self._admin = admin
        self._topic = topic
        self._sink = identifiers.sink
        self._writer = identifiers.log if writer is None else writer
        self._producer: Producer | None = None
        self._newest: CommitRecord | None = None

    def turn_to_new(self, sink: str) -> None:
        """To another sink, of which there is no record yet."""
        self._sink, self._newest = sink, None

    def update(self, decide: Callable[[CommitRecord | None], tuple[CommitRecord | None, T]]) -> T:
        """Lets `decide` see the newest record, and adds the record that it returns, if any; it is asked again if
        another driver was faster, or if it is not known whether the record was added. What it raises is raised."""
        failure: ClientError | None = None
        for _ in range(_ATTEMPTS):
            try:
                producer = self._open()
                record, result = decide(self._newest)
                if record is not None and record != self._newest:
                    self._add(producer, record)
                return result
            except (TransactionError, CallTimeoutError) as error:
                _logger.info("the commit topic is read again: %s", error)
                failure = error
                self.close()
            except BaseException:
                self.close()
                raise
        raise CommitTopicError(
            f"the commit record of {self._sink} could not be written to topic {self._topic!r}: {failure}"
        ) from failure

    def forget(self) -> None:
        """Deletes the record, once all is done and nobody can ask for it."""
        producer = self._open()
        self._send(producer, None)
        self._newest = None

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(_LOOK_S)
            except (ClientError, TimeoutError) as error:
                _logger.debug("the producer of commit records was closed with: %s", error)

    def _open(self) -> Producer:
        if self._producer is None:
            self._create_topic()
            own = {"transactional.id": self._writer, "transaction.timeout.ms": str(_TRANSACTION_TIMEOUT_MS)}
            settings = {**self._settings, **_FOR_RECORDS, **own, "transaction.two.phase.commit.enable": "false"}
            self._producer = Producer(settings)
            self._producer.init_transactions()
            self._newest = newest_record(self._settings, self._admin, self._topic, self._sink)
        return self._producer

    def _add(self, producer: Producer, record: CommitRecord) -> None:
        self._send(producer, record.encode())
        self._newest = record

    def _send(self, producer: Producer, value: bytes | None) -> None:
        with producer.transaction():
            producer.send(self._topic, value, key=self._sink.encode(), partition=partition_of(self._sink))

    def _create_topic(self) -> None:
        """Unless it is there. What is there must be compacted: with a retention time, records would vanish."""
        policy = self._policy()
        if policy is None:
            replicas = self._replicas()
            configs = {**_TOPIC_CONFIGS, "min.insync.replicas": str(max(1, replicas - 1))}
            try:
                self._admin.create_topics([NewTopic(self._topic, PARTITIONS, replicas, configs=configs)])
            except SomeRefusedError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        elif policy != "compact":
            raise CommitTopicError(
                f"topic {self._topic!r} has cleanup.policy={policy}, but the commit topic needs compact, or records "
                f"are lost: run `ottla topics alter {self._topic} --config cleanup.policy=compact`, or set commitTopic "
                "to another topic, which is then created"
            )

    def _replicas(self) -> int:
        """As many as the state of transactions has, on which everything stands, too. There are fewer brokers while one
        is away."""
        try:
            described = self._admin.describe_topics([_STATE_TOPIC])[_STATE_TOPIC]
            return len(described.partitions[0].replicas)
        except SomeRefusedError as error:
            _logger.info("the replicas of %s are not known: %s", _STATE_TOPIC, error)
            return min(_REPLICAS, len(self._admin.describe_cluster().brokers))

    def _policy(self) -> str | None:
        """The cleanup.policy of the topic; None if there is no such topic."""
        resource = ConfigResource.topic(self._topic)
        try:
            return self._admin.describe_configs([resource], keys=["cleanup.policy"])[resource]["cleanup.policy"].value
        except SomeRefusedError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise
