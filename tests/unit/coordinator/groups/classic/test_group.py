"""What a classic group tells of itself, and what of it is in the log."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.groups.records import key_of, record_of, value_of
from ottla.records import iter_records
from ottla.testing.manual_clock import ManualClock
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from ottla.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from support.coordinators import in_loop
from support.coordinators.classic_members import ClassicMembers, FakeCaller, subscription


def stored(group: ClassicMembers) -> list[tuple[str, GroupMetadataValue | None]]:
    """What the log holds of groups, in its order."""
    found = []
    for batch in group.log.batches[0]:
        for record in iter_records(batch):
            assert record.key is not None
            key = bytes(record.key)
            if key[:2] == b"\0\2":
                value = None if record.value is None else value_of(GroupMetadataValue, bytes(record.value))
                found.append((key_of(GroupMetadataKey, key).group, value))
    return found


def commit(group: ClassicMembers, group_id: str = "g", topic: str = "t", **changes: Any) -> int:
    partitions = [OffsetCommitPartition(partition_index=0, committed_offset=7)]
    request = OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitTopic(name=topic, partitions=partitions)])
    for name, value in changes.items():
        setattr(request, name, value)
    answer = group.coordinator.commit_offsets(request, FakeCaller(8))
    return answer.topics[0].partitions[0].error_code  # type: ignore[union-attr]  # nothing need be waited for


# --- the log --------------------------------------------------------------------------------------------------------


@in_loop
async def test_what_is_written_of_a_life() -> None:
    group = ClassicMembers()
    members = await group.stable(2, static=True)
    await group.leave(*members)
    await group.coordinator.classic.delete_groups(DeleteGroupsRequest(groups_names=["g"]))
    (made, assigned, emptied, deleted) = [value for _, value in stored(group)]
    assert made == GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=1_700_000_000_000,
        members=[],
    )
    assert assigned is not None
    assert (assigned.protocol_type, assigned.generation, assigned.protocol) == ("consumer", 1, "range")
    assert (assigned.leader, assigned.current_state_timestamp) == (members[0].member_id, 1_700_000_006_000)
    assert assigned.members[1] == GroupMetadataMember(
        member_id=members[1].member_id,
        group_instance_id="i1",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=10_000,
        subscription=subscription("t"),
        assignment=b"1",
    )
    assert emptied is not None
    assert (emptied.protocol_type, emptied.generation, emptied.protocol, emptied.leader, emptied.members) == (
        "consumer",
        2,
        None,
        None,
        [],
    )
    assert deleted is None


@in_loop
async def test_a_group_that_is_loaded_goes_on_where_it_was() -> None:
    group = ClassicMembers()
    members = await group.stable(2)
    loaded = await group.loaded_again()
    assert await loaded.heartbeat(members[0]) is ErrorCode.NONE
    assert (await loaded.sync(members[1])).result().assignment == b"1"
    assert (await loaded.join(members[1].member_id)).result().leader == members[0].member_id
    await loaded.pass_ms(9_999)
    assert await loaded.heartbeat(members[0]) is ErrorCode.NONE
    await loaded.pass_ms(1)
    assert await loaded.heartbeat(members[1]) is ErrorCode.UNKNOWN_MEMBER_ID, "its session began with the loading"


@in_loop
async def test_a_record_of_an_old_kafka_is_read() -> None:
    group = ClassicMembers()
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        members=[
            GroupMetadataMember(
                member_id="m", client_id="c", client_host="/h", session_timeout=8_000, subscription=subscription("t")
            )
        ],
    )
    key = encode_versioned(GroupMetadataKey(group="g"), 2)
    shard = group.coordinator.runtime.active_shards()[0]
    shard.replay([(key, encode_versioned(value, 0))], [0], -1)
    loaded = group.group()
    assert (loaded.generation, loaded.state_since_ms, loaded.state) == (4, None, ClassicState.STABLE)
    assert loaded.members["m"].rebalance_timeout_ms == 8_000
    shard.replay([(key, None)], [1], -1)
    assert "g" not in shard.groups


# --- offsets --------------------------------------------------------------------------------------------------------


@in_loop
async def test_members_that_may_commit() -> None:
    group = ClassicMembers()
    join = await group.join(version=3)
    await group.pass_ms(3_000)
    member_id = join.result().member_id
    of_member: dict[str, Any] = {"member_id": member_id, "generation_id_or_member_epoch": 1}
    assert commit(group, **of_member) == ErrorCode.REBALANCE_IN_PROGRESS
    shard_group = group.group()
    shard_group.check_commit(member_id, None, 1, in_transaction=True, version=3)
    shard_group.check_commit("", None, -1, in_transaction=True, version=0)
    shard_group.become(ClassicState.STABLE)
    assert commit(group, **of_member) == ErrorCode.NONE
    assert commit(group) == ErrorCode.UNKNOWN_MEMBER_ID, "only members may"
    assert commit(group, **of_member | {"generation_id_or_member_epoch": 2}) == ErrorCode.ILLEGAL_GENERATION
    assert commit(group, **of_member | {"member_id": "who"}) == ErrorCode.UNKNOWN_MEMBER_ID
    await group.join(member_id)
    assert shard_group.state_name == "CompletingRebalance"
    await group.pass_ms(10_000)
    assert shard_group.is_empty
    assert commit(group) == ErrorCode.NONE
    assert commit(group, **of_member) == ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_topics_that_are_read_and_those_that_are_not() -> None:
    group = ClassicMembers()
    await group.stable(1)
    assert group.group().subscribes_to("t")
    assert not group.group().subscribes_to("u")
    group.group().check_offset_delete()
    unreadable = ClassicMembers()
    await unreadable.stable(1, protocols={"range": b"\0"})
    assert unreadable.group().subscribes_to("u"), "who knows"
    workers = ClassicMembers()
    join = await workers.join(version=3, protocol_type="connect")
    await workers.pass_ms(3_000)
    assert join.result().error_code == 0
    assert not workers.group().subscribes_to("t")
    with pytest.raises(CoordinatorError) as refused:
        workers.group().check_offset_delete()
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


WAYS: dict[ClassicState, list[ClassicState]] = {
    ClassicState.EMPTY: [],
    ClassicState.PREPARING: [ClassicState.PREPARING],
    ClassicState.COMPLETING: [ClassicState.PREPARING, ClassicState.COMPLETING],
    ClassicState.STABLE: [ClassicState.PREPARING, ClassicState.COMPLETING, ClassicState.STABLE],
}
"""How an empty group gets into each state."""
LEGAL = {
    ("Empty", "PreparingRebalance"),
    ("PreparingRebalance", "CompletingRebalance"),
    ("PreparingRebalance", "Empty"),
    ("CompletingRebalance", "PreparingRebalance"),
    ("CompletingRebalance", "Stable"),
    ("Stable", "PreparingRebalance"),
}


@pytest.mark.parametrize("after", ClassicState)
@pytest.mark.parametrize("before", ClassicState)
def test_a_group_changes_its_state_only_as_the_table_says(before: ClassicState, after: ClassicState) -> None:
    clock = ManualClock(1_000)
    group = ClassicGroup("g", clock)
    for state in WAYS[before]:
        group.become(state)
    since_ms = group.state_since_ms
    clock.advance_ms(5)
    if (before.value, after.value) in LEGAL:
        group.become(after)
        assert (group.state, group.state_since_ms) == (after, clock.now_ms())
    else:
        with pytest.raises(RuntimeError, match=f"Group 'g' cannot go from {before.value} to {after.value}"):
            group.become(after)
        assert (group.state, group.state_since_ms) == (before, since_ms)


def test_from_when_offsets_age() -> None:
    clock = ManualClock(1_000)
    group = ClassicGroup("g", clock)
    assert group.retention_start_ms(5) == 5, "no members ever: from the commit"
    value = GroupMetadataValue(protocol_type="consumer", generation=1, current_state_timestamp=700)
    group.replay(value)
    assert group.retention_start_ms(5) == 700
    value.current_state_timestamp = -1
    group.replay(value)
    assert group.retention_start_ms(5) == 5
    value.protocol, value.leader = "range", "m"
    value.members = [GroupMetadataMember(member_id="m", subscription=subscription("t"))]
    group.replay(value)
    assert group.retention_start_ms(5) == 5
    group.become(ClassicState.PREPARING)
    assert group.retention_start_ms(5) is None
    value.protocol_type = "connect"
    group.replay(value)
    assert group.retention_start_ms(5) is None


# --- what tools ask -------------------------------------------------------------------------------------------------


async def describe(group: ClassicMembers, group_id: str = "g", version: int = 6) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=[group_id])
    return (await group.coordinator.classic.describe_groups(request, FakeCaller(version))).groups[0]


@in_loop
async def test_a_stable_group_is_described_with_what_its_members_told_and_got() -> None:
    group = ClassicMembers()
    members = await group.stable(2, static=True)
    told = await describe(group)
    assert (told.error_code, told.group_state, told.protocol_type, told.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    follower = told.members[1]
    assert (follower.member_id, follower.group_instance_id) == (members[1].member_id, "i1")
    assert (follower.client_id, follower.client_host) == ("c", "/127.0.0.1")
    assert (follower.member_metadata, follower.member_assignment) == (subscription("t"), b"1")


@in_loop
async def test_while_it_rebalances_a_group_says_less() -> None:
    group = ClassicMembers()
    await group.join(version=3)
    told = await describe(group)
    assert (told.group_state, told.protocol_data, told.members[0].member_metadata) == ("PreparingRebalance", "", b"")


@in_loop
async def test_a_group_that_is_not_there_is_dead_and_since_v6_not_found() -> None:
    group = ClassicMembers()
    before = await describe(group, "other", 5)
    since = await describe(group, "other", 6)
    assert (before.error_code, before.group_state) == (ErrorCode.NONE, "Dead")
    assert (since.error_code, since.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert "other" in (since.error_message or "")


@in_loop
@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], {"g", "simple"}),
        (["stable"], [], {"g"}),
        (["EMPTY ", "Dead"], [], {"simple"}),
        ([], ["Classic"], {"g", "simple"}),
        ([], ["consumer"], set()),
        ([], ["what"], set()),
        (["Stable"], ["classic"], {"g"}),
    ],
)
async def test_listing(states: list[str], types: list[str], found: set[str]) -> None:
    group = ClassicMembers()
    await group.stable(1)
    assert commit(group, "simple") == ErrorCode.NONE
    answer = await group.coordinator.classic.list_groups(ListGroupsRequest(states_filter=states, types_filter=types))
    assert {each.group_id for each in answer.groups} == found
    for each in answer.groups:
        expected = ("consumer", "Stable") if each.group_id == "g" else ("", "Empty")
        assert (each.protocol_type, each.group_state, each.group_type) == (*expected, "classic")


@in_loop
async def test_deleting() -> None:
    group = ClassicMembers()
    members = await group.stable(1)
    commit(group, "simple")
    commit(group, member_id=members[0].member_id, generation_id_or_member_epoch=1)

    async def delete(*names: str) -> list[tuple[str, int]]:
        answer = await group.coordinator.classic.delete_groups(DeleteGroupsRequest(groups_names=list(names)))
        return [(each.group_id, each.error_code) for each in answer.results]

    assert await delete("g", "simple", "who", "simple") == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
        ("who", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    await group.leave(*members)
    assert await delete("g") == [("g", ErrorCode.NONE)]
    for coordinator in (group, await group.loaded_again()):
        shard = coordinator.coordinator.runtime.active_shards()[0]
        assert not shard.groups
        assert not shard.offsets.topics_of("g")
    (member,) = await group.stable(1)
    assert member.generation == 1, "a new group"


@in_loop
async def test_an_id_given_out_before_the_group_was_deleted_does_not_count_any_more() -> None:
    group = ClassicMembers()
    member_id = await group.given_id()
    await group.coordinator.classic.delete_groups(DeleteGroupsRequest(groups_names=["g"]))
    assert (await group.join(member_id)).result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await group.pass_ms(20_000)


@in_loop
async def test_waiting_members_of_an_unloaded_group_join_again() -> None:
    """As when the group begins to speak the other protocol."""
    group = ClassicMembers()
    leader, follower = await group.stable(2)
    join = await group.join(leader.member_id)
    (tombstone,) = group.group().deletion_records()
    shard = group.coordinator.runtime.active_shards()[0]
    shard.replay([tombstone], [9], -1)
    await group.settle()
    assert join.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert await group.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    await group.pass_ms(100_000)
    assert not shard.groups


@in_loop
async def test_a_group_that_has_offsets_before_its_record_keeps_both() -> None:
    """Compaction may leave an offset commit before the record of its group."""
    group = ClassicMembers()
    shard = group.coordinator.runtime.active_shards()[0]
    value = OffsetCommitValue(offset=7, metadata="", commit_timestamp=1)
    offset = record_of(OffsetCommitKey(group="g", topic="t", partition=0), None)
    shard.replay([(offset.key, encode_versioned(value, 3))], [0], -1)
    simple = group.group()
    assert (simple.state, simple.protocol_type) == (ClassicState.EMPTY, "")
    key = encode_versioned(GroupMetadataKey(group="g"), 2)
    emptied = encode_versioned(GroupMetadataValue(protocol_type="consumer", generation=3), 3)
    shard.replay([(key, emptied)], [1], -1)
    assert (group.group().generation, group.group().protocol_type) == (3, "consumer")
    assert shard.offsets.topics_of("g")
