"""Heartbeats, sessions and LeaveGroup of the classic protocol."""

from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.groups.classic.group import ClassicState
from ottla.wire.codec import decode, encode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from support.coordinators import in_loop
from support.coordinators.classic_members import ClassicMembers, FakeCaller, Member


@in_loop
async def test_a_member_that_beats_stays_and_one_that_does_not_is_dropped() -> None:
    group = ClassicMembers()
    alive, silent = await group.stable(2)
    for _ in range(2):
        await group.pass_ms(4_999)
        assert await group.heartbeat(alive) is ErrorCode.NONE
    await group.pass_ms(2)
    assert await group.heartbeat(alive) is ErrorCode.REBALANCE_IN_PROGRESS
    assert await group.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID
    again = await group.join(alive.member_id)
    assert (again.result().generation_id, again.result().leader) == (2, alive.member_id)


@in_loop
async def test_a_shorter_session_counts_from_the_moment_it_is_asked_for() -> None:
    group = ClassicMembers()
    (leader,) = await group.stable(1, session_timeout_ms=60_000)
    again = (await group.join(leader.member_id, session_timeout_ms=6_000)).result()
    await group.sync(Member(leader.member_id, again.generation_id), {})
    await group.pass_ms(6_000)
    assert group.group().state is ClassicState.EMPTY


@in_loop
async def test_a_commit_shows_that_a_member_lives() -> None:
    group = ClassicMembers()
    (member,) = await group.stable(1)
    commit = OffsetCommitRequest(
        group_id="g",
        member_id=member.member_id,
        generation_id_or_member_epoch=1,
        topics=[OffsetCommitTopic(name="t", partitions=[OffsetCommitPartition(partition_index=0, committed_offset=7)])],
    )
    for _ in range(3):
        await group.pass_ms(9_000)
        group.coordinator.commit_offsets(commit, FakeCaller(8))
    assert await group.heartbeat(member) is ErrorCode.NONE


@in_loop
async def test_heartbeats_are_refused_by_member_instance_and_generation() -> None:
    group = ClassicMembers()
    (member,) = await group.stable(1)
    assert await group.heartbeat(Member("who", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await group.heartbeat(Member(member.member_id, 1, "i")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await group.heartbeat(Member(member.member_id, 0)) is ErrorCode.ILLEGAL_GENERATION
    assert await group.heartbeat(Member(member.member_id, 2)) is ErrorCode.ILLEGAL_GENERATION
    for group_id, error in (("", ErrorCode.INVALID_GROUP_ID), ("other", ErrorCode.UNKNOWN_MEMBER_ID)):
        answer = group.coordinator.classic.heartbeat(HeartbeatRequest(group_id=group_id), FakeCaller(4))
        assert isinstance(answer, HeartbeatResponse)
        assert answer.error_code == error


@in_loop
async def test_the_group_without_a_name_may_have_offsets_but_no_members() -> None:
    group = ClassicMembers()
    topics = [OffsetCommitTopic(name="t", partitions=[OffsetCommitPartition(partition_index=0, committed_offset=7)])]
    commit = OffsetCommitRequest(group_id="", generation_id_or_member_epoch=-1, topics=topics)
    group.coordinator.commit_offsets(commit, FakeCaller(4))
    await group.pass_ms(0)
    answer = group.coordinator.classic.heartbeat(HeartbeatRequest(group_id="", member_id="who"), FakeCaller(4))
    assert isinstance(answer, HeartbeatResponse)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


@in_loop
async def test_a_heartbeat_in_a_stable_group_is_answered_at_once_and_writes_nothing() -> None:
    group = ClassicMembers()
    (member,) = await group.stable(1)
    written = len(group.log.batches[0])
    request = HeartbeatRequest(group_id="g", member_id=member.member_id, generation_id=1)
    assert isinstance(group.coordinator.classic.heartbeat(request, FakeCaller(4)), HeartbeatResponse)
    assert len(group.log.batches[0]) == written


@in_loop
async def test_a_group_that_is_being_loaded_takes_its_members_to_be_alive() -> None:
    group = ClassicMembers()
    members = await group.stable(1)
    group.coordinator.runtime.unload(0)
    group.coordinator.runtime.lead(0, 1)
    assert group.coordinator.runtime.is_loading
    assert await group.heartbeat(members[0]) is ErrorCode.NONE


@in_loop
async def test_members_wait_excused_from_heartbeats() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2)
    waiting = await group.join(leader.member_id)
    for _ in range(5):
        await group.heartbeat(follower)
        await group.pass_ms(9_000)
    assert not waiting.done()
    await group.join(follower.member_id)
    assert waiting.result().generation_id == 2
    await group.pass_ms(9_000)
    assert await group.heartbeat(Member(leader.member_id, 2)) is ErrorCode.NONE


@in_loop
async def test_an_id_that_nobody_comes_back_with_holds_nobody_up() -> None:
    group = ClassicMembers()
    members = await group.stable(1)
    gone = await group.given_id()
    again = await group.join(members[0].member_id)
    await group.pass_ms(9_999)
    assert not again.done()
    await group.pass_ms(1)
    assert again.result().generation_id == 2
    assert (await group.join(gone)).result().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_the_last_to_leave_empties_the_group() -> None:
    group = ClassicMembers()
    first, second = await group.stable(2)
    response = await group.leave(first)
    assert [(each.member_id, each.error_code) for each in response.members] == [(first.member_id, 0)]
    assert await group.heartbeat(second) is ErrorCode.REBALANCE_IN_PROGRESS
    await group.leave(second)
    assert (group.group().state, group.group().generation) == (ClassicState.EMPTY, 2)
    loaded = (await group.loaded_again()).group()
    assert (loaded.state, loaded.generation, loaded.protocol_type, loaded.protocol) == (
        ClassicState.EMPTY,
        2,
        "consumer",
        None,
    )


@in_loop
async def test_a_group_that_was_empty_goes_on_counting_generations() -> None:
    group = ClassicMembers()
    await group.leave(*await group.stable(2))
    (member,) = await group.stable(1)
    assert member.generation == 3


@in_loop
async def test_several_members_leave_with_a_result_for_each() -> None:
    group = ClassicMembers()
    members = await group.stable(3)
    pending = await group.given_id()
    response = await group.leave(members[0], Member("who", 1), members[1], Member(pending, -1))
    assert [each.error_code for each in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0, 0]
    assert list(group.group().members) == [members[2].member_id]
    assert not group.group().pending_joins


@in_loop
async def test_a_waiting_member_that_leaves_is_answered() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2)
    join = await group.join(leader.member_id)
    await group.leave(leader)
    assert (join.result().error_code, join.result().member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert (await group.join(follower.member_id)).result().leader == follower.member_id


@in_loop
async def test_the_last_one_missing_leaves_and_the_others_go_on() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2)
    join = await group.join(leader.member_id)
    await group.leave(follower)
    assert join.result().generation_id == 2


@in_loop
@pytest.mark.parametrize("version", range(6))
async def test_leaving_in_every_version(version: int) -> None:
    group = ClassicMembers()
    (member,) = await group.stable(1)
    leave = group.coordinator.classic.leave_group
    for member_id, error in (("who", ErrorCode.UNKNOWN_MEMBER_ID), (member.member_id, ErrorCode.NONE)):
        request = LeaveGroupRequest(group_id="g", member_id=member_id)
        if version >= 3:
            request = decode(LeaveGroupRequest, version, encode(_leave_of(member_id), version))
        left = leave(request, FakeCaller(version))
        assert isinstance(left, LeaveGroupResponse)
        answer = decode(LeaveGroupResponse, version, encode(left, version))
        if version < 3:
            assert answer.error_code == error
        else:
            assert [each.error_code for each in answer.members] == [error]
            assert answer.error_code == ErrorCode.NONE
    assert group.group().state is ClassicState.EMPTY


def _leave_of(member_id: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[LeaveGroupMember(member_id=member_id)])


@in_loop
async def test_leaving_a_group_that_is_not_there() -> None:
    group = ClassicMembers()
    assert [each.error_code for each in (await group.leave(Member("m", 1))).members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    unnamed = group.coordinator.classic.leave_group(LeaveGroupRequest(group_id=""), FakeCaller(5))
    assert isinstance(unnamed, LeaveGroupResponse)
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID
