from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.broker.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from ottla.broker.handlers.describe_log_dirs import describe_log_dirs
from ottla.broker.upkeep.replica_moves import ReplicaMoves
from ottla.controller.state import PartitionState, TopicState
from ottla.wire.codec import encode
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsTarget,
    AlterReplicaLogDirsTopic,
)
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from support.brokers.small_broker import SmallBroker, context, small_broker
from support.logs.batches import batch

Wishes = list[tuple[str, str, list[int]]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    """A topic of two partitions, one in each directory."""
    with small_broker(tmp_path) as broker:
        for partition in broker.topic(partitions=2):
            partition.append(batch(3), all_replicas=True)
        yield broker


async def ask(broker: SmallBroker, wishes: Wishes) -> dict[str, dict[int, int]]:
    """Error codes by topic and partition, when nothing moves any more."""
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsTarget(path=path, topics=[AlterReplicaLogDirsTopic(name=topic, partitions=indexes)])
            for path, topic, indexes in wishes
        ]
    )
    response = await alter_replica_log_dirs(broker, request, context(2))  # type: ignore[arg-type]
    for version in AlterReplicaLogDirsRequest.versions:
        encode(response, version)
    return {
        topic.topic_name: {answer.partition_index: answer.error_code for answer in topic.partitions}
        for topic in response.results
    }


def wish(broker: SmallBroker, *wishes: tuple[str, str, list[int]]) -> dict[str, dict[int, int]]:
    async def run() -> dict[str, dict[int, int]]:
        broker.replica_moves = ReplicaMoves(broker.directories, broker.replicas)
        answers = await ask(broker, list(wishes))
        async with asyncio.timeout(30):
            while broker.directories.moves:
                await asyncio.sleep(0.001)
        await broker.replica_moves.close()
        return answers

    return asyncio.run(run())


def directory_of(broker: SmallBroker, index: int) -> Path:
    directory = broker.directories.directory_of(TopicPartition("topic", index))
    assert directory is not None
    return directory.path


def test_replicas_move(broker: SmallBroker, tmp_path: Path) -> None:
    first, second = str(tmp_path / "logs0"), str(tmp_path / "logs1")
    assert wish(broker, (second, "topic", [0]), (first, "topic", [1])) == {"topic": {0: 0, 1: 0}}
    assert [directory_of(broker, index).name for index in (0, 1)] == ["logs1", "logs0"]


def test_a_place_may_be_written_in_other_ways(
    broker: SmallBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert wish(broker, ("./logs1/", "topic", [0])) == {"topic": {0: 0}}
    assert directory_of(broker, 0).name == "logs1"


def test_the_place_it_is_in(broker: SmallBroker, tmp_path: Path) -> None:
    assert wish(broker, (str(tmp_path / "logs0"), "topic", [0])) == {"topic": {0: 0}}
    assert directory_of(broker, 0).name == "logs0"


def test_of_two_wishes_the_last_counts(broker: SmallBroker, tmp_path: Path) -> None:
    first, second = str(tmp_path / "logs0"), str(tmp_path / "logs1")
    assert wish(broker, (second, "topic", [0]), (first, "topic", [0])) == {"topic": {0: 0}}
    assert directory_of(broker, 0).name == "logs0"


def test_errors(broker: SmallBroker, tmp_path: Path) -> None:
    first, second, third = (str(tmp_path / f"logs{number}") for number in range(3))
    elsewhere = PartitionState((2,), 2, 0, (2,), 1, 0)
    broker.metadata.put_topic(TopicState("elsewhere", Uuid(bytes(range(1, 17))), (elsewhere,)))
    wishes = [(third, "topic", [0]), (first, "none", [0]), (first, "topic", [5]), (first, "elsewhere", [0])]
    assert wish(broker, *wishes) == {
        "topic": {0: ErrorCode.LOG_DIR_NOT_FOUND, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        "none": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        "elsewhere": {0: ErrorCode.REPLICA_NOT_AVAILABLE},
    }
    broker.directories.take_offline(broker.directories.directories[1], "gone")
    assert wish(broker, (second, "topic", [0]), (first, "topic", [1])) == {
        "topic": {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: ErrorCode.KAFKA_STORAGE_ERROR}
    }


def test_what_is_on_its_way_is_shown(broker: SmallBroker, tmp_path: Path) -> None:
    async def run() -> None:
        broker.replica_moves = ReplicaMoves(broker.directories, broker.replicas)
        await ask(broker, [(str(tmp_path / "logs1"), "topic", [0])])
        response = describe_log_dirs(broker, DescribeLogDirsRequest(topics=None), context(4))  # type: ignore[arg-type]
        first, second = ([*topic.partitions] for result in response.results for topic in result.topics)
        assert [(each.partition_index, each.is_future_key, each.offset_lag) for each in first] == [(0, False, 0)]
        assert [(each.partition_index, each.is_future_key, each.offset_lag) for each in second] == [
            (1, False, 0),
            (0, True, 3),
        ]
        await broker.replica_moves.close()

    asyncio.run(run())
