"""Which of a broker's keys can be changed while it runs, and for whom (KIP-226)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.base.config import ConfigKey, ConfigSchema, ValueType, at_least
from ottla.broker.configs.keys.security import SASL_DORMANT, SSL_DORMANT
from ottla.log.broker_config import BROKER_SCALED, BROKER_SYNONYMS

_MAX_LONG: Final = 2**63 - 1


class UpdateMode(Enum):
    READ_ONLY = "read-only"
    """Only by a restart."""
    PER_BROKER = "per-broker"
    """For one broker, by its id."""
    CLUSTER_WIDE = "cluster-wide"
    """For one broker, or for all at once."""


_READ_ONLY_SECURITY: Final = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.server.callback.handler.class",
        "sasl.server.max.receive.size",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.principal.mapping.rules",
    }
)
_PER_BROKER: Final = frozenset(
    {
        "advertised.listeners",
        "listener.security.protocol.map",
        "listeners",
        "principal.builder.class",
        *(
            key.name
            for key in (*SASL_DORMANT, *SSL_DORMANT)
            if key.name not in _READ_ONLY_SECURITY and not key.name.startswith("sasl.oauthbearer.")
        ),
    }
)
_CLUSTER_WIDE: Final = frozenset(
    {
        *(synonym for topic_key, synonym in BROKER_SYNONYMS.items() if topic_key != "message.format.version"),
        *(synonyms[0][0] for synonyms in BROKER_SCALED.values()),
        "background.threads",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "remote.fetch.max.wait.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.fetch.max.bytes.per.second",
        "transaction.partition.verification.enable",
    }
)

DYNAMIC_ONLY: Final = ConfigSchema(
    "broker",
    [
        ConfigKey(
            "follower.replication.throttled.rate",
            ValueType.LONG,
            _MAX_LONG,
            "Maximum rate at which throttled followers fetch, in bytes per second.",
            at_least(0),
        ),
        ConfigKey(
            "leader.replication.throttled.rate",
            ValueType.LONG,
            _MAX_LONG,
            "Maximum rate at which leaders serve throttled replicas, in bytes per second.",
            at_least(0),
        ),
        ConfigKey(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            ValueType.LONG,
            _MAX_LONG,
            "Maximum rate of moves between log directories.",
            at_least(0),
        ),
    ],
)
"""Keys that no file can set. They have no effect yet."""

INTERNAL: Final = frozenset(
    {
        "group.consumer.migration.policy",
        "group.coordinator.new.enable",
        "group.share.enable",
        "log.initial.task.delay.ms",
        "metadata.log.segment.min.bytes",
        "producer.id.expiration.check.interval.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "server.max.startup.time.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
        "zookeeper.metadata.migration.min.batch.size",
    }
)
"""Keys that Kafka shows only where they are set."""


def update_mode(name: str) -> UpdateMode:
    if name in _PER_BROKER:
        return UpdateMode.PER_BROKER
    return UpdateMode.CLUSTER_WIDE if name in _CLUSTER_WIDE else UpdateMode.READ_ONLY
