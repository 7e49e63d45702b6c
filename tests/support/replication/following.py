"""A follower's core that talks to a leader's side, step by step, through the wire's codec."""

from __future__ import annotations

from ottla.base.ids import TopicPartition
from ottla.replication.fetching.fetcher_core import FetcherCore, FetchStats
from ottla.replication.fetching.followed import Followed
from ottla.replication.fetching.replication_quota import ReplicationQuota
from ottla.replication.fetching.settings import FetchSettings
from ottla.replication.partition import Partition
from ottla.testing.manual_clock import ManualClock
from ottla.wire.codec import decode, encode
from ottla.wire.framing import api_of
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.schema import Request, Response
from support.replication.leader_side import LeaderSide


def through_wire(leader: LeaderSide, request: Request, fetch_version: int) -> Response:
    """The leader's answer to a request that was encoded and decoded in its version, as was the answer."""
    api = api_of(request.api_key)
    version = fetch_version if isinstance(request, FetchRequest) else api.request.versions.high
    asked = decode(api.request, version, bytes(encode(request, version)))
    answer = leader.answer(asked, version)
    return decode(api.response, version, memoryview(bytes(encode(answer, version))))


class Following:
    """A core with one leader."""

    def __init__(
        self, leader: LeaderSide, clock: ManualClock, settings: FetchSettings | None = None, broker_id: int = 2
    ) -> None:
        self.leader = leader
        self.clock = clock
        self.stats = FetchStats()
        self.quota = ReplicationQuota(clock.monotonic_s)
        self.core = FetcherCore(1, broker_id, lambda: 77, settings or FetchSettings(), self.quota, self.stats)
        self.requests: list[Request] = []

    def follow(self, *partitions: Partition) -> list[Followed]:
        new = [Followed(partition) for partition in partitions]
        for followed in new:
            self.core.remove(followed.name)
            self.core.add(followed)
        return new

    def ask(self) -> Request | None:
        request = self.core.next_request(self.clock.monotonic_s(), self.leader.fetch_version)
        if request is not None:
            self.requests.append(request)
        return request

    def take(self, request: Request, response: Response) -> None:
        for _ in self.core.answered(request, response, self.clock.monotonic_s()):
            pass

    def step(self) -> Request | None:
        """One request and its answer; None if there was nothing to ask."""
        request = self.ask()
        if request is not None:
            version = self.core.fetch_version(self.leader.fetch_version)
            self.take(request, through_wire(self.leader, request, version))
        return request

    def steps(self, count: int) -> None:
        for _ in range(count):
            if self.step() is None:
                return

    def fetched(self) -> dict[TopicPartition | int, tuple[int, int]]:
        """Partition number → (offset, last epoch) of the last Fetch request."""
        request = self.requests[-1]
        assert isinstance(request, FetchRequest)
        return {
            each.partition: (each.fetch_offset, each.last_fetched_epoch)
            for topic in request.topics
            for each in topic.partitions
        }
