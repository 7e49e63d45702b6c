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
        "Size of the cache of remote indexes on disk.",
        at_least(1),
    ),
    ConfigKey(
        "remote.log.manager.copier.thread.pool.size",
        _INT,
        -1,
        "Threads that copy segments; -1 means remote.log.manager.thread.pool.size.",
        or_unset(-1, at_least(1)),
    ),
    ConfigKey(
        "remote.log.manager.copy.max.bytes.per.second",
        _LONG,
        _MAX_LONG,
        "Maximum copy rate to remote storage.",
        at_least(1),
    ),
    ConfigKey(
        "remote.log.manager.copy.quota.window.num", _INT, 11, "Number of windows of the copy quota.", at_least(1)
    ),
    ConfigKey(
        "remote.log.manager.copy.quota.window.size.seconds",
        _INT,
        1,
        "Length of a window of the copy quota.",
        at_least(1),
    ),
    ConfigKey(
        "remote.log.manager.expiration.thread.pool.size",
        _INT,
        -1,
        "Threads that delete remote segments; -1 means remote.log.manager.thread.pool.size.",
        or_unset(-1, at_least(1)),
    ),
    ConfigKey(
        "remote.log.manager.fetch.max.bytes.per.second",
        _LONG,
        _MAX_LONG,
        "Maximum fetch rate from remote storage.",
        at_least(1),
    ),
    ConfigKey(
        "remote.log.manager.fetch.quota.window.num", _INT, 11, "Number of windows of the fetch quota.", at_least(1)
    ),
    ConfigKey(
        "remote.log.manager.fetch.quota.window.size.seconds",
        _INT,
        1,
        "Length of a window of the fetch quota.",
        at_least(1),
    ),
    ConfigKey(
        "remote.log.manager.task.interval.ms",
        _LONG,
        30_000,
        "How often to check for segments to copy or delete.",
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
        "Maximum size of custom metadata of a segment.",
        at_least(0),
    ),
    ConfigKey(
        "remote.log.metadata.manager.class.name",
        _STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Class that stores the metadata of remote segments.",
        not_empty,
    ),
    ConfigKey("remote.log.metadata.manager.class.path", _STRING, None, "Class path of that class."),
    ConfigKey("remote.log.metadata.manager.impl.prefix", _STRING, "rlmm.config.", "Prefix of its configs.", not_empty),
    ConfigKey("remote.log.metadata.manager.listener.name", _STRING, None, "Listener that it uses.", not_empty),
    ConfigKey("remote.log.reader.max.pending.tasks", _INT, 100, "Maximum number of waiting remote reads.", at_least(1)),
    ConfigKey("remote.log.reader.threads", _INT, 10, "Threads that read remote segments.", at_least(1)),
    ConfigKey("remote.log.storage.manager.class.name", _STRING, None, "Class that stores remote segments.", not_empty),
    ConfigKey("remote.log.storage.manager.class.path", _STRING, None, "Class path of that class."),
    ConfigKey("remote.log.storage.manager.impl.prefix", _STRING, "rsm.config.", "Prefix of its configs.", not_empty),
    ConfigKey("remote.log.storage.system.enable", ValueType.BOOLEAN, False, "Whether tiered storage is enabled."),
]
