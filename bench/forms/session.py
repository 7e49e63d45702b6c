"""Brokers for many forms of work: groups on them do not wait for more members to come."""

from __future__ import annotations

from typing import Final

from bench.broker.control import Control
from bench.broker.session import Session
from bench.broker.sides import DELETED_SOON, Kafka, Ottla, Running, Side
from bench.groups.load import await_coordinators

_SETTINGS: Final = {
    **DELETED_SOON,
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SIDES: Final[tuple[Side, Side]] = (Ottla(settings=_SETTINGS), Kafka(settings=_SETTINGS))


class FormSession(Session):
    def _warm_up(self, running: Running) -> None:
        super()._warm_up(running)
        with self.topic(running) as topic, Control(running.address) as control:
            await_coordinators(control, topic)
