"""A broker loses one of its two log directories: the partitions there move to other brokers, the rest stays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.broker import Setting
from ottla.testing.cluster import Cluster
from support.cluster.traffic import new_topic, numbered, read, write

pytestmark = pytest.mark.xdist_group("cluster")


class TwoDirectories(Cluster):
    """Each broker has two log directories, and notices within moments that one is gone."""

    def log_directories(self, broker: int) -> list[Path]:
        return [self.directory / f"disk-{broker}-{number}" for number in range(2)]

    def broker_settings(self, broker: int) -> dict[str, Setting]:
        return {
            **super().broker_settings(broker),
            "log.dirs": ",".join(map(str, self.log_directories(broker))),
            "replica.high.watermark.checkpoint.interval.ms": 200,
        }


@pytest.fixture
def disks() -> Iterator[TwoDirectories]:
    with TwoDirectories(3) as cluster:
        yield cluster


def test_a_failed_log_directory(disks: TwoDirectories) -> None:
    topic = new_topic(disks, partitions=4)
    write(disks, topic, numbered(0, 200))
    victim = disks.wait_for_leader(topic, 0)
    lost, kept = sorted(disks.log_directories(victim), key=lambda path: not (path / f"{topic}-0").exists())
    partitions = [index for index in range(4) if (lost / f"{topic}-{index}").exists()]
    assert 0 in partitions
    assert len(partitions) < 4
    shutil.rmtree(lost.rename(lost.with_suffix(".gone")))  # at once: the broker goes on writing checkpoints there
    others = set(disks.brokers) - {victim}
    for index in range(4):
        disks.wait_for_isr(topic, index, others if index in partitions else set(disks.brokers))
    write(disks, topic, numbered(200, 400))
    assert sorted(filter(None, read(disks, topic, 400))) == sorted(numbered(0, 400))
    assert disks.brokers[victim].is_running
    disks.brokers[victim].restart()  # the directory is there again, and empty
    for index in range(4):
        disks.wait_for_isr(topic, index, disks.brokers)
    assert any(kept.glob(f"{topic}-*"))
    write(disks, topic, numbered(400, 410))
    assert len(read(disks, topic, 410)) == 410
