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
    ConfigKey("auto.create.topics.enable", _BOOLEAN, True, "Whether a topic is made when a client first asks for it."),
    ConfigKey("broker.id", _INT, -1, "This broker's number in the cluster; -1 lets the cluster give it one."),
    ConfigKey("broker.id.generation.enable", _BOOLEAN, True, "Whether the cluster may give a broker its number."),
    ConfigKey("broker.rack", _STRING, None, "Where this broker stands, as clients and placement are told."),
    ConfigKey("default.replication.factor", _INT, 1, "Replicas of topics that are made without saying how many."),
    ConfigKey("delete.topic.enable", _BOOLEAN, True, "Whether topics can be deleted."),
    ConfigKey(
        "log.dir",
        _STRING,
        None,
        "Where logs lie, if log.dirs is not set; the folder logs in ottla.data.dir if neither is.",
    ),
    ConfigKey("log.dirs", _STRING, None, "Where logs lie: one folder or several, with commas between."),
    ConfigKey("node.id", _INT, -1, "Another name of broker.id."),
    ConfigKey("num.partitions", _INT, 1, "Partitions of topics that are made without saying how many.", at_least(1)),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms", _LONG, 5000, "How often high watermarks are written down."
    ),
    ConfigKey(
        "reserved.broker.max.id",
        _INT,
        1000,
        "The largest number that is set by hand; given ones are larger.",
        at_least(0),
    ),
]

CLUSTER_DORMANT: Final = [
    ConfigKey("alter.config.policy.class.name", _CLASS, None, "A class that may refuse changes of configs."),
    ConfigKey("auto.leader.rebalance.enable", _BOOLEAN, True, "Whether leadership returns to preferred replicas."),
    ConfigKey("controlled.shutdown.enable", _BOOLEAN, True, "Whether a broker hands over leadership before it stops."),
    ConfigKey("controlled.shutdown.max.retries", _INT, 3, "How often handing over is tried."),
    ConfigKey("controlled.shutdown.retry.backoff.ms", _LONG, 5000, "How long to wait between two tries."),
    ConfigKey("controller.socket.timeout.ms", _INT, 30_000, "How long the controller waits for a broker's answer."),
    ConfigKey("create.topic.policy.class.name", _CLASS, None, "A class that may refuse new topics."),
    ConfigKey(
        "inter.broker.protocol.version",
        _STRING,
        "3.9-IV0",
        "The newest release whose protocol brokers speak to each other.",
        release,
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds", _LONG, 300, "How often it is seen who should lead.", at_least(1)
    ),
    ConfigKey(
        "leader.imbalance.per.broker.percentage",
        _INT,
        10,
        "The share of a broker's partitions led elsewhere at which leadership returns.",
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms",
        _LONG,
        30_000,
        "How long a broker that cannot tell of a failed folder goes on.",
        at_least(1),
    ),
    ConfigKey("num.replica.alter.log.dirs.threads", _INT, None, "Threads that move replicas between folders."),
    ConfigKey("num.replica.fetchers", _INT, 1, "Connections by which replicas are fetched from each broker."),
    ConfigKey("replica.fetch.backoff.ms", _INT, 1000, "How long a follower rests after an error.", at_least(0)),
    ConfigKey(
        "replica.fetch.max.bytes", _INT, 2**20, "Bytes that a follower asks for of a partition at a time.", at_least(0)
    ),
    ConfigKey("replica.fetch.min.bytes", _INT, 1, "Bytes that a follower waits for."),
    ConfigKey(
        "replica.fetch.response.max.bytes", _INT, 10 * 2**20, "Bytes that a follower asks for at a time.", at_least(0)
    ),
    ConfigKey("replica.fetch.wait.max.ms", _INT, 500, "How long a follower's fetch waits for bytes."),
    ConfigKey("replica.lag.time.max.ms", _LONG, 30_000, "How long a follower may lag and still count as in sync."),
    ConfigKey("replica.selector.class", _STRING, None, "A class that says which replica a consumer should read."),
    ConfigKey("replica.socket.receive.buffer.bytes", _INT, 64 * 2**10, "The receive buffer of a follower's socket."),
    ConfigKey("replica.socket.timeout.ms", _INT, 30_000, "How long a follower waits for an answer."),
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
    ConfigKey("client.quota.callback.class", _CLASS, None, "A class that says who has which quota."),
    *(
        ConfigKey(f"{prefix}quota.window.{suffix}", _INT, default, f"{what} of {whose}.", at_least(1))
        for prefix, whose in (
            ("", "the quotas of clients"),
            ("alter.log.dirs.replication.", "the quota for moves between folders"),
            ("controller.", "the quotas for changes of topics"),
            ("replication.", "the quotas for replication"),
        )
        for suffix, default, what in (
            ("num", 11, "Windows that are remembered"),
            ("size.seconds", 1, "The length of a window"),
        )
    ),
]
