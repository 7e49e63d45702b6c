from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import random_uuid
from ottla.broker.handlers.list_offsets import list_offsets
from ottla.controller.state import PartitionState, TopicState
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.wire.codec import encode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from support.brokers.small_broker import SmallBroker, context, small_broker
from support.logs.batches import NOW_MS, batch, marker
from support.replication.roles import lead

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
NEWEST = 11


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path) as broker:
        yield broker


def ask(
    broker: SmallBroker,
    timestamp: int,
    *,
    version: int = NEWEST,
    replica_id: int = -1,
    topic: str = "topic",
    index: int = 0,
    times: int = 1,
    isolation_level: int = 0,
    **options: Any,
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp, **options)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[partition] * times)],
    )
    response = list_offsets(broker, request, context(version))  # type: ignore[arg-type]
    encode(response, version)
    assert [answer.name for answer in response.topics] == [topic]
    assert len(response.topics[0].partitions) == times
    assert response.topics[0].partitions[0].partition_index == index
    return response.topics[0].partitions[-1]


def place(answer: ListOffsetsPartitionResponse) -> tuple[int, int, int]:
    assert answer.error_code == ErrorCode.NONE
    return answer.timestamp, answer.offset, answer.leader_epoch


def log_of(broker: SmallBroker, config: LogConfig | None = None, leader_epoch: int = 0) -> PartitionLog:
    log = broker.topic(config=config, leader_epoch=leader_epoch)[0].log
    assert log is not None
    return log


def test_the_ends_of_an_empty_log(broker: SmallBroker) -> None:
    log_of(broker, leader_epoch=7)
    assert place(ask(broker, EARLIEST)) == (-1, 0, 7)
    assert place(ask(broker, EARLIEST_LOCAL)) == (-1, 0, 7)
    assert place(ask(broker, LATEST)) == (-1, 0, 7)
    assert place(ask(broker, MAX_TIMESTAMP)) == (-1, -1, -1)
    assert place(ask(broker, NOW_MS)) == (-1, -1, -1)


def test_the_ends_and_epochs_of_a_log_that_begins_late(broker: SmallBroker) -> None:
    (partition,) = broker.topic(leader_epoch=3)
    for _ in range(4):
        partition.append(batch(2), all_replicas=True)
    partition.delete_records(5)
    assert place(ask(broker, EARLIEST)) == (-1, 5, 3)
    assert place(ask(broker, EARLIEST_LOCAL)) == (-1, 5, 3)
    assert place(ask(broker, LATEST)) == (-1, 8, 3)


def test_the_epoch_of_a_log_whose_records_were_all_deleted_is_the_leaders(broker: SmallBroker) -> None:
    (partition,) = broker.topic(leader_epoch=3)
    partition.append(batch(2), all_replicas=True)
    partition.delete_records(2)
    assert place(ask(broker, EARLIEST)) == (-1, 2, 3)
    lead(partition, leader_epoch=5, isr=partition.isr, replicas=partition.replicas)
    assert place(ask(broker, EARLIEST)) == (-1, 2, 5)
    partition.append(batch(1), all_replicas=True)
    assert place(ask(broker, EARLIEST)) == (-1, 2, 5)


def test_the_newest_record_has_its_epoch_though_it_was_deleted(broker: SmallBroker) -> None:
    """As in Kafka: it is found as long as its segment is there, and its batch knows its epoch."""
    (partition,) = broker.topic(leader_epoch=3)
    partition.append(batch(1, timestamp_ms=500), all_replicas=True)
    partition.delete_records(1)
    assert place(ask(broker, MAX_TIMESTAMP)) == (500, 0, 3)


def test_versions_before_epochs_carry_none(broker: SmallBroker) -> None:
    log_of(broker, leader_epoch=7)
    assert place(ask(broker, LATEST, version=3)) == (-1, 0, -1)
    assert place(ask(broker, LATEST, version=4)) == (-1, 0, 7)


def test_no_epoch_is_reported_for_a_beginning_that_is_older_than_all_known_epochs(broker: SmallBroker) -> None:
    (partition,) = broker.topic(leader_epoch=3)
    partition.append(batch(2), all_replicas=True)
    assert partition.log is not None
    partition.log.epochs.clear()
    partition.append(batch(2), all_replicas=True)
    assert place(ask(broker, EARLIEST)) == (-1, 0, -1)


def test_by_time(broker: SmallBroker) -> None:
    (partition,) = broker.topic(leader_epoch=2)
    partition.append(batch(3, timestamps_ms=[100, 200, 300]), all_replicas=True)
    partition.append(batch(2, timestamps_ms=[500, 400]), all_replicas=True)
    assert place(ask(broker, 0)) == (100, 0, 2)
    assert place(ask(broker, 200)) == (200, 1, 2)
    assert place(ask(broker, 201)) == (300, 2, 2)
    assert place(ask(broker, 301)) == (500, 3, 2)
    assert place(ask(broker, 501)) == (-1, -1, -1)
    assert place(ask(broker, MAX_TIMESTAMP)) == (500, 3, 2)


def test_what_is_not_replicated_is_hidden_from_consumers_alone(broker: SmallBroker) -> None:
    log = log_of(broker)
    log.append_as_leader(batch(2, timestamps_ms=[100, 200]), 0)
    log.set_high_watermark(1)
    assert place(ask(broker, LATEST)) == (-1, 1, 0)
    assert place(ask(broker, 150)) == (-1, -1, -1)
    assert place(ask(broker, MAX_TIMESTAMP)) == (-1, -1, -1)
    assert place(ask(broker, LATEST, replica_id=2)) == (-1, 2, 0)
    assert place(ask(broker, 150, replica_id=2)) == (200, 1, 0)


def test_read_committed_ends_before_an_open_transaction(broker: SmallBroker) -> None:
    log = log_of(broker)
    log.append_as_leader(batch(2), 0)
    log.append_as_leader(batch(3, producer_id=9, producer_epoch=0, sequence=0, transactional=True), 0)
    log.set_high_watermark(5)
    assert place(ask(broker, LATEST, isolation_level=1))[1] == 2
    assert place(ask(broker, LATEST, isolation_level=0))[1] == 5
    log.append_as_leader(marker(9, committed=True), 0, origin=AppendOrigin.COORDINATOR)
    log.set_high_watermark(6)
    assert place(ask(broker, LATEST, isolation_level=1))[1] == 6


def test_there_is_nothing_in_remote_storage(broker: SmallBroker) -> None:
    log_of(broker).append_as_leader(batch(2), 0)
    assert place(ask(broker, LATEST_TIERED)) == (-1, -1, -1)
    assert place(ask(broker, PENDING_UPLOAD)) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "first"),
    [(LATEST, 1), (EARLIEST, 1), (MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)],
)
def test_a_place_is_known_from_a_version_on(broker: SmallBroker, timestamp: int, first: int) -> None:
    log_of(broker)
    for version in range(1, NEWEST + 1):
        expected = ErrorCode.NONE if version >= first else ErrorCode.UNSUPPORTED_VERSION
        assert ask(broker, timestamp, version=version).error_code == expected


def test_an_unknown_place_is_refused(broker: SmallBroker) -> None:
    log_of(broker)
    assert ask(broker, -7).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ask(broker, MAX_TIMESTAMP, version=0).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_partitions_that_are_not_here(broker: SmallBroker) -> None:
    elsewhere = PartitionState((2,), 2, 0, (2,), 1, 0)
    broker.metadata.put_topic(TopicState("far", bytes(16), (elsewhere,)))  # type: ignore[arg-type]
    log_of(broker)
    assert ask(broker, LATEST, topic="none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(broker, LATEST, index=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(broker, LATEST, index=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(broker, LATEST, topic="far").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_leader_epochs_are_compared(broker: SmallBroker) -> None:
    log_of(broker, leader_epoch=4)
    assert ask(broker, LATEST, current_leader_epoch=4).error_code == ErrorCode.NONE
    assert ask(broker, LATEST, current_leader_epoch=3).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(broker, LATEST, current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_answers_only_debugging_consumers(broker: SmallBroker) -> None:
    (partition,) = broker.topic(leader_epoch=4)
    partition.append(batch(2), all_replicas=True)
    partition.leader_id = 2
    assert ask(broker, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(broker, LATEST, replica_id=-2).offset == 2
    assert ask(broker, LATEST, replica_id=-2, current_leader_epoch=3).error_code == ErrorCode.FENCED_LEADER_EPOCH
    partition.go_offline()
    assert ask(broker, LATEST, replica_id=-2).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_named_twice_is_refused(broker: SmallBroker) -> None:
    log_of(broker)
    assert ask(broker, LATEST, times=2).error_code == ErrorCode.INVALID_REQUEST
    assert ask(broker, LATEST, times=2, version=0).error_code == ErrorCode.NONE


def test_a_disk_that_cannot_be_read_takes_its_directory_offline(
    broker: SmallBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (partition,) = broker.topic()
    partition.append(batch(2), all_replicas=True)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Segment, "offset_for_timestamp", fail)
    assert ask(broker, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(broker.directories.online()) == 1
    assert partition.log is None


# The oldest version lists where segments begin.


def old(broker: SmallBroker, timestamp: int, count: int, replica_id: int = -1) -> list[int]:
    answer = ask(broker, timestamp, version=0, max_num_offsets=count, replica_id=replica_id)
    assert answer.error_code == ErrorCode.NONE
    return answer.old_style_offsets


def test_version_0_lists_segments_newest_first(broker: SmallBroker) -> None:
    (partition,) = broker.topic(config=LogConfig(segment_bytes=200))
    assert old(broker, LATEST, 10) == [0]
    for _ in range(3):
        partition.append(batch([bytes(100)]), all_replicas=True)
    log = partition.log
    assert log is not None
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert old(broker, LATEST, 10) == [3, 2, 1, 0]
    assert old(broker, LATEST, 2) == [3, 2]
    assert old(broker, LATEST, 0) == []
    assert old(broker, EARLIEST, 10) == [0]
    for number, segment in enumerate(log.segments):
        log.disk.set_modified_ms(segment.path, 1_000 * (number + 1))
    assert old(broker, 2_500, 10) == [1, 0]
    assert old(broker, 2_500, 1) == [1]
    assert old(broker, 500, 10) == []
    assert old(broker, broker.clock.now_ms(), 1) == [3]


def test_version_0_ends_at_the_high_watermark_for_consumers(broker: SmallBroker) -> None:
    log = log_of(broker, LogConfig(segment_bytes=200))
    for _ in range(3):
        log.append_as_leader(batch([bytes(100)]), 0)
    log.set_high_watermark(1)
    assert old(broker, LATEST, 10) == [1, 1, 0]
    assert old(broker, LATEST, 10, replica_id=2) == [3, 2, 1, 0]


# --- after an election ----------------------------------------------------------------------------------------------


def newly_led(broker: SmallBroker) -> PartitionLog:
    """A new leader of 10 offsets that knows of 4 that they are committed."""
    (partition,) = broker.topic()
    log = partition.log
    assert log is not None
    log.append_as_leader(batch(10), 0)
    log.set_high_watermark(4)
    lead(partition, leader_epoch=1, isr=(1, 2), replicas=(1, 2))
    assert log.high_watermark == 4
    return log


@pytest.mark.parametrize("timestamp", [LATEST, NOW_MS + 5])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_end_is_not_available_until_the_high_watermark_has_reached_the_epoch(
    broker: SmallBroker, timestamp: int, isolation_level: int
) -> None:
    log = newly_led(broker)
    answer = ask(broker, timestamp, isolation_level=isolation_level)
    assert (answer.error_code, answer.offset) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    log.set_high_watermark(10)
    assert ask(broker, timestamp, isolation_level=isolation_level).error_code == ErrorCode.NONE


def test_older_clients_learn_that_the_leader_is_not_available(broker: SmallBroker) -> None:
    newly_led(broker)
    assert ask(broker, LATEST, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert ask(broker, LATEST, version=5).error_code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_what_is_committed_for_certain_is_available(broker: SmallBroker) -> None:
    newly_led(broker)
    assert ask(broker, EARLIEST).offset == 0
    assert ask(broker, 0).offset == 0


def test_replicas_get_the_log_end_in_any_case(broker: SmallBroker) -> None:
    newly_led(broker)
    answer = ask(broker, LATEST, replica_id=2)
    assert (answer.error_code, answer.offset, answer.leader_epoch) == (ErrorCode.NONE, 10, 1)


def test_a_partition_of_another_broker_is_not_unknown(broker: SmallBroker) -> None:
    state = PartitionState((2,), 2, 0, (2,), 1, 0)
    broker.metadata.put_topic(TopicState("elsewhere", random_uuid(), (state,)))
    assert ask(broker, LATEST, topic="elsewhere").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
