"""A clock and its timers, which stand still until a test turns them."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from ottla.testing.manual_clock import ManualClock

MOST_CALLS = 5_000
"""Of timers, in one turn."""


class SimulatedTimer:
    """One that was called for."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SimulatedTime(ManualClock):
    """Both seams of a coordinator: its clock, and its timers."""

    def __init__(self) -> None:
        super().__init__()
        self._turned_ms = 0
        self._timers: list[tuple[int, int, SimulatedTimer]] = []
        self._numbers = itertools.count()

    def call_later(self, delay: float, callback: Callable[[], object]) -> SimulatedTimer:
        timer = SimulatedTimer(callback)
        heapq.heappush(self._timers, (self._turned_ms + math.ceil(delay * 1000), next(self._numbers), timer))
        return timer

    def advance_ms(self, duration_ms: int) -> None:
        """Each timer has its turn when it is due, and what it calls for as well."""
        end_ms = self._turned_ms + duration_ms
        called = 0
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                self._turn_to(due_ms)
                timer.callback()
                called += 1
                assert called < MOST_CALLS, "timers call for each other without end"
        self._turn_to(end_ms)

    def _turn_to(self, ms: int) -> None:
        super().advance_ms(ms - self._turned_ms)
        self._turned_ms = ms
