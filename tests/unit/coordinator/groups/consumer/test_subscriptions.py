"""What members of a consumer group subscribe to, and how they want it assigned."""

from __future__ import annotations

from ottla.base.error_codes import ErrorCode
from support.coordinators.consumer_members import Consumer, Coordinated, settle


def test_members_vote_for_the_assignor() -> None:
    coordinated = Coordinated()
    consumers = [
        Consumer(coordinated, name, assignor=vote) for name, vote in [("a", "uniform"), ("b", "range"), ("c", "range")]
    ]
    names = []
    for consumer in consumers:
        consumer.join()
        described = coordinated.coordinator.runtime.active_shards()[0].consumer.describe("g")
        names.append(described.assignor_name)
    settle(*consumers)
    assert (names[0], names[2]) == ("uniform", "range")
    assert [consumer.indexes for consumer in consumers] == [[0, 1], [2], [3]]


def test_a_pattern_meets_topics_that_are_there_and_those_that_come() -> None:
    coordinated = Coordinated()
    consumer = Consumer(coordinated, "a", None, pattern="orders.*")
    consumer.join()
    assert (consumer.epoch, consumer.owned) == (1, set())
    coordinated.topics.put("orders-eu", 2)
    consumer.idle_beat()
    assert (consumer.epoch, consumer.indexes) == (2, [0, 1])
    coordinated.topics.put("other", 2)
    consumer.idle_beat()
    assert consumer.epoch == 2
    coordinated.topics.put("orders-us", 1)
    consumer.idle_beat()
    assert (consumer.epoch, consumer.indexes) == (3, [0, 0, 1])
    assert coordinated.group().subscribes_to("orders-us")
    assert not coordinated.group().subscribes_to("other")
    coordinated.topics.remove("orders-eu")
    settle(consumer)
    assert consumer.indexes == [0]


def test_a_pattern_that_nobody_uses_any_more_is_forgotten() -> None:
    coordinated = Coordinated()
    first, second = Consumer(coordinated, "a", None, pattern="t"), Consumer(coordinated, "b")
    first.join()
    second.join()
    settle(first, second)
    assert list(coordinated.group().patterns) == ["t"]
    response = coordinated.heartbeat(
        member_id="a", member_epoch=first.epoch, subscribed_topic_regex="", subscribed_topic_names=["u"]
    )
    assert response.error_code == ErrorCode.NONE
    assert coordinated.group().patterns == {}
    assert coordinated.loaded_again().state() == coordinated.state()


def test_what_is_no_pattern_is_refused() -> None:
    coordinated = Coordinated()
    response = Consumer(coordinated, "a", None, pattern="(").join()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "missing closing )" in (response.error_message or "")
    assert not coordinated.has_group()


def test_different_subscriptions_are_served_in_one_group() -> None:
    coordinated = Coordinated()
    consumers = [
        Consumer(coordinated, "a", ["t"]),
        Consumer(coordinated, "b", ["t", "u"]),
        Consumer(coordinated, "c", ["u"]),
    ]
    for consumer in consumers:
        consumer.join()
    settle(*consumers)
    assert sorted(len(consumer.owned) for consumer in consumers) == [2, 3, 3]
    t, u = coordinated.topics.topic_id("t"), coordinated.topics.topic_id("u")
    assert {topic for topic, _ in consumers[0].owned} == {t}
    assert {topic for topic, _ in consumers[2].owned} == {u}
