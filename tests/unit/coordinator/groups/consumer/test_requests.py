"""ConsumerGroupHeartbeat: who is refused, and with which error."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.coordinator.groups.group import GroupSettings
from support.coordinators.consumer_members import Consumer, Coordinated, told

JOIN: dict[str, Any] = {
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"group_id": " "}, "GroupId"),
        ({"member_id": ""}, "MemberId"),
        ({"member_id": "", "version": 0, "member_epoch": 3}, "MemberId"),
        ({"member_id": "", "version": 0, "member_epoch": -1}, "MemberId"),
        ({"instance_id": ""}, "InstanceId"),
        ({"rack_id": ""}, "RackId"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, "TopicPartitions"),
        ({"topic_partitions": told({(Uuid(b"t" * 16), 1)})}, "TopicPartitions"),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames"),
        ({"member_epoch": -2}, "InstanceId"),
        ({"member_epoch": -3}, "MemberEpoch"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    coordinated = Coordinated()
    response = coordinated.heartbeat(**JOIN | changes)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert said in (response.error_message or "")
    assert not coordinated.log.batches[0]


def test_an_assignor_that_is_not_there_is_refused() -> None:
    coordinated = Coordinated(GroupSettings(consumer_assignors=("range",)))
    response = coordinated.heartbeat(**JOIN, server_assignor="uniform")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "range" in (response.error_message or "")


def test_strangers_are_refused() -> None:
    coordinated = Coordinated()
    assert coordinated.heartbeat(member_id="a", member_epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinated.heartbeat(member_id="a", member_epoch=-1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Consumer(coordinated, "a").join()
    assert coordinated.heartbeat(member_id="b", member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinated.heartbeat(member_id="b", member_epoch=-1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_else() -> None:
    coordinated = Coordinated(GroupSettings(consumer_max_size=2))
    assert not any(Consumer(coordinated, name).join().error_code for name in "ab")
    assert Consumer(coordinated, "c").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert Consumer(coordinated, "a").join().error_code == ErrorCode.NONE


def test_a_change_that_cannot_be_written_is_none() -> None:
    coordinated = Coordinated()
    consumer = Consumer(coordinated, "a")
    consumer.join()
    before = coordinated.state()
    coordinated.log.refuse_appends = ErrorCode.NOT_COORDINATOR
    assert Consumer(coordinated, "b").join().error_code == ErrorCode.NOT_COORDINATOR
    coordinated.time.advance_ms(44_000)
    assert consumer.idle_beat().error_code == ErrorCode.NONE
    coordinated.time.advance_ms(45_000)
    assert coordinated.state() == before
    # The session has ended all the same, as soon as that can be written.
    coordinated.log.refuse_appends = None
    coordinated.time.advance_ms(1_000)
    assert coordinated.group().is_empty
