"""Offsets that are kept: deleted, expired, and pending in transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.group import GroupSettings
from ottla.coordinator.groups.offsets.records import OffsetColumn, encode_value, head_of
from ottla.coordinator.key_values import KeyValue, encode_key_values
from support.coordinators.classic_members import ClassicMembers
from support.coordinators.committers import Committers, in_loop

NONE = ErrorCode.NONE
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


# --- deleting -------------------------------------------------------------------------------------------------------


@in_loop
async def test_deleted_offsets_are_gone_permanently() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5, ("t", 1): 6})
    answer = await groups.delete(("t", 0), ("t", 2), ("t", 9), ("gone", 0))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer == [NONE, NONE, unknown, unknown]
    assert await groups.offsets() == {("t", 1): 6}
    other = await groups.loaded_again()
    assert await other.offsets() == {("t", 1): 6}


@in_loop
async def test_groups_that_are_not_there_have_nothing_to_delete() -> None:
    groups = Committers()
    assert await groups.delete(("t", 0)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert await groups.delete(("t", 0), group_id="") is ErrorCode.INVALID_GROUP_ID


@in_loop
async def test_offsets_of_a_topic_that_is_read_are_kept() -> None:
    members = ClassicMembers()
    (member,) = await members.stable(1)
    groups = Committers(beside=members)
    mine: dict[str, Any] = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    await groups.commit({("t", 0): 1, ("u", 0): 2}, **mine)
    assert await groups.delete(("t", 0), ("u", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]
    assert await groups.offsets() == {("t", 0): 1}


@in_loop
async def test_offsets_of_members_that_are_no_consumers_are_kept() -> None:
    members = ClassicMembers()
    workers: dict[str, Any] = {"protocol_type": "connect", "protocols": {"sessioned": b""}}
    join = await members.join(await members.given_id(**workers), **workers)
    await members.pass_ms(3_000)
    assert join.result().error_code == NONE
    groups = Committers(beside=members)
    assert await groups.delete(("t", 0)) is ErrorCode.NON_EMPTY_GROUP


@in_loop
async def test_a_deleted_topic_takes_its_offsets_with_it() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5, ("u", 1): 6})
    await groups.commit({("t", 2): 7}, group_id="other")
    await groups.commit_in_transaction(1, {("t", 3): 8})
    groups.coordinator.topics_deleted(["t"])
    groups.end_transaction(1, committed=True)
    assert await groups.offsets() == {("u", 1): 6}
    assert await groups.offsets("other") == {}


@in_loop
async def test_a_topic_that_is_deleted_while_the_coordinator_loads_takes_its_offsets_with_it() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5, ("u", 1): 6})
    other = groups.loading_again()
    assert other.coordinator.runtime.is_loading
    other.coordinator.topics_deleted(["t"])
    while other.coordinator.runtime.is_loading:
        await asyncio.sleep(0)
    other.time.advance_ms(0)
    assert await other.offsets() == {("u", 1): 6}
    third = await other.loaded_again()
    assert await third.offsets() == {("u", 1): 6}


# --- expiring -------------------------------------------------------------------------------------------------------


@in_loop
async def test_offsets_without_members_expire_by_commit_time_and_then_the_group() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5})
    groups.time.advance_ms(DAY_MS)
    await groups.commit({("t", 1): 6})
    groups.time.advance_ms(6 * DAY_MS - 1)
    assert await groups.offsets() == {("t", 0): 5, ("t", 1): 6}
    groups.time.advance_ms(HOUR_MS)
    assert await groups.offsets() == {("t", 1): 6}
    assert "g" in groups.shard.groups
    groups.time.advance_ms(DAY_MS)
    assert groups.shard.groups == {}
    other = await groups.loaded_again()
    assert other.shard.groups == {}


@in_loop
async def test_offsets_that_a_client_gave_a_time_expire_then() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5}, 2, retention_time_ms=2 * HOUR_MS)
    groups.time.advance_ms(2 * HOUR_MS - 1)
    assert await groups.offsets() == {("t", 0): 5}
    groups.time.advance_ms(HOUR_MS)
    assert await groups.offsets() == {}


@in_loop
async def test_only_offsets_of_unsubscribed_topics_expire() -> None:
    settings = GroupSettings(offsets_retention_ms=HOUR_MS, session_timeout_max_ms=20 * DAY_MS)
    members = ClassicMembers(settings)
    (member,) = await members.stable(1, session_timeout_ms=20 * DAY_MS)
    groups = Committers(beside=members)
    mine: dict[str, Any] = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    await groups.commit({("t", 0): 1, ("u", 0): 2}, **mine)
    await members.pass_ms(2 * HOUR_MS)
    assert await groups.offsets() == {("t", 0): 1}
    await members.leave(member)
    await members.pass_ms(HOUR_MS - 600_000)
    assert await groups.offsets() == {("t", 0): 1}
    await members.pass_ms(HOUR_MS)
    assert await groups.offsets() == {}
    assert members.coordinator.runtime.active_shards()[0].groups == {}


@in_loop
async def test_pending_offsets_do_not_expire() -> None:
    groups = Committers(settings=GroupSettings(offsets_retention_ms=HOUR_MS))
    await groups.commit({("t", 0): 5, ("t", 1): 6})
    await groups.commit_in_transaction(1, {("t", 0): 7})
    groups.time.advance_ms(3 * HOUR_MS)
    assert await groups.offsets() == {("t", 0): 5}
    groups.end_transaction(1, committed=True)
    assert await groups.offsets() == {("t", 0): 7}


@in_loop
async def test_many_offsets_expire_in_several_batches() -> None:
    settings = GroupSettings(offsets_retention_ms=HOUR_MS)
    groups = Committers(settings=settings)
    groups.topics.put("wide", 12_000)
    await groups.commit({("wide", index): 1 for index in range(12_000)})
    for number in range(3):
        await groups.commit({("wide", index): 1 for index in range(9_000)}, group_id=f"group{number}")
    before = len(groups.log.batches[0])
    groups.time.advance_ms(2 * HOUR_MS)
    assert groups.shard.groups == {}
    tombstones = groups.log.batches[0][before:]
    assert len(tombstones) >= 8
    assert max(map(len, tombstones)) < 1_000_000


# --- transactions ---------------------------------------------------------------------------------------------------


@in_loop
async def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 1})
    assert await groups.commit_in_transaction(9, {("t", 0): 5, ("t", 1): 6}) == [NONE, NONE]
    assert await groups.offsets() == {("t", 0): 1}
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await groups.errors_of("t", 0, 1, 2, require_stable=True) == [unstable, unstable, NONE]
    assert await groups.errors_of("t", 0, 1, 2) == [NONE] * 3
    all_of_them = await groups.fetch(require_stable=True)
    assert [each.error_code for each in all_of_them.topics[0].partitions] == [unstable]
    groups.end_transaction(9, committed=True)
    assert await groups.offsets() == {("t", 0): 5, ("t", 1): 6}
    assert await groups.errors_of("t", 0, 1, require_stable=True) == [NONE, NONE]


@in_loop
async def test_offsets_of_a_transaction_that_is_aborted_are_forgotten() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 1})
    await groups.commit_in_transaction(9, {("t", 0): 5}, group_id="g")
    await groups.commit_in_transaction(9, {("t", 0): 6}, group_id="other")
    groups.end_transaction(9, committed=False)
    assert await groups.offsets() == {("t", 0): 1}
    assert await groups.offsets("other") == {}
    assert await groups.errors_of("t", 0, require_stable=True) == [NONE]
    assert not groups.shard.offsets.has_transactions("other")


@in_loop
async def test_the_later_commit_counts_whenever_the_transaction_ends() -> None:
    groups = Committers()
    await groups.commit_in_transaction(1, {("t", 0): 5, ("t", 1): 5})
    await groups.commit({("t", 0): 7})
    await groups.commit_in_transaction(2, {("t", 1): 6})
    groups.end_transaction(2, committed=True)
    groups.end_transaction(1, committed=True)
    assert await groups.offsets() == {("t", 0): 7, ("t", 1): 6}


@in_loop
async def test_deleting_takes_what_is_pending_as_well() -> None:
    groups = Committers()
    await groups.commit_in_transaction(1, {("t", 0): 5, ("t", 1): 6})
    assert await groups.delete(("t", 0)) == [NONE]
    groups.end_transaction(1, committed=True)
    assert await groups.offsets() == {("t", 1): 6}


@in_loop
async def test_producers_that_may_commit_in_a_transaction() -> None:
    groups = Committers(settings=GroupSettings(offset_metadata_max_bytes=3))
    with pytest.raises(CoordinatorError) as caught:
        await groups.commit_in_transaction(1, {("t", 0): 5}, generation_id=3)
    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
    assert await groups.commit_in_transaction(1, {("gone", 0): 5}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# --- records of others ----------------------------------------------------------------------------------------------


@in_loop
async def test_records_that_are_not_known_are_skipped() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5})
    strange = [KeyValue(b"\x03\xe7future", b"\x00\x00"), KeyValue(b"", b"x"), KeyValue(b"\x00", None)]
    groups.log.append(0, encode_key_values(strange, 1))
    other = await groups.loaded_again()
    assert await other.offsets() == {("t", 0): 5}


# --- replay ---------------------------------------------------------------------------------------------------------

COLUMNS = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**62)), min_size=1, max_size=5),
        st.sampled_from([-1, -1, 7, 8]),
        st.sampled_from([None, None, True, False]),
    ),
    max_size=6,
)


@given(columns=COLUMNS)
@in_loop
async def test_a_column_is_replayed_as_its_records_one_by_one(
    columns: list[tuple[str, list[tuple[int, int]], int, bool | None]],
) -> None:
    """With transactions between them, which end as the last value says."""
    together, apart = Committers(), Committers()
    offset = 0
    for topic, places, producer_id, ends in columns:
        partitions = [partition for partition, _ in places]
        values = [encode_value(value, -1, "", 0) for _, value in places]
        column = OffsetColumn(head_of("g", topic), partitions, values)
        offsets = range(offset, offset + len(column))
        offset = offsets.stop
        together.shard.replay(column, offsets, producer_id)
        for record, at in zip(column, offsets, strict=True):
            apart.shard.replay([record], [at], producer_id)
        for groups in (together, apart) if ends is not None else ():
            groups.shard.replay_end_of_transaction(7, committed=bool(ends))
    assert await together.offsets() == await apart.offsets()
    for topic in ("t", "u"):
        pending = [together.shard.offsets.is_pending("g", topic, index) for index in range(4)]
        assert pending == [apart.shard.offsets.is_pending("g", topic, index) for index in range(4)]
