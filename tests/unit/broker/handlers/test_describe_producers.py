from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.describe_producers import describe_producers
from ottla.log.append_origin import AppendOrigin
from ottla.wire.codec import encode
from ottla.wire.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from support.brokers.small_broker import SmallBroker, context, small_broker
from support.logs.batches import NOW_MS, batch, marker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path) as broker:
        broker.topic()
        yield broker


def ask(broker: SmallBroker, topic: str = "topic", index: int = 0) -> DescribeProducersPartitionResponse:
    request = DescribeProducersRequest(topics=[DescribeProducersTopic(name=topic, partition_indexes=[index])])
    response = describe_producers(broker, request, context(0))  # type: ignore[arg-type]
    encode(response, 0)
    (answer,) = response.topics[0].partitions
    assert (response.topics[0].name, answer.partition_index) == (topic, index)
    return answer


def test_producers_and_their_transactions(broker: SmallBroker) -> None:
    partition = broker.replicas.get("topic", 0)
    assert partition is not None
    assert partition.log is not None
    log = partition.log
    log.append_as_leader(batch(3, producer_id=7, producer_epoch=1, sequence=0), 0)
    log.append_as_leader(batch(2, producer_id=8, producer_epoch=0, sequence=0, transactional=True), 0)
    log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, sequence=0, transactional=True), 0)
    log.append_as_leader(marker(9, committed=True, coordinator_epoch=5), 0, origin=AppendOrigin.COORDINATOR)
    assert ask(broker).active_producers == [
        ActiveProducer(
            producer_id=7,
            producer_epoch=1,
            last_sequence=2,
            last_timestamp=NOW_MS,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
        ),
        ActiveProducer(
            producer_id=8,
            producer_epoch=0,
            last_sequence=1,
            last_timestamp=NOW_MS,
            coordinator_epoch=-1,
            current_txn_start_offset=3,
        ),
        ActiveProducer(
            producer_id=9,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=NOW_MS,
            coordinator_epoch=5,
            current_txn_start_offset=-1,
        ),
    ]


def test_a_partition_without_producers(broker: SmallBroker) -> None:
    answer = ask(broker)
    assert (answer.error_code, answer.error_message, answer.active_producers) == (ErrorCode.NONE, None, [])


def test_a_follower_answers_too(broker: SmallBroker) -> None:
    partition = broker.replicas.get("topic", 0)
    assert partition is not None
    partition.leader_id = 5
    assert ask(broker).error_code == ErrorCode.NONE


def test_errors(broker: SmallBroker) -> None:
    assert ask(broker, "none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(broker, index=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = ask(broker, "no good")
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "'no good'" in (refused.error_message or "")
    partition = broker.replicas.get("topic", 0)
    assert partition is not None
    partition.go_offline()
    assert ask(broker).error_code == ErrorCode.KAFKA_STORAGE_ERROR
