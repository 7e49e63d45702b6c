"""Configs of a broker among others, in the units and types that replication, the controller and connections use.

Those that can change while the broker runs (`num.replica.fetchers`) are read from `ConfigStore.current` instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from ottla.broker.configs.broker_config import BrokerConfig
from ottla.replication.fetching.settings import FetchSettings

_MAX_REPLICAS: Final = 3


def replica_defaults(brokers: int) -> dict[str, int]:
    """Configs of a new cluster of this many brokers, for its topics and internal topics: up to three replicas. With
    three, two must be in sync, so that the loss of one broker costs neither records nor availability."""
    replicas = min(brokers, _MAX_REPLICAS)
    in_sync = 2 if replicas == _MAX_REPLICAS else 1
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


def fetch_settings(config: BrokerConfig) -> FetchSettings:
    """How this broker fetches from leaders."""
    return FetchSettings(
        max_bytes=config["replica.fetch.max.bytes"],
        response_max_bytes=config["replica.fetch.response.max.bytes"],
        min_bytes=config["replica.fetch.min.bytes"],
        wait_max_ms=config["replica.fetch.wait.max.ms"],
        backoff_ms=config["replica.fetch.backoff.ms"],
        socket_timeout_ms=config["replica.socket.timeout.ms"],
        socket_receive_buffer_bytes=config["replica.socket.receive.buffer.bytes"],
        fetchers_per_broker=config["num.replica.fetchers"],
    )


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The rest: leadership, shutdown, and the sessions with ZooKeeper."""

    lag_time_max_ms: int
    """How long a follower may lag and still be in sync."""
    rebalances_leaders: bool
    imbalance_check_s: int
    imbalance_percent: int
    controlled_shutdown: bool
    shutdown_retries: int
    shutdown_backoff_ms: int
    controller_socket_timeout_ms: int
    session_timeout_ms: int
    zookeeper_connect_timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        session_timeout_ms = config["zookeeper.session.timeout.ms"]
        connect_timeout_ms = config["zookeeper.connection.timeout.ms"]
        return cls(
            lag_time_max_ms=config["replica.lag.time.max.ms"],
            rebalances_leaders=config["auto.leader.rebalance.enable"],
            imbalance_check_s=config["leader.imbalance.check.interval.seconds"],
            imbalance_percent=config["leader.imbalance.per.broker.percentage"],
            controlled_shutdown=config["controlled.shutdown.enable"],
            shutdown_retries=config["controlled.shutdown.max.retries"],
            shutdown_backoff_ms=config["controlled.shutdown.retry.backoff.ms"],
            controller_socket_timeout_ms=config["controller.socket.timeout.ms"],
            session_timeout_ms=session_timeout_ms,
            zookeeper_connect_timeout_ms=session_timeout_ms if connect_timeout_ms is None else connect_timeout_ms,
        )
