"""The keys of a broker's config that concern its logs: those of Kafka 3.9, with its defaults and rules.

Most are defaults for a topic's config; the rest say how the broker manages all its logs. The location of the logs
(`log.dirs`) is handled by the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.base.config import ConfigKey, ConfigSchema, ValueType, at_least
from ottla.log.topic_config import TOPIC_CONFIG

_HOUR_MS: Final = 3_600_000
_MAX_LONG: Final = 2**63 - 1
LARGEST_DOUBLE: Final = 1.7976931348623157e308
"""Java's largest double, which Kafka uses for "no limit"."""
_BOOLEAN, _INT, _LONG, _DOUBLE = ValueType.BOOLEAN, ValueType.INT, ValueType.LONG, ValueType.DOUBLE

BROKER_SCALED: Final = {
    # A topic's key: the broker's keys with the same meaning, the finest unit first, with their unit.
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}
BROKER_SYNONYMS: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.format.version": "log.message.format.version",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The broker's key that is the default of a topic's key, without those in another unit."""

_UPKEEP: Final = [
    ConfigKey(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "How long the log cleaner sleeps when there is nothing to clean.",
        at_least(0),
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 * 2**20,
        "Total memory for log deduplication, for all cleaner threads.",
    ),
    ConfigKey("log.cleaner.enable", _BOOLEAN, True, "Whether to enable the log cleaner (compaction)."),
    ConfigKey("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9, "How full the deduplication buffer may become."),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        _INT,
        512 * 2**10,
        "Total memory for log cleaner I/O, for all cleaner threads.",
        at_least(0),
    ),
    ConfigKey("log.cleaner.io.max.bytes.per.second", _DOUBLE, LARGEST_DOUBLE, "Maximum I/O rate of the log cleaner."),
    ConfigKey(
        "log.cleaner.threads",
        _INT,
        1,
        "Number of log cleaner threads.",
        at_least(0),
    ),
    ConfigKey("log.flush.interval.ms", _LONG, None, "Default of flush.ms for topics that do not set it."),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        60_000,
        "How often to checkpoint recovery points.",
        at_least(0),
    ),
    ConfigKey("log.flush.scheduler.interval.ms", _LONG, _MAX_LONG, "How often to check whether a log must be flushed."),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        60_000,
        "How often to checkpoint log start offsets.",
        at_least(0),
    ),
    ConfigKey(
        "log.initial.task.delay.ms",
        _LONG,
        30_000,
        "How long after the start this upkeep begins.",
        at_least(0),
    ),
    ConfigKey(
        "log.retention.check.interval.ms", _LONG, 300_000, "How often to check for segments to delete.", at_least(1)
    ),
    ConfigKey("log.retention.hours", _INT, 168, "Default of retention.ms for topics that do not set it."),
    ConfigKey("log.retention.minutes", _INT, None, "log.retention.hours in minutes; takes precedence over it."),
    ConfigKey(
        "log.retention.ms", _LONG, None, "log.retention.hours in milliseconds; takes precedence over hours and minutes."
    ),
    ConfigKey(
        "log.roll.hours",
        _INT,
        168,
        "Default of segment.ms for topics that do not set it.",
        at_least(1),
    ),
    ConfigKey(
        "log.roll.jitter.hours", _INT, 0, "Default of segment.jitter.ms for topics that do not set it.", at_least(0)
    ),
    ConfigKey("log.roll.jitter.ms", _LONG, None, "log.roll.jitter.hours in milliseconds; takes precedence over it."),
    ConfigKey("log.roll.ms", _LONG, None, "log.roll.hours in milliseconds; takes precedence over it."),
    ConfigKey(
        "num.recovery.threads.per.data.dir", _INT, 1, "Threads per log directory that load logs at start.", at_least(1)
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        _INT,
        600_000,
        "How often silent producers are looked for.",
        at_least(1),
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        _INT,
        86_400_000,
        "How long to keep the state of an inactive producer.",
        at_least(1),
    ),
]

LOG_BROKER_CONFIG: Final = ConfigSchema(
    "broker",
    [
        *_UPKEEP,
        *(
            replace(TOPIC_CONFIG[name], name=synonym, doc=f"Default of {name} for topics that do not set it.")
            for name, synonym in BROKER_SYNONYMS.items()
        ),
    ],
)


def topic_defaults(broker: Mapping[str, str]) -> dict[str, str]:
    """Converts a broker's config to a topic's keys. Ignores keys that do not concern logs; an error for a wrong value
    uses the broker's key."""
    found = {}
    for key, synonym in BROKER_SYNONYMS.items():
        if synonym in broker:
            LOG_BROKER_CONFIG[synonym].parse(broker[synonym])
            found[key] = broker[synonym]
    for key, synonyms in BROKER_SCALED.items():
        for synonym, unit_ms in reversed(synonyms):  # the finest unit comes last, and wins
            if synonym in broker:
                value: int = LOG_BROKER_CONFIG[synonym].parse(broker[synonym])
                if value < 0 and key == "retention.ms":
                    value = -1  # for a broker any negative time means no limit, for a topic only -1
                found[key] = str(value * unit_ms if value > 0 else value)
    return found
