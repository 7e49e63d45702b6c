"""A load in a process of its own: `run` starts it and waits for its figures, `python -m bench.broker.driver` is it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

ROOT: Final = Path(__file__).resolve().parents[2]
TIME_LIMIT_S: Final = 300


class Load:
    """A driver that runs."""

    module: ClassVar[str] = "bench.broker.driver"

    def __init__(self, name: str, **arguments: Any) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, name, json.dumps(arguments)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> dict[str, float]:
        try:
            output, errors = self._process.communicate(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise RuntimeError(f"the load {self._name} did not end within {TIME_LIMIT_S} s") from None
        if self._process.returncode:
            raise RuntimeError(f"the load {self._name} failed:\n{errors[-4000:]}")
        found: dict[str, float] = json.loads(output)
        return found


def run(name: str, **arguments: Any) -> dict[str, float]:
    """The figures that the driver of that name tells."""
    return Load(name, **arguments).result()


def main() -> None:
    # Here rather than above: a process that only starts loads needs none of them.
    from bench.broker import clients, latency, raw

    drivers: dict[str, Callable[..., dict[str, float]]] = {
        driver.__name__: driver
        for driver in (
            raw.one_record,
            raw.big_batches,
            raw.catch_up,
            latency.send_steadily,
            latency.follow,
            clients.librdkafka,
            clients.java,
        )
    }
    name, arguments = sys.argv[1:]
    print(json.dumps(drivers[name](**json.loads(arguments))))


if __name__ == "__main__":
    main()
