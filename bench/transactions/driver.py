"""The loads of transactions, each in a process of its own: `run` starts one, `python -m bench.transactions.driver` is
it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from bench.broker.driver import Load


class TransactionLoad(Load):
    module: ClassVar[str] = "bench.transactions.driver"


def run(name: str, **arguments: Any) -> dict[str, float]:
    """The figures that the driver of that name tells."""
    return TransactionLoad(name, **arguments).result()


def main() -> None:
    # Here rather than above: a process that only starts loads needs none of them.
    from bench.transactions import batches, latency, throughput

    drivers: dict[str, Callable[..., dict[str, float]]] = {
        driver.__name__: driver
        for driver in (throughput.transactions, latency.commit_steadily, latency.follow_committed, batches.big_batches)
    }
    name, arguments = sys.argv[1:]
    print(json.dumps(drivers[name](**json.loads(arguments))))


if __name__ == "__main__":
    main()
