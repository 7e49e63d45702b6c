from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from ottla.wire.codec import encode
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochTopic,
)
from support.brokers.small_broker import SmallBroker, context, small_broker
from support.logs.batches import batch
from support.replication.roles import lead


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    """Epoch 2 wrote offsets 0 and 1, epoch 5 the offsets 2 to 4, and epoch 7 leads."""
    with small_broker(tmp_path) as broker:
        (partition,) = broker.topic(leader_epoch=2)
        assert partition.log is not None
        partition.log.append_as_leader(batch(2), 2)
        partition.log.append_as_leader(batch(3), 5)
        lead(partition, leader_epoch=7, isr=(1,), replicas=(1,))
        yield broker


def ask(
    broker: SmallBroker, epoch: int, *, topic: str = "topic", index: int = 0, current: int = -1
) -> tuple[int, int, int]:
    partition = OffsetForLeaderEpochPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochTopic(topic=topic, partitions=[partition])])
    response = offset_for_leader_epoch(broker, request, context(4))  # type: ignore[arg-type]
    for version in OffsetForLeaderEpochRequest.versions:
        encode(response, version)
    (answer,) = response.topics[0].partitions
    assert (response.topics[0].topic, answer.partition) == (topic, index)
    return answer.error_code, answer.leader_epoch, answer.end_offset


def test_where_an_epoch_ends(broker: SmallBroker) -> None:
    assert ask(broker, 2) == (0, 2, 2)
    assert ask(broker, 4) == (0, 2, 2)
    assert ask(broker, 5) == (0, 5, 5)
    assert ask(broker, 7) == (0, 7, 5)


def test_an_epoch_that_is_not_known_has_no_end(broker: SmallBroker) -> None:
    assert ask(broker, 8) == (0, -1, -1)
    assert ask(broker, -1) == (0, -1, -1)


def test_an_epoch_before_the_first_ends_where_that_begins(broker: SmallBroker) -> None:
    assert ask(broker, 1) == (0, 1, 0)


def test_unauthorised_replicas_get_an_error(broker: SmallBroker) -> None:
    assert ask(broker, 2, topic="none") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ask(broker, 2, current=6) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert ask(broker, 2, current=8) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert ask(broker, 2, current=7) == (ErrorCode.NONE, 2, 2)
    partition = broker.replicas.get("topic", 0)
    assert partition is not None
    partition.go_offline()
    assert ask(broker, 2) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
    partition.leader_id = 9
    assert ask(broker, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
