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
        "Directory for logs and the embedded coordination tree, unless log.dirs or ottla.tree.file are set.",
        not_empty,
    ),
    ConfigKey(
        "ottla.log.format",
        ValueType.STRING,
        "text",
        "Format of the broker log: text or json.",
        one_of("text", "json"),
    ),
    ConfigKey(
        "ottla.log.level",
        ValueType.STRING,
        "info",
        "Minimum level of messages in the broker log: debug, info, warning or error.",
        one_of_ignoring_case("debug", "info", "warning", "error"),
    ),
    ConfigKey(
        "ottla.log.scrub.bytes.per.second",
        ValueType.LONG,
        1024 * 1024,
        "How fast to read closed segments in the background to detect corruption; 0 disables it.",
        at_least(0),
    ),
    ConfigKey(
        "ottla.log.scrub.interval.ms",
        ValueType.LONG,
        7 * 86_400_000,
        "How long to wait before a segment is checked for corruption again.",
        at_least(1),
    ),
    ConfigKey(
        "ottla.metrics.host", ValueType.STRING, "127.0.0.1", "Address of the Prometheus metrics endpoint.", not_empty
    ),
    ConfigKey(
        "ottla.metrics.port",
        ValueType.INT,
        -1,
        "Port of the Prometheus metrics endpoint; 0 means any free port, -1 disables it.",
        between(-1, 65535),
    ),
    ConfigKey(
        "ottla.slow.request.ms",
        ValueType.LONG,
        1000,
        "Log requests that take longer than this; -1 disables it. Requests that wait on purpose (a fetch "
        "for new records, a member for a rebalance) are not counted.",
        at_least(-1),
    ),
    ConfigKey(
        "ottla.tree.file",
        ValueType.STRING,
        None,
        "File of the embedded coordination tree, which stores topics, configs and ids. Defaults to "
        "zookeeper.db in ottla.data.dir; if only log.dirs is set, to zookeeper.db in the log directory that "
        "already has it, or in the first one.",
        not_empty,
    ),
    ConfigKey(
        "ottla.zookeeper.host",
        ValueType.STRING,
        "127.0.0.1",
        "Address on which the embedded ZooKeeper accepts other programs. It does not authenticate them.",
        not_empty,
    ),
    ConfigKey(
        "ottla.zookeeper.port",
        ValueType.INT,
        -1,
        "Port of the embedded ZooKeeper for other programs, such as zookeeper-shell or kazoo; 0 means any free port, "
        "-1 disables it.",
        between(-1, 65535),
    ),
]
