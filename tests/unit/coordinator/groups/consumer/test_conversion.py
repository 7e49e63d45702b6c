"""Groups that go from the classic protocol to the consumer protocol while their members work, and back."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.group import GroupSettings
from ottla.wire.codec import decode_versioned, encode_versioned
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
)
from support.coordinators import in_loop
from support.coordinators.classic_members import ClassicMembers, Member
from support.coordinators.consumer_members import Consumer, Coordinated, settle


def _subscription(*owned: int) -> dict[str, bytes]:
    """To `t`, as a cooperative consumer says it that owns those partitions."""
    partitions = [ConsumerProtocolPartitions(topic="t", partitions=list(owned))] if owned else []
    value = ConsumerProtocolSubscription(topics=["t"], owned_partitions=partitions)
    return {"range": encode_versioned(value, 1)}


def _assignment(*indexes: int) -> bytes:
    partitions = [ConsumerProtocolPartitions(topic="t", partitions=list(indexes))]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=partitions), 1)


class ClassicConsumer:
    """A consumer of the classic protocol in whatever group: joins again when it is told to, and then syncs."""

    def __init__(self, members: ClassicMembers, member: Member, *owned: int) -> None:
        self.members = members
        self.member = member
        self.owned = list(owned)

    async def beat(self) -> None:
        error = await self.members.heartbeat(self.member)
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            await self.join()
        else:
            assert error == ErrorCode.NONE

    async def join(self) -> None:
        joined = (await self.members.join(self.member.member_id, protocols=_subscription(*self.owned))).result()
        assert joined.error_code == ErrorCode.NONE
        self.member.generation = joined.generation_id
        await self.sync()

    async def sync(self) -> None:
        synced = (await self.members.sync(self.member)).result()
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return
        assert synced.error_code == ErrorCode.NONE
        told = decode_versioned(ConsumerProtocolAssignment, synced.assignment)[0].assigned_partitions
        self.owned = sorted(index for each in told for index in each.partitions)


async def _classic_group(
    members: ClassicMembers, shares: list[tuple[int, ...]], **changes: Any
) -> list[ClassicConsumer]:
    """A stable group, each member of which was assigned a share."""
    joins = []
    for _ in shares:
        member_id = await members.given_id(protocols=_subscription(), **changes)
        joins.append(await members.join(member_id, protocols=_subscription(), **changes))
    for _ in range(len(shares) + 1):
        await members.pass_ms(3_000)
    all_of_them = [Member(each.result().member_id, each.result().generation_id) for each in joins]
    assignments = {each.member_id: _assignment(*share) for each, share in zip(all_of_them, shares, strict=True)}
    syncs = [await members.sync(each) for each in all_of_them[1:]]
    syncs.insert(0, await members.sync(all_of_them[0], assignments))
    assert [each.result().error_code for each in syncs] == [ErrorCode.NONE] * len(shares)
    return [ClassicConsumer(members, each, *share) for each, share in zip(all_of_them, shares, strict=True)]


def _group(members: ClassicMembers) -> Any:
    return members.coordinator.runtime.active_shards()[0].groups["g"]


async def _same_when_loaded(members: ClassicMembers) -> None:
    again = await members.loaded_again()
    assert Coordinated(beside=again).state() == Coordinated(beside=members).state()
    again.coordinator.close()


@in_loop
async def test_a_member_of_the_new_protocol_joins_a_classic_group() -> None:
    members = ClassicMembers()
    first, second = await _classic_group(members, [(0, 1), (2, 3)])
    generation = first.member.generation
    consumer = Consumer(Coordinated(beside=members), "new")
    assert consumer.join().error_code == ErrorCode.NONE
    group = _group(members)
    assert isinstance(group, ConsumerGroup)
    assert (group.epoch, consumer.epoch, consumer.owned) == (generation + 1, generation + 1, set())
    assert sorted(group.members) == sorted(["new", first.member.member_id, second.member.member_id])
    await _same_when_loaded(members)
    # Nobody waits for anybody: who keeps what it has goes on with it.
    for _ in range(4):
        for each in (first, second):
            await each.beat()
        consumer.beat()
    assert sorted([*first.owned, *second.owned, *consumer.indexes]) == [0, 1, 2, 3]
    assert sorted(map(len, (first.owned, second.owned, consumer.owned))) == [1, 1, 2]
    assert set(first.owned) <= {0, 1}
    assert set(second.owned) <= {2, 3}
    assert group.state_name == "Stable"
    # Who did its part is not given up for it later.
    for _ in range(14):
        await members.pass_ms(5_000)
        await first.beat()
        await second.beat()
        consumer.idle_beat()
    assert len(group.members) == 3
    # What it has kept was assigned by the classic generation; what it gave up is not its own.
    topic_id, given_up = consumer.coordinated.topics.topic_id("t"), consumer.indexes[0]
    check = group.check_commit(first.member.member_id, None, generation, in_transaction=False, version=5)
    assert check is not None
    for index in first.owned:
        check(topic_id, index)
    with pytest.raises(CoordinatorError) as refused:
        check(topic_id, given_up)
    assert refused.value.code == ErrorCode.ILLEGAL_GENERATION
    newer = first.member.generation + 1
    with pytest.raises(CoordinatorError) as refused:
        group.check_commit(first.member.member_id, None, newer, in_transaction=False, version=5)
    assert refused.value.code == ErrorCode.ILLEGAL_GENERATION
    await _same_when_loaded(members)


@in_loop
async def test_the_last_member_of_the_new_protocol_leaves_and_the_group_goes_back() -> None:
    members = ClassicMembers()
    (classic,) = await _classic_group(members, [(0, 1, 2, 3)])
    consumer = Consumer(Coordinated(beside=members), "new")
    consumer.join()
    for _ in range(4):
        await classic.beat()
        consumer.beat()
    assert len(classic.owned) == len(consumer.owned) == 2
    epoch = _group(members).epoch
    assert consumer.leave().error_code == ErrorCode.NONE
    group = _group(members)
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation, list(group.members)) == (
        ClassicState.PREPARING,
        epoch,
        [classic.member.member_id],
    )
    assert (await members.loaded_again()).group().generation == epoch
    # It joins again, leads, and is alone.
    assert await members.heartbeat(classic.member) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = (await members.join(classic.member.member_id, protocols=_subscription(*classic.owned))).result()
    assert (joined.error_code, joined.leader) == (ErrorCode.NONE, classic.member.member_id)
    # No timer of the other protocol is left to give it up.
    classic.member.generation = joined.generation_id
    await members.sync(classic.member, {classic.member.member_id: _assignment(0, 1, 2, 3)})
    for _ in range(12):
        await members.pass_ms(9_000)
        assert await members.heartbeat(classic.member) == ErrorCode.NONE


@in_loop
async def test_a_session_that_ends_takes_the_group_back_as_well() -> None:
    members = ClassicMembers()
    (classic,) = await _classic_group(members, [(0, 1, 2, 3)])
    Consumer(Coordinated(beside=members), "new").join()
    for _ in range(9):
        await members.pass_ms(5_000)
        await members.heartbeat(classic.member)
    assert isinstance(_group(members), ClassicGroup)
    assert list(_group(members).members) == [classic.member.member_id]
    context = members.coordinator.runtime.active_shards()[0].context
    timers = [f"consumer {kind} 1 g {classic.member.member_id}" for kind in ("session", "join", "sync")]
    assert not any(map(context.is_scheduled, timers))
    # Its session goes on in the classic group.
    await members.pass_ms(10_000)
    assert _group(members).is_empty


@in_loop
async def test_a_classic_member_that_falls_silent_is_given_up() -> None:
    members = ClassicMembers()
    await _classic_group(members, [(0, 1, 2, 3)])
    consumer = Consumer(Coordinated(beside=members), "new")
    consumer.join()
    await members.pass_ms(10_000)
    settle(consumer)
    assert consumer.indexes == [0, 1, 2, 3]


@in_loop
async def test_a_group_stays_while_a_member_uses_the_new_protocol() -> None:
    members = ClassicMembers()
    (classic,) = await _classic_group(members, [(0, 1, 2, 3)])
    coordinated = Coordinated(beside=members)
    first, second = Consumer(coordinated, "first"), Consumer(coordinated, "second")
    first.join()
    second.join()
    first.leave()
    for _ in range(4):
        await classic.beat()
        second.beat()
    assert (len(classic.owned), len(second.owned)) == (2, 2)
    assert sorted(coordinated.group().members) == sorted(["second", classic.member.member_id])


@in_loop
async def test_what_a_member_says_of_itself_survives_there_and_back() -> None:
    members = ClassicMembers()
    protocols = _subscription() | {"roundrobin": _subscription()["range"]}
    consumer = Consumer(Coordinated(beside=members), "new")
    consumer.join()
    member_id = await members.given_id(protocols=protocols)
    joined = (await members.join(member_id, protocols=protocols, group_instance_id=None)).result()
    assert joined.protocol_name == "range"
    consumer.leave()
    assert _group(members).members[member_id].protocols == protocols


@in_loop
async def test_a_classic_member_joins_and_leaves_a_group_of_the_new_protocol() -> None:
    members = ClassicMembers()
    coordinated = Coordinated(beside=members)
    consumer = Consumer(coordinated, "new")
    consumer.join()
    member_id = await members.given_id(protocols=_subscription())
    classic = ClassicConsumer(members, Member(member_id, -1))
    await classic.join()
    for _ in range(4):
        consumer.beat()
        await classic.beat()
    assert (len(classic.owned), len(consumer.owned)) == (2, 2)
    response = await members.leave(classic.member)
    assert [each.error_code for each in response.members] == [ErrorCode.NONE]
    settle(consumer)
    assert consumer.indexes == [0, 1, 2, 3]
    assert await members.heartbeat(classic.member) == ErrorCode.UNKNOWN_MEMBER_ID
    # Tools remove members of the new protocol by the same request.
    response = await members.leave(classic.member, Member("new", 1))
    assert [each.error_code for each in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert not coordinated.group().members


@in_loop
async def test_classic_members_of_a_new_group_are_refused_as_ever() -> None:
    members = ClassicMembers()
    coordinated = Coordinated(beside=members)
    Consumer(coordinated, "new").join()
    member_id = await members.given_id(protocols=_subscription())
    classic = ClassicConsumer(members, Member(member_id, -1))
    await classic.join()
    wrong_generation = Member(member_id, 99)
    assert await members.heartbeat(wrong_generation) == ErrorCode.ILLEGAL_GENERATION
    assert (await members.sync(wrong_generation)).result().error_code == ErrorCode.ILLEGAL_GENERATION
    other_name = await members.sync(classic.member, protocol_name="other")
    assert other_name.result().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await members.heartbeat(Member("new", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    for changes, error in (
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"other": b"\0\1"}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"range": b"\0"}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        refused = (await members.join(member_id, **{"protocols": _subscription()} | changes)).result()
        assert refused.error_code == error, changes
    assert sorted(coordinated.group().members) == sorted(["new", member_id])


@in_loop
async def test_a_classic_member_that_does_not_join_again_is_given_up() -> None:
    members = ClassicMembers()
    (classic,) = await _classic_group(members, [(0, 1, 2, 3)], rebalance_timeout_ms=20_000)
    consumer = Consumer(Coordinated(beside=members), "new")
    consumer.join()
    for _ in range(5):
        assert await members.heartbeat(classic.member) == ErrorCode.REBALANCE_IN_PROGRESS
        await members.pass_ms(4_000)
        consumer.beat()
    assert await members.heartbeat(classic.member) == ErrorCode.UNKNOWN_MEMBER_ID
    settle(consumer)
    assert consumer.indexes == [0, 1, 2, 3]


@in_loop
async def test_a_classic_member_that_does_not_sync_is_given_up() -> None:
    members = ClassicMembers()
    coordinated = Coordinated(beside=members)
    consumer = Consumer(coordinated, "new")
    consumer.join()
    member_id = await members.given_id(protocols=_subscription())
    joined = (await members.join(member_id, protocols=_subscription(), rebalance_timeout_ms=20_000)).result()
    for _ in range(5):
        await members.heartbeat(Member(member_id, joined.generation_id))
        await members.pass_ms(4_000)
        consumer.beat()
    assert list(coordinated.group().members) == ["new"]


@in_loop
async def test_a_member_comes_back_by_the_other_protocol_under_the_same_id() -> None:
    members = ClassicMembers()
    (classic,) = await _classic_group(members, [(0, 1, 2, 3)])
    coordinated = Coordinated(beside=members)
    other = Consumer(coordinated, "new")
    other.join()
    assert await members.heartbeat(classic.member) == ErrorCode.REBALANCE_IN_PROGRESS
    consumer = Consumer(coordinated, classic.member.member_id)
    assert consumer.join().error_code == ErrorCode.NONE
    settle(consumer, other)
    assert (len(consumer.owned), len(other.owned)) == (2, 2)
    assert _group(members).classic_member_count == 0
    # It need not join as it was told to before.
    for _ in range(14):
        await members.pass_ms(5_000)
        settle(consumer, other)


@in_loop
async def test_a_static_member_that_comes_back_by_the_classic_protocol_takes_the_group_back() -> None:
    members = ClassicMembers()
    coordinated = Coordinated(beside=members)
    consumer = Consumer(coordinated, "new", instance_id="i")
    consumer.join()
    consumer.leave(-2)
    joined = (await members.join(group_instance_id="i", protocols=_subscription())).result()
    assert joined.error_code == ErrorCode.NONE
    group = _group(members)
    assert isinstance(group, ClassicGroup)
    assert (group.state, list(group.members)) == (ClassicState.STABLE, [joined.member_id])
    classic = ClassicConsumer(members, Member(joined.member_id, joined.generation_id, "i"))
    await classic.sync()
    assert classic.owned == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("policy", "max_size", "protocol_type"),
    [
        ("downgrade", 9, "consumer"),
        ("disabled", 9, "consumer"),
        ("bidirectional", 1, "consumer"),
        ("bidirectional", 9, "x"),
    ],
)
@in_loop
async def test_groups_that_may_not_go_over_stay_classic(policy: str, max_size: int, protocol_type: str) -> None:
    members = ClassicMembers(GroupSettings(consumer_migration_policy=policy, consumer_max_size=max_size))
    joins = []
    for _ in range(2):
        member_id = await members.given_id(protocol_type=protocol_type, protocols=_subscription())
        joins.append(await members.join(member_id, protocol_type=protocol_type, protocols=_subscription()))
    for _ in range(3):
        await members.pass_ms(3_000)
    assert all(join.done() for join in joins)
    response = Consumer(Coordinated(beside=members), "new").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(_group(members), ClassicGroup)


@in_loop
async def test_a_group_whose_members_cannot_be_understood_stays_classic() -> None:
    members = ClassicMembers()
    await members.stable(2)
    response = Consumer(Coordinated(beside=members), "new").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "cannot read the metadata of its members" in (response.error_message or "")
    assert isinstance(_group(members), ClassicGroup)


@pytest.mark.parametrize(("policy", "max_size"), [("upgrade", 9), ("bidirectional", 1)])
@in_loop
async def test_groups_that_may_not_go_back_stay_in_the_new_protocol(policy: str, max_size: int) -> None:
    members = ClassicMembers(GroupSettings(consumer_migration_policy=policy, max_size=max_size))
    coordinated = Coordinated(beside=members)
    consumer = Consumer(coordinated, "new")
    consumer.join()
    classics = []
    for _ in range(2):
        member_id = await members.given_id(protocols=_subscription())
        classics.append(ClassicConsumer(members, Member(member_id, -1)))
        await classics[-1].join()
    consumer.leave()
    for _ in range(4):
        for classic in classics:
            await classic.beat()
    assert coordinated.group().state_name == "Stable"
    assert [len(classic.owned) for classic in classics] == [2, 2]


@in_loop
async def test_joining_members_must_join_again() -> None:
    members = ClassicMembers()
    await _classic_group(members, [(0, 1, 2, 3)])
    waiting = await members.join(await members.given_id(protocols=_subscription()), protocols=_subscription())
    assert not waiting.done()
    Consumer(Coordinated(beside=members), "new").join()
    await members.settle()
    assert waiting.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    classic = ClassicConsumer(members, Member(waiting.result().member_id, -1))
    await classic.join()
    assert classic.member.member_id in _group(members).members
