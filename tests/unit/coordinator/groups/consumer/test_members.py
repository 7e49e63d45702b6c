"""Members of a consumer group: they join, stay, leave, are given up, and come back."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.coordinator.groups.consumer.member import MemberState
from ottla.coordinator.groups.group import ConsumerTimes, GroupSettings
from support.coordinators.consumer_members import Consumer, Coordinated, settle, told

JOIN: dict[str, Any] = {
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


# --- joining and staying --------------------------------------------------------------------------------------------


def test_the_first_member_is_given_everything() -> None:
    coordinated = Coordinated()
    response = Consumer(coordinated, "a").join()
    assert (response.error_code, response.member_id, response.member_epoch) == (ErrorCode.NONE, "a", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert response.assignment is not None
    assert [sorted(each.partitions) for each in response.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert coordinated.group().state_name == "Stable"


def test_before_version_1_the_coordinator_gives_the_id() -> None:
    coordinated = Coordinated()
    response = coordinated.heartbeat(version=0, **JOIN | {"member_id": ""})
    assert response.error_code == ErrorCode.NONE
    assert response.member_id
    assert list(coordinated.group().members) == [response.member_id]


def test_a_heartbeat_in_a_stable_group_writes_nothing_and_tells_no_assignment() -> None:
    coordinated = Coordinated()
    consumer = Consumer(coordinated, "a")
    consumer.join()
    written = len(coordinated.log.batches[0])
    response = consumer.idle_beat()
    assert (response.error_code, response.member_epoch, response.assignment) == (ErrorCode.NONE, 1, None)
    assert len(coordinated.log.batches[0]) == written


def test_a_full_heartbeat_gets_a_full_response() -> None:
    consumer = Consumer(Coordinated(), "a")
    consumer.join()
    response = consumer.coordinated.heartbeat(
        **JOIN | {"member_id": "a", "member_epoch": 1, "topic_partitions": told(consumer.owned)}
    )
    assert response.assignment is not None
    assert [each.partitions for each in response.assignment.topic_partitions] == [[0, 1, 2, 3]]


def test_a_second_member_gets_partitions_only_when_the_first_has_given_them_up() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    first.join()
    kept = {partition for partition in first.owned if partition[1] < 2}
    second.join()
    assert (second.epoch, second.owned) == (2, set())
    assert coordinated.group().members["b"].standing.state is MemberState.UNRELEASED_PARTITIONS
    assert second.interval_ms == 500
    # Told to give up, in its old epoch; what it keeps stays its own all the while.
    first.idle_beat()
    assert (first.epoch, first.owned) == (1, kept)
    assert coordinated.group().members["a"].standing.state is MemberState.UNREVOKED_PARTITIONS
    second.beat()
    assert second.owned == set()
    first.beat()
    assert (first.epoch, first.owned) == (2, kept)
    second.beat()
    assert second.indexes == [2, 3]
    assert second.interval_ms == 5_000
    assert coordinated.group().state_name == "Stable"


def test_revoked_partitions_can_come_back_in_the_same_step() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    first.join()
    second.join()
    first.idle_beat()
    second.leave()
    first.beat()
    assert first.indexes == [0, 1, 2, 3]
    assert coordinated.group().state_name == "Stable"


def test_a_member_that_joins_again_keeps_its_place() -> None:
    coordinated = Coordinated()
    consumer = Consumer(coordinated, "a")
    consumer.join()
    response = consumer.join()
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 1)
    assert consumer.indexes == [0, 1, 2, 3]


# --- epochs ---------------------------------------------------------------------------------------------------------


def test_a_member_whose_answer_was_lost_may_come_with_the_epoch_before() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    first.join()
    second.join()
    settle(first, second)
    third = Consumer(coordinated, "c")
    third.join()
    epoch, owned = first.epoch, set(first.owned)
    settle(first, second, third)
    assert first.epoch == epoch + 1
    allowed = coordinated.heartbeat(member_id="a", member_epoch=epoch, topic_partitions=told(first.owned))
    assert (allowed.error_code, allowed.member_epoch) == (ErrorCode.NONE, epoch + 1)
    for refused in ({"topic_partitions": None}, {"topic_partitions": told({*owned, (Uuid(b"?" * 16), 9)})}):
        response = coordinated.heartbeat(member_id="a", member_epoch=epoch, **refused)
        assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert response.error_message is not None


@pytest.mark.parametrize("epoch", [2, 99])
def test_an_epoch_from_the_future_is_fenced(epoch: int) -> None:
    consumer = Consumer(Coordinated(), "a")
    consumer.join()
    response = consumer.coordinated.heartbeat(member_id="a", member_epoch=epoch)
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_the_group_epoch_rises_with_members_subscriptions_and_topics() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    epochs = []

    def note() -> None:
        settle(first, *([second] if second.epoch else []))
        epochs.append(coordinated.group().epoch)

    first.join()
    note()
    second.join()
    note()
    second.subscribe("t", "u")
    note()
    coordinated.topics.put("t", 6)
    note()
    coordinated.topics.put("other", 6)
    note()
    coordinated.topics.remove("u")
    note()
    second.leave()
    note()
    assert epochs == [1, 2, 3, 4, 4, 5, 6]
    assert first.indexes == [0, 1, 2, 3, 4, 5]


# --- leaving and time -----------------------------------------------------------------------------------------------


def test_a_leaving_member_frees_its_partitions() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    first.join()
    second.join()
    settle(first, second)
    response = second.leave()
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, -1)
    first.idle_beat()
    assert first.indexes == [0, 1, 2, 3]
    first.leave()
    assert coordinated.group().state_name == "Empty"
    assert (coordinated.group().owners, coordinated.group().targets) == ({}, {})


def test_a_session_ends_without_heartbeats_and_not_with_them() -> None:
    coordinated = Coordinated()
    lives, dies = Consumer(coordinated, "a"), Consumer(coordinated, "b")
    lives.join()
    dies.join()
    settle(lives, dies)
    for _ in range(10):
        coordinated.time.advance_ms(4_999)
        lives.beat()
    assert list(coordinated.group().members) == ["a"]
    settle(lives)
    assert lives.indexes == [0, 1, 2, 3]
    assert dies.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_s_own_times_hold_from_the_next_heartbeat_on() -> None:
    own: dict[str, ConsumerTimes] = {}
    coordinated = Coordinated(GroupSettings(own_consumer_times=own))
    member, elsewhere = Consumer(coordinated, "a"), Consumer(coordinated, "b", group_id="other")
    for each in (member, elsewhere):
        each.join()
    own["g"] = ConsumerTimes(session_timeout_ms=10_000, heartbeat_interval_ms=2_000)
    member.idle_beat()
    elsewhere.idle_beat()
    assert (member.interval_ms, elsewhere.interval_ms) == (2_000, 5_000)
    coordinated.time.advance_ms(9_999)
    assert "a" in coordinated.group().members
    coordinated.time.advance_ms(1)
    assert "a" not in coordinated.group().members
    assert "b" in coordinated.group("other").members


def test_a_longer_session_and_then_that_of_the_broker_again() -> None:
    own = {"g": ConsumerTimes(session_timeout_ms=60_000, heartbeat_interval_ms=6_000)}
    coordinated = Coordinated(GroupSettings(own_consumer_times=own))
    member = Consumer(coordinated, "a")
    member.join()
    assert member.interval_ms == 6_000
    coordinated.time.advance_ms(59_999)
    assert "a" in coordinated.group().members
    del own["g"]
    member.idle_beat()
    assert member.interval_ms == 5_000
    coordinated.time.advance_ms(44_999)
    assert "a" in coordinated.group().members
    coordinated.time.advance_ms(1)
    assert "a" not in coordinated.group().members


def test_sessions_after_a_load_are_as_long_as_the_group_says() -> None:
    own = {"g": ConsumerTimes(session_timeout_ms=10_000, heartbeat_interval_ms=2_000)}
    coordinated = Coordinated(GroupSettings(own_consumer_times=own))
    Consumer(coordinated, "a").join()
    again = coordinated.loaded_again()
    again.time.advance_ms(9_999)
    assert "a" in again.group().members
    again.time.advance_ms(1)
    assert "a" not in again.group().members


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    coordinated = Coordinated()
    holds_on, waits = Consumer(coordinated, "a", rebalance_timeout_ms=20_000), Consumer(coordinated, "b")
    holds_on.join()
    everything = set(holds_on.owned)
    waits.join()
    holds_on.idle_beat()
    for _ in range(19):
        coordinated.time.advance_ms(1_000)
        waits.beat()
        response = coordinated.heartbeat(member_id="a", member_epoch=1, topic_partitions=told(everything))
        assert response.error_code == ErrorCode.NONE
    assert waits.owned == set()
    coordinated.time.advance_ms(1_000)
    assert holds_on.idle_beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle(waits)
    assert waits.indexes == [0, 1, 2, 3]


def test_a_fence_that_cannot_be_written_is_tried_again() -> None:
    coordinated = Coordinated()
    holds_on, waits = Consumer(coordinated, "a", rebalance_timeout_ms=20_000), Consumer(coordinated, "b")
    holds_on.join()
    everything = set(holds_on.owned)
    waits.join()
    holds_on.idle_beat()
    for _ in range(19):
        coordinated.time.advance_ms(1_000)
        coordinated.heartbeat(member_id="a", member_epoch=1, topic_partitions=told(everything))
        waits.beat()
    coordinated.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinated.time.advance_ms(1_000)
    assert "a" in coordinated.group().members
    coordinated.log.refuse_appends = None
    coordinated.time.advance_ms(1_000)
    assert list(coordinated.group().members) == ["b"]
    settle(waits)
    assert waits.indexes == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["expect_join", "expect_sync"])
def test_removal_of_a_silent_member_is_retried_until_it_is_written(kind: str) -> None:
    coordinated = Coordinated()
    Consumer(coordinated, "a").join()
    timers = coordinated.coordinator.runtime.active_shards()[0].consumer.timers
    getattr(timers, kind)("g", "a", 5_000)
    coordinated.log.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinated.time.advance_ms(5_000)
    assert "a" in coordinated.group().members
    coordinated.log.refuse_appends = None
    coordinated.time.advance_ms(999)
    assert "a" in coordinated.group().members
    coordinated.time.advance_ms(1)
    assert "a" not in coordinated.group().members


def test_a_member_that_revokes_in_time_is_not_fenced_later() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a", rebalance_timeout_ms=20_000), Consumer(coordinated, "b")
    first.join()
    second.join()
    settle(first, second)
    for _ in range(10):
        coordinated.time.advance_ms(4_000)
        settle(first, second)
    assert sorted(coordinated.group().members) == ["a", "b"]


# --- static members -------------------------------------------------------------------------------------------------


def test_a_static_member_that_is_away_for_a_while_finds_what_it_had() -> None:
    coordinated = Coordinated()
    other, static = Consumer(coordinated, "a"), Consumer(coordinated, "b", instance_id="i")
    other.join()
    static.join()
    settle(other, static)
    owned, epoch = set(static.owned), coordinated.group().epoch
    assert static.leave(-2).member_epoch == -2
    other.beat()
    assert len(other.owned) == 2
    back = Consumer(coordinated, "c", instance_id="i")
    response = back.join()
    assert (response.error_code, response.member_epoch, back.owned) == (ErrorCode.NONE, epoch, owned)
    assert coordinated.group().epoch == epoch
    assert sorted(coordinated.group().members) == ["a", "c"]
    coordinated.time.advance_ms(44_000)
    settle(other, back)
    coordinated.time.advance_ms(44_000)
    settle(other, back)
    assert sorted(coordinated.group().members) == ["a", "c"]
    fenced = coordinated.heartbeat(member_id="b", member_epoch=epoch, instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_come_back_under_the_same_id() -> None:
    coordinated = Coordinated()
    static = Consumer(coordinated, "a", instance_id="i")
    static.join()
    static.leave(-2)
    assert static.join().error_code == ErrorCode.NONE
    assert static.indexes == [0, 1, 2, 3]
    coordinated.time.advance_ms(45_000)
    assert not coordinated.group().members


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    coordinated = Coordinated()
    static = Consumer(coordinated, "a", instance_id="i")
    static.join()
    static.leave(-2)
    coordinated.time.advance_ms(45_000)
    assert coordinated.group().state_name == "Empty"
    assert coordinated.group().static_members == {}


def test_an_instance_id_that_is_in_use_is_not_given_away() -> None:
    coordinated = Coordinated()
    Consumer(coordinated, "a", instance_id="i").join()
    assert Consumer(coordinated, "b", instance_id="i").join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_an_instance_id_that_nobody_has_is_unknown() -> None:
    coordinated = Coordinated()
    consumer = Consumer(coordinated, "a")
    consumer.join()
    for epoch in (1, -1, -2):
        response = coordinated.heartbeat(member_id="a", member_epoch=epoch, instance_id="i")
        assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
