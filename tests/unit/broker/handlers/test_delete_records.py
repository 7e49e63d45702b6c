from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.delete_records import delete_records
from ottla.log.config import LogConfig
from ottla.wire.codec import encode
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from support.brokers.small_broker import SmallBroker, context, small_broker
from support.logs.batches import batch


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    """A topic with offsets 0 to 9, of which the last two are not replicated."""
    with small_broker(tmp_path) as broker:
        (partition,) = broker.topic()
        assert partition.log is not None
        for _ in range(5):
            partition.log.append_as_leader(batch(2), 0)
        partition.log.set_high_watermark(8)
        yield broker


def delete(broker: SmallBroker, offset: int, *, topic: str = "topic", index: int = 0) -> tuple[int, int]:
    """The error and the low watermark."""
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])
    response = delete_records(broker, request, context(2))  # type: ignore[arg-type]
    for version in DeleteRecordsRequest.versions:
        encode(response, version)
    (answer,) = response.topics[0].partitions
    assert (response.topics[0].name, answer.partition_index) == (topic, index)
    return answer.error_code, answer.low_watermark


def start_offset(broker: SmallBroker) -> int:
    partition = broker.replicas.get("topic", 0)
    assert partition is not None
    assert partition.log is not None
    return partition.log.log_start_offset


def test_the_log_begins_at_the_offset(broker: SmallBroker) -> None:
    assert delete(broker, 3) == (ErrorCode.NONE, 3)
    assert start_offset(broker) == 3


def test_it_never_begins_earlier_again(broker: SmallBroker) -> None:
    delete(broker, 3)
    assert delete(broker, 1) == (ErrorCode.NONE, 3)
    assert start_offset(broker) == 3


def test_minus_one_is_the_high_watermark(broker: SmallBroker) -> None:
    assert delete(broker, -1) == (ErrorCode.NONE, 8)
    assert start_offset(broker) == 8


@pytest.mark.parametrize("offset", [9, 11, -2])
def test_beyond_the_high_watermark_nothing_can_be_deleted(broker: SmallBroker, offset: int) -> None:
    assert delete(broker, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert start_offset(broker) == 0


def test_a_topic_that_only_compacts_keeps_its_records(broker: SmallBroker) -> None:
    broker.topic("table", config=LogConfig(compacts=True, deletes=False))
    broker.topic("both", config=LogConfig(compacts=True, deletes=True))
    assert delete(broker, 0, topic="table") == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(broker, 0, topic="both") == (ErrorCode.NONE, 0)


def test_internal_topics_keep_their_records(broker: SmallBroker) -> None:
    broker.topic("__consumer_offsets")
    assert delete(broker, 0, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_partitions_that_are_not_led_here(broker: SmallBroker) -> None:
    assert delete(broker, 0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    partition = broker.replicas.get("topic", 0)
    assert partition is not None
    partition.go_offline()
    assert delete(broker, 0) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
