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
            "Codec of stored batches; `producer` keeps the codec of the producer.",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        ConfigKey(
            "compression.gzip.level", _INT, -1, "Compression level of gzip, if the broker compresses.", _gzip_level
        ),
        ConfigKey(
            "compression.lz4.level", _INT, 9, "Compression level of lz4, if the broker compresses.", between(1, 17)
        ),
        ConfigKey(
            "compression.zstd.level",
            _INT,
            3,
            "Compression level of zstd, if the broker compresses.",
            between(-131072, 22),
        ),
        ConfigKey(
            "delete.retention.ms", _LONG, _DAY_MS, "How long to keep tombstones in a compacted topic.", at_least(0)
        ),
        ConfigKey(
            "file.delete.delay.ms",
            _LONG,
            60_000,
            "How long to keep the files of a deleted segment before removing them from disk.",
            at_least(0),
        ),
        ConfigKey("flush.messages", _LONG, _MAX_LONG, "Flush to disk (fsync) after this many records.", at_least(1)),
        ConfigKey("flush.ms", _LONG, _MAX_LONG, "Flush to disk (fsync) after this time.", at_least(0)),
        ConfigKey(
            "follower.replication.throttled.replicas",
            _LIST,
            (),
            "Replicas throttled on the follower side, as partition:broker pairs, or *.",
            _replicas,
        ),
        ConfigKey(
            "index.interval.bytes", _INT, 4096, "Approximate number of bytes between two index entries.", at_least(0)
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            _LIST,
            (),
            "Replicas throttled on the leader side, as partition:broker pairs, or *.",
            _replicas,
        ),
        ConfigKey(
            "local.retention.bytes",
            _LONG,
            -2,
            "Bytes kept locally if older segments are in remote storage; -2 means retention.bytes.",
            at_least(-2),
        ),
        ConfigKey(
            "local.retention.ms",
            _LONG,
            -2,
            "Time kept locally if older segments are in remote storage; -2 means retention.ms.",
            at_least(-2),
        ),
        ConfigKey("max.compaction.lag.ms", _LONG, _MAX_LONG, "Maximum time a record remains uncompacted.", at_least(1)),
        ConfigKey(
            "max.message.bytes",
            _INT,
            1_048_588,
            "Maximum size of a record batch, as sent (after compression).",
            at_least(0),
        ),
        ConfigKey(
            "message.downconversion.enable",
            _BOOLEAN,
            True,
            "Whether to convert batches down for old consumers.",
        ),
        ConfigKey(
            "message.format.version",
            _STRING,
            "3.0-IV1",
            "Accepted and ignored: batches are stored in the newest format.",
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            _LONG,
            _MAX_LONG,
            "How far in the future the timestamp of a record may be.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            _LONG,
            _MAX_LONG,
            "How far in the past the timestamp of a record may be.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.difference.max.ms",
            _LONG,
            _MAX_LONG,
            "How far from the current time the timestamp of a record may be; replaced by the configs for before "
            "and after.",
            at_least(0),
        ),
        ConfigKey(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "Whether the timestamp of a record is its creation time (set by the producer) or its log append time.",
            one_of("CreateTime", "LogAppendTime"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            0.5,
            "Ratio of uncompacted bytes at which a log is compacted.",
            between(0, 1),
        ),
        ConfigKey("min.compaction.lag.ms", _LONG, 0, "Minimum time a record remains uncompacted.", at_least(0)),
        ConfigKey(
            "min.insync.replicas",
            _INT,
            1,
            "Minimum number of in-sync replicas that a write with acks=all needs.",
            at_least(1),
        ),
        ConfigKey("preallocate", _BOOLEAN, False, "Whether to preallocate the file of a new segment."),
        ConfigKey(
            "remote.log.copy.disable", _BOOLEAN, False, "Whether copying to remote storage is disabled for the topic."
        ),
        ConfigKey(
            "remote.log.delete.on.disable",
            _BOOLEAN,
            False,
            "Whether to delete remote data when remote storage is disabled.",
        ),
        ConfigKey("remote.storage.enable", _BOOLEAN, False, "Whether to move old segments to remote storage."),
        ConfigKey(
            "retention.bytes",
            _LONG,
            -1,
            "Size of a partition at which the oldest segments are deleted; -1 means no limit.",
        ),
        ConfigKey("retention.ms", _LONG, _WEEK_MS, "Age at which segments are deleted; -1 means never.", at_least(-1)),
        ConfigKey("segment.bytes", _INT, 2**30, "Size of a segment.", at_least(14)),
        ConfigKey("segment.index.bytes", _INT, 10 * 2**20, "Size of an index.", at_least(4)),
        ConfigKey(
            "segment.jitter.ms",
            _LONG,
            0,
            "Maximum random time subtracted from segment.ms, so that segments do not all roll at once.",
            at_least(0),
        ),
        ConfigKey(
            "segment.ms",
            _LONG,
            _WEEK_MS,
            "Time after which a segment is rolled even if it is not full.",
            at_least(1),
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            _BOOLEAN,
            False,
            "Whether an out-of-sync replica can become leader as a last resort, even though records may be lost.",
        ),
    ],
)
