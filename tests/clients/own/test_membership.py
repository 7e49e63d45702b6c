"""Our members of groups on a running broker: how they get partitions, keep them, and lose them."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import AsyncAdmin, NewTopic
from ottla.client.cluster import Deadline
from ottla.client.errors import (
    ClientError,
    CommitFailedError,
    MemberFencedError,
    NoBrokerError,
    RebalanceInProgressError,
    RefusedError,
)
from ottla.client.offsets import OffsetAndMetadata
from ottla.net.client_connection import ClientConnection
from ottla.wire.schema import Request
from support.clients.dialect import WAIT_S
from support.clients.peers import OTTLA, Peer, chosen_peer
from support.clients.scripted_broker import KAFKA_2_1
from support.groups.driven_members import PROTOCOLS, DrivenGroup, DrivenMember, Told, until
from support.groups.speaker import speaking

Scenario = Callable[[Callable[[], Awaitable[None]]], None]
Settings = dict[str, Any]

EAGER: list[Settings] = [{"partition_assignment_strategy": name} for name in ("range", "roundrobin", "sticky")]
COOPERATIVE: Settings = {"partition_assignment_strategy": "cooperative-sticky"}
CONSUMER: Settings = {"group_protocol": "consumer"}
CONSUMERS = [CONSUMER] if "consumer" in PROTOCOLS else []
BOTH = pytest.mark.parametrize("protocol", [{}, *CONSUMERS], ids=PROTOCOLS)


@pytest.fixture
def broker(group_broker: Peer) -> Peer:
    return group_broker


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await scenario()

    asyncio.run(bounded())


async def make(broker: Peer, topic: str, partitions: int) -> list[TopicPartition]:
    async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    return [TopicPartition(topic, index) for index in range(partitions)]


# Partitions.


@pytest.mark.parametrize("settings", [*EAGER, COOPERATIVE, *CONSUMERS], ids=lambda one: "-".join(one.values()))
def test_members_share_what_there_is(broker: Peer, group: str, topic: str, settings: Settings) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 6)
        session = {} if settings == CONSUMER else {"session_timeout_ms": 2000}
        async with DrivenGroup(broker.bootstrap, group, **settings, **session) as members:
            first = members.member().subscribe(topic)
            await members.settled(partitions)
            second = members.member().subscribe(topic)
            await members.settled(partitions)
            third = members.member().subscribe(topic)
            await members.settled(partitions)
            await until(lambda: all(len(one.owned) == 2 for one in (first, second, third)))
            await members.leave(second)
            await members.settled(partitions)
            await members.kill(first)
            await members.settled(partitions)
            assert len(third.owned) == 6
            assert not third.told.all("lost")

    run(scenario)


@pytest.mark.parametrize("settings", [COOPERATIVE, *CONSUMERS], ids=lambda one: "-".join(one.values()))
def test_nobody_stops_with_what_it_keeps(broker: Peer, group: str, topic: str, settings: Settings) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 4)
        async with DrivenGroup(broker.bootstrap, group, **settings) as members:
            first = members.member().subscribe(topic)
            await members.settled(partitions)
            kept: list[set[TopicPartition]] = []
            second = members.member()

            class Watching(Told):
                def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
                    kept.append(first.owned)
                    return super().on_partitions_assigned(partitions)

            second.told = Watching()
            second.subscribe(topic)
            await members.settled(partitions)
            revoked = set(first.told.all("revoked"))
            assert revoked == set(partitions) - first.owned
            assert len(revoked) == 2
            # Whenever the second was given something, the first had its two.
            assert all(first.owned <= owned for owned in kept)

    run(scenario)


@pytest.mark.parametrize("seed", range(3 if chosen_peer() == OTTLA else 1))
@pytest.mark.parametrize("settings", [EAGER[2], COOPERATIVE, *CONSUMERS], ids=lambda one: "-".join(one.values()))
def test_no_partition_ever_has_two_owners(broker: Peer, group: str, topic: str, settings: Settings, seed: int) -> None:
    """Members come, go, and subscribe to other topics, in whatever moment."""
    chance = random.Random(seed)

    async def scenario() -> None:
        topics = {f"{topic}-{number}": await make(broker, f"{topic}-{number}", 3) for number in range(2)}
        async with DrivenGroup(broker.bootstrap, group, **settings) as members:
            doubles: list[TopicPartition] = []

            class Jealous(Told):
                def __init__(self, mine: DrivenMember) -> None:
                    super().__init__()
                    self._mine = mine

                def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
                    others = [member for member in members.all if member is not self._mine]
                    doubles.extend(one for one in partitions if any(one in member.owned for member in others))
                    return super().on_partitions_assigned(partitions)

            for _ in range(25):
                deed = chance.choice(["come", "come", "go", "change"])
                if deed == "come" and len(members.members) < 5:
                    member = members.member()
                    member.told = Jealous(member)
                    member.subscribe(*chance.sample(list(topics), chance.randint(1, 2)))
                elif deed == "go" and members.members:
                    await members.leave(chance.choice(members.members))
                elif deed == "change" and members.members:
                    chance.choice(members.members).subscribe(*chance.sample(list(topics), chance.randint(1, 2)))
                await asyncio.sleep(chance.random() * 0.15)
            if not members.members:
                members.member()
            for member in members.members:
                member.subscribe(*topics)
            await members.settled([partition for some in topics.values() for partition in some])
            assert not doubles

    run(scenario)


@pytest.mark.parametrize("settings", [EAGER[0], COOPERATIVE, *CONSUMERS], ids=lambda one: "-".join(one.values()))
def test_changing_the_subscription_assigns_other_partitions(
    broker: Peer, group: str, topic: str, settings: Settings
) -> None:
    async def scenario() -> None:
        one, other = await make(broker, f"{topic}-1", 2), await make(broker, f"{topic}-2", 3)
        async with DrivenGroup(broker.bootstrap, group, **settings) as members:
            member = members.member().subscribe(f"{topic}-1")
            await members.settled(one)
            member.subscribe(f"{topic}-2")
            await members.settled(other)
            assert set(member.told.all("revoked")) == set(one)
            member.subscribe(f"{topic}-1", f"{topic}-2")
            await members.settled([*one, *other])

    run(scenario)


@pytest.mark.parametrize("settings", [EAGER[0], COOPERATIVE, *CONSUMERS], ids=lambda one: "-".join(one.values()))
def test_new_partitions_and_topics_are_found(broker: Peer, group: str, topic: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with DrivenGroup(broker.bootstrap, group, **settings) as members:
            by_name, by_pattern = members.member(), members.member()
            by_name.subscribe(f"{topic}-1")
            by_pattern.subscribe_pattern(f"{topic}-.*")
            await until(lambda: by_name.membership.metadata().generation_id > 0, by_name)
            first = await make(broker, f"{topic}-1", 2)
            await members.settled(first)
            second = await make(broker, f"{topic}-2", 2)
            await make(broker, f"other-{topic}-3", 1)  # the whole name has to match
            await members.settled([*first, *second], everyone=False)
            async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
                await admin.create_partitions({f"{topic}-1": 4})
            more = [TopicPartition(f"{topic}-1", index) for index in (2, 3)]
            await members.settled([*first, *second, *more])

    run(scenario)


def test_the_coordinator_matches_patterns(broker: Peer, group: str, topic: str) -> None:
    async def scenario() -> None:
        first = await make(broker, f"{topic}-1", 2)
        async with DrivenGroup(broker.bootstrap, group, **CONSUMER) as members:
            member = members.member().subscribe_server_pattern(f"{topic}-[0-9]")
            await members.settled(first)
            second = await make(broker, f"{topic}-2", 1)
            if chosen_peer() == OTTLA:  # Kafka looks for new topics every ten seconds
                await members.settled([*first, *second])
            member.subscribe(f"{topic}-2")  # and names again
            await members.settled(second)

    run(scenario)


@BOTH
def test_internal_topics_are_hidden_from_patterns(broker: Peer, group: str, topic: str, protocol: Settings) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 1)
        async with DrivenGroup(broker.bootstrap, group, **protocol) as members:
            member = members.member()
            await member.membership.committed(partitions)  # now __consumer_offsets exists
            member.subscribe_pattern(f"({topic}|__consumer_offsets)")
            await members.settled(partitions)

    run(scenario)


@BOTH
def test_a_member_comes_back_after_it_unsubscribed(broker: Peer, group: str, topic: str, protocol: Settings) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 2)
        async with DrivenGroup(broker.bootstrap, group, **protocol) as members:
            leaving, staying = members.member().subscribe(topic), members.member().subscribe(topic)
            await members.settled(partitions)
            owned = leaving.owned
            await leaving.unsubscribe()
            assert leaving.told.events[-1] == ("revoked", sorted(owned))
            assert leaving.membership.metadata().generation_id == -1
            await until(lambda: staying.owned == set(partitions), staying)
            leaving.subscribe(topic)
            await members.settled(partitions)

    run(scenario)


# Offsets.


@BOTH
def test_offsets_are_there_for_others(broker: Peer, group: str, topic: str, protocol: Settings) -> None:
    async def scenario() -> None:
        first, second, third = await make(broker, topic, 3)
        offsets = {first: OffsetAndMetadata(5, "note", 0), second: OffsetAndMetadata(7)}
        async with DrivenGroup(broker.bootstrap, group, **protocol) as members:
            member = members.member().subscribe(topic)
            await members.settled([first, second, third])
            assert await member.membership.committed([first]) == {first: None}
            await member.membership.commit(offsets)
            assert await member.membership.committed([first, second, third]) == {**offsets, third: None}
            await members.leave(member)
            other = members.member()
            assert await other.membership.committed([first, second]) == offsets

    run(scenario)


def test_offsets_without_a_subscription(broker: Peer, group: str, topic: str) -> None:
    async def scenario() -> None:
        (partition,) = await make(broker, topic, 1)
        async with DrivenGroup(broker.bootstrap, group) as members:
            member = members.member()
            member.subscription.assign_manually([partition])
            await member.membership.commit({partition: OffsetAndMetadata(3)})
            assert await member.membership.committed([partition]) == {partition: OffsetAndMetadata(3)}
            assert member.membership.metadata().member_id == ""

    run(scenario)


@BOTH
def test_consumed_records_are_committed_automatically(broker: Peer, group: str, topic: str, protocol: Settings) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 2)
        settings = {**protocol, "enable_auto_commit": True}
        async with DrivenGroup(broker.bootstrap, group, **settings) as members:
            # At the interval.
            member = members.member(auto_commit_interval_ms=50).subscribe(topic)
            await members.settled(partitions)
            for partition in partitions:
                member.consume(partition, 10)
            found: dict[TopicPartition, OffsetAndMetadata | None] = {}

            async def look() -> None:
                found.update(await member.membership.committed(partitions))

            while found != dict.fromkeys(partitions, OffsetAndMetadata(10)):
                await look()
            await members.leave(member)
            # Before partitions go to others.
            member = members.member(auto_commit_interval_ms=600_000).subscribe(topic)
            await members.settled(partitions)
            for partition in partitions:
                member.consume(partition, 20)
            other = members.member().subscribe(topic)
            await members.settled(partitions)
            assert (await other.membership.committed(other.owned)) == dict.fromkeys(other.owned, OffsetAndMetadata(20))
            # And at the end.
            (partition,) = member.owned
            member.consume(partition, 30)
            await members.leave(member)
            assert await other.membership.committed([partition]) == {partition: OffsetAndMetadata(30)}

    run(scenario)


def test_a_commit_in_the_middle_of_a_rebalance_gets_an_error(broker: Peer, group: str, topic: str) -> None:
    async def scenario() -> None:
        (partition,) = await make(broker, topic, 1)
        async with speaking(broker.bootstrap, group, topic) as leader, DrivenGroup(broker.bootstrap, group) as members:
            member = members.member(partition_assignment_strategy="range")
            await member.membership.committed([partition])  # now there is a coordinator
            member_id, generation = await leader.become_member()
            member.subscribe(topic)
            # The rebalance begins, and all join, but the leader assigns nothing.
            while await leader.heartbeat(member_id, generation) != ErrorCode.REBALANCE_IN_PROGRESS:
                await asyncio.sleep(0.01)
            joining = asyncio.create_task(leader.joining(member_id=member_id))
            await until(lambda: member.membership.metadata().generation_id > generation, member)
            with pytest.raises(RebalanceInProgressError, match=r"poll, then commit"):
                await member.membership.commit({partition: OffsetAndMetadata(1)})
            answer = await joining
            await leader.leave(answer.member_id)
            await members.settled([partition])
            await member.membership.commit({partition: OffsetAndMetadata(1)})

    run(scenario)


# Time.


@BOTH
def test_heartbeats_go_on_while_the_user_does_not_poll(
    broker: Peer, group: str, topic: str, protocol: Settings
) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 2)
        settings = protocol or {"session_timeout_ms": 2000}
        async with DrivenGroup(broker.bootstrap, group, **settings) as members:
            idle, busy = members.member().subscribe(topic), members.member().subscribe(topic)
            await members.settled(partitions)
            owned, before = idle.owned, idle.membership.metadata()
            await idle.idle()
            # Longer than the session: 3 s of the broker's, or 2 s of ours.
            await asyncio.sleep(4 if protocol else 3)
            assert idle.membership.metadata() == before
            await idle.membership.commit(dict.fromkeys(owned, OffsetAndMetadata(1)))
            assert idle.owned == owned
            assert busy.owned == set(partitions) - owned

    run(scenario)


@BOTH
def test_a_consumer_that_does_not_poll_leaves_until_it_polls_again(
    broker: Peer, group: str, topic: str, protocol: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 2)
        async with DrivenGroup(broker.bootstrap, group, **protocol) as members:
            # Members that poll in time have as long.
            idle = members.member(max_poll_interval_ms=1000).subscribe(topic)
            busy = members.member(max_poll_interval_ms=1000).subscribe(topic)
            await members.settled(partitions)
            owned, told = idle.owned, len(idle.told.events)
            await idle.idle()
            await until(lambda: busy.owned == set(partitions), busy)
            assert len(idle.told.events) == told  # nothing is told but in polls
            assert idle.membership.needs_poll()
            (partition, *_) = owned
            with pytest.raises(CommitFailedError, match=r"poll"):
                await idle.membership.commit({partition: OffsetAndMetadata(1)})
            idle.begin()
            await members.settled(partitions)
            assert idle.told.events[told] == ("lost", sorted(owned))

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "max.poll.interval.ms" in caplog.text


@BOTH
def test_a_member_that_the_coordinator_does_not_know_starts_over(
    broker: Peer, group: str, topic: str, protocol: Settings
) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 2)
        async with (
            DrivenGroup(broker.bootstrap, group, **protocol) as members,
            speaking(broker.bootstrap, group, topic) as other,
        ):
            member = members.member().subscribe(topic)
            await members.settled(partitions)
            member_id = member.membership.metadata().member_id
            if protocol:
                assert await other.beat(member_id, -1) == ErrorCode.NONE
            else:
                assert await other.leave(member_id) == ErrorCode.NONE
            await until(lambda: bool(member.told.all("lost")), member)
            await members.settled(partitions)
            assert member.told.all("lost") == partitions
            await member.membership.commit({partitions[0]: OffsetAndMetadata(1)})

    run(scenario)


# Static members.


@BOTH
def test_a_static_member_comes_back_to_what_it_had(broker: Peer, group: str, topic: str, protocol: Settings) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 4)
        async with DrivenGroup(broker.bootstrap, group, **protocol) as members:
            first = members.member(group_instance_id="one").subscribe(topic)
            second = members.member(group_instance_id="two").subscribe(topic)
            await members.settled(partitions)
            owned, told = first.owned, list(second.told.events)
            await members.leave(first)
            again = members.member(group_instance_id="one").subscribe(topic)
            await members.settled(partitions)
            assert again.owned == owned
            assert second.told.events == told  # it heard nothing of all that

    run(scenario)


def test_a_static_member_whose_instance_id_is_taken_gets_an_error(broker: Peer, group: str, topic: str) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 1)
        async with DrivenGroup(broker.bootstrap, group, group_instance_id="one") as members:
            first = members.member().subscribe(topic)
            await members.settled(partitions)
            second = members.member().subscribe(topic)
            await until(lambda: first.failure is not None, second)
            assert isinstance(first.failure, MemberFencedError)
            assert "'one'" in str(first.failure)
            with pytest.raises(MemberFencedError):
                await first.membership.poll(Deadline(0))
            await until(lambda: second.owned == set(partitions), second)
            first.subscription.assigned_by_group(())

    run(scenario)


def test_a_static_member_of_a_consumer_group_cannot_take_a_place(broker: Peer, group: str, topic: str) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 1)
        async with DrivenGroup(broker.bootstrap, group, group_instance_id="one", **CONSUMER) as members:
            first = members.member().subscribe(topic)
            await members.settled(partitions)
            second = members.member().subscribe(topic)
            await until(lambda: second.failure is not None, first)
            assert isinstance(second.failure, MemberFencedError)
            assert "session.timeout" in str(second.failure)
            assert first.owned == set(partitions)

    run(scenario)


# What goes wrong.


@pytest.mark.parametrize("settings", [EAGER[0], COOPERATIVE, *CONSUMERS], ids=lambda one: "-".join(one.values()))
def test_an_exception_of_a_listener_is_raised_after_the_change(
    broker: Peer, group: str, topic: str, settings: Settings
) -> None:
    class Failing(Told):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:  # noqa: ARG002
            raise RuntimeError("the listener's own")

    async def scenario() -> None:
        partitions = await make(broker, topic, 2)
        async with DrivenGroup(broker.bootstrap, group, **settings) as members:
            member = members.member()
            member.told = Failing()
            member.subscribe(topic)
            await until(lambda: member.failure is not None)
            assert str(member.failure) == "the listener's own"
            assert member.owned == set(partitions)
            await member.membership.commit({partitions[0]: OffsetAndMetadata(1)})

    run(scenario)


def test_members_without_a_common_assignor_cannot_join(broker: Peer, group: str, topic: str) -> None:
    async def scenario() -> None:
        partitions = await make(broker, topic, 1)
        async with DrivenGroup(broker.bootstrap, group) as members:
            members.member(partition_assignment_strategy="range").subscribe(topic)
            await members.settled(partitions)
            other = members.member(partition_assignment_strategy="roundrobin").subscribe(topic)
            await until(lambda: other.failure is not None)
            assert isinstance(other.failure, RefusedError)
            assert other.failure.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert "partition.assignment.strategy" in str(other.failure)

    run(scenario)


def test_a_session_that_the_broker_does_not_allow(broker: Peer, group: str, topic: str) -> None:
    async def scenario() -> None:
        await make(broker, topic, 1)
        async with DrivenGroup(broker.bootstrap, group, session_timeout_ms=101) as members:
            member = members.member().subscribe(topic)
            await until(lambda: member.failure is not None)
            assert isinstance(member.failure, RefusedError)
            assert "group.min.session.timeout.ms" in str(member.failure)

    run(scenario)


def test_an_assignor_that_the_broker_does_not_have(broker: Peer, group: str, topic: str) -> None:
    async def scenario() -> None:
        await make(broker, topic, 1)
        async with DrivenGroup(broker.bootstrap, group, group_remote_assignor="own", **CONSUMER) as members:
            member = members.member().subscribe(topic)
            await until(lambda: member.failure is not None)
            assert isinstance(member.failure, RefusedError)
            assert "group.remote.assignor" in str(member.failure)

    run(scenario)


@BOTH
def test_an_unreachable_broker_is_reported(group: str, protocol: Settings) -> None:
    async def scenario() -> None:
        async with DrivenGroup("127.0.0.1:1", group, default_api_timeout_ms=1000, **protocol) as members:
            member = members.member().subscribe("topic")
            await until(lambda: member.failure is not None)
            assert isinstance(member.failure, NoBrokerError)

    run(scenario)


def test_without_a_group_there_is_no_membership(broker: Peer, topic: str) -> None:
    async def scenario() -> None:
        member = DrivenMember(broker.bootstrap, "", session_timeout_ms=6000)
        partition = TopicPartition(topic, 0)
        with pytest.raises(ClientError, match=r"group\.id"):
            await member.membership.commit({partition: OffsetAndMetadata(1)})
        with pytest.raises(ClientError, match=r"group\.id"):
            await member.membership.committed([partition])
        with pytest.raises(ClientError, match=r"group\.id"):
            member.membership.metadata()
        assert not member.membership.needs_poll()
        await member.close()

    run(scenario)


# Old brokers.


def test_a_group_by_requests_that_kafka_2_1_knows(
    broker: Peer, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_for = ClientConnection.version_for

    def old(self: ClientConnection, request: type[Request], at_most: int | None = None) -> int:
        newest = KAFKA_2_1.get(request.api_key)
        return version_for(self, request, min(one for one in (at_most, newest, 99) if one is not None))

    monkeypatch.setattr(ClientConnection, "version_for", old)

    async def scenario() -> None:
        async with DrivenGroup(broker.bootstrap, group, **COOPERATIVE) as members:
            partitions = [TopicPartition(topic, index) for index in range(4)]
            first = members.member().subscribe(topic)
            await until(lambda: first.membership.metadata().generation_id > 0, first)
            await make(broker, topic, 4)
            await members.settled(partitions)
            second = members.member().subscribe(topic)
            await members.settled(partitions)
            offsets = {one: OffsetAndMetadata(one.partition, "note", 0) for one in second.owned}
            await second.membership.commit(offsets)
            assert await first.membership.committed(list(offsets)) == offsets
            await members.leave(first)
            await members.settled(partitions)

    run(scenario)
