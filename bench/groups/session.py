"""Brokers for groups: with a topic to consume, and a topic of groups."""

from __future__ import annotations

from typing import Final

from bench.broker.control import Control
from bench.broker.session import Session
from bench.broker.sides import Kafka, Ottla, Running, Side
from bench.groups import driver
from bench.groups.load import await_coordinators

TOPIC: Final = "consumed"
PARTITIONS: Final = 1000
"""Of that topic."""
SESSION_TIMEOUT_MS: Final = 6_000
"""The shortest that both brokers allow members of classic groups by default."""
_ALONE: Final = {"offsets.topic.replication.factor": "1"}
"""Kafka makes no topic of groups on one broker otherwise."""
_PROMPT: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
DEFAULT_SIDES: Final[tuple[Side, Side]] = (Ottla(settings=_ALONE), Kafka(settings=_ALONE))
PROMPT_SIDES: Final[tuple[Side, Side]] = (
    Ottla("ottla, prompt", {**_ALONE, **_PROMPT}),
    Kafka("Kafka, prompt", {**_ALONE, **_PROMPT}),
)
"""That neither wait for more members to come, nor longer for dead ones in one protocol than in the other."""


class GroupSession(Session):
    def _warm_up(self, running: Running) -> None:
        with Control(running.address) as control:
            control.create_topic(TOPIC, PARTITIONS)
            await_coordinators(control, TOPIC)
        # For Kafka's compiler: cold, it takes several times as long for each commit, and would lose where it need not.
        which = {"address": running.address, "pid": running.pid, "topic": TOPIC, "connections": 50}
        driver.run("commits", **which, groups=1000, partitions=1, seconds=3)
        driver.run("commits", **which, groups=50, partitions=100, seconds=2)
