"""What a broker counts as a member of its cluster, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterNumbers:
    """What the fetchers, the controller and the session of a broker count. The defaults are those of a broker that is
    alone: its own controller, which follows nobody. The controller's are 0 on all other brokers."""

    max_lag: int = 0
    failed_fetches: int = 0
    replication_bytes_in: int = 0
    is_controller: bool = True
    offline_partitions: int = 0
    imbalanced_partitions: int = 0
    reassigned_partitions: int = 0
    elections: int = 0
    unclean_elections: int = 0
    last_failover_s: float = 0.0
    is_connected: bool = True
    expired_sessions: int = 0
