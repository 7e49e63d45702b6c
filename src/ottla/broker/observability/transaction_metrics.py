"""Metrics of transactions for Prometheus: those that this broker coordinates, verification, and late ones in its logs.

Imported only if `ottla.metrics.port` is set, like `metrics`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.base.clock import Clock
from ottla.replication.replicas import Replicas

if TYPE_CHECKING:
    from ottla.broker.transactions.hosted import HostedTransactions

_PARTITIONS_AT_A_TIME: Final = 1000
_PAUSE_S: Final = 0.001
"""Long enough for the loop to take over the interpreter."""


class TransactionCollector(Collector):
    """`collect` may run in any thread."""

    def __init__(self, transactions: HostedTransactions, replicas: Replicas, clock: Clock) -> None:
        self._transactions = transactions
        self._replicas = replicas
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Empty: otherwise registering would collect once."""
        return ()

    def collect(self) -> Iterator[Metric]:
        numbers = self._transactions.service.numbers()
        yield _gauge("ottla_open_transactions", "Transactions that are not completed.", numbers.open)
        oldest_s = numbers.oldest_open_ms / 1000
        yield _gauge("ottla_oldest_transaction_seconds", "Age of the oldest of those.", oldest_s)
        yield _gauge("ottla_two_phase_transactions", "Of those, without a timeout.", numbers.prepared)
        completed = CounterMetricFamily("ottla_transaction_completed", "Transactions completed.", labels=["result"])
        completed.add_metric(["committed"], numbers.completed_commits)
        completed.add_metric(["aborted"], numbers.completed_aborts)
        yield completed
        yield _counter("ottla_transaction_timed_out", "Transactions aborted by their timeout.", numbers.timed_out)
        yield _counter("ottla_transaction_fenced", "Transactions aborted by a new producer.", numbers.fenced)
        waiting = self._transactions.sender.waiting_count
        yield _gauge("ottla_transactions_awaiting_markers", "Transactions with markers that are retried.", waiting)
        stats = self._transactions.verifier.stats
        yield _counter("ottla_transaction_verification_failure", "Batches not confirmed.", stats.failures)
        yield _counter("ottla_transaction_verification_wait", "Batches that waited.", stats.asked)
        yield _counter("ottla_transaction_verification_seconds", "Time that they waited.", stats.time_s)
        yield _gauge("ottla_late_transaction_partitions", "Partitions with a late transaction.", self._late_count())

    def _late_count(self) -> int:
        now_ms, longest_ms = self._clock.now_ms(), self._transactions.service.settings.max_timeout_ms
        count = 0
        for seen, partition in enumerate(list(self._replicas.partitions.values()), 1):
            if seen % _PARTITIONS_AT_A_TIME == 0:
                time.sleep(_PAUSE_S)
            log = partition.log
            if log is not None and partition.is_leader:
                count += log.producers.has_late_transaction(now_ms, longest_ms)
        return count


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))
