"""Keeps the bytes read and written by compaction under a rate, by waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ottla.base.clock import Clock

_WINDOW_S: Final = 1.0
"""What was saved is forgotten after so long: a pause does not allow a burst."""


class Throttle:
    """May be shared by threads: the rate is that of all together. `wait` sleeps, and may return early."""

    def __init__(self, bytes_per_second: float | None, clock: Clock, wait: Callable[[float], object]) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._guard = threading.Lock()
        self._paid_until_s = clock.monotonic_s()

    def spend(self, size: int) -> None:
        """Returns when that many bytes, which were just moved, are within the rate."""
        if self._bytes_per_second is None or size <= 0:
            return
        with self._guard:
            now_s = self._clock.monotonic_s()
            self._paid_until_s = max(self._paid_until_s, now_s - _WINDOW_S) + size / self._bytes_per_second
            ahead_s = self._paid_until_s - now_s
        if ahead_s > 0:
            self._wait(ahead_s)
