"""Brokers for transactions, each with its topic of transactions, which Kafka keeps on several brokers by default."""

from __future__ import annotations

from typing import Final

from bench.broker.session import Session
from bench.broker.sides import DELETED_SOON, Kafka, Ottla, Running, Side
from bench.transactions import driver

OLD_KAFKA: Final = "3.9.1"
_SETTINGS: Final = {
    **DELETED_SOON,
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}
OURS: Final[Side] = Ottla(settings=_SETTINGS)
NEW: Final[Side] = Kafka(settings=_SETTINGS)
OLD: Final[Side] = Kafka(f"Kafka {OLD_KAFKA}", _SETTINGS, OLD_KAFKA)


class TransactionSession(Session):
    def _warm_up(self, running: Running) -> None:
        super()._warm_up(running)
        # For Kafka's compiler: cold, it takes several times as long for a transaction.
        which = {"address": running.address, "pid": running.pid, "value_bytes": 100, "pause_s": 0.001, "seconds": 4}
        with self.topic(running, 10) as topic:
            driver.run("transactions", **which, topic=topic, producers=10, records=10, protocol=1)
