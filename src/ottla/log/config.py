"""What a topic's config means to its log. Kafka 3.9's keys, defaults and rules.

A topic's own setting comes first, then the broker's setting of the same meaning (`log.retention.hours` for
`retention.ms`), then the default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.base.config import ConfigError, ConfigKey, ConfigSchema, ConfigType, at_least, between, each_of, one_of
from ottla.records import Compression, TimestampType

_MAX_INT: Final = 2**31 - 1
_MAX_LONG: Final = 2**63 - 1
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_WEEK_MS: Final = 7 * _DAY_MS

_REPLICA = re.compile(r"\d+:\d+")

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_DOUBLE, _STRING, _LIST = ConfigType.DOUBLE, ConfigType.STRING, ConfigType.LIST


def _gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else f"{value} is neither -1 (the codec's choice) nor between 1 and 9"


def _replicas(values: tuple[str, ...]) -> str | None:
    if not values or values == ("*",) or all(_REPLICA.fullmatch(value) for value in values):
        return None
    return f"{','.join(values)!r} is neither a list of partition:broker pairs nor *"


TOPIC_CONFIG: Final = ConfigSchema(
    "topic",
    [
        ConfigKey(
            "cleanup.policy",
            _LIST,
            ("delete",),
            "Delete old segments, compact by key, or both.",
            each_of("compact", "delete"),
        ),
        ConfigKey(
            "compression.type",
            _STRING,
            "producer",
            "The codec that batches are kept in; `producer` keeps the one they came with.",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        ConfigKey("compression.gzip.level", _INT, -1, "How hard gzip tries, where the broker compresses.", _gzip_level),
        ConfigKey("compression.lz4.level", _INT, 9, "How hard lz4 tries, where the broker compresses.", between(1, 17)),
        ConfigKey(
            "compression.zstd.level", _INT, 3, "How hard zstd tries, where the broker compresses.", between(-131072, 22)
        ),
        ConfigKey("delete.retention.ms", _LONG, _DAY_MS, "How long a compacted topic keeps a tombstone.", at_least(0)),
        ConfigKey(
            "file.delete.delay.ms", _LONG, 60_000, "How long a deleted segment's files stay, renamed.", at_least(0)
        ),
        ConfigKey("flush.messages", _LONG, _MAX_LONG, "Sync to disk after this many records.", at_least(1)),
        ConfigKey("flush.ms", _LONG, _MAX_LONG, "Sync to disk when records have waited this long.", at_least(0)),
        ConfigKey(
            "follower.replication.throttled.replicas",
            _LIST,
            (),
            "Replicas whose fetching is slowed, as partition:broker pairs, or *.",
            _replicas,
        ),
        ConfigKey(
            "index.interval.bytes", _INT, 4096, "About how many bytes lie between two entries of an index.", at_least(0)
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            _LIST,
            (),
            "Replicas whose serving is slowed, as partition:broker pairs, or *.",
            _replicas,
        ),
        ConfigKey(
            "local.retention.bytes",
            _LONG,
            -2,
            "Bytes kept here when older segments are in remote storage; -2 means retention.bytes.",
            at_least(-2),
        ),
        ConfigKey(
            "local.retention.ms",
            _LONG,
            -2,
            "Time kept here when older segments are in remote storage; -2 means retention.ms.",
            at_least(-2),
        ),
        ConfigKey("max.compaction.lag.ms", _LONG, _MAX_LONG, "The longest a record stays uncompacted.", at_least(1)),
        ConfigKey(
            "max.message.bytes", _INT, 1_048_588, "The largest batch that is accepted, as it was sent.", at_least(0)
        ),
        ConfigKey(
            "message.downconversion.enable",
            _BOOLEAN,
            True,
            "Whether old consumers are served by converting batches down.",
        ),
        ConfigKey(
            "message.format.version",
            _STRING,
            "3.0-IV1",
            "Accepted and without effect: batches are kept in the newest format.",
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            _LONG,
            _MAX_LONG,
            "How far in the future a record's timestamp may be.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            _LONG,
            _MAX_LONG,
            "How far in the past a record's timestamp may be.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.difference.max.ms",
            _LONG,
            _MAX_LONG,
            "How far from now a record's timestamp may be; the two keys for before and after replace it.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "Whose clock timestamps a record: the producer's, or the broker's on append.",
            one_of("CreateTime", "LogAppendTime"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            0.5,
            "The share of uncompacted bytes at which a log is compacted.",
            between(0, 1),
        ),
        ConfigKey("min.compaction.lag.ms", _LONG, 0, "The shortest a record stays uncompacted.", at_least(0)),
        ConfigKey("min.insync.replicas", _INT, 1, "In-sync replicas without which acks=all is refused.", at_least(1)),
        ConfigKey("preallocate", _BOOLEAN, False, "Whether a new segment's file gets its full size at once."),
        ConfigKey(
            "remote.log.copy.disable", _BOOLEAN, False, "Whether copying to remote storage has ended for the topic."
        ),
        ConfigKey(
            "remote.log.delete.on.disable",
            _BOOLEAN,
            False,
            "Whether remote data goes when remote storage is switched off.",
        ),
        ConfigKey("remote.storage.enable", _BOOLEAN, False, "Whether old segments go to remote storage."),
        ConfigKey(
            "retention.bytes",
            _LONG,
            -1,
            "Bytes of a partition beyond which the oldest segments are deleted; -1 for no limit.",
        ),
        ConfigKey("retention.ms", _LONG, _WEEK_MS, "Age at which segments are deleted; -1 for never.", at_least(-1)),
        ConfigKey("segment.bytes", _INT, 2**30, "The size of a segment.", at_least(14)),
        ConfigKey("segment.index.bytes", _INT, 10 * 2**20, "The size of an index.", at_least(4)),
        ConfigKey(
            "segment.jitter.ms",
            _LONG,
            0,
            "Up to this much is taken off segment.ms at random, so that segments do not all roll at once.",
            at_least(0),
        ),
        ConfigKey(
            "segment.ms",
            _LONG,
            _WEEK_MS,
            "The time after which a segment is closed even if it is not full.",
            at_least(1),
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            _BOOLEAN,
            False,
            "Whether a replica out of sync may lead when no other is left, at the price of records.",
        ),
    ],
)

BROKER_SCALED: Final = {
    # A topic's key: the broker's keys of the same meaning, the finest unit first, with their unit.
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
"""The broker's key that stands in for a topic's; those in another unit aside."""

_COMPRESSIONS: Final = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_LEVEL_KEYS: Final = {
    Compression.GZIP: "compression.gzip.level",
    Compression.LZ4: "compression.lz4.level",
    Compression.ZSTD: "compression.zstd.level",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A topic's config, as its log reads it."""

    compacts: bool = False
    deletes: bool = True
    compression: Compression | None = None
    """The codec to keep batches in; None for the one they came with."""
    compression_level: int | None = None
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _MAX_LONG
    flush_ms: int = _MAX_LONG
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = _MAX_LONG
    max_message_bytes: int = 1_048_588
    timestamp_after_max_ms: int = _MAX_LONG
    timestamp_before_max_ms: int = _MAX_LONG
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    segment_bytes: int = 2**30
    segment_index_bytes: int = 10 * 2**20
    segment_jitter_ms: int = 0
    segment_ms: int = _WEEK_MS
    unclean_leader_election: bool = False

    @classmethod
    def from_properties(cls, topic: Mapping[str, str], broker: Mapping[str, str] | None = None) -> LogConfig:
        """From a topic's own settings and its broker's; a wrong key or value raises `ConfigError`."""
        values = TOPIC_CONFIG.parse({**_from_broker(broker or {}), **topic})
        _check_together(values)
        compression = _COMPRESSIONS[values["compression.type"]]
        level_key = _LEVEL_KEYS.get(compression) if compression is not None else None
        level = values[level_key] if level_key and values[level_key] != TOPIC_CONFIG[level_key].default else None
        difference_ms = values["message.timestamp.difference.max.ms"]
        return cls(
            compacts="compact" in values["cleanup.policy"],
            deletes="delete" in values["cleanup.policy"],
            compression=compression,
            compression_level=level,
            delete_retention_ms=values["delete.retention.ms"],
            file_delete_delay_ms=values["file.delete.delay.ms"],
            flush_messages=values["flush.messages"],
            flush_ms=values["flush.ms"],
            index_interval_bytes=values["index.interval.bytes"],
            max_compaction_lag_ms=values["max.compaction.lag.ms"],
            max_message_bytes=values["max.message.bytes"],
            timestamp_after_max_ms=_either(values["message.timestamp.after.max.ms"], difference_ms),
            timestamp_before_max_ms=_either(values["message.timestamp.before.max.ms"], difference_ms),
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME
                if values["message.timestamp.type"] == "LogAppendTime"
                else TimestampType.CREATE_TIME
            ),
            min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
            min_compaction_lag_ms=values["min.compaction.lag.ms"],
            min_insync_replicas=values["min.insync.replicas"],
            preallocate=values["preallocate"],
            retention_bytes=values["retention.bytes"],
            retention_ms=values["retention.ms"],
            segment_bytes=values["segment.bytes"],
            segment_index_bytes=values["segment.index.bytes"],
            segment_jitter_ms=values["segment.jitter.ms"],
            segment_ms=values["segment.ms"],
            unclean_leader_election=values["unclean.leader.election.enable"],
        )


def _either(limit_ms: int, older_limit_ms: int) -> int:
    """The new key where it is set, else the one that it replaces."""
    return limit_ms if limit_ms != _MAX_LONG else older_limit_ms


def _from_broker(broker: Mapping[str, str]) -> dict[str, str]:
    """What a broker's settings say in a topic's keys."""
    found = {key: broker[synonym] for key, synonym in BROKER_SYNONYMS.items() if synonym in broker}
    for key, synonyms in BROKER_SCALED.items():
        for synonym, unit_ms in synonyms:
            if synonym in broker:
                found[key] = _scaled(synonym, broker[synonym], unit_ms)
                break
    return found


def _scaled(name: str, text: str, unit_ms: int) -> str:
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(name, f"{text!r} is no whole number") from None
    return str(value * unit_ms if value > 0 else value)


def _check_together(values: Mapping[str, Any]) -> None:
    """Rules between keys."""
    pairs: list[tuple[str, str, Callable[[int, int], bool]]] = [
        ("min.compaction.lag.ms", "max.compaction.lag.ms", lambda low, high: low <= high),
    ]
    for low_key, high_key, rule in pairs:
        if not rule(values[low_key], values[high_key]):
            raise ConfigError(low_key, f"{values[low_key]} is more than {high_key}, which is {values[high_key]}")
