from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.alter_partition_reassignments import alter_partition_reassignments
from ottla.wire.codec import encode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterReassignmentsPartition,
    AlterReassignmentsTopic,
)
from support.brokers.lone_broker import BROKER_ID, LoneBroker, on_tree
from support.brokers.small_broker import context


async def ask(
    broker: LoneBroker, moves: dict[str, dict[int, list[int] | None]], *, version: int = 1, may_change: bool = True
) -> dict[tuple[str, int], tuple[int, str | None]]:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change,
        topics=[
            AlterReassignmentsTopic(
                name=name,
                partitions=[
                    AlterReassignmentsPartition(partition_index=index, replicas=replicas)
                    for index, replicas in partitions.items()
                ],
            )
            for name, partitions in moves.items()
        ],
    )
    response = await alter_partition_reassignments(broker, request, context(version))  # type: ignore[arg-type]
    encode(response, version)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert response.allow_replication_factor_change == may_change
    return {
        (topic.name, partition.partition_index): (partition.error_code, partition.error_message)
        for topic in response.responses
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", list(AlterPartitionReassignmentsRequest.versions))
@on_tree
async def test_each_move_has_its_answer(broker: LoneBroker, version: int) -> None:
    await broker.create("events", 4)
    moves: dict[str, dict[int, list[int] | None]] = {
        "events": {0: [BROKER_ID], 1: None, 2: [], 3: [9], 7: [BROKER_ID]},
        "other": {0: None},
    }
    answers = await ask(broker, moves, version=version)
    assert {name: code for name, (code, _) in answers.items()} == {
        ("events", 0): ErrorCode.NONE,
        ("events", 1): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ("events", 2): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("events", 3): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("events", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("other", 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }
    assert answers["events", 0][1] is None
    assert answers["events", 3][1] == "Partition 3 is assigned to unknown brokers: 9."


@on_tree
async def test_the_number_of_replicas_can_be_fixed(broker: LoneBroker) -> None:
    await broker.tree.tree.create("/brokers/topics/events", b'{"partitions":{"0":[4,9]},"version":2}')
    later = await broker.restarted()
    answers = await ask(later, {"events": {0: [BROKER_ID]}}, may_change=False)
    assert answers["events", 0][0] == ErrorCode.INVALID_REPLICATION_FACTOR
    assert (await ask(later, {"events": {0: [BROKER_ID]}}))["events", 0] == (ErrorCode.NONE, None)
    assert later.controller.topics["events"].partitions[0].replicas == (BROKER_ID,)
