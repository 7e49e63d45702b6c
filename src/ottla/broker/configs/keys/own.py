"""Keys that Kafka does not have."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, between, one_of
from ottla.broker.configs.keys.rules import not_empty, one_of_ignoring_case

OWN: Final = [
    ConfigKey(
        "ottla.data.dir",
        ValueType.STRING,
        "./ottla-data",
        "Where everything is kept that has no other place: logs, and the embedded coordination tree.",
        not_empty,
    ),
    ConfigKey(
        "ottla.log.format",
        ValueType.STRING,
        "text",
        "How the broker's own messages look: text for people, json for machines.",
        one_of("text", "json"),
    ),
    ConfigKey(
        "ottla.log.level",
        ValueType.STRING,
        "info",
        "Which of them are written: debug, info, warning or error, and what is graver.",
        one_of_ignoring_case("debug", "info", "warning", "error"),
    ),
    ConfigKey(
        "ottla.log.scrub.bytes.per.second",
        ValueType.LONG,
        1024 * 1024,
        "How fast closed segments are read in the background to find damage in them; 0 turns that off.",
        at_least(0),
    ),
    ConfigKey(
        "ottla.log.scrub.interval.ms",
        ValueType.LONG,
        7 * 86_400_000,
        "How long a segment that was checked for damage is left alone.",
        at_least(1),
    ),
    ConfigKey("ottla.metrics.host", ValueType.STRING, "127.0.0.1", "The address that metrics are shown on.", not_empty),
    ConfigKey(
        "ottla.metrics.port",
        ValueType.INT,
        -1,
        "The port that metrics are shown on, for Prometheus; 0 for any free one, -1 for none.",
        between(-1, 65535),
    ),
    ConfigKey(
        "ottla.slow.request.ms",
        ValueType.LONG,
        1000,
        "A request that takes longer to answer is written to the log; -1 for none. Requests that wait on purpose (a "
        "fetch for new records, a member for its group to form) do not count.",
        at_least(-1),
    ),
    ConfigKey(
        "ottla.tree.file",
        ValueType.STRING,
        None,
        "The file of the embedded coordination tree, which holds topics, configs and ids. If it is not set: "
        "zookeeper.db in ottla.data.dir; or, where log.dirs is set and ottla.data.dir is not, in the log directory "
        "that has it, by default the first.",
        not_empty,
    ),
]
