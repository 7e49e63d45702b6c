"""Committing offsets, over a log and a clock held by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.coordinator.groups.group import GroupSettings
from ottla.coordinator.groups.offsets.records import decode_value
from ottla.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroupTopic,
)
from support.coordinators.classic_members import ClassicMembers, FakeCaller
from support.coordinators.committers import Committers, awaited, in_loop

NONE = ErrorCode.NONE
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@in_loop
async def test_offsets_are_fetched_as_they_were_committed() -> None:
    groups = Committers()
    assert await groups.commit({("t", 0): 5, ("t", 3): 6, ("u", 1): 7}) == [NONE] * 3
    assert await groups.commit({("t", 0): 9}) == [NONE]
    assert await groups.offsets() == {("t", 0): 9, ("t", 3): 6, ("u", 1): 7}
    assert await groups.offsets("another") == {}
    assert len(groups.log.batches[0]) == 2


@in_loop
async def test_a_commit_without_members_makes_a_group_of_offsets_only() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5})
    group = groups.shard.groups["g"]
    assert (group.type_name, group.state_name, group.protocol_type, group.is_empty) == ("classic", "Empty", "", True)


@in_loop
@pytest.mark.parametrize("version", range(10))
async def test_every_version_commits(version: int) -> None:
    groups = Committers()
    assert await groups.commit({("t", 0): 5, ("t", 4): 1}, version, metadata="note") == [
        NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    found = groups.shard.offsets.topics_of("g")["t"].get(0)
    assert found is not None
    assert found.metadata == "note"
    assert found.committed_ms == groups.time.now_ms()


@in_loop
async def test_the_newest_version_names_topics_by_their_ids() -> None:
    groups = Committers()
    assert await groups.commit({("t", 0): 5, ("gone", 0): 6}, 10) == [NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    topic_id = groups.topics.topic_id("t")
    asked = [
        OffsetFetchGroupTopic(topic_id=topic_id or Uuid(bytes(16)), partition_indexes=[0, 1]),
        OffsetFetchGroupTopic(topic_id=Uuid(b"?" * 16), partition_indexes=[0]),
    ]
    found = await groups.fetch(version=10, topics=asked)
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in found.topics[0].partitions] == [
        (0, 5, NONE),
        (1, -1, NONE),
    ]
    assert [each.error_code for each in found.topics[1].partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
    everything = await groups.fetch(version=10)
    assert [topic.topic_id for topic in everything.topics] == [topic_id]
    groups.topics.remove("t")
    assert (await groups.fetch(version=10)).topics == []
    assert await groups.offsets() == {("t", 0): 5}


@in_loop
async def test_the_first_version_says_when_and_the_next_ones_how_long() -> None:
    groups = Committers()
    partition = OffsetCommitPartition(partition_index=0, committed_offset=5, commit_timestamp=77)
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitTopic(name="t", partitions=[partition])])
    await awaited(groups.coordinator.commit_offsets(request, FakeCaller(1)))
    await groups.commit({("t", 1): 6}, 2, retention_time_ms=1_000)
    stored = groups.shard.offsets.topics_of("g")["t"]
    assert decode_value(stored.values[0]).committed_ms == 77
    assert decode_value(stored.values[1]).expires_ms == groups.time.now_ms() + 1_000


@in_loop
@pytest.mark.parametrize("version", [2, 3, 4])
async def test_a_retention_may_be_as_long_as_it_likes(version: int) -> None:
    groups = Committers()
    for partition, (retention_ms, expires_ms) in enumerate([(2**63 - 1, 2**63 - 1), (-(2**63), 0)]):
        assert await groups.commit({("t", partition): 5}, version, retention_time_ms=retention_ms) == [NONE]
        stored = groups.shard.offsets.topics_of("g")["t"]
        assert decode_value(stored.values[partition]).expires_ms == expires_ms


@in_loop
async def test_too_much_metadata_refuses_that_partition_only() -> None:
    groups = Committers(settings=GroupSettings(offset_metadata_max_bytes=3))
    assert await groups.commit({("t", 0): 1}, metadata="four") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await groups.commit({("t", 0): 1}, metadata="few") == [NONE]
    assert await groups.commit({("t", 1): 1}, metadata=None) == [NONE]


@in_loop
async def test_a_generation_of_a_group_that_is_not_there_is_refused() -> None:
    groups = Committers()
    late: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert await groups.commit({("t", 0): 1}, 8, **late) == [ErrorCode.ILLEGAL_GENERATION]
    assert await groups.commit({("t", 0): 1}, 9, **late) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert await groups.commit({("gone", 0): 1}, 9, **late) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert groups.shard.groups == {}


@in_loop
async def test_members_commit_with_their_generation_and_nobody_else_does() -> None:
    members = ClassicMembers()
    first, second = await members.stable(2)
    groups = Committers(beside=members)
    good: dict[str, Any] = {"member_id": first.member_id, "generation_id_or_member_epoch": first.generation}
    assert await groups.commit({("t", 0): 1}, **good) == [NONE]
    assert await groups.commit({("t", 0): 2}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await groups.commit({("t", 0): 2}, **good | {"generation_id_or_member_epoch": first.generation + 1}) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert await groups.commit({("t", 0): 2}, **good | {"member_id": second.member_id + "?"}) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    assert await groups.offsets() == {("t", 0): 1}


@in_loop
async def test_a_commit_that_cannot_be_written_changes_nothing() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 1})
    groups.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert await groups.commit({("t", 0): 2, ("t", 1): 2}) == refused
    assert await groups.commit({("t", 0): 2, ("t", 1): 2}, group_id="new") == refused
    groups.log.refuse_appends = None
    assert await groups.offsets() == {("t", 0): 1}
    assert list(groups.shard.groups) == ["g"]


@in_loop
async def test_commits_and_fetches_wait_for_the_replicas() -> None:
    groups = Committers()
    groups.log.hold_commits()
    commit = asyncio.ensure_future(groups.commit({("t", 0): 1}))
    await asyncio.sleep(0)
    fetch = asyncio.ensure_future(groups.offsets())
    await asyncio.sleep(0)
    assert not commit.done()
    assert not fetch.done()
    groups.log.commit()
    assert await commit == [NONE]
    assert await fetch == {("t", 0): 1}


@in_loop
async def test_an_uncertain_commit_gets_an_error() -> None:
    groups = Committers()
    groups.log.hold_commits()
    commit = asyncio.ensure_future(groups.commit({("t", 0): 1}))
    await asyncio.sleep(0)
    fetch = asyncio.ensure_future(groups.fetch())
    await asyncio.sleep(0)
    groups.log.fail_commits(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await commit == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (await fetch).error_code == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_a_coordinator_that_loads_says_so() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 1})
    other = groups.loading_again()
    assert await other.commit({("t", 0): 2}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert (await other.fetch()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await other.delete(("t", 0)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while other.coordinator.runtime.is_loading:
        await asyncio.sleep(0)
    assert await other.offsets() == {("t", 0): 1}
