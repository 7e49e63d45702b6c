"""The broker configs that the transaction coordinator reads, and the numbers that it counts for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """With Kafka's names in brackets."""

    max_timeout_ms: int
    """The longest timeout a producer may ask for (`transaction.max.timeout.ms`)."""
    id_expiration_ms: int
    """How long an unused transactional id is kept (`transactional.id.expiration.ms`)."""
    abort_interval_ms: int
    """How often timed-out transactions are aborted (`transaction.abort.timed.out.transaction.cleanup.interval.ms`)."""
    remove_expired_interval_ms: int
    """How often expired ids are removed (`transaction.remove.expired.transaction.cleanup.interval.ms`)."""
    two_phase_commit: bool
    """Whether producers may ask for two-phase commit (`transaction.two.phase.commit.enable`)."""
    completion_wait_ms: int = 1_000
    """How long a request waits for the previous transaction to complete before it is refused with
    CONCURRENT_TRANSACTIONS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionNumbers:
    """What the coordinator of this broker has and did since it started."""

    open: int
    """Transactions that are neither committed nor aborted, including those whose markers are being written."""
    oldest_open_ms: int
    """The age of the oldest of them in milliseconds; 0 without any."""
    prepared: int
    """Open transactions of producers with two-phase commit: nothing but the application ends them."""
    completed_commits: int
    completed_aborts: int
    timed_out: int
    """Transactions aborted because they exceeded their timeout."""
    fenced: int
    """Transactions aborted because a new producer took over the transactional id."""
