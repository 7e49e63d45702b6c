"""What a consumer group tells of itself, and how it comes back from the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from support.coordinators.consumer_members import Consumer, Coordinated, settle


async def _described(coordinated: Coordinated, group_id: str) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    (described,) = (await coordinated.coordinator.consumer.describe(request)).groups
    return described


def test_a_group_is_described() -> None:
    coordinated = Coordinated()
    first = Consumer(coordinated, "a", pattern="u", instance_id="i")
    first.join()
    Consumer(coordinated, "b").join()
    described = asyncio.run(_described(coordinated, "g"))
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Reconciling")
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (2, 2, "uniform")
    member = described.members[0]
    assert (member.member_id, member.instance_id, member.member_epoch, member.member_type) == ("a", "i", 1, 1)
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "u")
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [
        (name, [0, 1, 2, 3]) for name in sorted(("t", "u"), key=lambda name: coordinated.topics.topic_id(name) or b"")
    ]
    assert sum(len(each.partitions) for each in member.target_assignment.topic_partitions) < 8
    unknown = asyncio.run(_described(coordinated, "x"))
    assert (unknown.error_code, unknown.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "x")
    assert asyncio.run(_described(coordinated, "")).error_code == ErrorCode.INVALID_GROUP_ID


def test_partitions_to_be_revoked_still_belong_to_the_member() -> None:
    coordinated = Coordinated()
    first = Consumer(coordinated, "a")
    first.join()
    Consumer(coordinated, "b").join()
    first.idle_beat()
    assert coordinated.group().members["a"].standing.revoking
    member = asyncio.run(_described(coordinated, "g")).members[0]
    assert [each.partitions for each in member.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert sum(len(each.partitions) for each in member.target_assignment.topic_partitions) == 2


def test_a_group_goes_on_where_it_was_when_it_is_loaded() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a", ["t", "u"]), Consumer(coordinated, "b", pattern="u")
    first.join()
    second.join()
    everything = set(first.owned)
    first.idle_beat()
    again = coordinated.loaded_again()
    assert again.state() == coordinated.state()
    # In the midst of giving up: what was told is still to be done, and in time.
    first.coordinated = second.coordinated = again
    second.beat()
    assert second.owned & everything == set()
    settle(first, second)
    assert len(first.owned) + len(second.owned) == 8
    assert (
        coordinated.loaded_again()
        .coordinator.runtime.active_shards()[0]
        .context.is_scheduled("consumer rebalance 1 g a")
    )


def test_a_loaded_group_whose_members_are_gone_becomes_empty() -> None:
    coordinated = Coordinated()
    Consumer(coordinated, "a").join()
    again = coordinated.loaded_again()
    again.time.advance_ms(44_999)
    assert not again.group().is_empty
    again.time.advance_ms(1)
    assert again.group().is_empty


def test_a_group_is_deleted_with_all_its_records() -> None:
    coordinated = Coordinated()
    consumer = Consumer(coordinated, "a", pattern="u")
    consumer.join()
    shard = coordinated.coordinator.runtime.active_shards()[0]
    assert shard.classic.delete("g").response.error_code == ErrorCode.NON_EMPTY_GROUP  # type: ignore[union-attr]
    consumer.leave()
    asyncio.run(coordinated.coordinator.runtime.write("g", lambda each: each.classic.delete("g")))
    assert not coordinated.has_group()
    assert coordinated.loaded_again().state() == {}


def test_an_empty_group_of_the_classic_protocol_makes_room() -> None:
    coordinated = Coordinated()
    shard = coordinated.coordinator.runtime.active_shards()[0]
    shard.groups["g"] = shard.make_simple_group("g")
    assert Consumer(coordinated, "a").join().error_code == ErrorCode.NONE
    assert coordinated.group().state_name == "Stable"


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        ("a", 1, 9, ErrorCode.NONE),
        ("a", 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, 8, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_who_may_commit_offsets(member_id: str, epoch: int, version: int, error: ErrorCode) -> None:
    coordinated = Coordinated()
    consumer = Consumer(coordinated, "a")
    consumer.join()
    group = coordinated.group()
    told_error = ErrorCode.NONE
    try:
        group.check_commit(member_id, None, epoch, in_transaction=False, version=version)
        if version >= 9:
            group.check_fetch(member_id, epoch)
    except CoordinatorError as refused:
        told_error = refused.code
    assert told_error == error
    group.check_fetch(None, -1)
    consumer.leave()
    group.check_commit("", None, -1, in_transaction=False, version=version)
