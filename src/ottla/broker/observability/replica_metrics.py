"""Metrics of replication and of the controller for Prometheus: what operators of a cluster alert on.

A broker that is alone exports them too; most of them stay 0 there. Imported only if `ottla.metrics.port` is set, like
`metrics`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.broker.observability.cluster_numbers import ClusterNumbers
from ottla.replication.replicas import Replicas

_PARTITIONS_AT_A_TIME: Final = 1000
_PAUSE_S: Final = 0.001
"""Long enough for the loop to take over the interpreter."""


class ReplicaCollector(Collector):
    """`collect` may run in any thread."""

    def __init__(self, replicas: Replicas, numbers: Callable[[], ClusterNumbers] = ClusterNumbers) -> None:
        """`numbers` is called for each scrape, in the thread that serves it."""
        self._replicas = replicas
        self._numbers = numbers

    def describe(self) -> Iterable[Metric]:
        """Empty: otherwise registering would collect once."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._partitions()
        yield from self._cluster(self._numbers())

    def _partitions(self) -> Iterator[Metric]:
        leaders = behind = below = at_minimum = offline = 0
        for seen, partition in enumerate(list(self._replicas.partitions.values()), 1):
            if seen % _PARTITIONS_AT_A_TIME == 0:
                time.sleep(_PAUSE_S)
            offline += partition.log is None
            if partition.is_leader:
                leaders += 1
                behind += partition.is_under_replicated
                below += partition.is_under_min_isr
                at_minimum += partition.is_at_min_isr
        yield _gauge("ottla_leaders", "Partitions that this broker leads.", leaders)
        yield _gauge("ottla_under_replicated_partitions", "Of those, with replicas that are not in sync.", behind)
        yield _gauge("ottla_under_min_isr_partitions", "Of those, with too few in-sync replicas.", below)
        yield _gauge("ottla_at_min_isr_partitions", "Of those, with just enough in-sync replicas.", at_minimum)
        yield _gauge("ottla_offline_replicas", "Replicas in failed log directories.", offline)
        environment = self._replicas.environment
        yield _counter("ottla_isr_shrink", "In-sync replicas removed.", environment.isr_shrink_count)
        yield _counter("ottla_isr_expand", "In-sync replicas added.", environment.isr_expand_count)
        yield _counter("ottla_isr_update_failure", "ISR changes rejected.", environment.failed_isr_update_count)

    def _cluster(self, numbers: ClusterNumbers) -> Iterator[Metric]:
        yield _gauge("ottla_replica_max_lag", "Records that the slowest replica here is behind.", numbers.max_lag)
        yield _gauge("ottla_replica_failed_fetches", "Replicas that cannot follow.", numbers.failed_fetches)
        yield _counter("ottla_replication_bytes_in", "Bytes fetched from leaders.", numbers.replication_bytes_in)
        yield _gauge("ottla_active_controller", "1 if this broker is the controller.", numbers.is_controller)
        yield _gauge("ottla_offline_partitions", "Partitions without a leader.", numbers.offline_partitions)
        yield _gauge(
            "ottla_preferred_leader_imbalance", "Partitions led by another replica.", numbers.imbalanced_partitions
        )
        yield _gauge("ottla_reassigning_partitions", "Partitions that move.", numbers.reassigned_partitions)
        yield _counter("ottla_leader_election", "Leaders elected.", numbers.elections)
        yield _counter("ottla_unclean_leader_election", "Of those, out of sync.", numbers.unclean_elections)
        yield _gauge("ottla_controller_failover_seconds", "How long the takeover took.", numbers.last_failover_s)
        yield _gauge("ottla_zookeeper_connected", "1 with a connection to ZooKeeper.", numbers.is_connected)
        yield _counter("ottla_zookeeper_session_expired", "Sessions that expired.", numbers.expired_sessions)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))
