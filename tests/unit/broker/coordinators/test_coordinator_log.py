"""The coordinator's seam over real partitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.coordinators.coordinator_log import ReplicatedCoordinatorLog
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.key_values import KeyValue, encode_key_values, iter_key_values
from ottla.log.config import LogConfig
from ottla.records.new_batch import NewBatch
from support.brokers.small_broker import SmallBroker, small_broker
from support.replication.roles import lead
from support.waiting import until

TOPIC = "__consumer_offsets"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path) as broker:
        yield broker


def log_of(broker: SmallBroker, *, timeout_ms: int = 30_000) -> ReplicatedCoordinatorLog:
    return ReplicatedCoordinatorLog(TOPIC, broker.replicas, broker.metadata, commit_timeout_ms=timeout_ms)


def batch(*keys: bytes) -> NewBatch:
    return encode_key_values([KeyValue(key, b"v") for key in keys], 1_700_000_000_000)


def refusal(log: ReplicatedCoordinatorLog, index: int = 0) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        log.append(index, batch(b"k"))
    return caught.value.code


def test_what_is_appended_is_committed_and_read(broker: SmallBroker) -> None:
    log = log_of(broker)
    assert log.partition_count == 0
    broker.topic(TOPIC, 2)
    assert log.partition_count == 2
    assert (log.append(1, batch(b"a", b"b")), log.append(1, batch(b"c"))) == (2, 3)
    assert (log.is_committed(1, 3), log.is_committed(1, 4), log.is_committed(0, 1)) == (True, False, False)
    told: list[ErrorCode] = []
    log.when_committed(1, 3, told.append)
    assert told == [ErrorCode.NONE]
    found = [records for _, records in iter_key_values(log.read(1, log.start_offset(1), 1 << 20))]
    assert [[key for _, _, key, _ in records] for records in found if isinstance(records, list)] == [
        [b"a", b"b"],
        [b"c"],
    ]
    assert [header.base_offset for header, _ in iter_key_values(log.read(1, 2, 1))] == [2]
    assert log.read(1, 3, 1 << 20) == b""


def test_a_partition_that_is_led_elsewhere_or_offline_has_no_coordinator_here(broker: SmallBroker) -> None:
    log = log_of(broker)
    first, second = broker.topic(TOPIC, 2)
    assert refusal(log, 5) is ErrorCode.NOT_COORDINATOR
    first.leader_id = 77
    second.go_offline()
    for index in (0, 1):
        assert refusal(log, index) is ErrorCode.NOT_COORDINATOR
        for ask in (lambda at: log.read(at, 0, 100), log.start_offset):
            with pytest.raises(CoordinatorError) as caught:
                ask(index)
            assert caught.value.code is ErrorCode.NOT_COORDINATOR


def test_what_was_led_before_is_not_written_to_when_it_is_gone_or_created_again(broker: SmallBroker) -> None:
    log = log_of(broker)
    broker.topic(TOPIC)
    assert log.append(0, batch(b"a", b"b")) == 2
    broker.replicas.delete(TopicPartition(TOPIC, 0))
    assert refusal(log) is ErrorCode.NOT_COORDINATOR
    assert not log.is_committed(0, 1)
    (partition,) = broker.topic(TOPIC)
    assert not log.is_committed(0, 1)
    assert log.append(0, batch(b"c")) == 1
    assert log.is_committed(0, 1)
    assert partition.log is not None
    assert partition.log.next_offset == 1
    partition.leader_id = 77
    assert refusal(log) is ErrorCode.NOT_COORDINATOR


def test_without_enough_replicas_nothing_is_appended(broker: SmallBroker) -> None:
    (partition,) = broker.topic(TOPIC, config=LogConfig(min_insync_replicas=2))
    partition.replicas = (1, 2)
    assert refusal(log_of(broker)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert partition.log is not None
    assert partition.log.next_offset == 0


def test_a_batch_that_is_too_large_is_the_coordinators_own_fault(broker: SmallBroker) -> None:
    broker.topic(TOPIC, config=LogConfig(max_message_bytes=60))
    assert refusal(log_of(broker)) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_waiting_for_replicas_ends_when_they_have_the_records_or_it_is_uncertain(broker: SmallBroker) -> None:
    (partition,) = broker.topic(TOPIC)
    told: dict[str, ErrorCode] = {}

    def turn(count: int) -> None:
        broker.replicas.produces._loop.run_until_complete(until(lambda: len(told) >= count))

    lead(partition, leader_epoch=0, isr=(1, 2), replicas=(1, 2))
    log = log_of(broker)
    end = log.append(0, batch(b"a"))
    assert not log.is_committed(0, end)
    log.when_committed(0, end, partial(told.__setitem__, "in time"))
    lead(partition, leader_epoch=0, isr=(1,), replicas=(1, 2))
    turn(1)
    assert told["in time"] is ErrorCode.NONE
    log_of(broker, timeout_ms=1).when_committed(0, end + 1, partial(told.__setitem__, "too late"))
    turn(2)
    assert told["too late"] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.when_committed(0, end + 1, partial(told.__setitem__, "gone"))
    broker.replicas.delete(partition.name)
    turn(3)
    assert told["gone"] is ErrorCode.NOT_COORDINATOR
    log.when_committed(0, end + 1, partial(told.__setitem__, "not there"))
    assert told["not there"] is ErrorCode.NOT_COORDINATOR
