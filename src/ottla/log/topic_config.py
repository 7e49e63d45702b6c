"""The keys of a topic's config: Kafka 3.9's, with its defaults and rules."""

from __future__ import annotations

import re
from typing import Final

from ottla.base.config import ConfigKey, ConfigSchema, ValueType, at_least, between, each_of, one_of

_MAX_LONG: Final = 2**63 - 1
_DAY_MS: Final = 86_400_000
_WEEK_MS: Final = 7 * _DAY_MS
_REPLICA = re.compile(r"\d+:\d+")

_BOOLEAN, _INT, _LONG = ValueType.BOOLEAN, ValueType.INT, ValueType.LONG
_DOUBLE, _STRING, _LIST = ValueType.DOUBLE, ValueType.STRING, ValueType.LIST


def _gzip_level(value: int) -> str | None:
    """-1, or 1 to 9"""
    return None if value == -1 or 1 <= value <= 9 else f"{value} is neither -1 (the codec's choice) nor between 1 and 9"


def _replicas(values: tuple[str, ...]) -> str | None:
    """any of partition:broker, or *"""
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
