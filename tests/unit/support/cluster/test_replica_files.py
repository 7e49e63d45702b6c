"""A replica is read from its segments as it lies there, damage included."""

from __future__ import annotations

from pathlib import Path

from ottla.base.ids import TopicPartition
from ottla.log.checkpoints import OffsetCheckpoint
from ottla.log.local_disk import LocalDisk
from ottla.log.names import HIGH_WATERMARKS, LOG_START_OFFSETS
from support.cluster.checker import Place
from support.cluster.replica_files import read_replica
from support.logs.batches import batch

PLACE = Place("orders", 3)


def test_a_replica_has_all_batches_of_all_segments(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    first, second = batch(2, base_offset=4, leader_epoch=1), batch(1, base_offset=6, leader_epoch=2)
    second[-1] ^= 1
    (folder / "00000000000000000004.log").write_bytes(first)
    (folder / "00000000000000000006.log").write_bytes(second)
    replica = read_replica(2, tmp_path, PLACE)
    assert (replica.broker, replica.log_start, replica.log_end) == (2, 4, 7)
    assert [(each.base_offset, each.last_offset, each.leader_epoch) for each in replica.batches] == [
        (4, 5, 1),
        (6, 6, 2),
    ]
    assert [each.is_whole for each in replica.batches] == [True, False]


def test_a_log_may_start_within_a_segment(tmp_path: Path) -> None:
    OffsetCheckpoint(LocalDisk(), tmp_path / LOG_START_OFFSETS).write({TopicPartition(*PLACE): 5})
    OffsetCheckpoint(LocalDisk(), tmp_path / HIGH_WATERMARKS).write({TopicPartition(*PLACE): 7})
    replica = read_replica(1, tmp_path, PLACE)
    assert (replica.log_start, replica.high_watermark) == (5, 7)
