from __future__ import annotations

from ottla.broker.handlers.list_partition_reassignments import list_partition_reassignments
from ottla.wire.codec import encode
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListReassignmentsTopic,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from support.brokers.lone_broker import LoneBroker, on_tree
from support.brokers.small_broker import context


async def ask(broker: LoneBroker, topics: dict[str, list[int]] | None) -> list[OngoingTopicReassignment]:
    wanted = None
    if topics is not None:
        wanted = [ListReassignmentsTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    request = ListPartitionReassignmentsRequest(topics=wanted)
    response = await list_partition_reassignments(broker, request, context(0))  # type: ignore[arg-type]
    encode(response, 0)
    assert (response.error_code, response.error_message) == (0, None)
    return response.topics


@on_tree
async def test_nothing_is_moved(broker: LoneBroker) -> None:
    await broker.create("events", 2)
    assert await ask(broker, None) == []
    assert await ask(broker, {"events": [0, 9, -1], "other": [0]}) == []


@on_tree
async def test_a_move_that_another_began(broker: LoneBroker) -> None:
    node = b'{"partitions":{"0":[4],"1":[4,9]},"adding_replicas":{"1":[9]},"removing_replicas":{"1":[4]},"version":2}'
    await broker.tree.tree.create("/brokers/topics/events", node)
    later = await broker.restarted()
    moving = OngoingPartitionReassignment(
        partition_index=1, replicas=[4, 9], adding_replicas=[9], removing_replicas=[4]
    )
    expected = [OngoingTopicReassignment(name="events", partitions=[moving])]
    assert await ask(later, None) == expected
    assert await ask(later, {"events": [0, 1]}) == expected
    assert await ask(later, {"events": [0, 2, -1]}) == []
    assert await ask(later, {}) == []
