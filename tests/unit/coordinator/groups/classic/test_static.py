"""Static members: they may go and come back without a rebalance."""

from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import ClassicState
from ottla.wire.messages.leave_group import LeaveGroupResponse
from support.coordinators import in_loop
from support.coordinators.classic_members import ClassicMembers, Member, subscription


@in_loop
async def test_a_static_member_joins_at_once_and_is_named_after_its_instance() -> None:
    group = ClassicMembers()
    join = await group.join(group_instance_id="i")
    await group.pass_ms(3_000)
    assert join.result().member_id.startswith("i-")
    assert [each.group_instance_id for each in join.result().members] == ["i"]


@in_loop
@pytest.mark.parametrize("version", [5, 8, 9])
async def test_a_follower_is_back_in_the_same_generation_with_its_assignment(version: int) -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2, static=True)
    back = (await group.join(group_instance_id="i1", version=version)).result()
    assert (back.error_code, back.generation_id, back.leader, back.members) == (0, 1, leader.member_id, [])
    assert back.member_id.startswith("i1-")
    assert back.member_id != follower.member_id
    assert not back.skip_assignment
    new = Member(back.member_id, 1, "i1")
    assert (await group.sync(new)).result().assignment == b"1"
    assert await group.heartbeat(leader) is ErrorCode.NONE
    assert list(group.group().members) == [leader.member_id, new.member_id], "in the same place"


@in_loop
async def test_the_previous_static_member_is_fenced() -> None:
    group = ClassicMembers()
    leader, old = await group.stable(2, static=True)
    await group.join(group_instance_id="i1")
    assert await group.heartbeat(old) is ErrorCode.FENCED_INSTANCE_ID
    assert (await group.sync(old)).result().error_code == ErrorCode.FENCED_INSTANCE_ID
    joined = (await group.join(old.member_id, group_instance_id="i1")).result()
    assert (joined.error_code, joined.member_id) == (ErrorCode.FENCED_INSTANCE_ID, old.member_id)
    with pytest.raises(CoordinatorError) as refused:
        group.group().check_commit(old.member_id, "i1", 1, in_transaction=False, version=9)
    assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert [each.error_code for each in (await group.leave(old)).members] == [ErrorCode.FENCED_INSTANCE_ID]
    assert await group.heartbeat(leader) is ErrorCode.NONE


@in_loop
async def test_a_leader_that_is_back_does_not_assign_again() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2, static=True)
    first = (await group.join(group_instance_id="i0", version=8)).result()
    assert (first.leader, first.members) == (leader.member_id, []), "old ones are not told that they lead"
    second = (await group.join(group_instance_id="i0", version=9)).result()
    assert (second.leader, second.skip_assignment) == (second.member_id, True)
    assert [each.member_id for each in second.members] == [second.member_id, follower.member_id]
    assert (await group.sync(Member(second.member_id, 1, "i0"))).result().assignment == b"0"


@in_loop
async def test_that_it_is_back_is_written_down() -> None:
    group = ClassicMembers()
    await group.stable(2, static=True)
    back = (await group.join(group_instance_id="i1", protocols={"range": b"\0\0new", "other": b""})).result()
    assert set(group.group().members[back.member_id].protocols) == {"range", "other"}
    loaded = await group.loaded_again()
    assert loaded.group().static_members == group.group().static_members
    assert loaded.group().members[back.member_id].assignment == b"1"
    assert await loaded.heartbeat(Member(back.member_id, 1, "i1")) is ErrorCode.NONE


@in_loop
async def test_if_it_cannot_be_written_nothing_has_changed() -> None:
    group = ClassicMembers()
    _, follower = await group.stable(2, static=True)
    group.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    back = (await group.join(group_instance_id="i1")).result()
    assert back.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await group.heartbeat(follower) is ErrorCode.NONE
    await group.pass_ms(10_001)
    assert await group.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID, "its session goes on as before"


@in_loop
async def test_its_old_session_ends_without_effect_and_its_new_one_with() -> None:
    group = ClassicMembers()
    await group.stable(1, static=True)
    await group.pass_ms(9_000)
    back = (await group.join(group_instance_id="i0")).result()
    await group.pass_ms(9_000)
    new = Member(back.member_id, 1, "i0")
    assert await group.heartbeat(new) is ErrorCode.NONE
    await group.pass_ms(10_000)
    assert await group.heartbeat(new) is ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_another_protocol_begins_a_rebalance() -> None:
    group = ClassicMembers()
    both = {"range": subscription("t"), "sticky": subscription("t")}
    leader, follower = await group.stable(2, static=True, protocols=both)
    back = await group.join(group_instance_id="i1", protocols={"sticky": subscription("t")})
    assert not back.done()
    assert await group.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    again = await group.join(leader.member_id, group_instance_id="i0", protocols=both)
    assert (again.result().protocol_name, back.result().protocol_name) == ("sticky", "sticky")
    assert follower.member_id not in group.group().members


@in_loop
async def test_the_join_that_waits_is_fenced_by_the_next_of_its_instance() -> None:
    group = ClassicMembers()
    first = await group.join(group_instance_id="i")
    second = await group.join(group_instance_id="i")
    assert first.result().error_code == ErrorCode.FENCED_INSTANCE_ID
    await group.pass_ms(6_000)
    assert (second.result().generation_id, len(second.result().members)) == (1, 1)


@in_loop
async def test_back_before_the_assignment_it_begins_a_rebalance() -> None:
    group = ClassicMembers()
    joins = [await group.join(group_instance_id=f"i{number}") for number in range(2)]
    await group.pass_ms(6_000)
    follower = Member(joins[1].result().member_id, 1, "i1")
    sync = await group.sync(follower)
    back = await group.join(group_instance_id="i1")
    assert sync.result().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert not back.done()
    assert group.group().state is ClassicState.PREPARING


@in_loop
async def test_it_is_not_dropped_for_not_joining_in_time_while_its_session_lasts() -> None:
    group = ClassicMembers()
    members = await group.stable(2, static=True, rebalance_timeout_ms=8_000)
    back = await group.join(members[0].member_id, group_instance_id="i0", rebalance_timeout_ms=8_000)
    await group.heartbeat(members[1])
    await group.pass_ms(8_000)
    assert back.result().generation_id == 2
    assert [each.group_instance_id for each in back.result().members] == ["i0", "i1"]


@in_loop
async def test_a_join_phase_in_which_all_static_members_are_away_goes_on_until_their_sessions_end() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2, static=True, rebalance_timeout_ms=7_000)
    await group.leave(leader)
    await group.pass_ms(7_000)
    assert group.group().state is ClassicState.PREPARING
    assert list(group.group().members) == [follower.member_id]
    await group.pass_ms(7_000)
    assert (group.group().state, group.group().generation) == (ClassicState.EMPTY, 2)


@in_loop
async def test_members_that_ask_for_hardly_any_time_to_join_do_not_make_the_coordinator_spin() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2, static=True, rebalance_timeout_ms=1)
    await group.leave(leader)
    await group.pass_ms(9_000)
    assert list(group.group().members) == [follower.member_id]
    back = await group.join(follower.member_id, group_instance_id="i1", rebalance_timeout_ms=-1)
    assert back.result().generation_id == 2


@in_loop
async def test_it_can_be_sent_away_by_its_instance_alone() -> None:
    group = ClassicMembers()
    leader, follower = await group.stable(2, static=True)
    response: LeaveGroupResponse = await group.leave(Member("", -1, "i1"), Member("", -1, "who"))
    assert [each.error_code for each in response.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert await group.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await group.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
