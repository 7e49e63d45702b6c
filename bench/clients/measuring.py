"""What a load costs: by the clock, on the CPU of its own process, and on that of the broker."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.broker.raw import MB, Spent, measured

WARM_S: Final = 6.0
"""Of work before the clock starts: what a client loads, or a broker does for the first time, is not measured."""
BURST: Final = 1000
"""Records between two looks at the clock."""


@dataclass(slots=True)
class Cost:
    """Filled in at the end of the block."""

    broker: Spent
    own_cpu_s: float = 0.0

    def of_records(self, count: int, value_bytes: int) -> dict[str, float]:
        elapsed_s = self.broker.elapsed_s
        return {
            "records_per_s": count / elapsed_s,
            "mb_per_s": count * value_bytes / MB / elapsed_s,
            "client_us_per_record": self.own_cpu_s / count * 1e6,
            "client_cores": self.own_cpu_s / elapsed_s,
            "broker_cores": self.broker.cpu_s / elapsed_s,
        }


@contextmanager
def cost(pid: int) -> Iterator[Cost]:
    """Of a block that uses the broker of that process."""
    own_before_s = time.process_time()
    with measured(pid) as broker:
        spent = Cost(broker)
        yield spent
    spent.own_cpu_s = time.process_time() - own_before_s


def values_of(value_bytes: int) -> list[bytes]:
    """Bytes that say nothing, one burst of them."""
    chance = random.Random(value_bytes)
    return [chance.randbytes(value_bytes) for _ in range(BURST)]
