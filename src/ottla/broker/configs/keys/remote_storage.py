"""Keys about segments in remote storage: accepted, and without effect."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, between
from ottla.broker.configs.keys.rules import not_empty, or_unset

_MAX_LONG: Final = 2**63 - 1
_INT, _LONG, _STRING = ValueType.INT, ValueType.LONG, ValueType.STRING

REMOTE_STORAGE_DORMANT: Final = [
    ConfigKey("remote.fetch.max.wait.ms", _INT, 500, "How long a fetch waits for remote records.", at_least(1)),
    ConfigKey(
        "remote.log.index.file.cache.total.size.bytes",
        _LONG,
        2**30,
        "Disk for indexes of remote segments.",
        at_least(1),
    ),
    ConfigKey(
        "remote.log.manager.copier.thread.pool.size",
        _INT,
        -1,
        "Threads that copy segments; -1 for remote.log.manager.thread.pool.size.",
        or_unset(-1, at_least(1)),
    ),
    ConfigKey(
        "remote.log.manager.copy.max.bytes.per.second", _LONG, _MAX_LONG, "The most that is copied.", at_least(1)
    ),
    ConfigKey("remote.log.manager.copy.quota.window.num", _INT, 11, "Windows of the quota for copies.", at_least(1)),
    ConfigKey(
        "remote.log.manager.copy.quota.window.size.seconds", _INT, 1, "The length of such a window.", at_least(1)
    ),
    ConfigKey(
        "remote.log.manager.expiration.thread.pool.size",
        _INT,
        -1,
        "Threads that delete remote segments; -1 for remote.log.manager.thread.pool.size.",
        or_unset(-1, at_least(1)),
    ),
    ConfigKey("remote.log.manager.fetch.max.bytes.per.second", _LONG, _MAX_LONG, "The most that is read.", at_least(1)),
    ConfigKey("remote.log.manager.fetch.quota.window.num", _INT, 11, "Windows of the quota for reads.", at_least(1)),
    ConfigKey(
        "remote.log.manager.fetch.quota.window.size.seconds", _INT, 1, "The length of such a window.", at_least(1)
    ),
    ConfigKey(
        "remote.log.manager.task.interval.ms",
        _LONG,
        30_000,
        "How often there is something to copy or delete.",
        at_least(1),
    ),
    ConfigKey(
        "remote.log.manager.task.retry.backoff.max.ms",
        _LONG,
        30_000,
        "The longest rest between two tries.",
        at_least(1),
    ),
    ConfigKey("remote.log.manager.task.retry.backoff.ms", _LONG, 500, "The first rest between two tries.", at_least(1)),
    ConfigKey(
        "remote.log.manager.task.retry.jitter", ValueType.DOUBLE, 0.2, "The share of chance in it.", between(0, 0.5)
    ),
    ConfigKey("remote.log.manager.thread.pool.size", _INT, 10, "Threads for remote segments.", at_least(1)),
    ConfigKey(
        "remote.log.metadata.custom.metadata.max.bytes",
        _INT,
        128,
        "The most that a plugin notes of a segment.",
        at_least(0),
    ),
    ConfigKey(
        "remote.log.metadata.manager.class.name",
        _STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "A class that remembers remote segments.",
        not_empty,
    ),
    ConfigKey("remote.log.metadata.manager.class.path", _STRING, None, "Where that class is found."),
    ConfigKey(
        "remote.log.metadata.manager.impl.prefix", _STRING, "rlmm.config.", "What its own keys begin with.", not_empty
    ),
    ConfigKey("remote.log.metadata.manager.listener.name", _STRING, None, "The listener that it uses.", not_empty),
    ConfigKey("remote.log.reader.max.pending.tasks", _INT, 100, "Remote reads that may wait.", at_least(1)),
    ConfigKey("remote.log.reader.threads", _INT, 10, "Threads that read remote segments.", at_least(1)),
    ConfigKey("remote.log.storage.manager.class.name", _STRING, None, "A class that stores segments.", not_empty),
    ConfigKey("remote.log.storage.manager.class.path", _STRING, None, "Where that class is found."),
    ConfigKey(
        "remote.log.storage.manager.impl.prefix", _STRING, "rsm.config.", "What its own keys begin with.", not_empty
    ),
    ConfigKey("remote.log.storage.system.enable", ValueType.BOOLEAN, False, "Whether there is remote storage."),
]
