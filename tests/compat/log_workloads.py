"""What our logs are filled with before Kafka looks at them: codecs, producers, transactions, cuts, broker time.

Small segments and a short index interval, so that a few hundred records make many segments and many index entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compat.log_writing import Appended, Producer, Writer
from ottla.base.clock import Clock
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.log.directories import LogDirectories
from ottla.records import Compression

SETTINGS = {"segment.bytes": "9000", "index.interval.bytes": "300"}
FIRST_PRODUCER_ID = 5000
"""Far from the ids that a new cluster gives its own producers."""

LOG_START = 137
"""Where the log begins whose first records were deleted."""

COMPACTED = "ours.compacted"


@dataclass(frozen=True, slots=True)
class Workload:
    """One topic of one partition: Kafka's settings for it, and who fills it."""

    topic: str
    write: Callable[[Writer], None]
    more_settings: tuple[tuple[str, str], ...] = ()

    @property
    def settings(self) -> Mapping[str, str]:
        return {**SETTINGS, **dict(self.more_settings)}

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def config(self) -> LogConfig:
        return LogConfig.from_properties(self.settings)


def _plain(codec: Compression) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        for number in range(120):
            writer.append(writer.some_records(1 + number % 6, 320), codec=codec)

    return write


def _every_codec(writer: Writer) -> None:
    """One log with batches of all codecs; some of several kilobytes, larger than the index interval."""
    for number in range(60):
        count = 40 if number % 12 == 7 else 3
        writer.append(writer.some_records(count, 160), codec=Compression(number % 5))


def _idempotent(writer: Writer) -> None:
    producers = [Producer(FIRST_PRODUCER_ID + number) for number in range(3)]
    for number in range(150):
        if number == 80:
            producers[0] = Producer(FIRST_PRODUCER_ID, epoch=1)
        writer.append(writer.some_records(1 + number % 4, 200), producer=producers[number * number % 3])


def _transactions(writer: Writer) -> None:
    """Transactions that overlap, some over several segments, a third of them aborted; the last one stays open."""
    producers = [Producer(FIRST_PRODUCER_ID + 10 + number) for number in range(4)]
    open_since: dict[int, int] = {}
    for number in range(200):
        producer = producers[(number * 5 + number // 3) % 3]
        started = open_since.setdefault(producer.producer_id, number)
        codec = Compression.LZ4 if number % 4 == 1 else Compression.NONE
        writer.append(writer.some_records(2, 160), producer=producer, transactional=True, codec=codec)
        if number - started > 3 + number % 17:
            writer.end_transaction(producer, commit=number % 5 > 1, coordinator_epoch=number // 90)
            del open_since[producer.producer_id]
        if number % 10 == 9:
            writer.append(writer.some_records(2))
    for producer in producers[:3]:
        if producer.producer_id in open_since:
            writer.end_transaction(producer, commit=False, coordinator_epoch=3)
    writer.append(writer.some_records(3), producer=producers[3], transactional=True)
    writer.append(writer.some_records(3))


def _truncated(writer: Writer) -> None:
    """Cut back over several segments, twice, and written again by leaders of higher epochs."""
    producer = Producer(FIRST_PRODUCER_ID + 20)
    for leader_epoch, cut in ((0, 40), (1, 55), (2, None)):
        writer.new_leader(leader_epoch)
        for _ in range(90):
            writer.append(writer.some_records(2, 200), producer=producer)
        if cut is not None:
            last = writer.batches[cut - 1]
            writer.truncate_to(writer.batches[cut].first_offset)
            producer.next_sequence = last.base_sequence + len(last.records)


def _log_start_moved(writer: Writer) -> None:
    _plain(Compression.NONE)(writer)
    writer.log.advance_log_start(LOG_START)


def _recompressed(writer: Writer) -> None:
    for number in range(60):
        writer.append(writer.some_records(5, 320), codec=Compression(number % 5))


def _compacted(writer: Writer) -> None:
    """Plain records and transactions of few keys, compacted, and then some more."""
    producer = Producer(FIRST_PRODUCER_ID + 30)
    for number in range(120):
        codec = Compression(number % 5)
        if number % 3:
            writer.append(writer.some_records(1 + number % 4, 200, keyed=True), codec=codec)
        else:
            records = writer.some_records(3, 200, keyed=True)
            writer.append(records, codec=codec, producer=producer, transactional=True)
            writer.end_transaction(producer, commit=number % 4 != 1)
    writer.compact()
    for _ in range(30):
        writer.append(writer.some_records(3, 200, keyed=True))


WORKLOADS = (
    *(Workload(f"ours.{codec.name.lower()}", _plain(codec)) for codec in Compression),
    Workload("ours.every-codec", _every_codec),
    Workload("ours.idempotent", _idempotent),
    Workload("ours.transactions", _transactions),
    Workload("ours.truncated", _truncated),
    Workload("ours.log-start-moved", _log_start_moved),
    Workload("ours.append-time", _plain(Compression.NONE), (("message.timestamp.type", "LogAppendTime"),)),
    Workload("ours.append-time-gzip", _plain(Compression.GZIP), (("message.timestamp.type", "LogAppendTime"),)),
    Workload("ours.recompressed", _recompressed, (("compression.type", "zstd"),)),
    Workload(COMPACTED, _compacted, (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.99"))),
    Workload("ours.empty", lambda _: None),
)


_CONFIGS = {workload.partition: workload.config for workload in WORKLOADS}


def config_of(partition: TopicPartition) -> LogConfig:
    """For other topics, those of Kafka itself, what Kafka sets for them does not matter here."""
    return _CONFIGS.get(partition, LogConfig(compacts=True, deletes=False))


def write_all(
    directories: LogDirectories, clock: Clock, topic_ids: Mapping[str, Uuid], *, one_leader: bool = False
) -> dict[str, list[Appended]]:
    """Writes each workload into open directories; what is in each topic then. With `one_leader` all in epoch 0."""
    accounts = {}
    for workload in WORKLOADS:
        log = directories.create(workload.partition, workload.config, topic_id=topic_ids.get(workload.topic))
        writer = Writer(log, clock, one_leader=one_leader)
        workload.write(writer)
        accounts[workload.topic] = writer.batches
    return accounts
