"""Loops of followers: connections, extra loops for new partitions, stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.base.clock import SystemClock
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.replication.fetching.fetchers import Fetchers
from ottla.replication.fetching.settings import FetchSettings
from ottla.replication.partition import Partition
from ottla.testing.manual_clock import ManualClock
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.peer import AnyResponse, PeerError
from ottla.wire.schema import Request
from support.replication.following import through_wire
from support.replication.leader_side import LeaderSide
from support.replication.roles import follow, lead
from support.replication.simulated_replica import SimulatedReplica, batch
from support.waiting import until

ID = Uuid(b"topic-id-of-orde")


class FakePeer:
    """A connection to a leader in memory. A fetch without news waits for `news`."""

    def __init__(self, cluster: Cluster, leader_id: int) -> None:
        self.cluster = cluster
        self.leader_id = leader_id
        self.is_closed = False
        self.requests: list[Request] = []

    async def version_of(self, _: type[Request]) -> int:
        self._check()
        return 17

    async def send(
        self,
        request: Request,
        response: type[AnyResponse],
        *,
        version: int | None = None,
        timeout_s: float | None = None,  # noqa: ARG002
    ) -> AnyResponse:
        self._check()
        self.requests.append(request)
        await asyncio.sleep(0)
        side = self.cluster.sides[self.leader_id]
        answer = through_wire(side, request, version or 17)
        if isinstance(request, FetchRequest) and isinstance(answer, FetchResponse) and not answer.responses:
            await self.cluster.news.wait()
            self._check()
            request.topics, request.forgotten_topics_data = [], []
            request.session_epoch += 1
            session = side.sessions[request.session_id]
            session.epoch = request.session_epoch
            answer = through_wire(side, request, version or 17)
            session.epoch = request.session_epoch
        self._check()
        assert isinstance(answer, response)
        return answer

    def _check(self) -> None:
        if self.is_closed or self.leader_id in self.cluster.gone:
            raise PeerError(f"broker {self.leader_id} is gone", is_refused=True)

    def close(self) -> None:
        self.is_closed = True


class Cluster:
    """Broker 2 follows brokers 1 and 3."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        clock = ManualClock()
        self.news = asyncio.Event()
        self.gone: set[int] = set()
        self.peers: list[FakePeer] = []
        self.new_peer = FakePeer
        self.replicas = {broker: SimulatedReplica(broker, loop, clock) for broker in (1, 2, 3)}
        self.sides = {broker: LeaderSide(self.replicas[broker].partitions) for broker in (1, 3)}
        settings = FetchSettings(backoff_ms=100)
        self.fetchers = Fetchers(self._open, 2, lambda: 5, settings, SystemClock(), loop)

    def _open(self, leader_id: int) -> FakePeer:
        peer = self.new_peer(self, leader_id)
        self.peers.append(peer)
        return peer

    def host(self, number: int, leader_id: int, epoch: int = 0) -> tuple[Partition, Partition]:
        name = TopicPartition("orders", number)
        known = [self.replicas[broker].partitions.get(name) for broker in (leader_id, 2)]
        leader, follower = (
            partition or self.replicas[broker].host(name, ID, LogConfig())
            for partition, broker in zip(known, (leader_id, 2), strict=True)
        )
        lead(leader, leader_epoch=epoch, isr=(leader_id, 2), replicas=(1, 2, 3))
        follow(follower, leader_id, leader_epoch=epoch)
        return leader, follower

    def tell_news(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    @property
    def open_peers(self) -> list[int]:
        return [peer.leader_id for peer in self.peers if not peer.is_closed]


def run(work: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        try:
            await asyncio.wait_for(work(cluster), 20)
        finally:
            await cluster.fetchers.close()

    asyncio.run(main())


def write(partition: Partition) -> None:
    partition.append(batch(b"value"), all_replicas=False)


def end_of(partition: Partition) -> int:
    return -1 if partition.log is None else partition.log.next_offset


def test_partitions_of_several_leaders_are_copied() -> None:
    async def work(cluster: Cluster) -> None:
        pairs = [cluster.host(number, leader) for number, leader in enumerate((1, 3, 1))]
        for leader, _ in pairs:
            write(leader)
        cluster.fetchers.follow([follower for _, follower in pairs])
        await until(lambda: all(end_of(follower) == 1 for _, follower in pairs))
        assert sorted(cluster.open_peers) == [1, 3]
        assert (len(cluster.fetchers), cluster.fetchers.lane_count) == (3, 2)
        assert cluster.fetchers.bytes_in > 0
        await until(lambda: cluster.fetchers.max_lag() == 0 and pairs[0][1].high_watermark == 1)

    run(work)


def test_a_new_partition_does_not_wait_for_a_fetch_that_waits_for_news() -> None:
    async def work(cluster: Cluster) -> None:
        first, copy = cluster.host(0, 1)
        cluster.fetchers.follow([copy])
        await until(lambda: len(cluster.peers) == 1 and len(cluster.peers[0].requests) == 2)
        second, copy_of_second = cluster.host(1, 1)
        write(second)
        cluster.fetchers.follow([copy_of_second])
        await until(lambda: second.high_watermark == 1)  # the first fetch still waits
        assert len(cluster.peers[0].requests) == 2
        assert cluster.open_peers == [1, 1]
        write(first)
        cluster.tell_news()
        await until(lambda: first.high_watermark == 1)
        assert cluster.open_peers == [1]
        write(second)
        cluster.tell_news()
        await until(lambda: second.high_watermark == 2)
        assert cluster.peers[1].is_closed

    run(work)


def test_a_leader_that_is_gone_is_tried_until_another_one_leads() -> None:
    async def work(cluster: Cluster) -> None:
        leader, copy = cluster.host(0, 1)
        write(leader)
        cluster.fetchers.follow([copy])
        await until(lambda: end_of(copy) == 1)
        cluster.gone.add(1)
        cluster.tell_news()
        await until(lambda: cluster.fetchers.stats.lost_count >= 2)
        new = cluster.replicas[3].host(copy.name, ID, LogConfig())
        assert new.log is not None
        new.log.append_as_follower(batch(b"value"))
        lead(new, leader_epoch=1, isr=(3, 2), replicas=(1, 2, 3))
        write(new)
        follow(copy, 3, leader_epoch=1)
        cluster.fetchers.follow([copy])
        await until(lambda: end_of(copy) == 2)
        assert cluster.open_peers == [3]

    run(work)


def test_a_leader_that_comes_back_is_found_again() -> None:
    async def work(cluster: Cluster) -> None:
        leader, copy = cluster.host(0, 1)
        cluster.gone.add(1)
        cluster.fetchers.follow([copy])
        await until(lambda: cluster.fetchers.stats.lost_count >= 2)
        write(leader)
        cluster.gone.clear()
        await until(lambda: end_of(copy) == 1)

    run(work)


def test_nothing_is_appended_after_stop() -> None:
    async def work(cluster: Cluster) -> None:
        leader, copy = cluster.host(0, 1)
        other, copy_of_other = cluster.host(1, 1)
        cluster.fetchers.follow([copy, copy_of_other])
        await until(lambda: bool(cluster.peers) and len(cluster.peers[0].requests) == 2)
        write(leader)
        write(other)
        cluster.tell_news()
        cluster.fetchers.stop([copy.name])  # its records are in the answer that is under way
        await until(lambda: end_of(copy_of_other) == 1)
        assert end_of(copy) == 0
        cluster.fetchers.stop([copy_of_other.name])
        assert (cluster.fetchers.lane_count, cluster.open_peers) == (0, [])

    run(work)


def test_the_same_leader_and_epoch_go_on_undisturbed() -> None:
    async def work(cluster: Cluster) -> None:
        _, copy = cluster.host(0, 1)
        cluster.fetchers.follow([copy])
        await until(lambda: bool(cluster.peers) and len(cluster.peers[0].requests) == 2)
        cluster.fetchers.follow([copy])
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(cluster.peers) == 1
        assert len(cluster.peers[0].requests) == 2

    run(work)


def test_a_partition_without_a_leader_is_not_followed() -> None:
    async def work(cluster: Cluster) -> None:
        _, copy = cluster.host(0, 1)
        cluster.fetchers.follow([copy])
        follow(copy, -1, leader_epoch=1)
        cluster.fetchers.follow([copy])
        assert (len(cluster.fetchers), cluster.fetchers.lane_count) == (0, 0)

    run(work)


def test_a_failed_partition_is_counted_until_it_is_followed_again() -> None:
    async def work(cluster: Cluster) -> None:
        leader, copy = cluster.host(0, 1)
        lead(leader, leader_epoch=1, isr=(1, 2), replicas=(1, 2, 3))
        cluster.fetchers.follow([copy])
        await until(lambda: cluster.fetchers.failed_count == 1)
        follow(copy, 1, leader_epoch=1)
        write(leader)
        cluster.fetchers.follow([copy])
        assert cluster.fetchers.failed_count == 0
        await until(lambda: end_of(copy) == 1)

    run(work)


def test_more_fetchers_share_the_partitions() -> None:
    async def work(cluster: Cluster) -> None:
        pairs = [cluster.host(number, 1) for number in range(12)]
        cluster.fetchers.follow([follower for _, follower in pairs])
        cluster.fetchers.resize(3)
        for leader, _ in pairs:
            write(leader)
        await until(lambda: all(end_of(follower) == 1 for _, follower in pairs))
        assert cluster.fetchers.lane_count == 3

    run(work)


def test_a_loop_ends_even_if_its_peer_takes_the_cancellation_for_a_failure() -> None:
    class Connecting(FakePeer):
        async def version_of(self, _: type[Request]) -> int:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise PeerError("the link is closed") from None
            return 17

    async def work(cluster: Cluster) -> None:
        cluster.new_peer = Connecting
        _, copy = cluster.host(0, 1)
        cluster.fetchers.follow([copy])
        await until(lambda: len(cluster.peers) == 1)
        await asyncio.sleep(0)
        await asyncio.wait_for(cluster.fetchers.close(), 10)

    run(work)


def test_nothing_is_followed_after_close() -> None:
    async def work(cluster: Cluster) -> None:
        leader, copy = cluster.host(0, 1)
        cluster.fetchers.follow([copy])
        await cluster.fetchers.close()
        write(leader)
        cluster.fetchers.follow([copy])
        assert (len(cluster.fetchers), cluster.open_peers) == (0, [])

    run(work)


def test_a_loop_ends_without_a_word_although_its_cancellation_becomes_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A link that is closed while it answers reports that it is closed; the cancellation is lost in it."""

    async def work(cluster: Cluster) -> None:
        class ClosingPeer(FakePeer):
            async def send(self, *_: Any, **__: Any) -> Any:
                is_asked.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    raise PeerError("the link is closed") from None

        is_asked = asyncio.Event()
        cluster.fetchers._open_peer = lambda leader_id: ClosingPeer(cluster, leader_id)
        _, follower = cluster.host(0, leader_id=1)
        cluster.fetchers.follow([follower])
        await is_asked.wait()
        before = asyncio.all_tasks()
        await cluster.fetchers.close()
        assert len(asyncio.all_tasks()) < len(before)
        assert not caplog.records

    run(work)
