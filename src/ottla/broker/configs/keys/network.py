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
        "Addresses that clients use to connect, as NAME://host:port; defaults to listeners.",
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        "Close a connection that has been idle for this long; a negative value means never.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        _INT,
        55 * 2**20,
        "Maximum bytes in a fetch response.",
        at_least(1024),
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener, as NAME:PROTOCOL.",
    ),
    ConfigKey(
        "listeners",
        _STRING,
        "PLAINTEXT://:9092",
        "Addresses to listen on, as NAME://host:port; an empty host means all addresses, port 0 any free port.",
    ),
    ConfigKey("max.connections", _INT, _MAX_INT, "Maximum number of connections.", at_least(0)),
    ConfigKey(
        "max.connections.per.ip", _INT, _MAX_INT, "Maximum number of connections from one IP address.", at_least(0)
    ),
    ConfigKey(
        "max.connections.per.ip.overrides", _STRING, "", "Different limits for some addresses, as address:connections."
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "Maximum number of fetch sessions.",
        at_least(0),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        _INT,
        2000,
        "Maximum number of partitions in a DescribeTopicPartitions response.",
        at_least(1),
    ),
    ConfigKey(
        "queued.max.request.bytes",
        _LONG,
        -1,
        "Stop reading requests when this many bytes of requests are in memory; -1 means no limit.",
    ),
    ConfigKey("socket.receive.buffer.bytes", _INT, 100 * 2**10, "SO_RCVBUF of sockets; -1 uses the system default."),
    ConfigKey("socket.request.max.bytes", _INT, 100 * 2**20, "Maximum size of a request.", at_least(1)),
    ConfigKey("socket.send.buffer.bytes", _INT, 100 * 2**10, "SO_SNDBUF of sockets; -1 uses the system default."),
    ConfigKey(
        "control.plane.listener.name",
        _STRING,
        None,
        "Listener for requests from the controller; defaults to the one for connections between brokers.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        _STRING,
        None,
        "Listener for connections between brokers; defaults to the one with security.inter.broker.protocol.",
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        "Security protocol between brokers, if inter.broker.listener.name is not set.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
]

NETWORK_DORMANT: Final = [
    ConfigKey("queued.max.requests", _INT, 500, "Stop reading requests when this many are queued.", at_least(1)),
    ConfigKey(
        "socket.listen.backlog.size", _INT, 50, "Maximum number of connections that wait to be accepted.", at_least(1)
    ),
    ConfigKey("background.threads", _INT, 10, "Number of background threads.", at_least(1)),
    ConfigKey("early.start.listeners", _STRING, None, "Listeners that open before metadata is loaded."),
    ConfigKey(
        "fetch.purgatory.purge.interval.requests", _INT, 1000, "Purge interval of the purgatory of fetch requests."
    ),
    ConfigKey(
        "producer.purgatory.purge.interval.requests",
        _INT,
        1000,
        "Purge interval of the purgatory of produce requests.",
    ),
    ConfigKey(
        "delete.records.purgatory.purge.interval.requests",
        _INT,
        1,
        "Purge interval of the purgatory of DeleteRecords requests.",
    ),
    ConfigKey(
        "max.connection.creation.rate", _INT, _MAX_INT, "Maximum rate of new connections, per second.", at_least(0)
    ),
    ConfigKey("num.io.threads", _INT, 8, "Number of request handler threads.", at_least(1)),
    ConfigKey("num.network.threads", _INT, 3, "Number of network threads.", at_least(1)),
    ConfigKey("request.timeout.ms", _INT, 30_000, "Timeout of requests to other brokers."),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        _LONG,
        30_000,
        "Maximum timeout of connections to other brokers, after several failures.",
    ),
    ConfigKey("socket.connection.setup.timeout.ms", _LONG, 10_000, "Timeout of connections to other brokers."),
    ConfigKey("auto.include.jmx.reporter", _BOOLEAN, True, "Whether to report metrics to JMX."),
    ConfigKey(
        "kafka.metrics.polling.interval.secs", _INT, 10, "Polling interval of kafka.metrics.reporters.", at_least(1)
    ),
    ConfigKey("kafka.metrics.reporters", _LIST, (), "Reporters of Kafka's Yammer metrics."),
    ConfigKey("metric.reporters", _LIST, (), "Classes that report metrics."),
    ConfigKey("metrics.num.samples", _INT, 2, "Number of samples of a metric.", at_least(1)),
    ConfigKey("metrics.recording.level", _STRING, "INFO", "Recording level of metrics: INFO, DEBUG or TRACE."),
    ConfigKey("metrics.sample.window.ms", _LONG, 30_000, "Length of the window of a metric sample.", at_least(1)),
    ConfigKey("telemetry.max.bytes", _INT, 2**20, "Maximum size of metrics that a client pushes.", at_least(1)),
]
