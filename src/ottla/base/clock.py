"""Time, as a seam: whoever needs it is given a clock, so that a test or a simulation can turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in milliseconds since the epoch, for what is written down; a monotonic one for what is measured."""

    def now_ms(self) -> int: ...
    def monotonic_s(self) -> float: ...


class SystemClock:
    """The machine's own."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
