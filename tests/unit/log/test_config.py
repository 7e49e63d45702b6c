"""A topic's config as its log reads it."""

from __future__ import annotations

import dataclasses

import pytest

from ottla.base.config import ConfigError
from ottla.log.broker_config import BROKER_SYNONYMS, LOG_BROKER_CONFIG
from ottla.log.config import LogConfig
from ottla.log.topic_config import TOPIC_CONFIG
from ottla.records import Compression, TimestampType


def test_without_settings_everything_is_the_default() -> None:
    assert LogConfig.from_properties({}) == LogConfig()


def test_every_default_satisfies_its_own_rule() -> None:
    for key in TOPIC_CONFIG:
        assert key.parse(key.text(key.default)) == key.default
        assert key.doc


def test_a_topics_settings() -> None:
    config = LogConfig.from_properties(
        {
            "cleanup.policy": "compact",
            "compression.type": "gzip",
            "compression.gzip.level": "4",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": "-1",
        }
    )
    assert (config.compacts, config.deletes) == (True, False)
    assert (config.compression, config.compression_level) == (Compression.GZIP, 4)
    assert config.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.retention_ms == -1


def test_a_topic_overrules_its_broker() -> None:
    broker = {"log.segment.bytes": "2048", "log.retention.hours": "2"}
    assert LogConfig.from_properties({}, broker).segment_bytes == 2048
    assert LogConfig.from_properties({}, broker).retention_ms == 7_200_000
    assert LogConfig.from_properties({"segment.bytes": "4096"}, broker).segment_bytes == 4096


def test_the_finest_unit_wins() -> None:
    broker = {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "-1"}
    assert LogConfig.from_properties({}, broker).retention_ms == -1
    del broker["log.retention.ms"]
    assert LogConfig.from_properties({}, broker).retention_ms == 180_000


def test_any_negative_retention_of_the_broker_is_none() -> None:
    assert LogConfig.from_properties({}, {"log.retention.hours": "-7"}).retention_ms == -1


def test_the_older_bound_on_timestamps_stands_in_for_both_newer_ones() -> None:
    config = LogConfig.from_properties(
        {"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "9"}
    )
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (5, 9)


def test_a_broker_s_wrong_value_is_reported_by_its_own_name() -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.hours: 'long' is not a whole number"):
        LogConfig.from_properties({}, {"log.retention.hours": "long"})
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes: 3 is less than 14"):
        LogConfig.from_properties({}, {"log.segment.bytes": "3"})


def test_lags_must_not_contradict_each_other() -> None:
    with pytest.raises(
        ConfigError, match=r"min\.compaction\.lag\.ms: 9 is more than max\.compaction\.lag\.ms, which is 8"
    ):
        LogConfig.from_properties({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})


def test_synonyms_name_keys_that_exist() -> None:
    assert all(key in TOPIC_CONFIG for key in BROKER_SYNONYMS)
    assert all(synonym in LOG_BROKER_CONFIG for synonym in BROKER_SYNONYMS.values())


def test_a_broker_s_other_keys_are_skipped() -> None:
    assert LogConfig.from_properties({}, {"listeners": "PLAINTEXT://:9092"}) == LogConfig()


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogConfig().segment_bytes = 1  # type: ignore[misc]
