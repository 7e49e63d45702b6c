"""Fast fetches of offsets: the same answers as on the general path."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID
from ottla.coordinator.groups.fast.fast_fetch import fetch_fast
from ottla.wire.codec import decode
from ottla.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from support.coordinators.classic_members import FakeCaller
from support.coordinators.committers import Committers, awaited, in_loop

COMMIT = OffsetCommitRequest(
    group_id="g",
    topics=[OffsetCommitTopic(name="t", partitions=[OffsetCommitPartition(partition_index=0, committed_offset=6)])],
)


def asked(groups: Committers, topic: str, indexes: list[int], **fields: Any) -> OffsetFetchRequest:
    topic_id = groups.topics.topic_id(topic) or ZERO_UUID
    topics = [OffsetFetchGroupTopic(name=topic, topic_id=topic_id, partition_indexes=indexes)]
    return OffsetFetchRequest(groups=[OffsetFetchGroup(**{"group_id": "g", "topics": topics} | fields)])


def fetched(groups: Committers, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse | None:
    body = fetch_fast(groups.coordinator, request, version)
    return None if body is None else decode(OffsetFetchResponse, version, body)


@given(
    committed=st.dictionaries(st.integers(0, 299), st.integers(0, 2**62), max_size=20),
    indexes=st.one_of(st.lists(st.integers(0, 310), max_size=30), st.just(list(range(300)))),
    version=st.sampled_from([8, 9, 10]),
    topic=st.sampled_from(["w", "t"]),
)
@in_loop
async def test_the_fast_path_fetches_the_same_as_the_general_path(
    committed: dict[int, int], indexes: list[int], version: int, topic: str
) -> None:
    groups = Committers()
    groups.topics.put("w", 300)
    if committed:
        await groups.commit({("w", index): offset for index, offset in committed.items()})
    request = asked(groups, topic, indexes)
    found = fetched(groups, request, version)
    assert found is not None
    long = await awaited(groups.coordinator.fetch_offsets(request, FakeCaller(version)))
    if version >= 10:
        for group in (*found.groups, *long.groups):
            group.topics[0].name = ""  # which is not sent
    else:
        long.groups[0].topics[0].topic_id = ZERO_UUID  # nor is this
    assert found == long


@in_loop
async def test_metadata_take_the_long_way() -> None:
    groups = Committers()
    await groups.commit({("t", 1): 5}, metadata="note")
    assert fetched(groups, asked(groups, "t", [0, 1]), 9) is None
    found = fetched(groups, asked(groups, "t", [0, 2]), 9)
    assert found is not None
    assert [each.committed_offset for each in found.groups[0].topics[0].partitions] == [-1, -1]


@in_loop
@pytest.mark.parametrize("version", [7, 8, 9, 10])
async def test_several_topics_or_groups_take_the_general_path(version: int) -> None:
    groups = Committers()
    one = asked(groups, "t", [0]).groups[0]
    assert one.topics is not None
    for several in (
        [],
        [one, one],
        [OffsetFetchGroup(group_id="g", topics=None)],
        [OffsetFetchGroup(group_id="g", topics=[])],
        [OffsetFetchGroup(group_id="g", topics=one.topics * 2)],
    ):
        assert fetch_fast(groups.coordinator, OffsetFetchRequest(groups=several), version) is None
    is_fast = fetch_fast(groups.coordinator, OffsetFetchRequest(groups=[one]), version) is not None
    assert is_fast == (version >= 8)


@in_loop
async def test_errors_and_waits_take_the_general_path() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5})
    request = asked(groups, "t", [0])
    assert fetched(groups, asked(groups, "nowhere", [0]), 10) is None
    groups.log.hold_commits()
    uncommitted = groups.coordinator.commit_offsets(COMMIT, FakeCaller(9))
    assert isinstance(uncommitted, Coroutine)
    assert fetched(groups, request, 9) is None
    groups.log.commit()
    await uncommitted
    assert fetched(groups, request, 9) is not None
    groups.coordinator.resign(0)
    assert fetched(groups, request, 9) is None
    answer = await awaited(groups.coordinator.fetch_offsets(request, FakeCaller(9)))
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_offsets_of_open_transactions_take_the_long_way_where_they_matter() -> None:
    groups = Committers()
    await groups.commit({("t", 0): 5})
    await groups.commit_in_transaction(7, {("t", 1): 6})
    request = asked(groups, "t", [0, 1])
    assert fetched(groups, request, 9) is not None
    request.require_stable = True
    assert fetched(groups, request, 9) is None
