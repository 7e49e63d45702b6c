"""Keys about groups and transactions. Those of their topics count when somebody asks for one; the rest of transactions
has no effect until there is a coordinator for them."""

from __future__ import annotations

from typing import Final

from ottla.base.config import ConfigKey, ValueType, at_least, between, each_of
from ottla.broker.configs.keys.rules import one_of_ignoring_case

_MAX_INT: Final = 2**31 - 1
_ASSIGNORS: Final = "org.apache.kafka.coordinator.group.assignor."
_BOOLEAN, _SHORT, _INT, _LONG, _STRING, _LIST = (
    ValueType.BOOLEAN,
    ValueType.SHORT,
    ValueType.INT,
    ValueType.LONG,
    ValueType.STRING,
    ValueType.LIST,
)

INTERNAL_TOPICS: Final = [
    ConfigKey("offsets.topic.num.partitions", _INT, 50, "Partitions of the topic of offsets.", at_least(1)),
    ConfigKey("offsets.topic.replication.factor", _SHORT, 3, "Replicas of the topic of offsets.", at_least(1)),
    ConfigKey(
        "offsets.topic.segment.bytes",
        _INT,
        100 * 2**20,
        "The size of the segments of the topic of offsets.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.min.isr", _INT, 2, "In-sync replicas that the topic of transactions needs.", at_least(1)
    ),
    ConfigKey(
        "transaction.state.log.num.partitions", _INT, 50, "Partitions of the topic of transactions.", at_least(1)
    ),
    ConfigKey(
        "transaction.state.log.replication.factor", _SHORT, 3, "Replicas of the topic of transactions.", at_least(1)
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        _INT,
        100 * 2**20,
        "The size of the segments of the topic of transactions.",
        at_least(1),
    ),
]


def _times(kind: str, whose: str) -> list[ConfigKey]:
    return [
        ConfigKey(f"group.{kind}.{limit}{what}.ms", _INT, default, f"{says} of {whose}.", at_least(1))
        for what, limit, default, says in (
            ("heartbeat.interval", "", 5000, "The time between two heartbeats of members"),
            ("heartbeat.interval", "max.", 15_000, "The most for the heartbeat interval"),
            ("heartbeat.interval", "min.", 5000, "The least for the heartbeat interval"),
            ("session.timeout", "", 45_000, "The silence after which members are out"),
            ("session.timeout", "max.", 60_000, "The most for the session timeout"),
            ("session.timeout", "min.", 45_000, "The least for the session timeout"),
        )
    ]


GROUPS: Final = [
    ConfigKey(
        "group.consumer.assignors",
        _LIST,
        (f"{_ASSIGNORS}UniformAssignor", f"{_ASSIGNORS}RangeAssignor"),
        "How the broker assigns partitions; the first is used where a group does not say.",
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _STRING,
        "disabled",
        "Which way groups may change between the old protocol and the new.",
        one_of_ignoring_case("disabled", "downgrade", "upgrade", "bidirectional"),
    ),
    ConfigKey("group.consumer.max.size", _INT, _MAX_INT, "Members that a group may have.", at_least(1)),
    *_times("consumer", "consumer groups"),
    ConfigKey(
        "group.initial.rebalance.delay.ms", _INT, 3000, "How long a new group waits for more members before it starts."
    ),
    ConfigKey("group.max.session.timeout.ms", _INT, 1_800_000, "The most for a member's session timeout."),
    ConfigKey("group.max.size", _INT, _MAX_INT, "Members that a group may have.", at_least(1)),
    ConfigKey("group.min.session.timeout.ms", _INT, 6000, "The least for a member's session timeout."),
    ConfigKey("offset.metadata.max.bytes", _INT, 4096, "The most that a consumer may note with an offset."),
    ConfigKey("offsets.commit.timeout.ms", _INT, 5000, "How long a commit may take.", at_least(1)),
    ConfigKey(
        "offsets.retention.check.interval.ms", _LONG, 600_000, "How often expired offsets are looked for.", at_least(1)
    ),
    ConfigKey("offsets.retention.minutes", _INT, 10_080, "How long an empty group's offsets are kept.", at_least(1)),
]

GROUPS_DORMANT: Final = [
    *_times("share", "share groups"),
    ConfigKey(
        "group.coordinator.append.linger.ms", _INT, 10, "How long writes about groups are gathered.", at_least(0)
    ),
    ConfigKey("group.coordinator.new.enable", _BOOLEAN, False, "Whether groups are run by Kafka's newer code."),
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        _LIST,
        ("classic",),
        "The protocols of groups that are served.",
        each_of("consumer", "classic", "share", "unknown"),
    ),
    ConfigKey("group.coordinator.threads", _INT, 1, "Threads that look after groups.", at_least(1)),
    ConfigKey("group.share.delivery.count.limit", _INT, 5, "How often a record is delivered at most.", between(2, 10)),
    ConfigKey("group.share.enable", _BOOLEAN, False, "Whether share groups are there."),
    ConfigKey("group.share.max.groups", _SHORT, 10, "Share groups at a time.", between(1, 100)),
    ConfigKey(
        "group.share.max.record.lock.duration.ms",
        _INT,
        60_000,
        "The most for group.share.record.lock.duration.ms.",
        between(30_000, 3_600_000),
    ),
    ConfigKey("group.share.max.size", _SHORT, 200, "Members that a share group may have.", between(10, 1000)),
    ConfigKey(
        "group.share.min.record.lock.duration.ms",
        _INT,
        15_000,
        "The least for group.share.record.lock.duration.ms.",
        between(1000, 30_000),
    ),
    ConfigKey(
        "group.share.partition.max.record.locks",
        _INT,
        200,
        "Records of a partition lent at a time.",
        between(100, 10_000),
    ),
    ConfigKey("group.share.record.lock.duration.ms", _INT, 30_000, "How long a record is lent.", between(1000, 60_000)),
    ConfigKey("offsets.commit.required.acks", _SHORT, -1, "Replicas that must have a commit; -1 for all in sync."),
    ConfigKey(
        "offsets.load.buffer.size", _INT, 5 * 2**20, "Bytes read at a time when offsets are loaded.", at_least(1)
    ),
    ConfigKey("offsets.topic.compression.codec", _INT, 0, "The codec that offsets are kept in, by number."),
]

TRANSACTIONS_DORMANT: Final = [
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        "How often transactions that took too long are looked for.",
        at_least(1),
    ),
    ConfigKey("transaction.max.timeout.ms", _INT, 900_000, "The longest a transaction may take.", at_least(1)),
    ConfigKey(
        "transaction.partition.verification.enable",
        _BOOLEAN,
        True,
        "Whether a leader asks if a partition is part of the transaction that writes to it.",
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3_600_000,
        "How often transactional ids that nobody uses are looked for.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        _INT,
        5 * 2**20,
        "Bytes read at a time when transactions are loaded.",
        at_least(1),
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _INT,
        604_800_000,
        "How long a transactional id that nobody uses is remembered.",
        at_least(1),
    ),
]
