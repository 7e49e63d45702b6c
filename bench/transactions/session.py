"""Brokers for transactions, each with its topic of transactions, which Kafka keeps on several brokers by default."""

from __future__ import annotations

from collections.abc import Sequence
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
HASTY_MS: Final = 1
HASTY: Final[Side] = Kafka(
    f"{NEW.name}, retries after {HASTY_MS} ms",
    {**_SETTINGS, "add.partitions.to.txn.retry.backoff.ms": str(HASTY_MS)},
)
"""What a Kafka can do that does not pause for 20 ms when a transaction finds the previous one unfinished."""
_WARM_UP_S: Final = 3.0
_WARM_UPS: Final = range(4, 13)
"""At least and at most so many."""
_STEADY: Final = 0.95


class TransactionSession(Session):
    def _warm_up(self, running: Running) -> None:
        """For Kafka's compiler: cold, a transaction takes several times as much CPU. Goes on until it takes no less, so
        that no line needs a turn that does not count."""
        super()._warm_up(running)
        spent: list[float] = []
        while len(spent) < _WARM_UPS.start or (len(spent) in _WARM_UPS and not is_steady(spent)):
            spent.append(self._warm_up_once(running, records=10 ** (len(spent) % 3)))

    def _warm_up_once(self, running: Running, records: int) -> float:
        """The CPU time of a transaction."""
        with self.topic(running, 50) as topic:
            return driver.run(
                "transactions",
                address=running.address,
                pid=running.pid,
                topic=topic,
                producers=50,
                records=records,
                value_bytes=100,
                protocol=1 if running.name == OLD.name else 2,
                pause_s=0.001,
                seconds=_WARM_UP_S,
            )["cpu_us_per_transaction"]


def is_steady(spent: Sequence[float]) -> bool:
    """Whether neither of the last two was clearly less than the least before."""
    return min(spent[-2:]) > _STEADY * min(spent[:-2])
