from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.handlers.describe_topic_partitions import describe_topic_partitions
from ottla.wire.codec import encode
from ottla.wire.messages.describe_topic_partitions import (
    DescribedPartition,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    TopicPartitionsCursor,
)
from support.brokers.lone_broker import BROKER_ID, LoneBroker, on_tree
from support.brokers.small_broker import context


def ask(
    broker: LoneBroker, *names: str, limit: int = 2000, cursor: TopicPartitionsCursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    response = describe_topic_partitions(broker, request, context(0))  # type: ignore[arg-type]
    encode(response, 0)
    return response


def pages(broker: LoneBroker, *names: str, limit: int) -> list[list[tuple[str | None, list[int]]]]:
    """All of them, each as the partitions of its topics."""
    found = []
    cursor = None
    for _ in range(20):
        response = ask(broker, *names, limit=limit, cursor=cursor)
        found.append([(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics])
        if response.next_cursor is None:
            return found
        cursor = response.next_cursor
    raise AssertionError(f"there is no end of pages: {found}")


@on_tree
async def test_all_topics_by_name(broker: LoneBroker) -> None:
    topics = [await broker.create(name) for name in ("b", "a", "__consumer_offsets")]
    response = ask(broker)
    assert [(each.name, each.is_internal) for each in response.topics] == [
        ("__consumer_offsets", True),
        ("a", False),
        ("b", False),
    ]
    assert {each.topic_id for each in response.topics} == {topic.topic_id for topic in topics}
    assert {each.topic_authorized_operations for each in response.topics} == {3576}
    assert response.topics[1].partitions == [
        DescribedPartition(
            partition_index=0,
            leader_id=BROKER_ID,
            leader_epoch=0,
            replica_nodes=[BROKER_ID],
            isr_nodes=[BROKER_ID],
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
    ]


@on_tree
async def test_topics_that_are_not_there(broker: LoneBroker) -> None:
    await broker.create("b")
    response = ask(broker, "c", "b", "a b", "b")
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", ErrorCode.NONE),
        ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (100, [[("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]]),
        (6, [[("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]]),
        (5, [[("a", [0, 1]), ("b", [0, 1, 2])], [("c", [0])]]),
        (2, [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]),
        (0, [[("a", [0])], [("a", [1])], [("b", [0])], [("b", [1])], [("b", [2])], [("c", [0])]]),
    ],
)
@on_tree
async def test_pages(broker: LoneBroker, limit: int, expected: object) -> None:
    for name, count in (("b", 3), ("c", 1), ("a", 2)):
        await broker.create(name, count)
    assert pages(broker, limit=limit) == expected
    assert pages(broker, "c", "a", "b", limit=limit) == expected


@on_tree(max_request_partition_size_limit="2")
async def test_the_broker_limits_pages_too(broker: LoneBroker) -> None:
    await broker.create("a", 3)
    assert pages(broker, limit=2000) == [[("a", [0, 1])], [("a", [2])]]


@on_tree
async def test_a_topic_that_went_between_two_pages(broker: LoneBroker) -> None:
    await broker.create("a", 3)
    await broker.create("b")
    cursor = ask(broker, limit=2).next_cursor
    await broker.controller.delete_topic("a")
    assert [topic.name for topic in ask(broker, limit=2, cursor=cursor).topics] == ["b"]


@on_tree
async def test_wrong_cursors(broker: LoneBroker) -> None:
    await broker.create("a")
    outside = TopicPartitionsCursor(topic_name="b", partition_index=0)
    negative = TopicPartitionsCursor(topic_name="a", partition_index=-1)
    for cursor in (outside, negative):
        (topic,) = ask(broker, "a", cursor=cursor).topics
        assert (topic.name, topic.error_code, topic.partitions) == ("a", ErrorCode.INVALID_REQUEST, [])
    beyond = TopicPartitionsCursor(topic_name="a", partition_index=7)
    (topic,) = ask(broker, "a", cursor=beyond).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.NONE, [])
    await broker.create("b", 3)
    response = ask(broker, limit=1, cursor=beyond)
    assert [len(each.partitions) for each in response.topics] == [0, 1]


@on_tree
async def test_a_partition_without_a_leader(broker: LoneBroker) -> None:
    await broker.create("a")
    await broker.controller.replicas_failed([TopicPartition("a", 0)])
    (partition,) = ask(broker, "a").topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.NONE, -1, 1)
    assert partition.offline_replicas == [BROKER_ID]
