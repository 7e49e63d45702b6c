"""Keys that only consumers have."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, one_of
from ottla.client.config_keys.rules import function_or_name, not_empty, objects, one_of_any_case, reset_strategy

_BOOLEAN, _INT, _LONG, _STRING, _CLASS, _LIST = (
    ValueType.BOOLEAN,
    ValueType.INT,
    ValueType.LONG,
    ValueType.STRING,
    ValueType.CLASS,
    ValueType.LIST,
)

CONSUMING: Final = [
    ConfigKey(
        "allow.auto.create.topics",
        _BOOLEAN,
        False,
        "Whether the broker may create a subscribed topic, if auto.create.topics.enable allows it. Patterns "
        "never create topics.",
    ),
    ConfigKey("auto.commit.interval.ms", _INT, 5000, "How often offsets are committed automatically.", at_least(0)),
    ConfigKey(
        "auto.offset.reset",
        _STRING,
        "latest",
        "Where to start if there is no committed offset, or if it is out of range: earliest, latest, or "
        "by_duration:PT1H for the first record not older than a duration (KIP-1106); none raises an error.",
        reset_strategy,
    ),
    ConfigKey("check.crcs", _BOOLEAN, True, "Whether to verify the CRC of batches."),
    ConfigKey("client.rack", _STRING, "", "Rack of this client; brokers may let it read from a nearby replica."),
    ConfigKey("default.api.timeout.ms", _INT, 60_000, "Default timeout of calls.", at_least(0)),
    ConfigKey(
        "dual.commit.enabled",
        _BOOLEAN,
        True,
        "Whether offsets that are kept in Kafka are also written to ZooKeeper; the larger one counts. Only with "
        "group.protocol=zookeeper and offsets.storage=kafka.",
    ),
    ConfigKey(
        "enable.auto.commit",
        _BOOLEAN,
        True,
        "Whether offsets of consumed records are committed automatically; never without a group.id.",
    ),
    ConfigKey("exclude.internal.topics", _BOOLEAN, True, "Whether patterns exclude internal topics."),
    ConfigKey("fetch.max.bytes", _INT, 52_428_800, "Maximum bytes in a fetch response.", at_least(0)),
    ConfigKey("fetch.max.wait.ms", _INT, 500, "How long the broker waits for fetch.min.bytes.", at_least(0)),
    ConfigKey(
        "fetch.min.bytes", _INT, 1, "Minimum bytes for which the broker answers a fetch immediately.", at_least(0)
    ),
    ConfigKey("group.id", _STRING, None, "Consumer group of this consumer."),
    ConfigKey(
        "group.instance.id",
        _STRING,
        None,
        "Makes this consumer a static member: it keeps its partitions if it restarts within the session timeout.",
        not_empty,
    ),
    ConfigKey(
        "group.protocol",
        _STRING,
        "classic",
        "Group protocol: classic; consumer (KIP-848), in which the broker assigns partitions; or zookeeper, that of "
        "Kafka 0.8, in which members agree through ZooKeeper.",
        one_of_any_case("classic", "consumer", "zookeeper"),
    ),
    ConfigKey("group.remote.assignor", _STRING, None, "Server-side assignor of the consumer protocol."),
    ConfigKey(
        "heartbeat.interval.ms",
        _INT,
        3000,
        "Heartbeat interval; less than session.timeout.ms. In the consumer protocol the broker sets it.",
        at_least(1),
    ),
    ConfigKey(
        "interceptor.classes",
        _LIST,
        (),
        "Interceptors, called in this order for consumed records and committed offsets. Also: interceptors.",
        objects,
    ),
    ConfigKey(
        "isolation.level",
        _STRING,
        "read_uncommitted",
        "Whether to skip records of open and aborted transactions (read_committed) or not.",
        one_of("read_committed", "read_uncommitted"),
    ),
    ConfigKey("key.deserializer", _CLASS, None, "Deserializer of keys; if unset, keys are bytes.", function_or_name),
    ConfigKey(
        "value.deserializer", _CLASS, None, "Deserializer of values; if unset, values are bytes.", function_or_name
    ),
    ConfigKey(
        "max.decompressed.batch.bytes",
        _INT,
        134_217_728,
        "Maximum size of a batch after decompression; a larger batch raises an error. Ottla's own.",
        at_least(1),
    ),
    ConfigKey(
        "max.partition.fetch.bytes", _INT, 1_048_576, "Maximum bytes per partition in a fetch response.", at_least(0)
    ),
    ConfigKey(
        "max.poll.interval.ms",
        _INT,
        300_000,
        "A member that does not call poll for this long leaves its group.",
        at_least(1),
    ),
    ConfigKey("max.poll.records", _INT, 500, "Maximum number of records returned by a poll.", at_least(1)),
    ConfigKey(
        "offsets.storage",
        _STRING,
        "zookeeper",
        "Where a group with group.protocol=zookeeper keeps its offsets.",
        one_of_any_case("zookeeper", "kafka"),
    ),
    ConfigKey(
        "partition.assignment.strategy",
        _LIST,
        ("range", "cooperative-sticky"),
        "Assignors of the classic protocol, in order of preference: range, roundrobin, sticky, "
        "cooperative-sticky, or your own. With group.protocol=zookeeper: range (default) or roundrobin.",
    ),
    ConfigKey(
        "queued.max.bytes",
        _LONG,
        67_108_864,
        "Maximum bytes to prefetch. Ottla only.",
        at_least(1),
    ),
    ConfigKey(
        "rebalance.backoff.ms",
        _INT,
        2000,
        "How long a member waits before it tries again to claim a partition that another still owns; less if the "
        "owner releases it earlier. Only with group.protocol=zookeeper.",
        at_least(0),
    ),
    ConfigKey(
        "rebalance.max.retries",
        _INT,
        4,
        "How often a member tries to claim its partitions before poll raises RebalanceFailedError. Only with "
        "group.protocol=zookeeper.",
        at_least(1),
    ),
    ConfigKey(
        "session.timeout.ms",
        _INT,
        45_000,
        "A member without heartbeats for this long is removed from the group. In the consumer protocol the "
        "broker sets it.",
        at_least(1),
    ),
    ConfigKey(
        "zookeeper.connect",
        _STRING,
        None,
        "ZooKeeper servers of the cluster, as host:port,host:port/chroot; required with group.protocol=zookeeper.",
        not_empty,
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        _INT,
        None,
        "How long to wait for the first connection to ZooKeeper; if unset, zookeeper.session.timeout.ms.",
        at_least(1),
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        _INT,
        6000,
        "A member that ZooKeeper has not heard of for this long loses its partitions. Only with "
        "group.protocol=zookeeper.",
        at_least(1),
    ),
]
