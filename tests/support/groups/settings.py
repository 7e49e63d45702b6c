"""A broker for groups: quick to begin a rebalance, and to give up members that are silent."""

from __future__ import annotations

SESSION_MS = 4_000
"""After this long of silence a member counts as dead."""

SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
}
