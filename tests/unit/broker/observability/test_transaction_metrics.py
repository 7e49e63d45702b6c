"""Metrics of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.observability.transaction_metrics import TransactionCollector
from ottla.log.producer_state import LATE_TRANSACTION_GRACE_MS
from support.brokers import batch_of
from support.brokers.hosted_numbers import MAX_TIMEOUT_MS, hosted_numbers
from support.brokers.small_broker import SmallBroker, small_broker
from support.replication.roles import follow

BATCH_MS = 1_700_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path) as broker:
        yield broker


def values(broker: SmallBroker) -> dict[tuple[str, ...], float]:
    collector = TransactionCollector(hosted_numbers(), broker.replicas, broker.clock)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }


def test_numbers_of_the_coordinator_and_of_verification(broker: SmallBroker) -> None:
    found = values(broker)
    assert found["ottla_open_transactions",] == 7
    assert found["ottla_oldest_transaction_seconds",] == 1.5
    assert found["ottla_two_phase_transactions",] == 2
    assert found["ottla_transaction_completed_total", "committed"] == 30
    assert found["ottla_transaction_completed_total", "aborted"] == 4
    assert found["ottla_transaction_timed_out_total",] == 3
    assert found["ottla_transaction_fenced_total",] == 1
    assert found["ottla_transactions_awaiting_markers",] == 5
    assert found["ottla_transaction_verification_failure_total",] == 6
    assert found["ottla_transaction_verification_wait_total",] == 9
    assert found["ottla_transaction_verification_seconds_total",] == 0.25


def test_a_transaction_is_late_long_after_every_timeout(broker: SmallBroker) -> None:
    (partition,) = broker.topic("orders")
    records = bytearray(batch_of(b"a", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0))
    partition.append(records, all_replicas=True)

    def late(age_ms: int) -> float:
        broker.clock.set_now_ms(BATCH_MS + age_ms)
        return values(broker)["ottla_late_transaction_partitions",]

    allowed_ms = MAX_TIMEOUT_MS + LATE_TRANSACTION_GRACE_MS
    assert (late(allowed_ms), late(allowed_ms + 1)) == (0, 1)
    follow(partition, leader=2, leader_epoch=1, isr=(2,), replicas=(1, 2))
    assert late(allowed_ms + 1) == 0
