"""Metrics of replication and of the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.observability.cluster_numbers import ClusterNumbers
from ottla.broker.observability.replica_metrics import ReplicaCollector
from ottla.log.config import LogConfig
from support.brokers.small_broker import SmallBroker, small_broker
from support.replication.roles import follow, lead

TWO_IN_SYNC = LogConfig.from_properties({"min.insync.replicas": "2"}, {})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path) as broker:
        yield broker


def values(collector: ReplicaCollector) -> dict[str, float]:
    return {sample.name: sample.value for metric in collector.collect() for sample in metric.samples}


@pytest.mark.parametrize(
    ("isr", "behind", "below", "at_minimum"),
    [((1, 2, 3), 0, 0, 0), ((1, 2), 1, 0, 1), ((1,), 1, 1, 0)],
)
def test_partitions_are_counted_by_their_in_sync_replicas(
    broker: SmallBroker, isr: tuple[int, ...], behind: int, below: int, at_minimum: int
) -> None:
    (partition,) = broker.topic("orders", config=TWO_IN_SYNC)
    lead(partition, leader_epoch=1, isr=isr, replicas=(1, 2, 3))
    found = values(ReplicaCollector(broker.replicas))
    assert found["ottla_leaders"] == 1
    assert found["ottla_under_replicated_partitions"] == behind
    assert found["ottla_under_min_isr_partitions"] == below
    assert found["ottla_at_min_isr_partitions"] == at_minimum


def test_only_leaders_report_the_state_of_a_partition(broker: SmallBroker) -> None:
    (partition,) = broker.topic("orders", config=TWO_IN_SYNC)
    follow(partition, leader=2, leader_epoch=1, isr=(2,), replicas=(1, 2, 3))
    found = values(ReplicaCollector(broker.replicas))
    assert found["ottla_leaders"] == 0
    assert found["ottla_under_replicated_partitions"] == found["ottla_under_min_isr_partitions"] == 0


def test_replicas_in_failed_directories_and_isr_changes(broker: SmallBroker) -> None:
    (partition,) = broker.topic("orders")
    partition.go_offline()
    broker.replicas.environment.isr_shrink_count = 3
    broker.replicas.environment.isr_expand_count = 2
    found = values(ReplicaCollector(broker.replicas))
    assert found["ottla_offline_replicas"] == 1
    assert (found["ottla_isr_shrink_total"], found["ottla_isr_expand_total"]) == (3, 2)


def test_numbers_of_the_cluster_are_asked_for_at_each_scrape(broker: SmallBroker) -> None:
    numbers = [ClusterNumbers(is_controller=False, max_lag=7, expired_sessions=2), ClusterNumbers(offline_partitions=4)]
    collector = ReplicaCollector(broker.replicas, lambda: numbers.pop(0))
    found = values(collector)
    assert (found["ottla_active_controller"], found["ottla_replica_max_lag"]) == (0, 7)
    assert found["ottla_zookeeper_session_expired_total"] == 2
    found = values(collector)
    assert (found["ottla_active_controller"], found["ottla_offline_partitions"]) == (1, 4)
