"""SyncGroup of the classic protocol."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.classic.group import ClassicState
from ottla.wire.codec import decode, encode
from ottla.wire.messages.sync_group import SyncGroupResponse
from support.coordinators import in_loop
from support.coordinators.classic_members import ClassicMembers, Member


async def completing(group: ClassicMembers, count: int, **changes: Any) -> list[Member]:
    """Members of a generation that has not been assigned yet."""
    joins = [await group.join(version=3, **changes) for _ in range(count)]
    await group.pass_ms(6_000)
    return [Member(join.result().member_id, join.result().generation_id) for join in joins]


@in_loop
async def test_members_get_their_assignments_and_unassigned_members_nothing() -> None:
    group = ClassicMembers()
    leader, *followers = await completing(group, 3)
    early = await group.sync(followers[0])
    assert not early.done()
    own = await group.sync(leader, {leader.member_id: b"0", followers[0].member_id: b"1", "stranger": b"9"})
    late = await group.sync(followers[1])
    assert [task.result().assignment for task in (own, early, late)] == [b"0", b"1", b""]
    assert {(task.result().protocol_type, task.result().protocol_name) for task in (own, early, late)} == {
        ("consumer", "range")
    }
    assert group.group().state is ClassicState.STABLE


@in_loop
@pytest.mark.parametrize("version", range(6))
async def test_answers_can_be_written_in_every_version(version: int) -> None:
    group = ClassicMembers()
    (leader,) = await completing(group, 1)
    protocol = {} if version >= 5 else {"protocol_type": None, "protocol_name": None}
    answer = (await group.sync(leader, {leader.member_id: b"a"}, version=version, **protocol)).result()
    assert decode(SyncGroupResponse, version, encode(answer, version)).assignment == b"a"


@in_loop
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
async def test_what_is_refused_changes_nothing(changes: dict[str, Any], error: ErrorCode) -> None:
    group = ClassicMembers()
    (leader,) = await completing(group, 1)
    refused = (await group.sync(leader, {leader.member_id: b"a"}, **changes)).result()
    assert (refused.error_code, refused.assignment) == (error, b"")
    assert group.group().state is ClassicState.COMPLETING
    assert (await group.sync(leader, {leader.member_id: b"a"})).result().assignment == b"a"


@in_loop
async def test_a_rebalance_makes_members_that_wait_for_the_assignment_join_again() -> None:
    group = ClassicMembers()
    leader, follower = await completing(group, 2)
    sync = await group.sync(follower)
    await group.join(version=3)
    assert sync.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await group.sync(leader, {})).result().error_code == ErrorCode.REBALANCE_IN_PROGRESS


@in_loop
async def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    group = ClassicMembers()
    leader, follower = await completing(group, 2, session_timeout_ms=100_000)
    await group.sync(leader, {})
    await group.pass_ms(59_999)
    assert group.group().state is ClassicState.STABLE
    await group.pass_ms(1)
    assert await group.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await group.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


@in_loop
async def test_a_leader_that_does_not_assign_in_time_is_dropped_and_its_followers_join_again() -> None:
    group = ClassicMembers()
    leader, follower = await completing(group, 2, session_timeout_ms=100_000)
    sync = await group.sync(follower)
    await group.pass_ms(60_000)
    assert sync.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await group.join(follower.member_id)).result().leader == follower.member_id
    assert await group.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_members_that_have_synced_are_not_removed() -> None:
    group = ClassicMembers()
    members = await group.stable(2, session_timeout_ms=100_000)
    await group.pass_ms(60_001)
    assert group.group().state is ClassicState.STABLE
    assert len(group.group().members) == len(members)


@in_loop
async def test_an_assignment_is_sent_when_it_is_committed() -> None:
    group = ClassicMembers()
    leader, follower = await completing(group, 2)
    waiting = await group.sync(follower)
    group.log.hold_commits()
    own = await group.sync(leader, {follower.member_id: b"1"})
    late = await group.sync(follower)
    await group.settle()
    assert not own.done()
    assert not waiting.done()
    assert not late.done()
    group.log.commit()
    await group.settle()
    assert [task.result().assignment for task in (own, waiting, late)] == [b"", b"1", b"1"]


@in_loop
async def test_after_a_failed_write_of_the_assignment_all_members_join_again() -> None:
    group = ClassicMembers()
    leader, follower = await completing(group, 2)
    waiting = await group.sync(follower)
    group.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = await group.sync(leader, {follower.member_id: b"1"})
    assert refused.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.group().state is ClassicState.PREPARING
    assert await group.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    group.log.refuse_appends = None
    again = [await group.join(member.member_id) for member in (leader, follower)]
    await group.settle()
    assert [task.result().generation_id for task in again] == [2, 2]


@in_loop
async def test_unloading_answers_waiting_requests() -> None:
    group = ClassicMembers()
    _, follower = await completing(group, 2)
    sync = await group.sync(follower)
    group.coordinator.resign(0)
    await group.settle()
    assert sync.result().error_code == ErrorCode.NOT_COORDINATOR
