"""The options of `format("ottla")`: those of Spark's own connector, and a few of ours."""

from __future__ import annotations

import re
from typing import Final

from ottla.base.config import ConfigKey, ConfigSchema, ValueType, at_least
from ottla.client.config_keys.rules import one_of_any_case

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
    """Spark's way to write a time: 500ms, 30s, 15m, 2h; a number alone is milliseconds."""
    match = re.fullmatch(r"(-?\d+)([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError(f"{text!r} is not a time: write, for instance, 500ms, 30s or 15m")
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
    return None if value == -1 or value > 0 else f"{value} is neither more than 0 nor -1"


READ_OPTIONS: Final = ConfigSchema(
    "read",
    [
        ConfigKey("subscribe", _STRING, None, "Topics to read, with commas between them."),
        ConfigKey("subscribePattern", _STRING, None, "A regular expression that the names of topics to read contain."),
        ConfigKey("assign", _STRING, None, 'Partitions to read, as {"topicA":[0,1],"topicB":[2]}.'),
        ConfigKey(
            "startingOffsets",
            _STRING,
            None,
            "Where to begin: earliest (default of a batch), latest (of a stream, and only there), or offsets as JSON.",
        ),
        ConfigKey("endingOffsets", _STRING, None, "Where a batch ends: latest (default), or offsets as JSON."),
        ConfigKey("startingTimestamp", _LONG, None, "Begin with the first record that is not older.", at_least(0)),
        ConfigKey("endingTimestamp", _LONG, None, "End a batch before the first that is not older.", at_least(0)),
        ConfigKey("startingOffsetsByTimestamp", _STRING, None, "As startingTimestamp, for each partition, as JSON."),
        ConfigKey("endingOffsetsByTimestamp", _STRING, None, "As endingTimestamp, for each partition, as JSON."),
        ConfigKey(
            "startingOffsetsByTimestampStrategy",
            _STRING,
            "error",
            "What to do where no record is new enough to begin with: fail, or begin at the end.",
            one_of_any_case("error", "latest"),
        ),
        ConfigKey("failOnDataLoss", _BOOLEAN, True, "Whether records that are gone fail the query."),
        ConfigKey("includeHeaders", _BOOLEAN, False, "Whether there is a column with the records' headers."),
        ConfigKey("minPartitions", _INT, None, "Large partitions are split for so many tasks.", at_least(1)),
        ConfigKey("maxRecordsPerPartition", _LONG, None, "No task reads more offsets than this.", at_least(1)),
        ConfigKey("maxOffsetsPerTrigger", _LONG, None, "How many offsets a micro-batch reads at most.", at_least(1)),
        ConfigKey("minOffsetsPerTrigger", _LONG, None, "A micro-batch waits for so many offsets.", at_least(1)),
        ConfigKey("maxTriggerDelay", _STRING, "15m", "How long it waits for those at most.", _duration),
        ConfigKey(
            "groupIdPrefix", _STRING, "spark-kafka-source", "How the name of the group begins that shows progress."
        ),
        ConfigKey("commitGroup", _STRING, None, "The whole name of the group that shows progress. Ottla's own."),
        ConfigKey("commitOffsets", _BOOLEAN, True, "Whether a group shows progress at all. Ottla's own."),
        ConfigKey("fetchOffset.numRetries", _INT, 3, "How often the driver asks for offsets.", at_least(1)),
        ConfigKey("fetchOffset.retryIntervalMs", _LONG, 1000, "How long it waits in between.", at_least(0)),
        ConfigKey("kafkaConsumer.pollTimeoutMs", _LONG, None, "How long a task waits for records.", at_least(1)),
        ConfigKey(
            "partition.metadata.cache.ttl.ms",
            _LONG,
            -1,
            "How long the driver takes the set of partitions for unchanged; -1 asks each time.",
            _positive_or_off,
        ),
    ],
)

WRITE_OPTIONS: Final = ConfigSchema(
    "write",
    [
        ConfigKey("topic", _STRING, None, "Where all rows go; without it, a column says so for each."),
        ConfigKey("includeHeaders", _BOOLEAN, False, "Without effect: headers are written where there is a column."),
        ConfigKey(
            "resultsPath",
            _STRING,
            None,
            "A folder that gets a file a batch, with the offsets that were written. Ottla's own.",
        ),
    ],
)

SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "mode"})
"""What Spark adds for itself, or lets stand beside the source's options."""
