"""The loads of many forms, each in a process of its own: `run` starts one, `python -m bench.forms.driver` is it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from bench.broker.driver import Load


class FormLoad(Load):
    module: ClassVar[str] = "bench.forms.driver"


def run(name: str, **arguments: Any) -> dict[str, float]:
    """The figures that the driver of that name tells."""
    return FormLoad(name, **arguments).result()


def drivers() -> dict[str, Callable[..., dict[str, float]]]:
    # Here rather than above: a process that only starts loads needs none of them.
    from bench.broker import clients
    from bench.forms import admin, joining, records

    return {
        driver.__name__: driver
        for driver in (
            records.batches,
            records.wide_produce,
            records.wide_fetch,
            records.fan_out,
            clients.librdkafka,
            admin.topics_live,
            admin.one_by_one,
            admin.all_metadata,
            joining.joins,
        )
    }


def main() -> None:
    name, arguments = sys.argv[1:]
    print(json.dumps(drivers()[name](**json.loads(arguments))))


if __name__ == "__main__":
    main()
