"""Keys about a broker's place in its cluster: identity, topics, replication, the controller."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least
from ottla.broker.configs.keys.rules import release

_BOOLEAN, _INT, _LONG, _STRING, _CLASS = (
    ValueType.BOOLEAN,
    ValueType.INT,
    ValueType.LONG,
    ValueType.STRING,
    ValueType.CLASS,
)

CLUSTER: Final = [
    ConfigKey("auto.create.topics.enable", _BOOLEAN, True, "Whether to create a topic when a client first uses it."),
    ConfigKey("auto.leader.rebalance.enable", _BOOLEAN, True, "Whether to move leadership back to preferred leaders."),
    ConfigKey("broker.id", _INT, -1, "Id of this broker; -1 assigns one automatically."),
    ConfigKey("broker.id.generation.enable", _BOOLEAN, True, "Whether broker ids can be assigned automatically."),
    ConfigKey("broker.rack", _STRING, None, "Rack of this broker."),
    ConfigKey(
        "controlled.shutdown.enable", _BOOLEAN, True, "Whether a broker moves its leaderships away before it stops."
    ),
    ConfigKey("controlled.shutdown.max.retries", _INT, 3, "Retries of a controlled shutdown."),
    ConfigKey(
        "controlled.shutdown.retry.backoff.ms", _LONG, 5000, "Wait between two attempts of a controlled shutdown."
    ),
    ConfigKey("controller.socket.timeout.ms", _INT, 30_000, "Timeout of requests from the controller to brokers."),
    ConfigKey("default.replication.factor", _INT, 1, "Replication factor of topics that are created without one."),
    ConfigKey("delete.topic.enable", _BOOLEAN, True, "Whether topics can be deleted."),
    ConfigKey(
        "inter.broker.protocol.version",
        _STRING,
        "3.9-IV0",
        "Newest release whose protocol is used between brokers; at least 3.0. Versions of requests are negotiated.",
        release,
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds", _LONG, 300, "How often to check for leader imbalance.", at_least(1)
    ),
    ConfigKey(
        "leader.imbalance.per.broker.percentage",
        _INT,
        10,
        "Leader imbalance per broker, in percent, that triggers a rebalance of leaders.",
    ),
    ConfigKey(
        "log.dir",
        _STRING,
        None,
        "Log directory, if log.dirs is not set; defaults to logs in ottla.data.dir.",
    ),
    ConfigKey("log.dirs", _STRING, None, "Comma-separated list of log directories."),
    ConfigKey("node.id", _INT, -1, "Synonym of broker.id."),
    ConfigKey("num.partitions", _INT, 1, "Number of partitions of topics that are created without one.", at_least(1)),
    ConfigKey("num.replica.fetchers", _INT, 1, "Number of connections to each broker that followers fetch from."),
    ConfigKey("replica.fetch.backoff.ms", _INT, 1000, "Wait of a follower after a fetch error.", at_least(0)),
    ConfigKey(
        "replica.fetch.max.bytes", _INT, 2**20, "Maximum bytes per partition that a follower fetches.", at_least(0)
    ),
    ConfigKey("replica.fetch.min.bytes", _INT, 1, "Minimum bytes that a follower's fetch waits for."),
    ConfigKey(
        "replica.fetch.response.max.bytes", _INT, 10 * 2**20, "Maximum bytes of a response to a follower.", at_least(0)
    ),
    ConfigKey("replica.fetch.wait.max.ms", _INT, 500, "How long a follower's fetch waits for bytes."),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", _LONG, 5000, "How often to checkpoint high watermarks."),
    ConfigKey("replica.lag.time.max.ms", _LONG, 30_000, "How long a follower may lag and still be in sync."),
    ConfigKey(
        "replica.selector.class",
        _STRING,
        None,
        "Class that selects the replica that a consumer reads from: "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector; if it is not set, the leader.",
    ),
    ConfigKey("replica.socket.receive.buffer.bytes", _INT, 64 * 2**10, "Receive buffer of a follower's socket."),
    ConfigKey("replica.socket.timeout.ms", _INT, 30_000, "Socket timeout of a follower."),
    ConfigKey(
        "reserved.broker.max.id",
        _INT,
        1000,
        "Largest broker id that can be set; automatically assigned ids are larger.",
        at_least(0),
    ),
]

CLUSTER_DORMANT: Final = [
    ConfigKey("alter.config.policy.class.name", _CLASS, None, "Class that validates config changes."),
    ConfigKey("create.topic.policy.class.name", _CLASS, None, "Class that validates new topics."),
    ConfigKey(
        "log.dir.failure.timeout.ms",
        _LONG,
        30_000,
        "How long a broker keeps running if it cannot report a failed log directory.",
        at_least(1),
    ),
    ConfigKey("num.replica.alter.log.dirs.threads", _INT, None, "Threads that move replicas between log directories."),
    ConfigKey(
        "unclean.leader.election.interval.ms",
        _LONG,
        300_000,
        "How often partitions without a leader are looked at, where unclean election is allowed.",
        at_least(1),
    ),
    ConfigKey(
        "unstable.api.versions.enable", _BOOLEAN, False, "Whether versions of APIs that may still change are served."
    ),
    ConfigKey(
        "unstable.feature.versions.enable",
        _BOOLEAN,
        False,
        "Whether levels of features that may still change are there.",
    ),
]

QUOTAS_DORMANT: Final = [
    ConfigKey("client.quota.callback.class", _CLASS, None, "Class that determines client quotas."),
    *(
        ConfigKey(f"{prefix}quota.window.{suffix}", _INT, default, f"{what} of {whose}.", at_least(1))
        for prefix, whose in (
            ("", "client quotas"),
            ("alter.log.dirs.replication.", "the quota for moves between log directories"),
            ("controller.", "the controller mutation quota"),
            ("replication.", "replication quotas"),
        )
        for suffix, default, what in (
            ("num", 11, "Number of windows"),
            ("size.seconds", 1, "Length of a window"),
        )
    ),
]
