"""What the controller of a cluster takes from its broker's configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """`broker_settings` are the configs given to the broker: topic configs are checked together with them, and they
    hold the default of `unclean.leader.election.enable`."""

    broker_settings: Mapping[str, str] = field(default_factory=dict)
    inter_broker_listener: str = "PLAINTEXT"
    auto_rebalance: bool = True
    """`auto.leader.rebalance.enable`"""
    imbalance_check_interval_s: float = 300.0
    """`leader.imbalance.check.interval.seconds`"""
    imbalance_percentage: int = 10
    """`leader.imbalance.per.broker.percentage`"""
    delete_topics_enabled: bool = True
    """`delete.topic.enable`"""
    socket_timeout_s: float = 30.0
    """`controller.socket.timeout.ms`"""
    own_answer_timeout_s: float = 5.0
    """How long a client waits for its change to be in this broker's metadata."""
