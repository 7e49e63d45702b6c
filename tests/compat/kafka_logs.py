"""Log directories written by a real Kafka 3.9.1 broker with ZooKeeper, and what its consumers read of them.

The broker lives three times over the same directory, and copies are taken in between:

    write ─▶ stop ─▶ `clean`;   write more ─▶ SIGKILL, a write torn ─▶ `killed`;   recover ─▶ stop ─▶ `recovered`

So Kafka itself says what must become of `killed`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.cimpl import NewTopic

from compat.log_files import segment_files, tear
from golden import segment_dump
from golden.java_writer import write_by_java
from golden.scenarios import CODECS, JAVA_39, Given, Scenario, Sent
from ottla.records import Record
from support.controllers import admin_of
from support.kafka_process import Broker, kill, stop, zookeeper, zookeeper_mode_broker
from support.waiting import wait_until

PATIENCE_S = 60.0
SESSION_TIMEOUT_MS = 6000
SMALL_SEGMENTS = {"segment.bytes": "9000", "index.interval.bytes": "300"}
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4000000",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "auto.create.topics.enable": "false",
    "log.index.size.max.bytes": "40000",  # preallocated for every active segment, and copied
}
TOPIC_SETTINGS: Mapping[str, Mapping[str, str]] = {
    **{f"golden.{codec}": SMALL_SEGMENTS for codec in CODECS},
    "golden.idempotent": SMALL_SEGMENTS,
    "golden.append-time": {**SMALL_SEGMENTS, "message.timestamp.type": "LogAppendTime"},
    "transactions": SMALL_SEGMENTS,
    "open-transaction": SMALL_SEGMENTS,
    "records-deleted": SMALL_SEGMENTS,
    "compacted": {**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"},
}
TOPICS = tuple(TOPIC_SETTINGS)
COMPACTED = "compacted"
OPEN = "open-transaction"
LOG_START = 101


@dataclass(frozen=True, slots=True)
class Heard:
    """What consumers were told of a topic."""

    records: list[Record]
    committed: list[Record]
    low: int
    high: int
    by_time: dict[int, int]
    """For some timestamps the first offset that is not older; -1 for none."""


@dataclass(frozen=True, slots=True)
class KafkaLogs:
    """The three copies, by their names; what was heard of the first two; what the dump tool reads in all."""

    place: Path
    heard: Mapping[str, Mapping[str, Heard]]
    texts: Mapping[Path, str]

    def rows(self, state: str, topic: str, suffix: str) -> dict[int, list[dict[str, int]]]:
        """Index or snapshot files of a topic, by their offset."""
        folder = self.place / state / f"{topic}-0"
        paths = (path for path in self.texts if path.parent == folder and path.suffix == suffix)
        return {int(path.stem): segment_dump.rows(self.texts[path]) for path in paths}


def write_kafka_logs(place: Path) -> KafkaLogs:
    home = place / "broker"
    heard = {}
    writing = _Writing()
    with zookeeper(place / "zookeeper") as address:
        broker = zookeeper_mode_broker(home, address, 1, BROKER_SETTINGS)
        try:
            _create_topics(broker)
            writing.write(broker)
            heard["clean"] = _listen(broker)
        finally:
            stop(broker.process)
        shutil.copytree(broker.data, place / "clean")
        broker = zookeeper_mode_broker(home, address, 1, BROKER_SETTINGS)
        try:
            writing.write(broker)
            heard["killed"] = _listen(broker)
        finally:
            kill(broker.process)
        killed_at = time.monotonic()
        writing.forget()
        for topic in ("golden.none", "golden.zstd", "transactions"):
            tear(max((broker.data / f"{topic}-0").glob("*.log")))
        shutil.copytree(broker.data, place / "killed")
        # ZooKeeper must have forgotten the dead broker before one of the same id comes.
        time.sleep(max(killed_at + SESSION_TIMEOUT_MS / 1000 + 1 - time.monotonic(), 0))
        broker = zookeeper_mode_broker(home, address, 1, BROKER_SETTINGS)
        _wait_until_served(broker)
        stop(broker.process)
        shutil.copytree(broker.data, place / "recovered")
    files = [path for state in ("clean", "recovered") for path in segment_files(place / state)]
    return KafkaLogs(place, heard, segment_dump.dump("3.9.1", files).texts)


def _create_topics(broker: Broker) -> None:
    admin = admin_of(broker)
    topics = [NewTopic(name, 1, 1, config=dict(settings)) for name, settings in TOPIC_SETTINGS.items()]
    for created in admin.create_topics(topics, operation_timeout=30).values():
        created.result()


@dataclass(slots=True)
class _Writing:
    """Fills all topics, a second time with more."""

    turn: int = 0
    start_ms: int = field(default_factory=lambda: int(time.time() * 1000) - 3_600_000)
    left_open: list[Producer] = field(default_factory=list)

    def write(self, broker: Broker) -> None:
        self.turn += 1
        self._write_by_java(broker)
        self._write_transactions(broker)
        self._write_open_transaction(broker)
        self._write_compacted(broker)
        self._write_and_delete(broker)

    def forget(self) -> None:
        """Producers whose broker is gone must not keep looking for it."""
        for producer in self.left_open:
            producer.purge()
        self.left_open.clear()

    def _write_by_java(self, broker: Broker) -> None:
        number = 1000 * self.turn
        batches = tuple(
            Sent(self._records(number + 10 * index, 12 if index % 9 == 4 else 1 + index % 4)) for index in range(70)
        )
        wanted = [Scenario(codec, JAVA_39, batches, codec) for codec in CODECS]
        wanted.append(Scenario("idempotent", JAVA_39, batches, idempotent=True))
        wanted.append(Scenario("append-time", JAVA_39, batches))
        write_by_java(broker, "3.9.1", wanted)

    def _write_transactions(self, broker: Broker) -> None:
        """Two producers with transactions at the same time; one batch in two of them is aborted."""
        producers = [_producer(broker, f"turn-{self.turn}-{name}", "lz4" if name else "none") for name in range(2)]
        for index in range(24):
            for producer in producers:
                producer.begin_transaction()
            for step in range(3):
                for producer in producers:
                    _send(producer, "transactions", self._records(1000 * self.turn + 10 * index + step, 2))
            for which, producer in enumerate(producers):
                if (index + which) % 3 == 0:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()

    def _write_open_transaction(self, broker: Broker) -> None:
        producer = _producer(broker, f"turn-{self.turn}-open", "none")
        for end in (producer.commit_transaction, producer.abort_transaction, None):
            producer.begin_transaction()
            for index in range(15):
                _send(producer, OPEN, self._records(1000 * self.turn + 10 * index, 3))
            if end is not None:
                end()
        self.left_open.append(producer)

    def _write_compacted(self, broker: Broker) -> None:
        """Few keys, often written; some deleted, some only in an aborted transaction."""
        producer = _producer(broker, f"turn-{self.turn}-compacted", "snappy")
        for index in range(40):
            producer.begin_transaction()
            records = self._records(1000 * self.turn + 7 * index, 4)
            if index % 4 == 2:
                records += (Given(records[-1].timestamp_ms, b"gone-%d" % index, None),)
            _send(producer, COMPACTED, [given for given in records if given.key is not None])
            if index % 5 == 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    def _write_and_delete(self, broker: Broker) -> None:
        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        for index in range(60):
            _send(producer, "records-deleted", self._records(1000 * self.turn + 10 * index, 3))
        if self.turn == 1:
            admin = admin_of(broker)
            doomed = [confluent_kafka.TopicPartition("records-deleted", 0, LOG_START)]
            for deleted in admin.delete_records(doomed).values():
                deleted.result()

    def _records(self, start: int, count: int) -> tuple[Given, ...]:
        """Their timestamps rise with the number, but for some that go back."""
        return tuple(
            Given(
                self.start_ms + 5 * number - (60 if number % 6 == 0 else 0),
                None if number % 13 == 7 else b"key-%d" % (number % 31),
                None if number % 17 == 11 else b"%d:" % number + b"the same words " * (1 + number % 9),
                (("trace", b"%d" % number), ("none", None)) if number % 4 == 0 else (),
            )
            for number in range(start, start + count)
        )


def _producer(broker: Broker, transactional_id: str, codec: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "compression.type": codec,
            "linger.ms": 5,
            "log_level": 2,
        }
    )
    producer.init_transactions()
    return producer


def _send(producer: Producer, topic: str, records: Sequence[Given]) -> None:
    """In one batch, and waits until it is there."""
    for given in records:
        more: dict[str, Any] = {"headers": list(given.headers)} if given.headers else {}
        producer.produce(topic, given.value, given.key, partition=0, timestamp=given.timestamp_ms, **more)
    if producer.flush(PATIENCE_S):
        raise RuntimeError(f"records for {topic} are not acknowledged after {PATIENCE_S:.0f} s")


def _wait_until_compacted(broker: Broker) -> None:
    """Until the cleaner has seen all but the active segment, and so rests."""
    wait_until(
        lambda: _cleaned_to(broker) >= int(max((broker.data / f"{COMPACTED}-0").glob("*.log")).stem),
        "compaction",
        PATIENCE_S,
    )


def _cleaned_to(broker: Broker) -> int:
    file = broker.data / "cleaner-offset-checkpoint"
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    return max((int(offset) for topic, _, offset in map(str.split, lines) if topic == COMPACTED), default=-1)


# What consumers hear.


def _listen(broker: Broker) -> dict[str, Heard]:
    consume_decided(broker, TOPICS, undecided=(OPEN,))
    _wait_until_compacted(broker)
    records, committed = consume_decided(broker, TOPICS, undecided=(OPEN,))
    consumer = _consumer(broker, committed=False)
    heard = {}
    for topic in TOPICS:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=PATIENCE_S)
        heard[topic] = Heard(records[topic], committed[topic], low, high, _by_time(consumer, topic, records[topic]))
    consumer.close()
    return heard


def consume_decided(
    broker: Broker, topics: Sequence[str], *, undecided: Sequence[str]
) -> tuple[dict[str, list[Record]], dict[str, list[Record]]]:
    """All records and the committed ones, once every transaction is decided but in those topics: a producer hears of
    the end of its transaction before the markers are written."""
    records: dict[str, list[Record]] = {}
    committed: dict[str, list[Record]] = {}

    def all_decided() -> bool:
        nonlocal records, committed
        records, ends = consume(broker, topics, committed=False)
        committed, stable = consume(broker, topics, committed=True)
        return all(stable[topic] == ends[topic] for topic in topics if topic not in undecided)

    wait_until(all_decided, "the end of transactions", PATIENCE_S)
    return records, committed


def _by_time(consumer: Consumer, topic: str, records: Sequence[Record]) -> dict[int, int]:
    stamps = sorted({record.timestamp_ms for record in records})
    asked = [stamps[0] - 1, *stamps[:: max(len(stamps) // 12, 1)], stamps[-1], stamps[-1] + 1]
    return {
        stamp: consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, stamp)], timeout=PATIENCE_S)[
            0
        ].offset
        for stamp in asked
    }


def _consumer(broker: Broker, *, committed: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "listening",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 2,
        }
    )


def consume(
    broker: Broker, topics: Sequence[str], *, committed: bool
) -> tuple[dict[str, list[Record]], dict[str, int]]:
    """All records of each topic, and where it ended for this consumer."""
    consumer = _consumer(broker, committed=committed)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING) for topic in topics])
    records: dict[str, list[Record]] = {topic: [] for topic in topics}
    ends: dict[str, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(ends) < len(topics):
        if time.monotonic() > deadline:
            raise RuntimeError(f"a consumer came to the end of {sorted(ends)} only")
        message = consumer.poll(1.0)
        if message is None:
            continue
        topic, offset = message.topic() or "", message.offset()
        error = message.error()
        if error is None:
            records[topic].append(_record(message))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ends[topic] = -1 if offset is None else offset
        else:
            raise RuntimeError(str(error))
    consumer.close()
    return records, ends


def _record(message: confluent_kafka.Message) -> Record:
    offset = message.offset()
    headers: Any = message.headers() or []
    key, value = message.key(), message.value()
    return Record(
        offset=-1 if offset is None else offset,
        timestamp_ms=message.timestamp()[1],
        key=key.encode() if isinstance(key, str) else key,
        value=value.encode() if isinstance(value, str) else value,
        headers=tuple(map(tuple, headers)),
    )


def _wait_until_served(broker: Broker) -> None:
    """Until it leads all its partitions again."""
    consume(broker, TOPICS, committed=False)
