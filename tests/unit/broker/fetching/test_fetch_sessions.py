"""Which session must go when all slots are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.base.ids import ZERO_UUID
from ottla.broker.fetching.fetch_sessions import BrokerFetchSession, FetchedPartition, FetchSessions
from ottla.broker.fetching.follower_session import FollowerSession
from ottla.replication.delayed import Purgatory
from ottla.replication.environment import FollowerReader
from ottla.testing.manual_clock import ManualClock
from ottla.wire.messages.fetch import FetchPartition

OLD_S = 121


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Sessions:
    """Two slots, and a clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = ManualClock()
        self.all = FetchSessions(2, self.clock)
        self._fetches: Purgatory[FollowerReader] = Purgatory("fetch", loop)

    def begin(self, size: int, *, is_follower: bool = False) -> BrokerFetchSession | None:
        now_s = self.clock.monotonic_s()
        session: BrokerFetchSession | None
        if is_follower:
            session = self.all.keep(FollowerSession(0, 2, self._fetches, by_id=False, now_s=now_s), size)
        else:
            session = self.all.begin(by_id=False, partition_count=size)
        if session is not None:
            session.partitions = {
                ("t", index): FetchedPartition("t", ZERO_UUID, FetchPartition(partition=index)) for index in range(size)
            }
        return session

    def has(self, session: BrokerFetchSession | None) -> bool:
        return session is not None and session.session_id in self.all._sessions


def test_a_new_session_does_not_replace_a_young_one(loop: asyncio.AbstractEventLoop) -> None:
    sessions = Sessions(loop)
    kept = [sessions.begin(1), sessions.begin(2)]
    assert sessions.begin(9) is None
    assert all(map(sessions.has, kept))


def test_a_followers_session_replaces_the_smallest_of_a_consumer_of_any_age(loop: asyncio.AbstractEventLoop) -> None:
    sessions = Sessions(loop)
    small, large = sessions.begin(1), sessions.begin(5)
    assert sessions.begin(1, is_follower=True) is not None
    assert (sessions.has(small), sessions.has(large)) == (False, True)
    assert sessions.begin(2, is_follower=True) is not None
    assert not sessions.has(large)
    assert sessions.begin(9, is_follower=True) is None, "both are young and of followers"


def test_a_consumers_session_never_replaces_one_of_a_follower_in_use(loop: asyncio.AbstractEventLoop) -> None:
    sessions = Sessions(loop)
    kept = [sessions.begin(1, is_follower=True), sessions.begin(1, is_follower=True)]
    sessions.clock.advance_ms(OLD_S * 1000)
    for session in kept:
        assert session is not None
        session.used_s = sessions.clock.monotonic_s()
    assert sessions.begin(50) is None
    assert sessions.begin(50, is_follower=True) is not None


def test_a_session_that_is_not_used_goes_first(loop: asyncio.AbstractEventLoop) -> None:
    sessions = Sessions(loop)
    idle, used = sessions.begin(9, is_follower=True), sessions.begin(1)
    sessions.clock.advance_ms(OLD_S * 1000)
    assert used is not None
    used.used_s = sessions.clock.monotonic_s()
    assert sessions.begin(1) is not None
    assert (sessions.has(idle), sessions.has(used)) == (False, True)
