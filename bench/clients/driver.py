"""A client's turn in a process of its own: `run` starts it and waits for its figures."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any, ClassVar

from bench.broker.driver import Load


class ClientLoad(Load):
    module: ClassVar[str] = "bench.clients.driver"


def run(name: str, **arguments: Any) -> dict[str, float]:
    """The figures of a load, which is called by its module and function, such as `producing.ottla`."""
    return ClientLoad(name, **arguments).result()


def main() -> None:
    # Here rather than above: a process that only starts loads needs none of them.
    from bench.clients import consuming, forms, producing, waiting, whole

    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, on newer Pythons
    modules = {"consuming": consuming, "forms": forms, "producing": producing, "waiting": waiting, "whole": whole}
    name, arguments = sys.argv[1:]
    module, _, function = name.partition(".")
    print(json.dumps(getattr(modules[module], function)(**json.loads(arguments))))


if __name__ == "__main__":
    main()
