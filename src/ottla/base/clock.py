"""The clock interface. Code that needs the time takes a clock, so that tests can control it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in milliseconds since the epoch, for stored timestamps; monotonic time for durations."""

    def now_ms(self) -> int: ...
    def monotonic_s(self) -> float: ...


def passed_ms(clock: Clock) -> int:
    """Milliseconds that pass evenly, whatever happens to the wall clock. Only differences mean anything."""
    return round(clock.monotonic_s() * 1000)


class SystemClock:
    """The system's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
