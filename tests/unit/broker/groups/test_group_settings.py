from __future__ import annotations

from ottla.broker.configs.broker_config import BrokerConfig
from ottla.broker.groups.group_settings import group_settings
from ottla.coordinator.groups.group import ConsumerTimes, GroupSettings


def test_without_settings_it_is_kafkas_defaults() -> None:
    assert group_settings(BrokerConfig({}), {}) == GroupSettings()


def test_keys_are_read() -> None:
    settings = group_settings(
        BrokerConfig(
            {
                "group.consumer.assignors": "range, org.apache.kafka.coordinator.group.assignor.UniformAssignor",
                "group.consumer.migration.policy": "Upgrade",
                "group.initial.rebalance.delay.ms": "0",
                "group.consumer.session.timeout.ms": "50000",
                "offsets.retention.minutes": "2",
            }
        ),
        {"own": ConsumerTimes(55_000, 6_000)},
    )
    assert settings.consumer_assignors == ("range", "uniform")
    assert settings.consumer_migration_policy == "upgrade"
    assert settings.consumer_times_of("g") == ConsumerTimes(50_000, 5_000)
    assert settings.consumer_times_of("own") == ConsumerTimes(55_000, 6_000)
    assert settings.initial_rebalance_delay_ms == 0
    assert settings.offsets_retention_ms == 120_000
