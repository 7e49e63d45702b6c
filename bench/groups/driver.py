"""The loads of groups, each in a process of its own: `run` starts one, `python -m bench.groups.driver` is it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from bench.broker.driver import Load


class GroupLoad(Load):
    module: ClassVar[str] = "bench.groups.driver"


def run(name: str, **arguments: Any) -> dict[str, float]:
    """The figures that the driver of that name tells."""
    return GroupLoad(name, **arguments).result()


def main() -> None:
    # Here rather than above: a process that only starts loads needs none of them.
    from bench.groups import commits, load, rebalances

    drivers: dict[str, Callable[..., dict[str, float]]] = {
        driver.__name__: driver
        for driver in (rebalances.rebalances, rebalances.formations, commits.commits, load.write_offsets)
    }
    name, arguments = sys.argv[1:]
    print(json.dumps(drivers[name](**json.loads(arguments))))


if __name__ == "__main__":
    main()
