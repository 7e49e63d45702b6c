"""Transactional producers and read_committed consumers of two libraries, under one interface.

Calls of a transaction raise `MustAbortError` if it cannot be committed and the producer can go on; any other exception
means that the producer is of no use any more. `commit` and `abort` try again until their time is over.
"""

from __future__ import annotations

import faulthandler
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException

from ottla import Consumer, PreparedTransaction, Producer, TopicPartition
from ottla.client.errors import CallTimeoutError, OttlaError, TransactionAbortableError, TransactionFatalError
from support.cluster.checker import Place
from support.isolation.history import TOMBSTONE

VALUE: Final = struct.Struct(">q")
CONFLUENT: Final = "confluent"
OTTLA: Final = "ottla"
PATIENCE_S: Final = 60.0
_CALL_S: Final = 10.0
_HANGS_S: Final = 40.0
"""A call that takes so long will never return."""
_POLL_INTERVAL_MS: Final = 25_000
"""A member of the group that hangs holds up the others for so long."""
TRANSACTION_TIMEOUT_MS: Final = 12_000

_COMMON: Final[Mapping[str, Any]] = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}
_RDKAFKA: Final[Mapping[str, Any]] = {
    **_COMMON,
    "log_level": 0,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.interval.ms": 2_000,
    "broker.address.family": "v4",
}
_OURS: Final[Mapping[str, Any]] = {
    **_COMMON,
    "retry.backoff.max.ms": 200,
    "request.timeout.ms": 5_000,
    "metadata.max.age.ms": 2_000,
}


def unpacked(value: bytes | None) -> int:
    return int(VALUE.unpack(value)[0]) if value else TOMBSTONE


class MustAbortError(Exception):
    """The transaction cannot be committed."""


Told = Callable[[int], None]
"""Is called with the offset of a record that was stored."""


class GroupConsumer(ABC):
    """A member of the processors' group with read_committed, which does not commit by itself."""

    @abstractmethod
    def poll(self, most: int) -> list[tuple[Place, int, bytes]]: ...

    @abstractmethod
    def metadata(self) -> Any: ...

    @abstractmethod
    def rewind(self) -> None:
        """Goes back to what the group has committed."""

    @abstractmethod
    def close(self) -> None: ...


class TransactionalProducer(ABC):
    """`init` comes first, and fences those with the same id."""

    @abstractmethod
    def init(self) -> None: ...
    @abstractmethod
    def begin(self) -> None: ...
    @abstractmethod
    def send(self, place: Place, value: bytes | None, told: Told, key: bytes | None = None) -> None: ...
    @abstractmethod
    def send_offsets(self, offsets: Mapping[Place, int], consumer: GroupConsumer) -> None: ...
    @abstractmethod
    def commit(self) -> None: ...
    @abstractmethod
    def abort(self) -> None: ...
    @abstractmethod
    def close(self) -> None: ...


class Follower(ABC):
    """A consumer with read_committed of all partitions, from their beginning."""

    @abstractmethod
    def poll(self) -> list[tuple[Place, int, bytes]]: ...
    @abstractmethod
    def seek(self, place: Place, offset: int) -> None: ...
    @abstractmethod
    def close(self) -> None: ...


# --- librdkafka -------------------------------------------------------------------------------------------------------


@contextmanager
def may_hang() -> Iterator[None]:
    """Ends the process, with a traceback, if what is called does not return in time. After a broker was away,
    librdkafka 2.16 can wait in `send_offsets_to_transaction` without end, whatever its timeout is."""
    faulthandler.dump_traceback_later(_HANGS_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class ConfluentProducer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
                **_RDKAFKA,
            }
        )

    def _again(self, call: Callable[[float], Any]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with may_hang():
                    call(_CALL_S)
            except KafkaException as error:
                reason = error.args[0]
                if reason.txn_requires_abort():
                    raise MustAbortError(str(reason)) from error
                if not reason.retriable() or time.monotonic() > deadline_s:
                    raise
            else:
                return

    def init(self) -> None:
        self._again(self._producer.init_transactions)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: Place, value: bytes | None, told: Told, key: bytes | None = None) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None and message.offset() is not None and message.offset() >= 0:
                told(message.offset())

        try:
            self._producer.produce(place.topic, value, key, place.partition, delivered)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            raise MustAbortError(str(error.args[0])) from error
        self._producer.poll(0)

    def send_offsets(self, offsets: Mapping[Place, int], consumer: GroupConsumer) -> None:
        positions = [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
        metadata = consumer.metadata()
        self._again(lambda timeout_s: self._producer.send_offsets_to_transaction(positions, metadata, timeout_s))

    def commit(self) -> None:
        self._again(self._producer.commit_transaction)

    def abort(self) -> None:
        self._again(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.purge()


class ConfluentGroupConsumer(GroupConsumer):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "max.poll.interval.ms": _POLL_INTERVAL_MS,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                **_RDKAFKA,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self, most: int) -> list[tuple[Place, int, bytes]]:
        return _records(self._consumer.consume(most, 0.2))

    def metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def rewind(self) -> None:
        with may_hang():
            for each in self._consumer.committed(self._consumer.assignment(), timeout=_CALL_S):
                self._consumer.seek(confluent_kafka.TopicPartition(each.topic, each.partition, max(each.offset, 0)))

    def close(self) -> None:
        with may_hang():
            self._consumer.close()


class ConfluentFollower(Follower):
    def __init__(self, bootstrap: str, places: Sequence[Place], isolation_level: str = "read_committed") -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "isolation.level": isolation_level,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                **_RDKAFKA,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])

    def poll(self) -> list[tuple[Place, int, bytes]]:
        return _records(self._consumer.consume(500, 0.1))

    def seek(self, place: Place, offset: int) -> None:
        self._consumer.seek(confluent_kafka.TopicPartition(*place, offset))

    def close(self) -> None:
        self._consumer.close()


def _records(messages: Sequence[confluent_kafka.Message]) -> list[tuple[Place, int, bytes]]:
    """Errors are brokers that are away; what is lost by them shows in the history."""
    return [
        (Place(str(each.topic()), int(each.partition() or 0)), int(each.offset() or 0), each.value() or b"")
        for each in messages
        if each.error() is None
    ]


# --- Ottla ------------------------------------------------------------------------------------------------------------


class OttlaProducer(TransactionalProducer):
    """With `is_two_phase`, its transactions have no timeout."""

    def __init__(self, bootstrap: str, transactional_id: str, *, is_two_phase: bool = False) -> None:
        two_phase = {"transaction.two.phase.commit.enable": True}
        lifetime = two_phase if is_two_phase else {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        self._producer: Producer[Any, Any] = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                **lifetime,
                "max.block.ms": int(_CALL_S * 1000),
                "delivery.timeout.ms": 30_000,
                "linger.ms": 2,
                **_OURS,
            }
        )

    def _again(self, call: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
            except TransactionAbortableError as error:
                raise MustAbortError(repr(error)) from error
            except CallTimeoutError:
                if time.monotonic() > deadline_s:
                    raise
            else:
                return

    def init(self) -> None:
        self._again(self._producer.init_transactions)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: Place, value: bytes | None, told: Told, key: bytes | None = None) -> None:
        try:
            delivery = self._producer.send(place.topic, value, key=key, partition=place.partition)
        except TransactionAbortableError as error:
            raise MustAbortError(repr(error)) from error
        except TransactionFatalError:
            raise
        except OttlaError as error:
            raise MustAbortError(repr(error)) from error
        delivery.add_done_callback(lambda done: None if done.exception(0) else told(done.result(0).offset))

    def send_offsets(self, offsets: Mapping[Place, int], consumer: GroupConsumer) -> None:
        positions = {TopicPartition(*place): offset for place, offset in offsets.items()}
        metadata = consumer.metadata()
        self._again(lambda: self._producer.send_offsets_to_transaction(positions, metadata))

    def commit(self) -> None:
        self._again(self._producer.commit_transaction)

    def abort(self) -> None:
        self._again(self._producer.abort_transaction)

    def prepare(self) -> str:
        """What another process needs to complete the transaction."""
        found: list[str] = []
        self._again(lambda: found.append(str(self._producer.prepare_transaction())))
        return found[0]

    def complete(self, prepared: str, *, commit: bool) -> None:
        """Ends a transaction that this or another process prepared. Raises `FencedError` if it is not open any more."""
        transaction = PreparedTransaction.parse(prepared)
        self._again(lambda: self._producer.complete_transaction(transaction, commit=commit))

    def take_over(self) -> None:
        """Becomes the owner of a prepared transaction, as a process does that dies before it completes it."""
        transactions = self._producer._core.transactional("complete_transaction")
        self._producer._thread.run(transactions._dialogue.init_producer(keep_prepared=True), _CALL_S)

    def close(self) -> None:
        self._producer.close(1.0)


class OttlaGroupConsumer(GroupConsumer):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer: Consumer[Any, Any] = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "max.poll.interval.ms": _POLL_INTERVAL_MS,
                "heartbeat.interval.ms": 500,
                "fetch.max.wait.ms": 100,
                "default.api.timeout.ms": 20_000,
                **_OURS,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self, most: int) -> list[tuple[Place, int, bytes]]:
        return [
            (Place(each.topic, each.partition), each.offset, bytes(each.value or b""))
            for each in self._consumer.poll(0.2, most)
        ]

    def metadata(self) -> Any:
        return self._consumer.group_metadata()

    def rewind(self) -> None:
        owned = self._consumer.assignment()
        committed = self._consumer.committed(owned)
        for partition in owned:
            found = committed.get(partition)
            self._consumer.seek(partition, 0 if found is None else found.offset)

    def close(self) -> None:
        self._consumer.close(2.0)


class OttlaFollower(Follower):
    def __init__(self, bootstrap: str, places: Sequence[Place], isolation_level: str = "read_committed") -> None:
        self._consumer: Consumer[Any, Any] = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "isolation.level": isolation_level,
                "auto.offset.reset": "earliest",
                "fetch.max.wait.ms": 100,
                **_OURS,
            }
        )
        self._consumer.assign([TopicPartition(*place) for place in places])

    def poll(self) -> list[tuple[Place, int, bytes]]:
        return [
            (Place(each.topic, each.partition), each.offset, bytes(each.value or b""))
            for each in self._consumer.poll(0.1)
        ]

    def seek(self, place: Place, offset: int) -> None:
        self._consumer.seek(TopicPartition(*place), offset)

    def close(self) -> None:
        self._consumer.close(1.0)


PRODUCERS: Final[Mapping[str, type[ConfluentProducer] | type[OttlaProducer]]] = {
    CONFLUENT: ConfluentProducer,
    OTTLA: OttlaProducer,
}
GROUP_CONSUMERS: Final[Mapping[str, type[ConfluentGroupConsumer] | type[OttlaGroupConsumer]]] = {
    CONFLUENT: ConfluentGroupConsumer,
    OTTLA: OttlaGroupConsumer,
}
FOLLOWERS: Final[Mapping[str, type[ConfluentFollower] | type[OttlaFollower]]] = {
    CONFLUENT: ConfluentFollower,
    OTTLA: OttlaFollower,
}
