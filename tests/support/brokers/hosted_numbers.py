"""What metrics show of a broker's transactions, with made-up numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.transactions.verification import VerificationStats
from ottla.coordinator.transactions.settings import TransactionNumbers

MAX_TIMEOUT_MS = 1000


def hosted_numbers() -> Any:
    """Stands in for `HostedTransactions`."""
    numbers = TransactionNumbers(
        open=7, oldest_open_ms=1500, prepared=2, completed_commits=30, completed_aborts=4, timed_out=3, fenced=1
    )
    stats = VerificationStats()
    stats.failures, stats.asked, stats.time_s = 6, 9, 0.25
    return SimpleNamespace(
        service=SimpleNamespace(numbers=lambda: numbers, settings=SimpleNamespace(max_timeout_ms=MAX_TIMEOUT_MS)),
        sender=SimpleNamespace(waiting_count=5),
        verifier=SimpleNamespace(stats=stats),
    )
