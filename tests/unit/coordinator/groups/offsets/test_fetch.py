"""Fetching offsets, in the forms of all versions."""

from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from support.coordinators.classic_members import ClassicMembers, FakeCaller
from support.coordinators.committers import Committers, awaited, in_loop

NONE = ErrorCode.NONE
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@in_loop
@pytest.mark.parametrize("version", range(8))
async def test_older_versions_ask_for_one_group(version: int) -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5}, metadata="note")
    asked = [OffsetFetchTopic(name="t", partition_indexes=[0, 1]), OffsetFetchTopic(name="gone", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=asked)
    response = await awaited(groups.coordinator.fetch_offsets(request, FakeCaller(version)))
    assert response.error_code == NONE
    assert [
        (topic.name, each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for topic in response.topics
        for each in topic.partitions
    ] == [("t", 0, 5, "note", NONE), ("t", 1, -1, "", NONE), ("gone", 0, -1, "", NONE)]


@in_loop
@pytest.mark.parametrize("version", range(8))
async def test_older_versions_get_errors_where_they_have_a_field(version: int) -> None:
    groups = Committers()
    groups.coordinator.close()
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchTopic(name="t", partition_indexes=[0, 1])])
    response = await awaited(groups.coordinator.fetch_offsets(request, FakeCaller(version)))
    of_partitions = [each.error_code for topic in response.topics for each in topic.partitions]
    if version < 2:
        assert of_partitions == [ErrorCode.NOT_COORDINATOR] * 2
    else:
        assert (response.error_code, of_partitions) == (ErrorCode.NOT_COORDINATOR, [])


@in_loop
async def test_null_asks_for_all_and_an_empty_list_for_nothing() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5})
    for topics, count in ((None, 1), ([], 0)):
        request = OffsetFetchRequest(group_id="g", topics=topics)
        response = await awaited(groups.coordinator.fetch_offsets(request, FakeCaller(7)))
        assert len(response.topics) == count
    assert (await groups.fetch(topics=[])).topics == []


@in_loop
async def test_a_member_that_is_none_is_refused_in_newer_versions() -> None:
    members = ClassicMembers()
    await members.stable(1)
    groups = Committers(beside=members)
    assert (await groups.fetch(member_id=None, member_epoch=-1)).error_code == NONE
