"""Rates of throttled replicas."""

from __future__ import annotations

import pytest

from ottla.base.ids import TopicPartition
from ottla.replication.fetching.replication_quota import ReplicationQuota, ReplicationQuotas
from ottla.testing.manual_clock import ManualClock

NAME = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("value", "throttled"),
    [("*", [0, 1, 2]), ("0:7,2:7,1:8", [0, 2]), ("1:8", []), ("", []), (" 0:7 ", [0])],
)
def test_which_replicas_are_listed(value: str, throttled: list[int]) -> None:
    quota = ReplicationQuota(ManualClock().monotonic_s)
    quota.set_replicas("orders", "*", 7)
    quota.set_replicas("orders", value, 7)
    assert [n for n in range(3) if quota.is_throttled(TopicPartition("orders", n))] == throttled
    assert not quota.is_throttled(TopicPartition("others", 0))


def test_the_rate_is_that_of_eleven_seconds() -> None:
    clock = ManualClock()
    quota = ReplicationQuota(clock.monotonic_s, limit=100)
    quota.set_replicas("orders", "*", 7)
    assert quota.rate() == 0
    quota.record(NAME, 500)
    assert quota.rate() == 500  # the first window counts as a whole second
    assert quota.is_exceeded
    clock.advance_ms(4000)
    assert quota.rate() == 125
    clock.advance_ms(1000)
    assert quota.rate() == 100
    assert not quota.is_exceeded
    quota.record(NAME, 500)
    assert quota.rate() == 200
    clock.advance_ms(6000)
    assert quota.rate() == pytest.approx(500 / 6)
    clock.advance_ms(6000)
    assert quota.rate() == 0


def test_bytes_of_other_replicas_do_not_count() -> None:
    quota = ReplicationQuota(ManualClock().monotonic_s, limit=1)
    quota.record(NAME, 500)
    assert quota.rate() == 0


def test_only_listed_replicas_that_are_behind_wait() -> None:
    quota = ReplicationQuota(ManualClock().monotonic_s, limit=1)
    quota.set_replicas("orders", "0:7", 7)
    quota.record(NAME, 500)
    assert quota.must_wait(NAME, is_in_sync=False)
    assert not quota.must_wait(NAME, is_in_sync=True)
    assert not quota.must_wait(TopicPartition("orders", 1), is_in_sync=False)
    quota.limit = None
    assert not quota.must_wait(NAME, is_in_sync=False)


def test_both_directions_take_their_own_configs() -> None:
    quotas = ReplicationQuotas(7, ManualClock().monotonic_s)
    quotas.set_rates(leader=10, follower=None)
    config = {"leader.replication.throttled.replicas": "0:7", "follower.replication.throttled.replicas": "1:7"}
    quotas.set_topic("orders", config)
    assert (quotas.leader.limit, quotas.follower.limit) == (10, None)
    listed = [
        (quotas.leader.is_throttled(name), quotas.follower.is_throttled(name))
        for name in (NAME, TopicPartition("orders", 1))
    ]
    assert listed == [(True, False), (False, True)]
    quotas.set_topic("orders", {})
    assert not quotas.leader.is_throttled(NAME)
