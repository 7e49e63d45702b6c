"""Keys about sockets, connections and requests."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, one_of

_MAX_INT: Final = 2**31 - 1
_BOOLEAN, _INT, _LONG, _STRING, _LIST = (
    ValueType.BOOLEAN,
    ValueType.INT,
    ValueType.LONG,
    ValueType.STRING,
    ValueType.LIST,
)

NETWORK: Final = [
    ConfigKey(
        "advertised.listeners",
        _STRING,
        None,
        "Where clients are told to reach this broker, as NAME://host:port; the listeners themselves if it is not set.",
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        "How long a connection may be silent before it is closed; negative for ever.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        _INT,
        55 * 2**20,
        "The most bytes that one fetch is answered, whatever it asks.",
        at_least(1024),
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The protocol of each listener, as NAME:PROTOCOL.",
    ),
    ConfigKey(
        "listeners",
        _STRING,
        "PLAINTEXT://:9092",
        "Where this broker listens, as NAME://host:port; no host means every address, port 0 any free port.",
    ),
    ConfigKey("max.connections", _INT, _MAX_INT, "Connections at a time, in all.", at_least(0)),
    ConfigKey("max.connections.per.ip", _INT, _MAX_INT, "Connections at a time from one address.", at_least(0)),
    ConfigKey(
        "max.connections.per.ip.overrides", _STRING, "", "Other limits for certain addresses, as address:connections."
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "Fetch sessions that are remembered at a time.",
        at_least(0),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "The most partitions that one DescribeTopicPartitions is answered.",
        at_least(1),
    ),
    ConfigKey(
        "queued.max.request.bytes",
        _LONG,
        -1,
        "Bytes of requests in memory beyond which no more are read; -1 for no limit.",
    ),
    ConfigKey(
        "socket.receive.buffer.bytes", _INT, 100 * 2**10, "A socket's receive buffer; -1 leaves it to the system."
    ),
    ConfigKey("socket.request.max.bytes", _INT, 100 * 2**20, "The largest request that is read.", at_least(1)),
    ConfigKey("socket.send.buffer.bytes", _INT, 100 * 2**10, "A socket's send buffer; -1 leaves it to the system."),
]

NETWORK_DORMANT: Final = [
    ConfigKey(
        "inter.broker.listener.name",
        _STRING,
        None,
        "The listener that brokers reach each other by; the one of security.inter.broker.protocol if it is not set.",
    ),
    ConfigKey("queued.max.requests", _INT, 500, "Requests under way beyond which no more are read.", at_least(1)),
    ConfigKey(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        "The protocol that brokers speak to each other where inter.broker.listener.name is not set.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey("socket.listen.backlog.size", _INT, 50, "Connections that may wait to be accepted.", at_least(1)),
    ConfigKey("background.threads", _INT, 10, "Threads for upkeep.", at_least(1)),
    ConfigKey("control.plane.listener.name", _STRING, None, "The listener that takes only what the controller sends."),
    ConfigKey("early.start.listeners", _STRING, None, "Listeners that open before metadata is there."),
    ConfigKey(
        "fetch.purgatory.purge.interval.requests", _INT, 1000, "How often fetches that no longer wait are swept out."
    ),
    ConfigKey(
        "producer.purgatory.purge.interval.requests",
        _INT,
        1000,
        "How often produce requests that no longer wait are swept out.",
    ),
    ConfigKey(
        "delete.records.purgatory.purge.interval.requests",
        _INT,
        1,
        "How often requests to delete records that no longer wait are swept out.",
    ),
    ConfigKey("max.connection.creation.rate", _INT, _MAX_INT, "New connections in a second.", at_least(0)),
    ConfigKey("num.io.threads", _INT, 8, "Threads that handle requests.", at_least(1)),
    ConfigKey("num.network.threads", _INT, 3, "Threads that read and write sockets.", at_least(1)),
    ConfigKey("request.timeout.ms", _INT, 30_000, "How long a broker waits for an answer of another."),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        _LONG,
        30_000,
        "How long a connection that this broker opens may take, after several failures.",
    ),
    ConfigKey(
        "socket.connection.setup.timeout.ms", _LONG, 10_000, "How long a connection that this broker opens may take."
    ),
    ConfigKey("auto.include.jmx.reporter", _BOOLEAN, True, "Whether metrics are shown by JMX."),
    ConfigKey("kafka.metrics.polling.interval.secs", _INT, 10, "How often Kafka's own reporters report.", at_least(1)),
    ConfigKey("kafka.metrics.reporters", _LIST, (), "Reporters of Kafka's own metrics."),
    ConfigKey("metric.reporters", _LIST, (), "Classes that report metrics."),
    ConfigKey("metrics.num.samples", _INT, 2, "Samples that a metric is made of.", at_least(1)),
    ConfigKey("metrics.recording.level", _STRING, "INFO", "Which metrics are kept: INFO, DEBUG or TRACE."),
    ConfigKey("metrics.sample.window.ms", _LONG, 30_000, "The time that a metric's sample covers.", at_least(1)),
    ConfigKey("telemetry.max.bytes", _INT, 2**20, "The most metrics that a client may push at a time.", at_least(1)),
]
