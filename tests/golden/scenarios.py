"""What is written for the golden record batches: fixed records, and which writer writes them how.

Only inputs stand here. What is expected of a reader follows from them and from the offsets and timestamps that the
broker acknowledged, never from a decoder of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_CODECS = CODECS[:4]
START_MS = 1_700_000_000_000
NO_TIMESTAMP_MS = -1

JAVA_39 = "java-3.9.1"
JAVA_43 = "java-4.3.1"
LIBRDKAFKA = "librdkafka"
KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka"


@dataclass(frozen=True, slots=True)
class Given:
    """A record as it is handed to a producer."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    """Records that leave in one batch; `end` is how the transaction around them ends, if there is one."""

    records: tuple[Given, ...]
    end: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One topic written by one writer, and what its log has to hold then."""

    name: str
    writer: str
    batches: tuple[Sent, ...]
    codec: str = "none"
    idempotent: bool = False
    transactional: bool = False
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    magic: int = 2

    @property
    def topic(self) -> str:
        return f"golden.{self.name}"

    @property
    def broker_sets_time(self) -> bool:
        return self.topic_settings.get("message.timestamp.type") == "LogAppendTime"


_PLAIN = Sent(
    (
        Given(START_MS, b"key-0", b"the same words, the same words, the same words, the same words"),
        Given(START_MS + 1, None, b"a value without a key, a value without a key"),
        Given(
            START_MS + 2,
            b"key-2",
            None,
            (("trace", b"first"), ("trace", b"\x00\xff"), ("empty", b""), ("none", None), ("", b"nameless")),
        ),
        Given(START_MS - 3_600_000, b"", b"", (("only", b"header"),)),
        Given(START_MS + 86_400_000, "klíč".encode(), b"\x00\x7f\x80\xff, over and over and over and over"),
    )
)
_SECOND = Sent(
    (
        Given(START_MS + 100, b"key-5", b"a second batch, a second batch, a second batch"),
        Given(START_MS + 100, b"key-6", b"a second batch, a second batch, a second batch"),
    )
)
_TWO_BATCHES = (_PLAIN, _SECOND)
_TRANSACTIONS = (
    Sent((Given(START_MS, b"key-0", b"committed"), Given(START_MS + 1, b"key-1", b"committed too")), "commit"),
    Sent((Given(START_MS + 2, b"key-0", b"never happened"),), "abort"),
)


def _without_headers(batches: tuple[Sent, ...]) -> tuple[Sent, ...]:
    """Message sets of magic 0 and 1 hold no headers."""
    return tuple(replace(sent, records=tuple(replace(given, headers=()) for given in sent.records)) for sent in batches)


def _without_null_headers(batches: tuple[Sent, ...]) -> tuple[Sent, ...]:
    """kafka-python refuses a header without a value."""
    return tuple(
        Sent(
            tuple(
                replace(given, headers=tuple(header for header in given.headers if header[1] is not None))
                for given in sent.records
            )
        )
        for sent in batches
    )


def _of_writer(writer: str) -> list[Scenario]:
    batches = _without_null_headers(_TWO_BATCHES) if writer == KAFKA_PYTHON else _TWO_BATCHES
    scenarios = [Scenario(f"{writer}.{codec}", writer, batches, codec) for codec in CODECS]
    scenarios.append(Scenario(f"{writer}.idempotent", writer, batches, idempotent=True))
    scenarios.append(Scenario(f"{writer}.transactions", writer, _TRANSACTIONS, idempotent=True, transactional=True))
    if writer in (JAVA_39, JAVA_43):
        append_time = {"message.timestamp.type": "LogAppendTime"}
        scenarios.extend(
            Scenario(f"{writer}.append-time.{codec}", writer, _TWO_BATCHES, codec, topic_settings=append_time)
            for codec in ("none", "lz4")
        )
        scenarios.extend(
            Scenario(f"{writer}.broker-{codec}", writer, _TWO_BATCHES, topic_settings={"compression.type": codec})
            for codec in CODECS[1:]
        )
    return scenarios


def for_kraft() -> list[Scenario]:
    """Written to a 4.3.1 broker."""
    return [scenario for writer in (JAVA_43, LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA) for scenario in _of_writer(writer)]


def for_zookeeper_mode() -> list[Scenario]:
    """Written to a 3.9.1 broker."""
    return _of_writer(JAVA_39)


def message_sets() -> list[Scenario]:
    """Written to a 3.9.1 broker that is told to keep an old format, as one in the middle of an upgrade is."""
    batches = _without_headers(_TWO_BATCHES)
    scenarios: list[Scenario] = []
    for magic, version, writers in (
        (0, "0.9.0", (JAVA_39, LIBRDKAFKA, KAFKA_PYTHON)),
        (1, "0.10.2", (JAVA_39, KAFKA_PYTHON)),
    ):
        old = {"message.format.version": version}
        scenarios.extend(
            Scenario(f"{writer}.v{magic}.{codec}", writer, batches, codec, topic_settings=old, magic=magic)
            for writer in writers
            for codec in OLD_CODECS
        )
    append_time = {"message.format.version": "0.10.2", "message.timestamp.type": "LogAppendTime"}
    scenarios.extend(
        Scenario(f"{JAVA_39}.v1.append-time.{codec}", JAVA_39, batches, codec, topic_settings=append_time, magic=1)
        for codec in ("none", "gzip")
    )
    return scenarios


@dataclass(frozen=True, slots=True)
class Compaction:
    """Scenarios written to one topic one after the other, each by a new producer, for the log cleaner to compact."""

    name: str
    steps: tuple[Scenario, ...]

    @property
    def survivors(self) -> list[tuple[int, Given]]:
        """The last record of each key in the closed segment, with its offset.

        The last step goes to the active segment, which the cleaner looks into for newer keys but never rewrites.
        """
        closed = [given for step in self.steps[:-1] for sent in step.batches for given in sent.records]
        last = {given.key: offset for offset, given in enumerate(closed)}
        return [(offset, given) for offset, given in enumerate(closed) if last[given.key] == offset]


def compactions() -> list[Compaction]:
    """Left behind: gaps in a batch, an empty batch that keeps a producer's sequence, a tombstone and its horizon."""
    header = (("kept", b"header"),)
    first = Sent(
        (
            Given(START_MS, b"a", b"stays"),
            Given(START_MS + 1, b"b", b"goes"),
            Given(START_MS + 2, b"c", b"stays", header),
            Given(START_MS + 3, b"d", b"goes"),
        )
    )
    emptied = Sent((Given(START_MS + 4, b"e", b"goes"),))
    last = Sent(
        (
            Given(START_MS + 5, b"b", b"newer"),
            Given(START_MS + 6, b"d", None),
            Given(START_MS + 7, b"e", b"newer"),
        )
    )
    rolls = Sent((Given(START_MS + 3_600_000, b"z", b"in the next segment"),))
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.0",
        "segment.ms": "60000",
        "min.compaction.lag.ms": "0",
    }
    return [
        Compaction(
            f"compacted.{codec}",
            tuple(
                Scenario(f"compacted.{codec}", JAVA_39, (sent,), codec, idempotent=True, topic_settings=settings)
                for sent in (first, emptied, last, rolls)
            ),
        )
        for codec in ("none", "zstd")
    ]
