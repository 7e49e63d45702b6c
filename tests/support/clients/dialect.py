"""What the tests say to every Python client in the same words, and what they expect back.

One adapter a client (`confluent_client`, `kafka_python_client`, `aiokafka_client`) turns these words into calls of the
real library and nothing more. An error that a broker answers with becomes `Refused`, with Kafka's code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import pytest

from ottla.base.error_codes import ErrorCode

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = 30.0
"""How long a client may take for what needs no waiting. Only a failure waits that long."""

CREATE_TIME = 0
LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is given to a producer."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a consumer returns it."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    controller: int
    brokers: Mapping[int, str]
    """Addresses by broker id."""


@dataclass(frozen=True, slots=True)
class ConfigSeen:
    value: str | None
    is_default: bool
    read_only: bool


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    codec: str = "none"
    idempotent: bool = False
    acks: int = -1
    linger_ms: int = 20
    """Long enough for the records of one call to share a batch."""
    max_bytes: int = 1_048_576
    """The client's own limit for a request: above the broker's where the broker shall refuse."""
    hope_ms: int = 10_000
    """How long to ask again for a topic that the broker says is not there."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    committed_only: bool = False
    min_bytes: int = 1
    max_wait_ms: int = 500
    max_partition_bytes: int = 1_048_576
    reset: str = "earliest"
    """Where to start when there is no such offset: `earliest`, `latest`, or `none` for an error."""


PRODUCER = ProducerSettings()
CONSUMER = ConsumerSettings()


class Refused(Exception):  # noqa: N818  (an answer, not a fault)
    """The broker answered with an error."""

    def __init__(self, code: int, message: object) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


class Producer(ABC):
    @abstractmethod
    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        """Sends all, waits until all are acknowledged, and returns their offsets, which mean nothing with acks=0."""


class Consumer(ABC):
    """Reads partitions of one topic that were assigned to it, from their beginning unless told otherwise."""

    @abstractmethod
    def take(self, count: int, timeout_s: float = WAIT_S) -> list[Seen]:
        """The next records, as many as asked for, in the order in which they came; fewer only after the timeout."""

    @abstractmethod
    def seek(self, partition: int, offset: int) -> None: ...

    @abstractmethod
    def bounds(self, partition: int) -> tuple[int, int]:
        """The earliest offset, and the one that the next record will have."""

    @abstractmethod
    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is at least that late; None where there is none."""


class Admin(ABC):
    @abstractmethod
    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None: ...

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def describe_topic(self, name: str) -> dict[int, PartitionSeen]: ...

    @abstractmethod
    def create_partitions(self, name: str, total: int) -> None: ...

    @abstractmethod
    def topic_config(self, name: str) -> dict[str, ConfigSeen]: ...

    @abstractmethod
    def broker_config(self, broker: int) -> dict[str, ConfigSeen]: ...

    @abstractmethod
    def replace_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Sets these and resets all others (AlterConfigs)."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Deletes the records before an offset, or all with -1; the lowest offset that is left is returned."""

    @abstractmethod
    def cluster(self) -> ClusterSeen: ...


class Client(ABC):
    """One of the Python clients, talking to one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    missing_packages: ClassVar[Mapping[str, str]] = {}
    """Of the codecs that the client lacks here: the package that would bring it."""

    @abstractmethod
    def producer(self, settings: ProducerSettings = PRODUCER) -> AbstractContextManager[Producer]: ...

    @abstractmethod
    def consumer(
        self, topic: str, partitions: Sequence[int] = (0,), settings: ConsumerSettings = CONSUMER
    ) -> AbstractContextManager[Consumer]: ...

    @abstractmethod
    def admin(self) -> AbstractContextManager[Admin]: ...

    def produce(self, topic: str, records: Sequence[Record], settings: ProducerSettings = PRODUCER) -> list[int]:
        with self.producer(settings) as producer:
            return producer.send(topic, records)

    def consume(
        self,
        topic: str,
        count: int,
        partitions: Sequence[int] = (0,),
        settings: ConsumerSettings = CONSUMER,
    ) -> list[Seen]:
        with self.consumer(topic, partitions, settings) as consumer:
            return consumer.take(count)


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    """Asserts that the broker answers with this error."""
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.code == code, str(caught.value)
