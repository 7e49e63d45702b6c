"""The options of `format("ottla")`: those of Spark's own connector, and some of ours."""

from __future__ import annotations

import re
from typing import Final

from ottla.base.config import ConfigKey, ConfigSchema, ValueType, at_least
from ottla.client.config_keys.rules import one_of_any_case
from ottla.spark.exactly_once.identifiers import is_name

_BOOLEAN, _INT, _LONG, _STRING = ValueType.BOOLEAN, ValueType.INT, ValueType.LONG, ValueType.STRING

_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def duration_ms(text: str) -> int:
    """Parses a duration in Spark's notation: 500ms, 30s, 15m, 2h; a plain number is in milliseconds."""
    match = re.fullmatch(r"(-?\d+)([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s or 15m")
    return int(int(match[1]) * _UNITS_MS[match[2]])


def _duration(text: str) -> str | None:
    """a time, as 500ms, 30s or 15m"""
    try:
        duration_ms(text)
    except ValueError as error:
        return str(error)
    return None


def _positive_or_off(value: int) -> str | None:
    """1 or more, or -1"""
    return None if value == -1 or value > 0 else f"{value} is neither positive nor -1"


def _sink_name(text: str) -> str | None:
    """1 to 100 letters, digits, dots, underscores and hyphens"""
    return None if is_name(text) else f"{text!r} is not 1 to 100 letters, digits, dots, underscores and hyphens"


READ_OPTIONS: Final = ConfigSchema(
    "read",
    [
        ConfigKey("subscribe", _STRING, None, "Comma-separated list of topics to read."),
        ConfigKey(
            "subscribePattern",
            _STRING,
            None,
            "Regular expression that matches a part of the names of the topics to read.",
        ),
        ConfigKey("assign", _STRING, None, 'Partitions to read, as JSON: {"topicA":[0,1],"topicB":[2]}.'),
        ConfigKey(
            "startingOffsets",
            _STRING,
            None,
            "Where to start: earliest (default of a batch query), latest (default of a streaming query, and "
            "only there), or offsets as JSON.",
        ),
        ConfigKey("endingOffsets", _STRING, None, "Where a batch query ends: latest (default), or offsets as JSON."),
        ConfigKey(
            "startingTimestamp",
            _LONG,
            None,
            "Start at the first record with this timestamp or a later one.",
            at_least(0),
        ),
        ConfigKey(
            "endingTimestamp",
            _LONG,
            None,
            "End a batch query before the first record with this timestamp or a later one.",
            at_least(0),
        ),
        ConfigKey("startingOffsetsByTimestamp", _STRING, None, "startingTimestamp per partition, as JSON."),
        ConfigKey("endingOffsetsByTimestamp", _STRING, None, "endingTimestamp per partition, as JSON."),
        ConfigKey(
            "startingOffsetsByTimestampStrategy",
            _STRING,
            "error",
            "What to do if no record is new enough to start at: fail, or start at the end.",
            one_of_any_case("error", "latest"),
        ),
        ConfigKey("failOnDataLoss", _BOOLEAN, True, "Whether to fail the query if records were lost."),
        ConfigKey("includeHeaders", _BOOLEAN, False, "Whether to include a column with the headers."),
        ConfigKey("minPartitions", _INT, None, "Minimum number of tasks; large partitions are split.", at_least(1)),
        ConfigKey("maxRecordsPerPartition", _LONG, None, "Maximum number of offsets that a task reads.", at_least(1)),
        ConfigKey("maxOffsetsPerTrigger", _LONG, None, "Maximum number of offsets in a micro-batch.", at_least(1)),
        ConfigKey(
            "minOffsetsPerTrigger", _LONG, None, "Minimum number of offsets that a micro-batch waits for.", at_least(1)
        ),
        ConfigKey(
            "maxTriggerDelay",
            _STRING,
            "15m",
            "Maximum time that a micro-batch waits for minOffsetsPerTrigger.",
            _duration,
        ),
        ConfigKey(
            "groupIdPrefix",
            _STRING,
            "spark-kafka-source",
            "Prefix of the consumer group that shows the progress of the query.",
        ),
        ConfigKey(
            "commitGroup",
            _STRING,
            None,
            "Full name of the consumer group that shows the progress of the query. Ottla only.",
        ),
        ConfigKey("commitOffsets", _BOOLEAN, True, "Whether to commit offsets to a consumer group. Ottla only."),
        ConfigKey("fetchOffset.numRetries", _INT, 3, "How often the driver retries fetching offsets.", at_least(1)),
        ConfigKey(
            "fetchOffset.retryIntervalMs", _LONG, 1000, "Wait between two attempts to fetch offsets.", at_least(0)
        ),
        ConfigKey("kafkaConsumer.pollTimeoutMs", _LONG, None, "How long a task waits for records.", at_least(1)),
        ConfigKey(
            "partition.metadata.cache.ttl.ms",
            _LONG,
            -1,
            "How long the driver caches the set of partitions; -1 disables the cache.",
            _positive_or_off,
        ),
    ],
)

WRITE_OPTIONS: Final = ConfigSchema(
    "write",
    [
        ConfigKey("topic", _STRING, None, "Topic for all rows; without it, the column topic sets it per row."),
        ConfigKey("includeHeaders", _BOOLEAN, False, "Without effect: headers are written if there is a column."),
        ConfigKey(
            "resultsPath",
            _STRING,
            None,
            "Directory for one file per micro-batch with the written offsets. Ottla only.",
        ),
        ConfigKey(
            "exactlyOnce",
            _BOOLEAN,
            False,
            "Whether to write every row exactly once, in transactions, for readers with read_committed. Ottla only.",
        ),
        ConfigKey(
            "exactlyOnceId",
            _STRING,
            None,
            "Name of a write in foreachBatch: different for each write in the function, the same in every batch. "
            "Ottla only.",
            _sink_name,
        ),
        ConfigKey(
            "exactlyOnceJob",
            _STRING,
            None,
            "Name of a batch job's write that takes effect only once, however often it is repeated. Ottla only.",
            _sink_name,
        ),
        ConfigKey(
            "commitTopic",
            _STRING,
            "__ottla_spark_commits",
            "Topic of the commit records of exactlyOnce; it is created. Ottla only.",
        ),
        ConfigKey(
            "transactionalIdPrefix",
            _STRING,
            "ottla-spark",
            "Prefix of the transactional ids of exactlyOnce, for ACLs. Ottla only.",
            _sink_name,
        ),
        ConfigKey(
            "failOnDataLoss",
            _BOOLEAN,
            True,
            "With exactlyOnce: whether to fail the query if transactions of a committed micro-batch timed out.",
        ),
    ],
)

SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "mode"})
"""Options that Spark adds itself, or allows next to the options of the source."""
