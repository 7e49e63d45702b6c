"""The group coordinator's settings, from the configs of the broker and of groups."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.configs.broker_config import BrokerConfig
from ottla.coordinator.groups.group import ConsumerTimes, GroupSettings

_MS_A_MINUTE = 60_000


def group_settings(config: BrokerConfig, own_consumer_times: Mapping[str, ConsumerTimes]) -> GroupSettings:
    # In Kafka 3.9 the new protocol is a preview, and no group migrates to it by default; in Kafka 4 all groups can.
    policy = "group.consumer.migration.policy"
    return GroupSettings(
        session_timeout_min_ms=config["group.min.session.timeout.ms"],
        session_timeout_max_ms=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        max_size=config["group.max.size"],
        consumer_times=ConsumerTimes(
            session_timeout_ms=config["group.consumer.session.timeout.ms"],
            heartbeat_interval_ms=config["group.consumer.heartbeat.interval.ms"],
        ),
        own_consumer_times=own_consumer_times,
        consumer_max_size=config["group.consumer.max.size"],
        consumer_assignors=tuple(_assignor(each) for each in config["group.consumer.assignors"]),
        consumer_migration_policy=config[policy].lower() if policy in config.given else "bidirectional",
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * _MS_A_MINUTE,
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
    )


def _assignor(name: str) -> str:
    """By the name of Kafka's class (UniformAssignor), or by its short name (uniform)."""
    return name.rpartition(".")[2].removesuffix("Assignor").lower()
