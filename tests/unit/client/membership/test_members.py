"""Members on bad days of a coordinator, in both protocols."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.cluster import Deadline
from ottla.client.errors import ClientError, RefusedError
from ottla.client.membership.assignors import GroupMember
from ottla.client.membership.blobs import read_assignment, read_subscription, subscription_blob
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.schema import Request
from support.clients.scripted_broker import Answer, HangUp, Silence
from support.groups.driven_members import DrivenMember, Told, until
from unit.client.membership.scripted_group import ScriptedGroup

EVENTS = [TopicPartition("events", 0)]
SETTINGS: dict[str, Any] = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2, "retry_backoff_ms": 1}
COOPERATIVE = {**SETTINGS, "partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 10}
CONSUMER = {**SETTINGS, "group_protocol": "consumer"}


def run(broker: ScriptedGroup, settings: dict[str, Any], scenario: Callable[[DrivenMember], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30), broker:
            member = DrivenMember(broker.bootstrap, "group", **settings)
            try:
                await scenario(member)
            finally:
                await member.close()

    asyncio.run(bounded())


async def settled(member: DrivenMember, partitions: Sequence[TopicPartition] = EVENTS) -> None:
    await until(lambda: member.owned == set(partitions) and not member.membership.needs_poll(), member)


def some_bad_days(seed: int, request: type[Request]) -> list[ErrorCode | HangUp]:
    """What a coordinator that loads, moves or falls over answers."""
    chance = random.Random(f"{seed} {request.__name__}")
    passing: list[ErrorCode | HangUp] = [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NONE,
        HangUp(),
    ]
    more: dict[type[Request], list[ErrorCode | HangUp]] = {
        FindCoordinatorRequest: [],
        JoinGroupRequest: [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS],
        SyncGroupRequest: [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ],
        HeartbeatRequest: [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ],
        ConsumerGroupHeartbeatRequest: [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH],
    }
    if request is FindCoordinatorRequest:
        passing.remove(ErrorCode.NOT_COORDINATOR)
    return chance.choices([*passing, *more[request]], k=6)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("settings", [COOPERATIVE, CONSUMER], ids=["cooperative", "consumer"])
def test_in_the_end_a_member_has_its_partitions(settings: dict[str, Any], seed: int) -> None:
    requests: list[type[Request]] = (
        [FindCoordinatorRequest, ConsumerGroupHeartbeatRequest]
        if settings is CONSUMER
        else [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest]
    )
    bad = {request: some_bad_days(seed, request) for request in requests}
    broker = ScriptedGroup(bad=bad)

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await until(lambda: not bad[requests[-1]], member)
        await settled(member)
        # What was lost was told, before it came again.
        held = 0
        for kind, partitions in member.told.events:
            held += len(partitions) if kind == "assigned" else -len(partitions)
            assert held in (0, 1)
        assert held == 1

    run(broker, settings, scenario)


@pytest.mark.parametrize("request_type", [JoinGroupRequest, SyncGroupRequest])
def test_what_does_not_pass_comes_out_of_poll_and_the_next_one_tries_again(request_type: type[Request]) -> None:
    broker = ScriptedGroup(bad={request_type: [ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED]})
    if request_type is SyncGroupRequest:
        broker.bad[request_type].pop(0)

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await until(lambda: member.failure is not None)
        assert isinstance(member.failure, RefusedError)
        assert member.failure.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        await member.idle()
        member.failure = None
        member.begin()
        await settled(member)

    run(broker, SETTINGS, scenario)


def test_partitions_of_a_lost_member_are_lost_before_it_joins_again() -> None:
    """A cooperative member must not say that it owns what may be another's by now."""
    broker = ScriptedGroup()

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await settled(member)
        broker.requests.clear()
        broker.bad[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        broker.bad[SyncGroupRequest] = [ErrorCode.UNKNOWN_MEMBER_ID]
        await until(lambda: member.told.all("lost") == EVENTS, member)
        await settled(member)
        owned = [
            read_subscription("", None, one.protocols[0].metadata).owned
            for one in broker.requests
            if isinstance(one, JoinGroupRequest)
        ]
        assert owned == [EVENTS, [], []]  # with the id that it had; without one; with the new one

    run(broker, COOPERATIVE, scenario)


def test_a_leader_that_is_not_to_assign_does_not() -> None:
    broker = ScriptedGroup(skip_assignment=True)

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await until(lambda: bool(broker.of(SyncGroupRequest)), member)
        await settled(member, [])
        (sync,) = broker.of(SyncGroupRequest)
        assert isinstance(sync, SyncGroupRequest)
        assert not sync.assignments
        broker.skip_assignment = False
        broker.topics["events"] = 2  # and yet it looks after the topics
        await settled(member, [*EVENTS, TopicPartition("events", 1)])

    run(broker, {**SETTINGS, "metadata_max_age_ms": 20}, scenario)


@pytest.mark.parametrize("instance", [None, "one"])
def test_leaving_sends_leave_group_except_for_static_members(instance: str | None) -> None:
    broker = ScriptedGroup()

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await settled(member)
        await member.close()
        left = broker.of(LeaveGroupRequest)
        assert len(left) == (0 if instance else 1)
        for one in left:
            assert isinstance(one, LeaveGroupRequest)
            assert (one.members[0].member_id, one.members[0].reason) == ("member-1", "the consumer is closed")

    run(broker, {**SETTINGS, "group_instance_id": instance}, scenario)


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("one", -2)])
def test_who_leaves_a_consumer_group_says_for_how_long(instance: str | None, epoch: int) -> None:
    broker = ScriptedGroup()

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await settled(member)
        await member.close()
        last = broker.of(ConsumerGroupHeartbeatRequest)[-1]
        assert isinstance(last, ConsumerGroupHeartbeatRequest)
        assert (last.member_epoch, last.instance_id) == (epoch, instance)

    run(broker, {**CONSUMER, "group_instance_id": instance}, scenario)


def test_heartbeats_of_a_consumer_group_say_only_what_is_new() -> None:
    broker = ScriptedGroup(topics={"events": 2})

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await settled(member)
        count = len(broker.requests)
        await until(lambda: len(broker.requests) >= count + 3, member)
        first, *others = [one for one in broker.requests if isinstance(one, ConsumerGroupHeartbeatRequest)]
        assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["events"], [])
        assert first.rebalance_timeout_ms == 300_000
        assert all(one.subscribed_topic_names is None and one.rebalance_timeout_ms == -1 for one in others)
        # What it owns was said once.
        assert [one.topic_partitions[0].partitions for one in others if one.topic_partitions] == [[0]]
        # After an answer that did not come, all of it is said again.
        broker.bad[ConsumerGroupHeartbeatRequest] = [HangUp()]
        broker.target = [0, 1]
        await settled(member, [*EVENTS, TopicPartition("events", 1)])

    run(broker, CONSUMER, scenario)


def test_a_broker_without_the_consumer_protocol() -> None:
    broker = ScriptedGroup(unserved=frozenset({ConsumerGroupHeartbeatRequest.api_key}))

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await until(lambda: member.failure is not None)
        assert isinstance(member.failure, ClientError)
        assert "group.protocol=classic" in str(member.failure)

    run(broker, CONSUMER, scenario)


BOTH = pytest.mark.parametrize("settings", [COOPERATIVE, CONSUMER], ids=["cooperative", "consumer"])


@BOTH
@pytest.mark.parametrize("method", ["_heartbeat", "_pause"])
def test_what_stops_the_heartbeats_comes_out_of_poll_and_they_go_on(
    settings: dict[str, Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something that nobody thought of: it must not look as if all were well, nor be the last heartbeat."""
    broker = ScriptedGroup()

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await settled(member)
        usual = getattr(member.membership, method)

        async def fail(*_: object) -> None:
            monkeypatch.setattr(member.membership, method, usual)
            raise KeyError("unthought of")

        monkeypatch.setattr(member.membership, method, fail)
        await until(lambda: member.failure is not None)
        assert isinstance(member.failure, KeyError)
        await member.idle()
        member.failure = None
        member.begin()
        kind = HeartbeatRequest if settings is COOPERATIVE else ConsumerGroupHeartbeatRequest
        before = len(broker.of(kind))
        await until(lambda: len(broker.of(kind)) > before + 1, member)
        await settled(member)

    run(broker, settings, scenario)


def test_what_cannot_be_said_comes_out_of_every_poll_until_it_is_not_asked_for() -> None:
    broker = ScriptedGroup()

    async def scenario(member: DrivenMember) -> None:
        for _ in range(3):
            member.subscribe("not to be encoded \udc80")
            await until(lambda: member.failure is not None)
            assert isinstance(member.failure, ValueError)
            await member.idle()
            member.failure = None
        member.subscribe("events")
        await settled(member)

    run(broker, CONSUMER, scenario)


def test_topics_that_cannot_be_looked_up_come_out_of_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ScriptedGroup()

    async def scenario(member: DrivenMember) -> None:
        usual = member.membership._ask_names  # type: ignore[attr-defined]

        async def fail(*_: object) -> None:
            monkeypatch.setattr(member.membership, "_ask_names", usual)
            raise KeyError("unthought of")

        monkeypatch.setattr(member.membership, "_ask_names", fail)
        member.subscribe("events")
        await until(lambda: member.failure is not None)
        assert isinstance(member.failure, KeyError)
        await member.idle()
        member.failure = None
        member.begin()
        await settled(member)

    run(broker, CONSUMER, scenario)


@pytest.mark.parametrize("assigned", ["by hand", "by the group"])
def test_a_commit_in_the_background_that_fails_is_not_the_last(
    assigned: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ScriptedGroup()

    async def scenario(member: DrivenMember) -> None:
        if assigned == "by hand":
            member.subscription.assign_manually(EVENTS)
            member.begin()
        else:
            member.subscribe("events")
            await settled(member)
        usual = member.membership._offsets._commit_once  # type: ignore[attr-defined]

        async def fail(*_: object, **__: object) -> None:
            monkeypatch.setattr(member.membership._offsets, "_commit_once", usual)  # type: ignore[attr-defined]
            raise KeyError("unthought of")

        monkeypatch.setattr(member.membership._offsets, "_commit_once", fail)  # type: ignore[attr-defined]
        member.consume(EVENTS[0], 7)
        await until(lambda: broker.committed == {0: 7}, member)
        assert "unthought of" in caplog.text

    run(broker, {**COOPERATIVE, "enable_auto_commit": True, "auto_commit_interval_ms": 10}, scenario)


# Closing at any moment.


@pytest.mark.parametrize("step", [FindCoordinatorRequest, MetadataRequest], ids=lambda one: one.__name__)
@pytest.mark.parametrize("instance_id", [None, "static"])
def test_leaving_during_a_join_prevents_the_join(step: type[Request], instance_id: str | None) -> None:
    broker = ScriptedGroup()
    asked, go_on = asyncio.Event(), asyncio.Event()
    usual = broker.script

    async def late(request: Request) -> Answer:
        asked.set()
        await go_on.wait()
        broker.script = usual
        answer = usual(request)
        assert not isinstance(answer, Awaitable)
        return broker.metadata(request) if isinstance(request, MetadataRequest) else answer or Silence()

    def is_held(request: Request) -> bool:
        return isinstance(request, step) and (not isinstance(request, MetadataRequest) or bool(request.topics))

    broker.script = lambda request: late(request) if is_held(request) else usual(request)

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await asked.wait()
        leaving = asyncio.create_task(member.unsubscribe())
        await asyncio.wait([leaving], timeout=0.05)  # in vain, where leaving has to wait for the same
        go_on.set()
        await leaving
        for _ in range(20):
            await member.cluster.refresh()
        said = [one.member_epoch for one in broker.requests if isinstance(one, ConsumerGroupHeartbeatRequest)]
        assert said in ([], [0, -1], [0, -2])

    run(broker, {**CONSUMER, "group_instance_id": instance_id}, scenario)


def test_leaving_before_the_member_id_is_known_waits_for_it() -> None:
    """Else the group would wait for the new member until its session ends."""
    broker = ScriptedGroup()
    asked, go_on = asyncio.Event(), asyncio.Event()
    usual = broker.script

    async def late(request: JoinGroupRequest) -> Answer:
        asked.set()
        await go_on.wait()
        return broker._join(request, ErrorCode.NONE)

    broker.script = lambda request: late(request) if isinstance(request, JoinGroupRequest) else usual(request)

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await asked.wait()
        leaving = asyncio.create_task(member.unsubscribe())
        await asyncio.sleep(0)
        go_on.set()
        await leaving
        (leave,) = broker.of(LeaveGroupRequest)
        assert isinstance(leave, LeaveGroupRequest)
        assert [one.member_id for one in leave.members] == ["member-1"]

    run(broker, COOPERATIVE, scenario)


@BOTH
def test_a_poll_during_which_the_member_leaves_just_ends(settings: dict[str, Any]) -> None:
    broker = ScriptedGroup()
    usual = broker.script
    broker.script = lambda request: (
        Silence() if isinstance(request, SyncGroupRequest | ConsumerGroupHeartbeatRequest) else usual(request)
    )

    async def scenario(member: DrivenMember) -> None:
        member.subscription.subscribe(["events"])
        member.membership.subscription_changed()
        polling = asyncio.create_task(member.membership.poll(Deadline(20)))
        await until(lambda: bool(broker.of(SyncGroupRequest) or broker.of(ConsumerGroupHeartbeatRequest)))
        await member.membership.close(0)
        await polling

    run(broker, settings, scenario)


def test_partitions_are_revoked_once_whatever_the_coordinator_says_meanwhile() -> None:
    broker = ScriptedGroup(topics={"events": 3}, target=[0, 1, 2])
    partitions = [TopicPartition("events", index) for index in range(3)]
    released = asyncio.Event()

    class Slow(Told):
        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            self.events.append(("revoked", list(partitions)))
            await released.wait()

    async def scenario(member: DrivenMember) -> None:
        member.told = Slow()
        member.subscribe("events")
        await settled(member, partitions)
        broker.target = [0, 1]
        member.membership.subscription_changed()
        broker.bad[ConsumerGroupHeartbeatRequest] = [HangUp()]  # after which all is said again
        await until(lambda: bool(member.told.all("revoked")), member)
        broker.target = [0]
        broker.bad[ConsumerGroupHeartbeatRequest] = [HangUp()]
        await until(lambda: len(member.membership._target or ()) == 1, member)  # type: ignore[attr-defined]
        released.set()
        await settled(member, partitions[:1])
        assert sorted(member.told.all("revoked")) == partitions[1:]

    run(broker, CONSUMER, scenario)


@BOTH
def test_a_poll_ends_in_time_also_if_nobody_answers(settings: dict[str, Any]) -> None:
    """Connecting takes longer: ten seconds until it is given up."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            host, port = silent.getsockname()
            member = DrivenMember(f"{host}:{port}", "group", **settings)
            member.subscription.subscribe(["events"])
            member.membership.subscription_changed()
            await member.membership.poll(Deadline(0.01))
            await member.membership.poll(Deadline(0))
            await member.membership.close(0)
            await member.cluster.close()

    asyncio.run(asyncio.wait_for(scenario(), 8))


def test_the_leader_looks_at_racks() -> None:
    broker = ScriptedGroup(rack="x")

    async def scenario(member: DrivenMember) -> None:
        member.subscribe("events")
        await settled(member)
        before = broker.generation
        broker.rack = "y"
        await until(lambda: broker.generation > before, member)
        join = broker.of(JoinGroupRequest)[-1]
        assert isinstance(join, JoinGroupRequest)
        assert read_subscription("", None, join.protocols[0].metadata).rack == "y"
        assert join.reason == "partitions are on other racks"

    run(broker, {**COOPERATIVE, "client_rack": "y", "metadata_max_age_ms": 20}, scenario)


# What members tell each other.


def test_a_subscription_of_a_version_to_come_is_read_as_far_as_it_is_known() -> None:
    member = GroupMember("one", frozenset({"a", "b"}), None, "x", EVENTS, 7, b"data")
    blob = subscription_blob(member)
    assert read_subscription("one", None, (9).to_bytes(2, "big") + blob[2:] + b"more") == member


@pytest.mark.parametrize("blob", [b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\xff\xff"])
def test_an_invalid_subscription_is_reported(blob: bytes) -> None:
    with pytest.raises(ClientError, match="member one"):
        read_subscription("one", None, blob)
    with pytest.raises(ClientError, match="leader"):
        read_assignment(blob)


def test_no_assignment_is_an_empty_one() -> None:
    assert read_assignment(b"") == []
