"""What is told of failing upkeep, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.ids import TopicPartition
from ottla.broker.observability.upkeep_stats import UpkeepStats
from ottla.log.config import LogConfig
from ottla.log.loader import LoadOptions, load
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.testing.manual_clock import ManualClock


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    name = TopicPartition("orders", 0)
    return load(LocalDisk(), ManualClock(), tmp_path / str(name), name, LogConfig(), LoadOptions())


def test_a_failing_task_is_counted_each_time_and_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    stats = UpkeepStats(clock)

    def fail(task: str) -> None:
        try:
            raise ValueError("a bug")
        except ValueError:
            stats.task_failed(task)

    for _ in range(5):
        fail("flush")
    fail("removal")
    assert [record.args for record in caplog.records] == [("flush",), ("removal",)]
    assert caplog.records[0].exc_info is not None
    clock.advance_ms(60_000)
    fail("flush")
    assert len(caplog.records) == 3
    assert stats.failures == {"flush": 6, "removal": 1}


def test_a_failing_log_is_logged_once_per_reason_and_when_it_recovers(
    log: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stats = UpkeepStats(ManualClock())
    for reason in ("torn", "torn", "worse", "worse"):
        stats.retention_failed(log, ValueError(reason))
    assert stats.not_retained == [log.directory]
    stats.retained(log)
    stats.retained(log)
    assert stats.not_retained == []
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "INFO"]
    stats.retention_failed(log, ValueError("torn"))
    stats.forget(log.directory)
    assert stats.not_retained == []
    assert stats.failures["retention"] == 5
