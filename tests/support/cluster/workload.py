"""Load on a cluster for as long as a test wants: producers and consumers of ours and of librdkafka, in threads.

Each record carries its mark (`checker.mark_of`), so that whoever reads it knows who sent it. Producers are idempotent,
wait for all in-sync replicas, and stop sending while too many records wait for their acknowledgement. Their rate is
bounded: a fault test is not a benchmark. Every client tries again soon, as faults last seconds.
"""

from __future__ import annotations

import logging
import random
import re
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError

from ottla import Consumer, Producer, TopicPartition
from ottla.base.error_codes import ErrorCode
from ottla.client.errors import ArgumentError, BufferFullError, OttlaError, RecordTooLargeError, RefusedError
from ottla.client.produce.delivery import Delivery
from ottla.client.subscriptions.listeners import RebalanceListener
from support.cluster.checker import NO_OFFSET, Place, Run, Seen, Sent, mark_of

DELIVERY_TIMEOUT_S: Final = 240.0
_WAITING_MAX: Final = 1500
_ROUND_S: Final = 0.02
_MARK: Final = struct.Struct(">q")
_PADDINGS: Final = (0, 0, 0, 50, 200, 1500)
_KEYS: Final = 64
_CLOSE_S: Final = 60.0
_NEVER_APPENDED: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
_EXPLAINED_REFUSALS: Final = frozenset({"KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "NOT_LEADER_FOR_PARTITION"})
"""What brokers answer without appending, in librdkafka's words: a full disk, too few in-sync replicas, a new leader."""
_CAUSE: Final = re.compile(
    r"ERRSEQ.*caused by previous failed request \((\w+)|DRAIN.*epoch bump for .* requests: (?!skipped)(.*)"
)
_OURS: Final[Mapping[str, Any]] = {
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "request.timeout.ms": 5_000,
    "metadata.max.age.ms": 2_000,
}
RDKAFKA: Final[Mapping[str, Any]] = {
    "log_level": 0,
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 2_000,
    "broker.address.family": "v4",
}


def mark_in(value: bytes | None) -> int:
    found: int = _MARK.unpack_from(value or b"")[0]
    return found


class Threaded:
    """A thread that works until it is told to stop; what it raises is kept."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_all, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run_all(self) -> None:
        try:
            while not self._stop.is_set():
                self._work()
        except BaseException as error:
            self.failure = error

    def _work(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()


# --- producers --------------------------------------------------------------------------------------------------------


class Load(Threaded, ABC):
    """A producer. `sent` is its history; other threads may look at it, and only this one adds to it."""

    def __init__(self, number: int, kind: str, topics: Sequence[str], rate: int, chance: random.Random) -> None:
        super().__init__(f"producer {number} ({kind})")
        self.sent = Sent(number)
        self.errors: list[str] = []
        self.renumberings: list[str] = []
        """Why it began a new producer epoch, and with it the numbering of records."""
        self._topics = topics
        self._rate = rate
        self._chance = chance
        self._done = 0
        self._count_lock = threading.Lock()

    @property
    def renumbers(self) -> bool:
        """Whether it has begun a new producer epoch for a reason that is not the brokers' fault, although it did not
        know what became of earlier records."""
        return False

    def _work(self) -> None:
        waiting = len(self.sent) - self._done
        if waiting < _WAITING_MAX:
            for _ in range(self._chance.randrange(2 * max(1, round(self._rate * _ROUND_S)) + 1)):
                self._send_one()
        self._turn(_ROUND_S)

    def _send_one(self) -> None:
        number = self.sent.send(time.monotonic())
        topic = self._chance.choice(self._topics)
        key = b"%d" % self._chance.randrange(_KEYS)
        value = _MARK.pack(mark_of(self.sent.producer, number)) + bytes(self._chance.choice(_PADDINGS))
        self._send(number, topic, key, value)

    @abstractmethod
    def _send(self, number: int, topic: str, key: bytes, value: bytes) -> None: ...

    def _turn(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _told(self, number: int, place: Place | None, offset: int, error: object, *, is_failed: bool = False) -> None:
        with self._count_lock:
            self._done += 1
            if place is not None:
                self.sent.acknowledge(number, place, offset, time.monotonic())
            else:
                self.errors.append(f"record {number}: {error}")
                if is_failed:
                    self.sent.fail(number)

    @abstractmethod
    def finish(self, timeout_s: float) -> int:
        """Sends no more, and waits for what is on its way. How many records have no outcome then."""


class OttlaLoad(Load):
    """Our producer; with `renew_s`, a new one so often, which needs a producer id of its own."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topics: Sequence[str],
        rate: int,
        chance: random.Random,
        settings: Mapping[str, Any] | None = None,
        *,
        renew_s: float = 0.0,
    ) -> None:
        super().__init__(number, "Ottla", topics, rate, chance)
        self._renew_s = renew_s
        self._renew_at_s = time.monotonic() + renew_s
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "delivery.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
            "max.block.ms": int(DELIVERY_TIMEOUT_S * 1000),
        }
        self._settings |= {**_OURS, **(settings or {})}
        self._producer: Producer[Any, Any] = Producer(self._settings)

    def _turn(self, seconds: float) -> None:
        super()._turn(seconds)
        if self._renew_s and time.monotonic() > self._renew_at_s and not self._stop.is_set():
            self._renew_at_s = time.monotonic() + self._renew_s
            try:
                self._producer.flush()  # else a later record could overtake what is on its way
            except OttlaError as error:
                self.errors.append(f"flush: {error!r}")
            else:
                self._producer.close()
                self._producer = Producer(self._settings)

    def _send(self, number: int, topic: str, key: bytes, value: bytes) -> None:
        try:
            delivery = self._producer.send(topic, value, key=key)
        except (BufferFullError, RecordTooLargeError, ArgumentError) as error:
            self._told(number, None, -1, repr(error), is_failed=True)
            return
        delivery.add_done_callback(lambda done: self._delivered(number, done))

    def _delivered(self, number: int, delivery: Delivery) -> None:
        error = delivery.exception(0)
        if error is None:
            found = delivery.result(0)
            self._told(number, Place(found.topic, found.partition), found.offset, None)
        else:
            is_failed = isinstance(error, RefusedError) and error.code in _NEVER_APPENDED
            self._told(number, None, -1, repr(error), is_failed=is_failed)

    def finish(self, timeout_s: float) -> int:
        self.end()
        try:
            self._producer.flush(timeout_s)
        except OttlaError as error:
            self.errors.append(f"flush: {error!r}")
        left = len(self.sent) - self._done
        self._producer.close(1.0)
        return left


class _EosLog(logging.Logger):
    """Takes librdkafka's lines about idempotence, and keeps why it takes a new epoch: its words, or the error of the
    request before the one that came out of order."""

    def __init__(self, causes: list[str]) -> None:
        super().__init__("librdkafka")
        self._causes = causes

    def log(self, level: int, msg: object, *args: object, **_: object) -> None:  # noqa: ARG002
        line = str(msg) % args if args else str(msg)
        found = _CAUSE.search(line)
        if found is not None:
            self._causes.append(found[1] or found[2])


class RdkafkaLoad(Load):
    """confluent-kafka's producer. When a broker refuses one of several batches on their way (a full disk, too few
    in-sync replicas), librdkafka 2.16 takes a new producer epoch for all partitions and sends everything that is not
    acknowledged again, even what timed out elsewhere and is stored. No broker can tell that from new records."""

    @property
    def renumbers(self) -> bool:
        """Only after a refusal that a fault explains: one that comes out of order by itself is the brokers' fault."""
        return any(cause in _EXPLAINED_REFUSALS for cause in self.renumberings)

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topics: Sequence[str],
        rate: int,
        chance: random.Random,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(number, "librdkafka", topics, rate, chance)
        own = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
            "request.timeout.ms": 5_000,
        }
        log = _EosLog(self.renumberings)
        own |= {**RDKAFKA, "debug": "eos", "log_level": 7, "logger": log, **(settings or {})}
        self._producer = confluent_kafka.Producer(own)

    def _send(self, number: int, topic: str, key: bytes, value: bytes) -> None:
        def told(error: Any, message: Any) -> None:
            if error is None:
                offset = message.offset()  # None for a repeated batch whose offset the broker no longer knows
                place = Place(message.topic(), message.partition())
                self._told(number, place, NO_OFFSET if offset is None else offset, None)
            else:
                is_failed = error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._QUEUE_FULL)
                self._told(number, None, -1, error, is_failed=is_failed)

        try:
            self._producer.produce(topic, value, key, on_delivery=told)
        except (BufferError, confluent_kafka.KafkaException) as error:
            self._told(number, None, -1, repr(error), is_failed=True)

    def _turn(self, seconds: float) -> None:
        self._producer.poll(seconds)
        super()._turn(seconds / 2)

    def finish(self, timeout_s: float) -> int:
        self.end()
        self._producer.flush(timeout_s)
        left = len(self.sent) - self._done
        self._producer.purge()
        self._producer.flush(1.0)
        return left


# --- consumers --------------------------------------------------------------------------------------------------------


class Watcher(Threaded, ABC):
    """A consumer. `seen` is its history."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seen = Seen(name)
        self.errors: list[str] = []
        self.is_deadlocked = False
        """Whether the library has locked itself up, which shows when the consumer is closed."""

    def has_reached(self, ends: Mapping[Place, int]) -> bool:
        return all(self.seen.position(place) >= end for place, end in ends.items())

    @abstractmethod
    def close(self) -> None: ...


class OttlaWatcher(Watcher):
    """Our consumer, on all partitions, from their beginning; it never commits."""

    def __init__(self, name: str, bootstrap: str, places: Sequence[Place], settings: Mapping[str, Any]) -> None:
        super().__init__(f"{name} (Ottla)")
        own = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "fetch.max.wait.ms": 200}
        self._consumer: Consumer[Any, Any] = Consumer({**own, **_OURS, **settings})
        self._consumer.assign([TopicPartition(*place) for place in places])

    def _work(self) -> None:
        for record in self._consumer.poll(0.1):
            self.seen.see(Place(record.topic, record.partition), record.offset, mark_in(record.value))

    def close(self) -> None:
        self.end()
        self._consumer.close(1.0)


class RdkafkaWatcher(Watcher):
    """confluent-kafka's consumer, in the same way.

    librdkafka 2.16 takes two of its locks in opposite orders if a broker fails that it has just asked for the end of a
    leader epoch (confluentinc/librdkafka#5476). Then it neither reads on nor closes, whatever brokers do.
    """

    def __init__(self, name: str, bootstrap: str, places: Sequence[Place], settings: Mapping[str, Any]) -> None:
        super().__init__(f"{name} (librdkafka)")
        own = {
            "bootstrap.servers": bootstrap,
            "group.id": f"unused-{name}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 200,
            "fetch.error.backoff.ms": 50,
        }
        self._consumer = confluent_kafka.Consumer({**own, **RDKAFKA, **settings})
        self._consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])

    def _work(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            if message.error() is not None:
                self.errors.append(str(message.error()))  # brokers that are away; what is lost shows in `seen`
                continue
            place = Place(str(message.topic()), int(message.partition() or 0))
            self.seen.see(place, int(message.offset() or 0), mark_in(message.value()))

    def close(self) -> None:
        self.end()
        closing = threading.Thread(target=self._consumer.close, name=f"closing {self.name}", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        self.is_deadlocked = closing.is_alive()


class Commits:
    """What the members of a group have committed, as far as they were told that they had. Thread-safe."""

    def __init__(self) -> None:
        self._offsets: dict[Place, int] = {}
        self._lock = threading.Lock()

    def committed(self, positions: Mapping[Place, int]) -> None:
        with self._lock:
            for place, offset in positions.items():
                self._offsets[place] = max(offset, self._offsets.get(place, 0))

    def of(self, place: Place) -> int:
        return self._offsets.get(place, 0)


class GroupMember(Watcher):
    """A member of a group of ours, which commits what it has seen: another member goes on there."""

    def __init__(
        self, name: str, bootstrap: str, topics: Sequence[str], commits: Commits, settings: Mapping[str, Any]
    ) -> None:
        super().__init__(f"{name} (Ottla)")
        self._commits = commits
        own = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.max.wait.ms": 200,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
            "default.api.timeout.ms": 10_000,
        }
        self._consumer: Consumer[Any, Any] = Consumer({**own, **_OURS, **settings})
        self._consumer.subscribe(list(topics), _Restarts(self.seen, commits))
        self._commit_at_s = 0.0

    def _work(self) -> None:
        for record in self._consumer.poll(0.1):
            self.seen.see(Place(record.topic, record.partition), record.offset, mark_in(record.value))
        if time.monotonic() > self._commit_at_s:
            self._commit_at_s = time.monotonic() + 0.5
            positions = self.seen.positions()
            owned = {Place(*each) for each in self._consumer.assignment()}
            try:
                self._consumer.commit()
            except OttlaError as error:  # the coordinator is away, or the group rebalances: it is tried again
                self.errors.append(repr(error))
            else:
                self._commits.committed({place: offset for place, offset in positions.items() if place in owned})

    def close(self) -> None:
        self.end()
        self._consumer.close(2.0)


class _Restarts(RebalanceListener):
    """Tells a history where a partition may begin anew."""

    def __init__(self, seen: Seen, commits: Commits) -> None:
        self._seen = seen
        self._commits = commits

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for each in partitions:
            place = Place(each.topic, each.partition)
            self._seen.restart(place, self._commits.of(place))


# --- the end ----------------------------------------------------------------------------------------------------------


def end_offsets(bootstrap: str, places: Sequence[Place]) -> dict[Place, int]:
    with Consumer({"bootstrap.servers": bootstrap, **_OURS, "default.api.timeout.ms": 60_000}) as consumer:
        found = consumer.end_offsets([TopicPartition(*place) for place in places])
    return {Place(*place): end for place, end in found.items()}


def read_to_end(watcher: Watcher, ends: Mapping[Place, int], timeout_s: float) -> dict[Place, Run]:
    """Everything that is stored, read by a new consumer, which is closed."""
    watcher.start()
    try:
        deadline_s = time.monotonic() + timeout_s
        while not watcher.has_reached(ends) and watcher.failure is None and time.monotonic() < deadline_s:
            time.sleep(0.05)
    finally:
        watcher.close()
    if watcher.failure is not None:
        raise watcher.failure
    return {place: (watcher.seen.runs.get(place) or [Run(0)])[0] for place in ends}
