"""Keys about groups and transactions."""

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
    ConfigKey("offsets.topic.num.partitions", _INT, 50, "Number of partitions of __consumer_offsets.", at_least(1)),
    ConfigKey("offsets.topic.replication.factor", _SHORT, 3, "Replication factor of __consumer_offsets.", at_least(1)),
    ConfigKey(
        "offsets.topic.segment.bytes",
        _INT,
        100 * 2**20,
        "Segment size of __consumer_offsets.",
        at_least(1),
    ),
    ConfigKey("transaction.state.log.min.isr", _INT, 2, "min.insync.replicas of __transaction_state.", at_least(1)),
    ConfigKey(
        "transaction.state.log.num.partitions", _INT, 50, "Number of partitions of __transaction_state.", at_least(1)
    ),
    ConfigKey(
        "transaction.state.log.replication.factor", _SHORT, 3, "Replication factor of __transaction_state.", at_least(1)
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        _INT,
        100 * 2**20,
        "Segment size of __transaction_state.",
        at_least(1),
    ),
]


def _times(kind: str, whose: str) -> list[ConfigKey]:
    return [
        ConfigKey(f"group.{kind}.{limit}{what}.ms", _INT, default, f"{says} of {whose}.", at_least(1))
        for what, limit, default, says in (
            ("heartbeat.interval", "", 5000, "Heartbeat interval of members"),
            ("heartbeat.interval", "max.", 15_000, "Maximum heartbeat interval"),
            ("heartbeat.interval", "min.", 5000, "Minimum heartbeat interval"),
            ("session.timeout", "", 45_000, "Session timeout of members"),
            ("session.timeout", "max.", 60_000, "Maximum session timeout"),
            ("session.timeout", "min.", 45_000, "Minimum session timeout"),
        )
    ]


GROUPS: Final = [
    ConfigKey(
        "group.consumer.assignors",
        _LIST,
        (f"{_ASSIGNORS}UniformAssignor", f"{_ASSIGNORS}RangeAssignor"),
        "Server-side assignors; the first one is the default.",
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _STRING,
        "disabled",
        "Which way groups may change between the old protocol and the new.",
        one_of_ignoring_case("disabled", "downgrade", "upgrade", "bidirectional"),
    ),
    ConfigKey("group.consumer.max.size", _INT, _MAX_INT, "Maximum number of members of a consumer group.", at_least(1)),
    *_times("consumer", "consumer groups"),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        _INT,
        3000,
        "How long a new classic group waits for more members before its first rebalance.",
    ),
    ConfigKey("group.max.session.timeout.ms", _INT, 1_800_000, "Maximum session timeout of members of classic groups."),
    ConfigKey("group.max.size", _INT, _MAX_INT, "Maximum number of members of a classic group.", at_least(1)),
    ConfigKey("group.min.session.timeout.ms", _INT, 6000, "Minimum session timeout of members of classic groups."),
    ConfigKey("offset.metadata.max.bytes", _INT, 4096, "Maximum size of the metadata of a committed offset."),
    ConfigKey("offsets.commit.timeout.ms", _INT, 5000, "Timeout of an offset commit.", at_least(1)),
    ConfigKey(
        "offsets.retention.check.interval.ms", _LONG, 600_000, "How often to check for expired offsets.", at_least(1)
    ),
    ConfigKey(
        "offsets.retention.minutes", _INT, 10_080, "How long to keep the offsets of an empty group.", at_least(1)
    ),
]

GROUPS_DORMANT: Final = [
    *_times("share", "share groups"),
    ConfigKey(
        "group.coordinator.append.linger.ms", _INT, 10, "How long the group coordinator collects writes.", at_least(0)
    ),
    ConfigKey("group.coordinator.new.enable", _BOOLEAN, False, "Whether groups are run by Kafka's newer code."),
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        _LIST,
        ("classic",),
        "Group protocols that are enabled.",
        each_of("consumer", "classic", "share", "unknown"),
    ),
    ConfigKey("group.coordinator.threads", _INT, 1, "Number of group coordinator threads.", at_least(1)),
    ConfigKey(
        "group.share.delivery.count.limit", _INT, 5, "Maximum number of delivery attempts of a record.", between(2, 10)
    ),
    ConfigKey("group.share.enable", _BOOLEAN, False, "Whether share groups are there."),
    ConfigKey("group.share.max.groups", _SHORT, 10, "Maximum number of share groups.", between(1, 100)),
    ConfigKey(
        "group.share.max.record.lock.duration.ms",
        _INT,
        60_000,
        "Maximum of group.share.record.lock.duration.ms.",
        between(30_000, 3_600_000),
    ),
    ConfigKey("group.share.max.size", _SHORT, 200, "Maximum number of members of a share group.", between(10, 1000)),
    ConfigKey(
        "group.share.min.record.lock.duration.ms",
        _INT,
        15_000,
        "Minimum of group.share.record.lock.duration.ms.",
        between(1000, 30_000),
    ),
    ConfigKey(
        "group.share.partition.max.record.locks",
        _INT,
        200,
        "Maximum number of acquired records of a partition.",
        between(100, 10_000),
    ),
    ConfigKey(
        "group.share.record.lock.duration.ms", _INT, 30_000, "How long a record is acquired.", between(1000, 60_000)
    ),
    ConfigKey(
        "offsets.commit.required.acks", _SHORT, -1, "Acks that an offset commit needs; -1 means all in-sync replicas."
    ),
    ConfigKey(
        "offsets.load.buffer.size",
        _INT,
        5 * 2**20,
        "Batch size for reading __consumer_offsets when it is loaded.",
        at_least(1),
    ),
    ConfigKey("offsets.topic.compression.codec", _INT, 0, "Compression codec of __consumer_offsets, by number."),
]

TRANSACTIONS: Final = [
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        "How often to check for transactions that timed out.",
        at_least(1),
    ),
    ConfigKey("transaction.max.timeout.ms", _INT, 900_000, "Maximum transaction timeout.", at_least(1)),
    ConfigKey(
        "transaction.partition.verification.enable",
        _BOOLEAN,
        True,
        "Whether a leader verifies that a partition was added to the transaction.",
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3_600_000,
        "How often to check for expired transactional ids.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        _BOOLEAN,
        True,
        "Whether producers may take part in two-phase commit (KIP-939): their transactions have no timeout.",
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _INT,
        604_800_000,
        "How long to keep an unused transactional id.",
        at_least(1),
    ),
]

TRANSACTIONS_DORMANT: Final = [
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        _INT,
        5 * 2**20,
        "Batch size for reading __transaction_state when it is loaded.",
        at_least(1),
    ),
]
