"""A leader and its followers in one epoch."""

from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.replication.errors import ReplicationError
from ottla.replication.leadership import Leadership
from ottla.replication.role import PartitionRole

LAG_MAX_S = 30.0


def fetch(leadership: Leadership, offset: int, broker_epoch: int, now_s: float = 0.0) -> None:
    leadership.fetched(
        2,
        fetch_offset=offset,
        log_start_offset=0,
        leader_end=10,
        broker_epoch=broker_epoch,
        now_s=now_s,
        lag_max_s=LAG_MAX_S,
    )


@pytest.fixture
def leadership() -> Leadership:
    return Leadership(1, PartitionRole(1, 0, (1,), (1, 2)), epoch_start=0, now_s=0.0)


def test_a_proposal_keeps_the_broker_epochs_that_it_was_made_with(leadership: Leadership) -> None:
    fetch(leadership, 10, broker_epoch=5)
    assert leadership.try_expand(leadership.followers[2], high_watermark=10) is not None
    fetch(leadership, 3, broker_epoch=6)  # restarted, and lost records
    assert leadership.proposed_epochs == {2: 5}


def test_a_fetch_from_before_a_restart_is_refused(leadership: Leadership) -> None:
    fetch(leadership, 3, broker_epoch=6)
    with pytest.raises(ReplicationError, match="but has 6 by now") as refused:
        fetch(leadership, 10, broker_epoch=5, now_s=1.0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leadership.followers[2].log_end == 3
    fetch(leadership, 4, broker_epoch=-1, now_s=2.0)  # an older broker does not say


def test_a_forged_epoch_shuts_the_follower_out_only_for_a_while(leadership: Leadership) -> None:
    fetch(leadership, 3, broker_epoch=6)
    fetch(leadership, 3, broker_epoch=2**62, now_s=1.0)
    for now_s in (1.5, 20.0, 1.0 + LAG_MAX_S):
        with pytest.raises(ReplicationError):
            fetch(leadership, 4, broker_epoch=6, now_s=now_s)
    fetch(leadership, 4, broker_epoch=6, now_s=1.5 + LAG_MAX_S)
    fetch(leadership, 5, broker_epoch=6, now_s=2.0 + LAG_MAX_S)
    assert (leadership.followers[2].log_end, leadership.followers[2].broker_epoch) == (5, 6)
