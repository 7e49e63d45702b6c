"""Where a follower cuts its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.leader_epochs import LeaderEpochs
from ottla.replication.fetching.truncation import Cut, cut_for
from ottla.testing.simulated_disk import SimulatedDisk


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "cut"),
    [
        (5, 25, Cut(25, is_final=True)),  # both know it, the leader has less of it
        (5, 40, Cut(30, is_final=True)),  # this log has less of it
        (3, 15, Cut(15, is_final=True)),
        (3, 25, Cut(20, is_final=True)),
        (4, 28, Cut(20, is_final=False)),  # unknown here: the end of epoch 3, and ask again
        (1, 4, Cut(4, is_final=True)),  # below all: its end, or the start of the first
        (1, 12, Cut(10, is_final=True)),
        (9, 28, Cut(28, is_final=True)),  # above all
        (-1, 25, Cut(25, is_final=True)),  # a leader that does not name epochs
        (-1, -1, Cut(7, is_final=True)),  # one that does not know: the high watermark
    ],
)
def test_the_cut(leader_epoch: int, leader_end: int, cut: Cut) -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("/log"))
    epochs = LeaderEpochs(disk, Path("/log"), is_new=True)
    epochs.assign(3, 10)
    epochs.assign(5, 20)
    assert cut_for(leader_epoch, leader_end, epochs, log_end=30, high_watermark=7) == cut
