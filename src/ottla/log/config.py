"""What a topic's config means to its log.

A topic's own value comes first, then the broker's value of the same meaning (`log.retention.hours` for `retention.ms`),
then the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.config import ConfigError
from ottla.log.broker_config import topic_defaults
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.records import Compression, TimestampType

_MAX_LONG: Final = 2**63 - 1
_DAY_MS: Final = 86_400_000
_WEEK_MS: Final = 7 * _DAY_MS

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
    """A topic's config in the form that its log uses."""

    takes_plain_as_sent: bool = field(init=False, default=True)
    """Whether a valid, uncompressed batch is kept as it is, and only its offset and epoch are set."""
    takes_any_plain: bool = field(init=False, default=True)
    """Whether, in addition, no well-formed record is refused, and no append asks for a flush."""
    roll_ms: int = field(init=False, default=_WEEK_MS)
    """The time that a segment may span: `segment.ms`, or, for a compacted topic, `max.compaction.lag.ms` if that is
    less, because only closed segments can be compacted (KIP-354)."""
    limits_records: bool = field(init=False, default=False)
    """Whether a well-formed record can be refused: for its key or its timestamp."""
    compacts: bool = False
    deletes: bool = True
    compression: Compression | None = None
    """The codec in which batches are stored; None to keep the producer's."""
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
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    segment_bytes: int = 2**30
    segment_index_bytes: int = 10 * 2**20
    segment_jitter_ms: int = 0
    segment_ms: int = _WEEK_MS

    def __post_init__(self) -> None:
        is_plain = self.compression in (None, Compression.NONE) and self.timestamp_type is TimestampType.CREATE_TIME
        object.__setattr__(self, "takes_plain_as_sent", is_plain)
        limits_time = min(self.timestamp_after_max_ms, self.timestamp_before_max_ms) != _MAX_LONG
        object.__setattr__(self, "limits_records", self.compacts or limits_time)
        takes_any = is_plain and not self.limits_records and self.flush_messages == _MAX_LONG
        object.__setattr__(self, "takes_any_plain", takes_any)
        has_lag = self.compacts and self.max_compaction_lag_ms > 0
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if has_lag else self.segment_ms
        object.__setattr__(self, "roll_ms", roll_ms)

    @classmethod
    def from_properties(cls, topic: Mapping[str, str], broker: Mapping[str, str] | None = None) -> LogConfig:
        """Combines a topic's config with its broker's; a wrong key or value raises `ConfigError`."""
        values = TOPIC_CONFIG.parse({**topic_defaults(broker or {}), **topic})
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
            retention_bytes=values["retention.bytes"],
            retention_ms=values["retention.ms"],
            segment_bytes=values["segment.bytes"],
            segment_index_bytes=values["segment.index.bytes"],
            segment_jitter_ms=values["segment.jitter.ms"],
            segment_ms=values["segment.ms"],
        )


def _either(limit_ms: int, older_limit_ms: int) -> int:
    """The new key if it is set, otherwise the one that it replaces."""
    return limit_ms if limit_ms != _MAX_LONG else older_limit_ms


def _check_together(values: Mapping[str, Any]) -> None:
    """Rules between keys."""
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        raise ConfigError("min.compaction.lag.ms", f"{low} is more than max.compaction.lag.ms, which is {high}")
