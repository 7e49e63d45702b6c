"""A loop of asyncio that a model steps: real descriptors, made-up time, one turn after the other."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class StepLoop(asyncio.SelectorEventLoop):
    """Never waits: `turn` runs what is ready, `advance` lets time pass."""

    now_s = 1000.0

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[dict[str, Any]] = []
        """What callbacks raised."""
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        return self.now_s

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.call_soon(self.stop)
            self.run_forever()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.turn()

    def watches(self, descriptor: int) -> tuple[bool, bool]:
        """Whether the descriptor is watched for reading, and for writing."""
        key = self._selector.get_map().get(descriptor)  # type: ignore[attr-defined]
        events = 0 if key is None else key.events
        return bool(events & selectors.EVENT_READ), bool(events & selectors.EVENT_WRITE)
