from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.broker.handlers.delete_records import delete_records
from ottla.broker.requests.api import Deferred
from ottla.log.config import LogConfig
from ottla.wire.codec import encode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from support.brokers.small_broker import SmallBroker, context, small_broker
from support.logs.batches import batch
from support.replication.roles import follow, lead


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
    assert isinstance(response, DeleteRecordsResponse)
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


# --- followers --------------------------------------------------------------------------------------------------------


class Deletion:
    """A request for a partition with followers 2 and 3, which have everything."""

    def __init__(self, broker: SmallBroker, offset: int, *, timeout_ms: int = 20_000) -> None:
        found = broker.replicas.get("topic", 0)
        assert found is not None
        self.partition = found
        self.broker = broker
        lead(found, leader_epoch=1, isr=(1, 2, 3), replicas=(1, 2, 3))
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name="topic", partitions=[asked])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
        self.answers: list[DeleteRecordsResponse] = []
        for replica in (2, 3):
            self.fetched(replica, 0)
        response = delete_records(broker, request, context(2))  # type: ignore[arg-type]
        assert isinstance(response, Deferred)
        response.when_answered(self.answers.append)  # type: ignore[arg-type]

    def fetched(self, replica: int, log_start: int) -> None:
        self.partition.follower_fetched(
            replica,
            fetch_offset=10,
            log_start_offset=log_start,
            leader_end_offset_at_read=10,
            broker_epoch=-1,
            now_s=0.0,
        )
        self.broker.replicas.deletes.look_now()

    @property
    def outcome(self) -> tuple[int, int] | None:
        """The error and the low watermark; None while it waits."""
        if not self.answers:
            return None
        (answer,) = self.answers[0].topics[0].partitions
        return answer.error_code, answer.low_watermark


def test_it_waits_for_all_followers(broker: SmallBroker) -> None:
    deletion = Deletion(broker, 3)
    assert start_offset(broker) == 3
    deletion.fetched(2, 3)
    assert deletion.outcome is None
    deletion.fetched(3, 2)
    assert deletion.outcome is None
    deletion.fetched(3, 3)
    assert deletion.outcome == (ErrorCode.NONE, 3)
    assert len(broker.replicas.deletes) == 0


def test_it_does_not_wait_for_a_follower_that_is_down(broker: SmallBroker) -> None:
    deletion = Deletion(broker, 3)
    broker.replicas.environment.is_alive = lambda replica: replica != 3
    deletion.fetched(2, 4)
    assert deletion.outcome == (ErrorCode.NONE, 3)


def test_it_ends_when_the_leader_changes(broker: SmallBroker) -> None:
    deletion = Deletion(broker, 3)
    follow(deletion.partition, 2, leader_epoch=2)
    broker.replicas.deletes.look_now()
    assert deletion.outcome == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_it_times_out(broker: SmallBroker) -> None:
    deletion = Deletion(broker, -1)
    deletion.fetched(2, 10)
    broker.replicas.deletes.close()
    assert deletion.outcome == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert start_offset(broker) == 10
