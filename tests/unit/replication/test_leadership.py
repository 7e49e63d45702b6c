"""A leader and its followers in one epoch."""

from __future__ import annotations

from ottla.replication.leadership import Leadership
from ottla.replication.role import PartitionRole


def test_a_proposal_keeps_the_broker_epochs_that_it_was_made_with() -> None:
    leadership = Leadership(1, PartitionRole(1, 0, (1,), (1, 2)), epoch_start=0, now_s=0.0)

    def fetch(offset: int, broker_epoch: int) -> None:
        leadership.fetched(
            2, fetch_offset=offset, log_start_offset=0, leader_end=10, broker_epoch=broker_epoch, now_s=0.0
        )

    fetch(10, broker_epoch=5)
    assert leadership.try_expand(leadership.followers[2], high_watermark=10) is not None
    fetch(3, broker_epoch=6)  # restarted, and lost records
    assert leadership.proposed_epochs == {2: 5}
