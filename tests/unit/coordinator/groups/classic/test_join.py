"""JoinGroup of the classic protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.classic.group import ClassicState
from ottla.coordinator.groups.group import GroupSettings
from ottla.wire.codec import decode, encode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupResponse
from support.coordinators import in_loop
from support.coordinators.classic_members import ClassicMembers, FakeCaller, Member, subscription


def error_of(task: asyncio.Task[JoinGroupResponse]) -> ErrorCode:
    return ErrorCode(task.result().error_code)


@in_loop
async def test_a_new_member_gets_an_id_first_and_leads_the_generation_it_is_alone_in() -> None:
    group = ClassicMembers()
    member_id = await group.given_id(client_id="reader")
    assert member_id.startswith("reader-")
    join = await group.join(member_id)
    assert group.group().state is ClassicState.PREPARING
    await group.pass_ms(2_999)
    assert not join.done()
    await group.pass_ms(1)
    told = join.result()
    assert (told.error_code, told.generation_id, told.leader, told.member_id) == (0, 1, member_id, member_id)
    assert (told.protocol_type, told.protocol_name, told.skip_assignment) == ("consumer", "range", False)
    assert [(each.member_id, each.metadata) for each in told.members] == [(member_id, subscription("t"))]


@in_loop
@pytest.mark.parametrize("version", range(4))
async def test_old_versions_join_without_an_id(version: int) -> None:
    group = ClassicMembers()
    join = await group.join(version=version, client_id=None)
    assert not join.done()
    await group.pass_ms(3_000)
    assert join.result().member_id.startswith("null-")
    member = group.group().members[join.result().member_id]
    assert member.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)


@in_loop
@pytest.mark.parametrize("version", range(10))
async def test_answers_can_be_written_in_every_version(version: int) -> None:
    group = ClassicMembers()
    refused = await (await group.join("who", version=version))
    assert decode(JoinGroupResponse, version, encode(refused, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    member_id = "" if version < 4 else await group.given_id(version=version)
    join = await group.join(member_id, version=version)
    await group.pass_ms(3_000)
    assert decode(JoinGroupResponse, version, encode(join.result(), version)).generation_id == 1


@in_loop
async def test_the_first_rebalance_waits_again_while_members_come_but_not_beyond_the_rebalance_timeout() -> None:
    group = ClassicMembers()
    joins = [await group.join(version=3, rebalance_timeout_ms=7_000)]
    for _ in range(2):
        await group.pass_ms(2_000)
        joins.append(await group.join(version=3, rebalance_timeout_ms=7_000))
        await group.pass_ms(1_000)
        assert not any(join.done() for join in joins)
    joins.append(await group.join(version=3, rebalance_timeout_ms=7_000))
    await group.pass_ms(999)
    assert not any(join.done() for join in joins)
    await group.pass_ms(1)  # 3 and 3 seconds, and the one that is left
    assert all(join.result().generation_id == 1 for join in joins)
    assert [len(join.result().members) for join in joins] == [4, 0, 0, 0]


@in_loop
async def test_one_more_member_makes_the_others_join_again() -> None:
    group = ClassicMembers()
    members = await group.stable(2)
    new_id = await group.given_id()
    assert await group.heartbeat(members[0]) is ErrorCode.NONE, "only an id was given out"
    new = await group.join(new_id)
    assert await group.heartbeat(members[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    again = [await group.join(member.member_id) for member in members]
    assert {join.result().generation_id for join in (new, *again)} == {2}
    assert len(again[0].result().members) == 3
    assert again[0].result().leader == members[0].member_id


@in_loop
async def test_members_vote_for_a_protocol_that_all_of_them_know() -> None:
    group = ClassicMembers()
    told = [{"x": b"x0", "a": b"a0", "b": b"b0"}, {"b": b"b1", "a": b"a1"}, {"b": b"b2", "a": b"a2", "y": b"y2"}]
    joins = [await group.join(version=3, protocols=each) for each in told]
    await group.pass_ms(6_000)
    assert {join.result().protocol_name for join in joins} == {"b"}
    assert [each.metadata for each in joins[0].result().members] == [b"b0", b"b1", b"b2"]
    assert error_of(await group.join(version=3, protocols={"x": b""})) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other_type = await group.join(version=3, protocols={"b": b""}, protocol_type="connect")
    assert error_of(other_type) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_loop
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_refused_join_creates_no_group(changes: dict[str, Any], error: ErrorCode) -> None:
    group = ClassicMembers()
    join = await group.join(**changes)
    assert error_of(join) is error
    assert join.result().member_id == changes.get("member_id", "")
    assert not group.coordinator.runtime.active_shards()[0].groups
    assert not group.log.batches[0]


@in_loop
async def test_a_stranger_is_refused_and_disturbs_nobody() -> None:
    group = ClassicMembers()
    members = await group.stable(1)
    assert error_of(await group.join("who")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(await group.join(members[0].member_id, group_instance_id="i")) is ErrorCode.UNKNOWN_MEMBER_ID
    pending = await group.given_id()
    assert error_of(await group.join(pending, group_instance_id="i")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await group.heartbeat(members[0]) is ErrorCode.NONE


@in_loop
async def test_rejoining_unchanged_followers_keep_the_generation_but_the_leader_starts_a_new_one() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2)
    same = (await group.join(follower.member_id)).result()
    assert (same.generation_id, same.leader, same.members) == (1, leader.member_id, [])
    assert await group.heartbeat(leader) is ErrorCode.NONE
    again = await group.join(leader.member_id)
    assert not again.done()
    assert await group.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


@in_loop
async def test_a_follower_with_new_metadata_begins_a_rebalance() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2)
    changed = await group.join(follower.member_id, protocols={"range": subscription("u")}, session_timeout_ms=7_000)
    again = await group.join(leader.member_id)
    assert (changed.result().generation_id, again.result().generation_id) == (2, 2)
    assert [each.metadata for each in again.result().members] == [subscription("t"), subscription("u")]
    assert group.group().members[follower.member_id].session_timeout_ms == 7_000
    assert group.group().subscribes_to("u")


@in_loop
async def test_a_member_that_lost_its_answer_gets_it_again_before_the_assignment() -> None:
    group = ClassicMembers()
    joins = [await group.join(version=3) for _ in range(2)]
    await group.pass_ms(6_000)
    assert group.group().state is ClassicState.COMPLETING
    for join in joins:
        assert (await (await group.join(join.result().member_id))).members == join.result().members
    changed = await group.join(joins[1].result().member_id, protocols={"range": b"new"})
    assert not changed.done()
    assert group.group().state is ClassicState.PREPARING


@in_loop
async def test_of_two_joins_of_a_member_the_later_one_waits() -> None:
    group = ClassicMembers()
    member_id = await group.given_id()
    first = await group.join(member_id)
    second = await group.join(member_id)
    assert error_of(first) is ErrorCode.REBALANCE_IN_PROGRESS
    await group.pass_ms(6_000)
    assert (second.result().generation_id, len(second.result().members)) == (1, 1)


@in_loop
async def test_a_member_that_does_not_join_in_time_is_removed_and_another_leads() -> None:
    group = ClassicMembers()
    leader, *followers = await group.stable(3)
    again = [await group.join(each.member_id, protocols={"range": b"new"}) for each in followers]
    for _ in range(6):
        assert await group.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
        await group.pass_ms(9_999)
    assert not any(join.done() for join in again)
    await group.pass_ms(6)
    assert {join.result().leader for join in again} == {followers[0].member_id}
    assert await group.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_a_group_takes_no_more_than_it_may_have() -> None:
    group = ClassicMembers(GroupSettings(max_size=2))
    first, second = await group.join(version=3), await group.join(version=3)
    assert error_of(await group.join(version=3)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    await group.pass_ms(6_000)
    members = [Member(join.result().member_id, 1) for join in (first, second)]
    assert error_of(await group.join(version=3)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await group.join(members[1].member_id)).result().generation_id == 1, "it is in already"


@in_loop
async def test_a_group_loaded_with_more_than_it_may_have_loses_the_last_to_come_back() -> None:
    group = ClassicMembers()
    members = await group.stable(3)
    small = ClassicMembers(GroupSettings(max_size=2), group.log)
    await small.settle()
    assert await small.heartbeat(members[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    first, second, third = [await small.join(member.member_id) for member in members]
    assert error_of(third) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (first.result().generation_id, second.result().generation_id) == (2, 2)


@in_loop
async def test_a_new_member_whose_first_join_takes_too_long_is_dropped() -> None:
    group = ClassicMembers(GroupSettings(new_member_join_timeout_ms=20_000))
    members = await group.stable(1)
    new = await group.join(version=3)
    for _ in range(3):
        await group.heartbeat(members[0])
        await group.pass_ms(7_000)
    assert (error_of(new), new.result().member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(group.group().members) == [members[0].member_id]


@in_loop
async def test_a_join_that_cannot_be_written_makes_no_group() -> None:
    group = ClassicMembers()
    group.log.refuse_appends = ErrorCode.NOT_COORDINATOR
    assert error_of(await group.join()) is ErrorCode.NOT_COORDINATOR
    assert not group.coordinator.runtime.active_shards()[0].groups
    group.log.refuse_appends = None
    await group.given_id()


@in_loop
async def test_unloading_answers_waiting_requests() -> None:
    group = ClassicMembers()
    join = await group.join(version=3)
    group.coordinator.resign(0)
    await group.settle()
    assert error_of(join) is ErrorCode.NOT_COORDINATOR


@in_loop
async def test_an_empty_group_of_the_other_protocol_becomes_a_classic_one() -> None:
    group = ClassicMembers()
    heartbeat = group.coordinator.consumer.heartbeat
    for epoch in (0, -1):
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = heartbeat(request, FakeCaller(1))
        assert (await answer if isinstance(answer, Coroutine) else answer).error_code == ErrorCode.NONE
    await group.given_id()
    assert group.group().type_name == "classic"
    loaded = await group.loaded_again()
    assert loaded.group().state is ClassicState.EMPTY
