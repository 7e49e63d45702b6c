"""The follower's fast path: the same requests and the same logs as the general path, and everything else left to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.step_loop import StepLoop
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.replication.fetching.fast_rounds import FastRounds, RequestTemplate
from ottla.replication.fetching.fetch_loop import FetchLoop
from ottla.replication.fetching.fetch_request import fetch_request
from ottla.replication.fetching.fetch_session import FollowerSession
from ottla.replication.fetching.followed import Followed, Sent
from ottla.replication.fetching.settings import FetchSettings
from ottla.replication.partition import Partition
from ottla.testing.manual_clock import ManualClock
from ottla.wire.codec import encode
from ottla.wire.framing import SIZE_BYTES, read_request, request_frame, response_frame
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.peer import AnyResponse, PeerError
from ottla.wire.schema import Request
from support.replication.following import Following
from support.replication.leader_side import LeaderSide
from support.replication.roles import follow, lead
from support.replication.simulated_replica import SimulatedReplica, batch, content

NAME, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID = Uuid(b"topic-id-of-orde")
REPLICAS = (1, 2)
VERSION = 17


class ScriptedPeer:
    """Answers frames when it is told to, from a leader in memory."""

    def __init__(self, leader: LeaderSide) -> None:
        self.leader = leader
        self.requests: list[FetchRequest] = []
        self.is_open = True
        self.change: Callable[[FetchResponse], FetchResponse] = lambda response: response
        self._answered: Callable[[bytes | memoryview], None] | None = None
        self._failed: Callable[[Exception], None] | None = None

    def exchange(
        self,
        request: type[Request],
        *,
        answered: Callable[[bytes | memoryview], None],
        failed: Callable[[Exception], None],
        timeout_s: float,
    ) -> tuple[ScriptedPeer, str] | None:
        assert (request, timeout_s) == (FetchRequest, 30.0)
        self._answered, self._failed = answered, failed
        return (self, "follower") if self.is_open else None

    def send(self, frame: bytearray) -> None:
        if not self.is_open:
            raise ConnectionError("closed")
        request = read_request(bytes(frame[SIZE_BYTES:])).request
        assert isinstance(request, FetchRequest)
        self.requests.append(request)

    def close(self) -> None:
        self._answered = None

    def is_listened_to(self) -> bool:
        return self._answered is not None

    def answer(self) -> None:
        """Answers the last request. What the follower does happens before this returns."""
        response = self.change(self.leader.fetch(self.requests[-1], VERSION))
        frame = b"".join(response_frame(response, VERSION, 0))
        assert self._answered is not None
        self._answered(frame[SIZE_BYTES:])

    def fail(self) -> None:
        self.is_open = False
        assert self._failed is not None
        self._failed(PeerError("gone"))


class World:
    """Broker 1 leads, broker 2 follows, in a session that has begun."""

    def __init__(self, loop: StepLoop, **config: int) -> None:
        self.loop = loop
        self.clock = ManualClock()
        self.one, self.two = SimulatedReplica(1, loop, self.clock), SimulatedReplica(2, loop, self.clock)
        self.side = LeaderSide(self.one.partitions, VERSION)
        self.following = Following(self.side, self.clock)
        self.peer = ScriptedPeer(self.side)
        self.rounds = 0
        self.config = LogConfig(**config)  # type: ignore[arg-type]
        self.fast = FastRounds(
            self.following.core, self.peer, FetchSettings(), self.clock, loop, on_round=self._count_round
        )
        self.leader, self.follower = self.led(NAME)
        write(self.leader, b"first")
        self.following.steps(2)

    def _count_round(self) -> None:
        self.rounds += 1

    def led(self, name: TopicPartition) -> tuple[Partition, Partition]:
        leader, follower = (each.host(name, ID, self.config) for each in (self.one, self.two))
        lead(leader, leader_epoch=3, isr=REPLICAS, replicas=REPLICAS)
        follow(follower, 1, leader_epoch=3, isr=REPLICAS, replicas=REPLICAS)
        self.following.follow(follower)
        return leader, follower

    def ask(self) -> asyncio.Task[FetchResponse | None]:
        """The task's round: the next request, through the fast path."""
        request = self.following.ask()
        assert isinstance(request, FetchRequest)
        task = self.loop.create_task(self.fast.ask(request, VERSION))
        self.loop.turn()
        return task

    def outcome(self, task: asyncio.Task[FetchResponse | None]) -> FetchResponse | None:
        self.loop.turn()
        assert task.done()
        return task.result()


@pytest.fixture
def loop() -> Iterator[StepLoop]:
    loop = StepLoop()
    yield loop
    loop.close()


def write(partition: Partition, *values: bytes) -> None:
    partition.append(batch(*values), all_replicas=False)


def test_records_are_taken_and_the_next_request_leaves_in_the_same_turn(loop: StepLoop) -> None:
    world = World(loop)
    task = world.ask()
    for count in range(1, 4):
        write(world.leader, b"more")
        world.peer.answer()
        assert len(world.peer.requests) == count + 1
        asked = world.peer.requests[-1].topics[0].partitions[0]
        assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (count + 1, 3, 3)
    assert not task.done()
    assert world.rounds == 3
    world.side.fetch(world.peer.requests[-1], VERSION)
    assert content(world.follower.log) == content(world.leader.log)
    assert world.leader.high_watermark == 4
    task.cancel()
    loop.turn()


def test_the_requests_are_those_of_the_general_path(loop: StepLoop) -> None:
    worlds = World(loop), World(loop)
    fast, general = worlds
    task = fast.ask()
    for values in ([b"a"], [b"b", b"c"], [b"d" * 300]):
        for world in worlds:
            write(world.leader, *values)
        fast.peer.answer()
        general.following.step()
    general.following.ask()
    expected = [encode(each, VERSION) for each in general.following.requests[-4:]]
    assert [encode(each, VERSION) for each in fast.peer.requests] == expected
    assert fast.following.stats == general.following.stats
    task.cancel()
    loop.turn()


def test_an_answer_without_records_goes_to_the_task(loop: StepLoop) -> None:
    world = World(loop)
    task = world.ask()
    world.peer.answer()
    response = world.outcome(task)
    assert response is not None
    assert world.rounds == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda response: _changed(response, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        lambda response: _changed(response, session_id=response.session_id + 1),
        lambda response: _changed(response, responses=response.responses * 2),
        lambda response: _with(response, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        lambda response: _with(response, partition_index=7),
        lambda response: _with(response, records=b""),
    ],
)
def test_any_other_answer_goes_to_the_task(loop: StepLoop, change: Callable[[FetchResponse], FetchResponse]) -> None:
    world = World(loop)
    task = world.ask()
    write(world.leader, b"more")
    before = content(world.follower.log)
    world.peer.change = change
    world.peer.answer()
    assert world.outcome(task) is not None
    assert (content(world.follower.log), world.rounds, len(world.peer.requests)) == (before, 0, 1)


def _changed(response: FetchResponse, **fields: object) -> FetchResponse:
    changed = copy(response)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _with(response: FetchResponse, **fields: object) -> FetchResponse:
    for name, value in fields.items():
        setattr(response.responses[0].partitions[0], name, value)
    return response


def test_a_log_that_somebody_else_changed_is_left_to_the_task(loop: StepLoop) -> None:
    world = World(loop)
    task = world.ask()
    write(world.leader, b"more")
    assert world.follower.truncate(0, leader_epoch=3)
    world.peer.answer()
    assert world.outcome(task) is not None


def test_a_partition_that_left_or_came_is_left_to_the_task(loop: StepLoop) -> None:
    world = World(loop)
    task = world.ask()
    world.following.core.remove(NAME)
    write(world.leader, b"more")
    world.peer.answer()
    assert world.outcome(task) is not None, "an answer for a partition that is not followed any more"
    world = World(loop)
    task = world.ask()
    write(world.leader, b"more")
    world.led(OTHER)
    world.peer.answer()
    assert world.outcome(task) is None, "taken, but the new partition must be asked for"
    assert content(world.follower.log) == content(world.leader.log)
    assert len(world.peer.requests) == 1


def test_a_follower_whose_disk_must_be_waited_for_does_not_ask_on(loop: StepLoop) -> None:
    world = World(loop, flush_messages=1)
    world.two.sync()
    task = world.ask()
    write(world.leader, b"more")
    world.peer.answer()
    assert world.outcome(task) is None
    assert len(world.peer.requests) == 1


def test_a_changed_role_appends_nothing(loop: StepLoop) -> None:
    world = World(loop)
    task = world.ask()
    write(world.leader, b"more")
    before = content(world.follower.log)
    follow(world.follower, 1, leader_epoch=4, isr=REPLICAS, replicas=REPLICAS)
    world.peer.answer()
    assert world.outcome(task) is None
    assert content(world.follower.log) == before
    assert not world.following.core.partitions


def test_a_lost_connection_is_reported_and_opened_again(loop: StepLoop) -> None:
    world = World(loop)
    task = world.ask()
    world.peer.fail()
    loop.turn()
    with pytest.raises(PeerError, match="gone"):
        task.result()
    again = loop.create_task(world.fast.ask(FetchRequest(), VERSION))
    loop.turn(2)
    with pytest.raises(PeerError, match="lost"):
        again.result()


def test_a_cancelled_task_takes_nothing(loop: StepLoop) -> None:
    world = World(loop)
    task = world.ask()
    write(world.leader, b"more")
    before = content(world.follower.log)
    answered = world.peer._answered
    task.cancel()
    loop.turn()
    assert world.peer._answered is None
    world.peer._answered = answered
    world.peer.answer()
    assert content(world.follower.log) == before


class Connected:
    """A peer for a whole fetch loop."""

    def __init__(self, exchange: ScriptedPeer) -> None:
        self.exchange = exchange.exchange
        self.is_closed = False

    async def version_of(self, request: type[Request]) -> int:
        assert request is FetchRequest
        return VERSION

    async def send(self, request: Request, response: type[AnyResponse], **_: object) -> AnyResponse:
        raise AssertionError(f"{request} is not sent as a frame, to be answered with {response}")

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("is_asking", [True, False])
def test_a_fetch_loop_that_is_closed_leaves_no_sender_behind(loop: StepLoop, is_asking: bool) -> None:
    world = World(loop)
    connected = Connected(world.peer)
    fetching = FetchLoop(world.following.core, connected, FetchSettings(), world.clock, loop)
    loop.turn(3)
    assert len(world.peer.requests) == 1
    if not is_asking:
        world.following.core.remove(NAME)
        world.peer.answer()
        loop.turn(3)
    assert world.peer.is_listened_to()
    task = fetching.close()
    loop.turn(2)
    assert (task.cancelled(), world.peer.is_listened_to(), connected.is_closed) == (True, False, True)


INT32, INT64 = st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1)


@given(version=st.integers(15, 18), session=st.tuples(INT32, INT32), numbers=st.tuples(INT64, INT32, INT64))
def test_a_filled_template_is_what_the_codec_writes(
    version: int, session: tuple[int, int], numbers: tuple[int, int, int]
) -> None:
    one, two = _followed(1, 7), _followed(2, 2**31 - 1)
    known = FollowerSession()
    known.session_id, known.epoch = session[0], 5
    one.sent = Sent(1, 2, 3)
    template = RequestTemplate(one, known, 4, 77, version, FetchSettings(), "follower-of-4")
    two.sent, known.epoch = Sent(*numbers), session[1]
    request = fetch_request(
        4, 77, version, known, FetchSettings(), max_wait_ms=500, asked=[(two.topic_id, two)], forgotten=()
    )
    expected = b"".join(request_frame(request, version, 0, "follower-of-4"))
    assert bytes(template.filled(two, two.sent, known.epoch)) == expected
    assert template.fits(session[0], 77, version)
    assert not template.fits(session[0], 78, version)


def _followed(index: int, leader_epoch: int) -> Followed:
    followed = Followed.__new__(Followed)
    followed.name, followed.topic_id = TopicPartition("orders", index), Uuid(bytes([index]) * 16)
    followed.leader_epoch = leader_epoch
    return followed
